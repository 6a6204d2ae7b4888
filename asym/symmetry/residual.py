"""Networks with skips and norms as layers of nodes and what writes to them, read off the module itself.

A node layer k has units x_k = σ(y_k), and y_k is a sum of three kinds of summands:

    plain    W x_j + b                  a linear or convolutional layer that reads node layer j
    normed   γ ⊙ N(W x_j) + β           the same with a norm behind it
    skip     x_j                        node layer j as it is

Node layers that are joined by skips are one *stream*. With one permutation P and one diagonal matrix Q (those that all
activations of the stream allow, `chain.py`) for each stream, P x and Q x written for "of the stream of that layer",

    plain    W' = P_k Q_k W Q_j⁻¹ P_jᵀ,     b' = P_k Q_k b
    normed   W' = P_k     W Q_j⁻¹ P_jᵀ,     γ' = P_k Q_k γ,     β' = P_k Q_k β

leave the network's function as it is: W' x'_j = P_k W x_j, the norm over all channels at once commutes with P_k, and γ
and β bring the factor that y_k has to have. A skip forces Q_k = Q_j: factors of one layer of a stream alone change the
function. So a stream has as many factors as channels, however many layers write to it, and rows of a W before a norm
have none of their own: N(z) = (z − mean z) / √(var z + ε) sees all channels together. What is left there:

    N(c W x) = N(W x) for one c > 0 for the whole layer       at ε = 0; else to a relative ε / var z
    β_a + t, β_b − t for two writes to one layer               any t, since only the sum of shifts and biases is seen

BatchNorm in evaluation mode is a linear map of each channel and no norm at all: `fold_batch_norms` makes it a plain
write, W' = γ / √(v + ε) W and b' = β + (b − m) γ / √(v + ε), which has the factors of plain writes.

The node layers at both ends, input and output, do not move. Sources: He et al. 2016 for the networks; Godfrey et al.
2022 for the factors of one layer. Released metanetworks that treat scalings know no skips or norms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from asym.symmetry.chain import Chain, ChainLayer, Frame

NORMS = ("none", "group", "batch")


@dataclass(frozen=True)
class Write:
    """A layer, with the norm behind it, as one summand of a node layer."""

    layer: ChainLayer
    source: int
    """The node layer that it reads."""
    norm: str = "none"
    """"none", "group" for a norm of all channels at once, "batch" for BatchNorm, which has to be folded."""
    gain: str | None = None
    """Name of γ."""
    shift: str | None = None
    """Name of β."""
    running: tuple[str, str] | None = None
    """Names of BatchNorm's mean and variance."""
    eps: float = 0.0


@dataclass(frozen=True)
class Node:
    """Units that are computed together."""

    outputs: int
    writes: tuple[Write, ...] = ()
    skips: tuple[int, ...] = ()
    """Node layers that are added as they are."""
    activation: str = "identity"
    stream: int = 0
    """The first node layer of its stream."""
    symmetry: str = "scale"
    """What all activations of its stream allow: "scale", "sign" or "none"."""


@dataclass(frozen=True)
class Residual:
    """Node layers from input (without writes) to output, each after those that it reads.

    Raises:
        ValueError: if a write or a skip does not fit, or one layer reads and writes the same stream.
    """

    nodes: tuple[Node, ...]
    members: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of each tensor, in the module's order."""

    def __post_init__(self) -> None:
        if len(self.nodes) < 2:
            raise ValueError("nodes: a network needs an input and an output at least")
        for k, node in enumerate(self.nodes[1:], start=1):
            for write in node.writes:
                if write.source >= k or write.layer.inputs != self.nodes[write.source].outputs:
                    raise ValueError(f"nodes: {write.layer.name!r} does not fit between layers {write.source} and {k}")
            if any(s >= k or self.nodes[s].outputs != node.outputs for s in node.skips):
                raise ValueError(f"nodes: a skip to layer {k} does not fit")
        moved = {self.nodes[0].stream, self.nodes[-1].stream}
        if any(node.stream in moved for node in self.nodes[1:-1]) or len(moved) < 2:
            raise ValueError(
                "nodes: a skip joins hidden units with the input or the output, which leaves them no group"
            )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name to shape."""
        return dict(self.members)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of each node layer."""
        return tuple(node.outputs for node in self.nodes)

    @property
    def hidden(self) -> tuple[Node, ...]:
        """All node layers but both ends."""
        return self.nodes[1:-1]

    @property
    def symmetries(self) -> tuple[str, ...]:
        """What each hidden node layer allows."""
        return tuple(node.symmetry for node in self.hidden)

    @cached_property
    def writes(self) -> tuple[tuple[int, Write], ...]:
        """(node layer, write to it), in order."""
        return tuple((k, write) for k, node in enumerate(self.nodes) for write in node.writes)

    @property
    def layers(self) -> tuple[ChainLayer, ...]:
        """The layers of all writes, in order."""
        return tuple(write.layer for _, write in self.writes)

    @property
    def streams(self) -> dict[int, int]:
        """Hidden streams: first node layer → units."""
        return {node.stream: node.outputs for node in self.hidden}

    @property
    def folded(self) -> bool:
        """Whether no BatchNorm is left."""
        return all(write.norm != "batch" for _, write in self.writes)


class Wires(NamedTuple):
    """How a network hangs together, the same for chains and residual networks. Edge layers are counted from 1."""

    sources: tuple[int, ...]
    """For each edge layer the node layer that it reads."""
    targets: tuple[int, ...]
    gains: tuple[str | None, ...]
    """For each edge layer the name of γ if it is normed."""
    biases: tuple[tuple[str, ...], ...]
    """For each node layer names of biases and shifts, of which units see the sum."""
    skips: tuple[tuple[int, int], ...]
    """(from, to), node layers."""

    def into(self, node: int) -> list[int]:
        """Edge layers that write to a node layer."""
        return [e for e, target in enumerate(self.targets, start=1) if target == node]

    def out_of(self, node: int) -> list[int]:
        """Edge layers that read a node layer."""
        return [e for e, source in enumerate(self.sources, start=1) if source == node]

    @property
    def depth(self) -> int:
        """Edge layers and skips on the longest way from input to output."""
        far = [0] * len(self.biases)
        for source, target in sorted([*zip(self.sources, self.targets), *self.skips], key=lambda pair: pair[1]):
            far[target] = max(far[target], far[source] + 1)
        return far[-1]


def wires_of(frame: Frame) -> Wires:
    """The wires of a chain or a residual network.

    Raises:
        ValueError: for a residual network with BatchNorm, which is to be folded first.
    """
    if isinstance(frame, Chain):
        count = len(frame.layers)
        biases = ((), *((layer.bias,) if layer.bias else () for layer in frame.layers))
        return Wires(tuple(range(count)), tuple(range(1, count + 1)), (None,) * count, biases, ())
    if not frame.folded:
        raise ValueError("network: has BatchNorm, which is part of the layer before it; use fold_batch_norms first")
    biases = tuple(
        tuple(name for w in node.writes for name in (w.shift if w.norm == "group" else w.layer.bias,) if name)
        for node in frame.nodes
    )
    skips = tuple((s, k) for k, node in enumerate(frame.nodes) for s in node.skips)
    sources, targets = tuple(w.source for _, w in frame.writes), tuple(k for k, _ in frame.writes)
    return Wires(sources, targets, tuple(w.gain if w.norm == "group" else None for _, w in frame.writes), biases, skips)


def fold_batch_norms(network: Residual, tensors: Mapping[str, Tensor]) -> tuple[Residual, dict[str, Tensor]]:
    """The same networks with BatchNorm, in evaluation mode, as part of the layers before it.

    Args:
        network: as `residual_of` reads it off a module with BatchNorm.
        tensors: name to `*lead *shape`, with running means and variances.

    Returns:
        A network whose BatchNorm writes are plain, with a bias by the name of the shift; and its tensors.
    """
    new, gone, nodes = dict(tensors), set(), []
    for node in network.nodes:
        writes = []
        for write in node.writes:
            if write.norm == "batch" and write.gain and write.shift and write.running:
                mean, variance = (tensors[name] for name in write.running)
                factor = tensors[write.gain] / (variance + write.eps).sqrt()
                weight, layer = tensors[write.layer.weight], write.layer
                new[layer.weight] = weight * factor.reshape(*factor.shape, *[1] * (len(layer.shape) - 1))
                bias = tensors[layer.bias] - mean if layer.bias else -mean
                new[write.shift] = tensors[write.shift] + bias * factor
                gone |= {write.gain, *write.running, *([layer.bias] if layer.bias else [])}
                write = Write(replace(layer, bias=write.shift), write.source)
            writes.append(write)
        nodes.append(replace(node, writes=tuple(writes)))
    members = tuple((name, shape) for name, shape in network.members if name not in gone)
    return Residual(tuple(nodes), members), {name: t for name, t in new.items() if name not in gone}


def join_streams(nodes: Sequence[Node], symmetries: Sequence[str]) -> tuple[Node, ...]:
    """Node layers with their stream and what all of its activations allow.

    Args:
        nodes: in order.
        symmetries: what each node layer's own activation allows, "any" for the identity.
    """
    first = list(range(len(nodes)))
    for k, node in enumerate(nodes):
        for s in node.skips:
            a, b = first[s], first[k]
            first = [min(a, b) if f in (a, b) else f for f in first]
    found = []
    for k, node in enumerate(nodes):
        kinds = {symmetries[i] for i in range(len(nodes)) if first[i] == first[k]} - {"any"}
        kind = "scale" if not kinds else kinds.pop() if len(kinds) == 1 else "none"
        found.append(replace(node, stream=first[k], symmetry=kind))
    return tuple(found)


__all__ = ["Node", "Residual", "Wires", "Write", "fold_batch_norms", "join_streams", "wires_of"]
