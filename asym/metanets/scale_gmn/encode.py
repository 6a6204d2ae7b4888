"""From a stack of networks to first states: biases on nodes, kernels on edges, positions.

    hidden unit   h_i = (Γ_b b_i) ⊙ p_l      multiplied, which keeps the scaling law; added where the law is none
    input         h_i = p_i                  one p for each input
    output        h_i = Γ_b b_i + p_i        one for each output
    edge          e_ij = Γ_w k_ij            k_ij: the whole kernel

A node layer to which several layers write has the sum of their biases (and of the shifts of their norms) for b_i.

p_l is one vector for each hidden layer, by depth. The map of kernels is one matrix without bias for each number of
taps ("by-shape"): any linear map of k_ij keeps its law. "shared" is the published way: one matrix, kernels padded with
zeros to the largest, a linear layer's weight in the first slot. With several activations a vector for each of them
multiplies the hidden states (or is added) too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.metanets.scale_gmn.blocks import gamma
from asym.metanets.scale_gmn.dense import Raw
from asym.metanets.stack import Stack, without_subnormal
from asym.symmetry.chain import ChainLayer
from asym.symmetry.residual import wires_of
from asym.symmetry.scaling import Units, split_taps

PROJECTIONS = ("by-shape", "shared")


class Encoder(nn.Module):
    """First states of a stack.

    Args:
        chains: those that will be read.
        width: channels d.
        projection: "by-shape" or "shared".
        additive: whether positions are added on hidden units too (readers for permutations alone).
    """

    def __init__(self, chains: Sequence[Units], width: int, *, projection: str, additive: bool) -> None:
        super().__init__()
        self.width, self.projection, self.additive = width, projection, additive
        layers = [layer for chain in chains for layer in chain.layers]
        convs = [layer.kernel for layer in layers if layer.kind == "conv"]
        self.window = (max((k[0] for k in convs), default=1), max((k[1] for k in convs), default=1))
        self.slots = max(self.window[0] * self.window[1], *(layer.taps for layer in layers if layer.kind != "conv"), 1)
        keys = {"shared": self.slots} if projection == "shared" else {key_of(layer): layer.taps for layer in layers}
        self.bias = gamma(1, width)
        self.kernels = nn.ModuleDict({key: gamma(taps, width) for key, taps in sorted(keys.items())})
        self.inputs = _positions(max(chain.sizes[0] for chain in chains), width)
        self.hidden = _positions(max(len(chain.hidden) for chain in chains), width)
        self.outputs = _positions(max(chain.sizes[-1] for chain in chains), width)
        names = sorted({layer.activation for chain in chains for layer in chain.hidden})
        self.names = names if len(names) > 1 else []
        self.activations = nn.Parameter(torch.full((len(self.names), width), 0.0 if additive else 1.0))

    def nodes(self, stack: Stack) -> list[Tensor]:
        """States of all node layers, `width n d`."""
        chain, like = stack.chain, stack.like
        states = [self.inputs[: chain.sizes[0], None].expand(-1, len(stack), -1)]
        biases = [[stack.tensors[name] for name in names] for names in wires_of(chain).biases]
        for depth, (size, found) in enumerate(zip(chain.sizes[1:], biases[1:])):
            bias = sum(found[1:], found[0]) if found else like.new_zeros(len(stack), size)
            state = self.bias(bias.t()[..., None])
            if depth == len(chain.hidden):
                states.append(state + self.outputs[:size, None])
                continue
            layer, vectors = chain.hidden[depth], [self.hidden[depth]]
            if self.names:
                vectors.append(self.activations[self.names.index(layer.activation)])
            for vector in vectors:
                state = state + vector if self.additive or layer.symmetry == "none" else state * vector
            states.append(state)
        return states

    def features(self, stack: Stack) -> list[Tensor]:
        """Kernels of all edge layers, `out in n taps`."""
        found = []
        for layer in stack.chain.layers:
            weight = split_taps(layer, stack.tensors[layer.weight], (len(stack),)).permute(1, 2, 0, 3)
            if self.additive:
                weight = without_subnormal(weight)
            found.append(self._pad(layer, weight) if self.projection == "shared" else weight.contiguous())
        return found

    def raw(self, layer: ChainLayer, features: Tensor) -> Raw:
        """Features with the map that lifts them to d channels."""
        key = "shared" if self.projection == "shared" else key_of(layer)
        return Raw(features, self.kernels[key].weight)  # type: ignore[arg-type]

    def _pad(self, layer: ChainLayer, weight: Tensor) -> Tensor:
        if layer.kind == "conv":
            rows, columns = (big - small for big, small in zip(self.window, layer.kernel))
            weight = weight.unflatten(-1, layer.kernel)
            weight = F.pad(weight, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)).flatten(-2)
        return F.pad(weight, (0, self.slots - weight.shape[-1])).contiguous()


def key_of(layer: ChainLayer) -> str:
    """Which map a layer's kernels take."""
    if layer.kind == "conv":
        return f"conv{layer.kernel[0]}x{layer.kernel[1]}"
    return f"linear{layer.positions}"


def _positions(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(count, width))
