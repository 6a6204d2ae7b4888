"""Networks that are a chain of linear and convolutional layers, read off the module itself.

    x → layer 1 → activation → (pooling) → layer 2 → … → layer L → y

A `Chain` names, for every layer, its tensors, its sizes, and the symmetry that its activation σ leaves to its units:
the diagonal matrices Q with σ(Q x) = Q σ(x).

    "scale"   q > 0            relu, leaky relu, identity (which allows more, not treated here)
    "sign"    q ∈ {−1, +1}     odd functions: tanh, sin
    "none"    q = 1            gelu, silu, sigmoid and what else has neither law

Together with the permutations P of units (channels, for a convolution) these act on the weights of hidden layers by

    W'_l = P_l Q_l W_l Q_{l−1}⁻¹ P_{l−1}ᵀ,      b'_l = P_l Q_l b_l,      Q_L = P_L = 1,

and leave the network's function as it is (Godfrey et al. 2022, "On the Symmetries of Deep Learning Models";
Kalogeropoulos et al. 2024, arXiv 2406.10685, proposition 4.1). A convolution's kernel from channel j to i takes
q_i / q_j as a whole. Average pooling is linear in each channel and changes nothing; max pooling commutes with q > 0 and
not with q = −1, so that a tanh layer before it is left with "none". A linear layer that reads a flattened feature map
has one column for each (channel, position); all positions of a channel move together, so its "kernel" has as many
entries as there are positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind

from asym.symmetry.exported import exported

SYMMETRIES = {
    "relu": "scale",
    "leaky_relu": "scale",
    "identity": "scale",
    "tanh": "sign",
    "sin": "sign",
    "gelu": "none",
    "silu": "none",
    "sigmoid": "none",
    "softplus": "none",
    "elu": "none",
    "hardtanh": "sign",
}
"""Activation to the symmetry of its units."""
Frame = Any
"""A `Chain`, or another description of networks with `shapes` (name → shape of each tensor) and `sizes` (numbers that
tell architectures apart), such as the `Encoder` of transformers."""
TRANSPARENT = ("dropout", "clone", "contiguous", "alias", "detach", "feature_dropout")
POOLS = ("avg_pool2d", "adaptive_avg_pool2d", "mean")
FLATTENS = ("flatten", "view", "reshape", "squeeze", "_unsafe_view")


@dataclass(frozen=True)
class ChainLayer:
    """One layer of a chain, with what follows it up to the next one."""

    name: str
    """Qualified name of its weight without the ending."""
    weight: str
    bias: str | None
    kind: str
    """"linear" or "conv"."""
    inputs: int
    """Units or channels that it reads."""
    outputs: int
    kernel: tuple[int, int] = (1, 1)
    positions: int = 1
    """Positions of a flattened feature map that a linear layer reads for each channel."""
    activation: str = "identity"
    omega: float = 1.0
    """Constant factor in front of the activation, as the 30 of sin(30 (W x + b))."""
    symmetry: str = "scale"
    """"scale", "sign" or "none": what its units allow."""

    @property
    def taps(self) -> int:
        """Entries of the weight for each (input, output) pair."""
        return self.kernel[0] * self.kernel[1] * self.positions

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight."""
        if self.kind == "conv":
            return (self.outputs, self.inputs, *self.kernel)
        return (self.outputs, self.inputs * self.positions)


@dataclass(frozen=True)
class Chain:
    """The layers of a chain from input to output."""

    layers: tuple[ChainLayer, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers: a chain needs at least one layer, got none")
        for before, after in zip(self.layers, self.layers[1:]):
            if before.outputs != after.inputs:
                raise ValueError(
                    f"layers: {before.name!r} has {before.outputs} outputs, but {after.name!r} reads {after.inputs}"
                )
        for layer in self.layers:
            if layer.symmetry not in ("scale", "sign", "none"):
                raise ValueError(f"symmetry: {layer.symmetry!r} at {layer.name!r}; choose from scale, sign, none")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units from input to output, L + 1 numbers."""
        return (self.layers[0].inputs, *(layer.outputs for layer in self.layers))

    @property
    def hidden(self) -> tuple[ChainLayer, ...]:
        """All layers but the last: those whose units can move."""
        return self.layers[:-1]

    @property
    def symmetries(self) -> tuple[str, ...]:
        """The symmetry of each hidden layer."""
        return tuple(layer.symmetry for layer in self.hidden)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name to shape, each layer's weight before its bias."""
        found = {}
        for layer in self.layers:
            found[layer.weight] = layer.shape
            if layer.bias is not None:
                found[layer.bias] = (layer.outputs,)
        return found

    def with_activations(self, *names: str) -> Chain:
        """The same chain with other activations in its hidden layers; one name is for all of them.

        Raises:
            ValueError: for an unknown activation or another number of them.
        """
        if len(names) == 1:
            names = names * len(self.hidden)
        unknown = [name for name in names if name not in SYMMETRIES]
        if unknown:
            raise ValueError(f"activations: {unknown[0]!r}; choose from {', '.join(SYMMETRIES)}")
        if len(names) != len(self.hidden):
            raise ValueError(f"activations: {len(names)} for {len(self.hidden)} hidden layers")
        changed = [replace(a, activation=n, symmetry=SYMMETRIES[n]) for a, n in zip(self.hidden, names)]
        return Chain((*changed, self.layers[-1]))


def chain_of(module: nn.Module, example_input: Tensor) -> Chain:
    """The chain that a network is.

    Args:
        module: a plain network (masked layers: their `to_plain` form), traced in evaluation mode and not changed.
        example_input: an input with a batch axis of at least 2.

    Raises:
        ValueError: if an operation is none that a chain may have, or the network branches; names the operation.
    """
    program = exported(module, example_input)
    names = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.kind == InputKind.PARAMETER}
    return _Reader(names).read(program.graph)


class _Reader:
    """One walk along the graph: `value` is the tensor reached, `layers` what was passed."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.layers: list[ChainLayer] = []
        self.value: fx.Node | None = None
        self.activated = self.shifted = self.max_pooled = False
        self.omega = 1.0

    def read(self, graph: fx.Graph) -> Chain:
        for node in graph.nodes:
            if node.op == "placeholder" and node.name not in self.names:
                if self.value is not None:
                    raise ValueError(
                        f"module: takes a second input or constant {node.name!r}; "
                        "of a masked network give the plain form, BatchNorm and skips are for residual_of"
                    )
                self.value = node
            elif node.op == "call_function":
                self.step(node)
        output = next(node for node in graph.nodes if node.op == "output").args[0]
        if output != (self.value,):
            raise ValueError("module: its output is not the end of the chain, or there is more than one")
        if not self.layers:
            raise ValueError("module: has no linear or convolutional layer")
        self.close()
        return Chain(tuple(self.layers))

    def step(self, node: fx.Node) -> None:
        name = str(node.target).removeprefix("aten.").split(".")[0].removesuffix("_")
        tensors = [a for a in node.args if isinstance(a, fx.Node) and a.name not in self.names]
        if tensors != [self.value]:
            raise ValueError(
                f"module: operation {name!r} ({node.name}) does not continue a chain: the network branches"
            )
        if name in ("linear", "conv2d"):
            self.close()
            self.layer(node, name)
        elif name in SYMMETRIES:
            self.activate(name)
        elif name == "max_pool2d":
            self.max_pooled = True
        elif name in ("mul", "div", "add", "sub") and isinstance(node.args[1], int | float):
            self.constant(name, float(node.args[1]))
        elif name not in TRANSPARENT + POOLS + FLATTENS:
            raise ValueError(
                f"module: operation {name!r} ({node.name}) is unknown; a chain has linear and conv2d layers, "
                f"pooling, and {', '.join(SYMMETRIES)}"
            )
        elif name == "mean" and list(node.args[1]) not in ([2, 3], [-2, -1], [-1, -2]):  # type: ignore[arg-type]
            raise ValueError(f"module: mean over axes {node.args[1]}; only over the positions of feature maps, [2, 3]")
        self.value = node

    def layer(self, node: fx.Node, kind: str) -> None:
        weight_node, bias_node = node.args[1], node.args[2] if len(node.args) > 2 else None
        ends = [n for n in (weight_node, bias_node) if n is not None]
        if any(not isinstance(n, fx.Node) or n.name not in self.names for n in ends):
            raise ValueError(f"module: {node.name!r} has a weight that is computed; give the plain form of the network")
        weight = self.names[weight_node.name]  # type: ignore[union-attr]
        if any(weight == layer.weight for layer in self.layers):
            raise ValueError(f"module: {weight!r} is used twice; a chain has each weight once")
        shape = tuple(weight_node.meta["val"].shape)  # type: ignore[union-attr]
        channels = self.layers[-1].outputs if self.layers else None
        if kind == "conv2d":
            groups = node.args[6] if len(node.args) > 6 else 1
            if groups != 1:
                raise ValueError(f"module: {weight!r} is a convolution with {groups} groups; a chain has one group")
            inputs, kernel, positions = shape[1], (shape[2], shape[3]), 1
        else:
            inputs, kernel, positions = channels or shape[1], (1, 1), shape[1] // (channels or shape[1])
        bias = None if bias_node is None else self.names[bias_node.name]  # type: ignore[union-attr]
        name = weight.rpartition(".")[0] or weight
        label = "conv" if kind == "conv2d" else "linear"
        self.layers.append(ChainLayer(name, weight, bias, label, inputs, shape[0], kernel, positions))
        self.activated = self.shifted = self.max_pooled = False
        self.omega = 1.0

    def activate(self, name: str) -> None:
        if not self.layers or self.activated:
            raise ValueError(f"module: activation {name!r} does not follow a layer")
        self.activated = True
        symmetry = SYMMETRIES[name]
        shifts = self.shifted or (symmetry == "scale" and self.omega <= 0)
        self.layers[-1] = replace(
            self.layers[-1], activation=name, omega=self.omega, symmetry="none" if shifts else symmetry
        )
        self.shifted = False

    def constant(self, name: str, value: float) -> None:
        if name in ("add", "sub") or self.activated:
            self.shifted = self.shifted or name in ("add", "sub")
        else:
            self.omega *= value if name == "mul" else 1 / value

    def close(self) -> None:
        """What came after a layer's activation decides whether its symmetry stays."""
        if not self.layers:
            if self.max_pooled or self.shifted:
                self.max_pooled = self.shifted = False
            return
        last = self.layers[-1]
        if self.shifted or (self.max_pooled and last.symmetry == "sign"):
            self.layers[-1] = replace(last, symmetry="none")


def check_tensors(chain: Frame, tensors: Any, *, lead: int | None = None, finite: bool = False) -> tuple[int, ...]:
    """The leading axes that all tensors of a chain share.

    Raises:
        ValueError: if a tensor is missing, has another shape, or (finite) has entries that are NaN or infinite.
    """
    found: tuple[int, ...] | None = None
    for name, shape in chain.shapes.items():
        if name not in tensors:
            raise ValueError(f"tensors: {name!r} is missing; the chain has {', '.join(chain.shapes)}")
        actual = tuple(tensors[name].shape)
        front = actual[: len(actual) - len(shape)]
        found = front if found is None else found
        wrong = lead is not None and len(front) != lead
        if wrong and actual == shape:
            raise ValueError(
                f"tensors: {name!r} has shape {actual}, of one network; an axis of networks is missing in front"
            )
        if actual[len(front) :] != shape or front != found or wrong:
            raise ValueError(f"tensors: {name!r} has shape {actual}, the chain says {(*found, *shape)}")
        if finite and not torch.isfinite(tensors[name]).all():
            bad = (~torch.isfinite(tensors[name])).reshape(math.prod(front) or 1, -1).any(1)
            raise ValueError(
                f"tensors: {name!r} has NaN or infinite entries in {int(bad.sum())} of {len(bad)} networks, "
                f"the first is network {int(bad.nonzero()[0, 0])}"
            )
    return found or ()
