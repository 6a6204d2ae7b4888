"""Reading a residual network off a module: a walk along its graph in which every value is a node layer or a sum.

A layer makes a sum of one write; a norm right behind it joins the write; `+` makes one sum of two; an activation makes
a node layer of a sum. Sums that are read without an activation, or by several, are node layers with the identity. See
`residual.py` for what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind

from asym.symmetry.chain import FLATTENS, POOLS, SYMMETRIES, TRANSPARENT, ChainLayer
from asym.symmetry.exported import exported
from asym.symmetry.residual import Node, Residual, Write, join_streams


@dataclass
class Sum:
    """What has been added up so far, and its node layer once there is one."""

    size: int
    writes: tuple[Write, ...] = ()
    skips: tuple[int, ...] = ()
    node: int | None = None


def residual_of(module: nn.Module, example_input: Tensor) -> Residual:
    """The residual network that a module is; chains are such networks too.

    Args:
        module: a plain network (masked layers: their `to_plain` form), traced in evaluation mode and not changed.
        example_input: an input with a batch axis of at least 2.

    Raises:
        ValueError: if an operation is none that such a network may have, or a norm does not follow a layer; names it.
    """
    program = exported(module, example_input)
    tensors = (InputKind.PARAMETER, InputKind.BUFFER)
    names = {s.arg.name: str(s.target) for s in program.graph_signature.input_specs if s.kind in tensors}
    return _Walk(names, _sizes(module)).read(program.graph)


def _sizes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    running = {n: b for n, b in module.named_buffers() if n.endswith(("running_mean", "running_var"))}
    return {name: tuple(t.shape) for name, t in (dict(module.named_parameters()) | running).items()}


class _Walk:
    def __init__(self, names: dict[str, str], shapes: dict[str, tuple[int, ...]]) -> None:
        self.names, self.shapes = names, shapes
        self.nodes: list[Node] = []
        self.made: list[Write] = []
        self.symmetries: list[str] = []
        self.values: dict[fx.Node, Sum] = {}

    def read(self, graph: fx.Graph) -> Residual:
        for node in graph.nodes:
            if node.op == "placeholder" and node.name not in self.names:
                if self.nodes:
                    raise ValueError(f"module: takes a second input or constant {node.name!r}")
                size = int(node.meta["val"].shape[1])
                self.nodes, self.symmetries = [Node(size)], ["any"]
                self.values[node] = Sum(size, node=0)
            elif node.op == "call_function":
                self.values[node] = self.step(node)
        (output,) = next(node for node in graph.nodes if node.op == "output").args[0]
        last = self.values[output]
        if last.node is not None:
            raise ValueError("module: ends with an activation; the output has to be a layer's own")
        self.settle(last, "identity")
        used = {name for node in self.nodes for w in node.writes for name in _tensors(w)}
        lost = [name for name in self.shapes if name not in used]
        if lost:
            raise ValueError(f"module: tensor {lost[0]!r} belongs to no layer or norm")
        return Residual(join_streams(self.nodes, self.symmetries), tuple(self.shapes.items()))

    def step(self, node: fx.Node) -> Sum:
        name = str(node.target).removeprefix("aten.").split(".")[0].removesuffix("_")
        given = [a for a in node.args if isinstance(a, fx.Node) and a.name not in self.names]
        values = [self.values[a] for a in given]
        for argument, value in zip(given, values):
            if len(argument.users) > 1:  # read elsewhere too: a node layer of its own
                self.settle(value, "identity")
        if name == "add" and len(values) == 2:
            return self.add(*values)
        if len(values) != 1:
            raise ValueError(f"module: operation {name!r} ({node.name}) of {len(values)} values is unknown")
        (value,) = values
        if name in ("linear", "conv2d"):
            return self.layer(node, name, value)
        if name in ("group_norm", "batch_norm"):
            return self.norm(node, name, value)
        if name in SYMMETRIES:
            bare = value if value.node is None else Sum(value.size, skips=(value.node,))
            return self.settle(bare, name)
        if name == "mean" and list(node.args[1]) not in ([2, 3], [-2, -1], [-1, -2]):  # type: ignore[arg-type]
            raise ValueError(f"module: mean over axes {node.args[1]}; only over the positions of feature maps, [2, 3]")
        if name not in TRANSPARENT + POOLS + FLATTENS:
            raise ValueError(
                f"module: operation {name!r} ({node.name}) is unknown; a residual network has linear and conv2d "
                f"layers, group_norm and batch_norm behind them, +, means, and {', '.join(SYMMETRIES)}"
            )
        if value.node is None and name not in TRANSPARENT:
            self.settle(value, "identity")
        return value

    def add(self, a: Sum, b: Sum) -> Sum:
        parts = [replace(v, writes=(), skips=(v.node,)) if v.node is not None else v for v in (a, b)]
        if a.size != b.size:
            raise ValueError(f"module: adds {a.size} channels to {b.size}")
        writes, skips = parts[0].writes + parts[1].writes, parts[0].skips + parts[1].skips
        return Sum(a.size, writes, skips)  # type: ignore[arg-type]

    def layer(self, node: fx.Node, name: str, value: Sum) -> Sum:
        source = self.settle(value, "identity").node
        ends: list[Any] = [node.args[1], node.args[2] if len(node.args) > 2 else None]
        if any(end is not None and end.name not in self.names for end in ends):
            raise ValueError(f"module: {node.name!r} has a weight that is computed; give the plain form of the network")
        weight, bias = (None if end is None else self.names[end.name] for end in ends)
        if weight is None or any(w.layer.weight == weight for w in self.made):
            raise ValueError(f"module: {weight!r} is used twice; a network has each weight once")
        shape = self.shapes[weight]
        label = weight.rpartition(".")[0] or weight
        if name == "conv2d":
            groups = node.args[6] if len(node.args) > 6 else 1
            if groups != 1:
                raise ValueError(f"module: {weight!r} is a convolution with {groups} groups; one group is known")
            found = ChainLayer(label, weight, bias, "conv", shape[1], shape[0], (shape[2], shape[3]))
        else:
            positions = shape[1] // value.size
            found = ChainLayer(label, weight, bias, "linear", value.size, shape[0], positions=positions)
        write = Write(found, source or 0)
        self.made.append(write)
        return Sum(shape[0], (write,))

    def norm(self, node: fx.Node, name: str, value: Sum) -> Sum:
        if value.node is not None or len(value.writes) != 1 or value.skips or value.writes[0].norm != "none":
            raise ValueError(f"module: {name} ({node.name}) does not follow a layer, which is where norms are known")
        (write,) = value.writes
        args: list[Any] = list(node.args)
        if name == "group_norm":
            groups, (gain, shift), eps, running = args[1], args[2:4], args[4] if len(args) > 4 else 1e-5, None
            if groups != 1:
                raise ValueError(f"module: {node.name!r} has {groups} groups; norms of all channels at once are known")
            if write.layer.bias:
                raise ValueError(f"module: {write.layer.name!r} has a bias before a norm; leave it out")
        else:
            gain, shift, eps, running = args[1], args[2], args[7], (args[3], args[4])
        if gain is None or shift is None:
            raise ValueError(f"module: {node.name!r} has no weight and bias of its own")
        names = [self.names[a.name] for a in (gain, shift)]
        stats = None if running is None else (self.names[running[0].name], self.names[running[1].name])
        kind = "group" if running is None else "batch"
        return Sum(value.size, (replace(write, norm=kind, gain=names[0], shift=names[1], running=stats, eps=eps),))

    def settle(self, value: Sum, activation: str) -> Sum:
        """Make a node layer of a sum, unless it is one."""
        if value.node is None:
            value.node = len(self.nodes)
            self.nodes.append(Node(value.size, value.writes, value.skips, activation))
            self.symmetries.append("any" if activation == "identity" else SYMMETRIES[activation])
        return value


def _tensors(write: Write) -> list[str]:
    layer = write.layer
    return [n for n in (layer.weight, layer.bias, write.gain, write.shift, *(write.running or ())) if n]


__all__ = ["residual_of"]
