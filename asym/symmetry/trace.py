"""Read the permutation symmetries of a network off its graph.

`torch.export` turns the network into a graph of operations on its parameters, buffers and inputs. Walking
through it, the rules say which axes must agree (`rules*.py`); `Axes` keeps the account; what is left free at
the end is a permutation group. Inputs, outputs and constants never move. Running statistics of BatchNorm move
with their channels; every other buffer is a constant of the architecture, so that a masked layer's `mask` and
`fixed` leave nothing free.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

import asym.symmetry.rules_mix
import asym.symmetry.rules_shape  # noqa: F401  (registers its rules)
from asym.symmetry import layout
from asym.symmetry.axes import Axes
from asym.symmetry.nodes import Node
from asym.symmetry.rules import RULES, Dims, Value
from asym.symmetry.settle import axis_layout, name_groups, settle

CARRIED = ("*running_mean", "*running_var")
"""Buffers that are statistics of the network, not constants of its architecture."""


STATES = (InputKind.PARAMETER, InputKind.BUFFER)


class UnknownOperationError(ValueError):
    """The network has an operation that no rule covers."""


@dataclass
class Site:
    """An activation that an operation mixes over a permuted axis: node of the graph, axes (filled in at the
    end).
    """

    node: str
    dims: Dims
    axes: tuple[layout.Axis, ...] = ()


@dataclass
class Trace:
    """What tracing found.

    Attributes:
        module: the graph, which takes parameters, buffers, constants and inputs as placeholders.
        inputs: per placeholder the parameter's or buffer's name, a constant tensor, or None for an input.
        tensors: parameter or buffer to its axes.
        parents: group to parent or None, in the order in which the network produces the groups.
        buffers: which of `tensors` are buffers.
        tied: further names of a tensor to its first name.
        sites: activations in front of operations that mix a permuted axis.
    """

    module: fx.GraphModule
    inputs: list[str | Tensor | None]
    tensors: dict[str, tuple[layout.Axis, ...]]
    parents: dict[str, str | None]
    buffers: frozenset[str]
    tied: dict[str, str]
    sites: list[Site]


@dataclass
class Tracer:
    """State of one walk through a graph; rules read and write it.

    Attributes:
        operation, shapes: name and output shapes of the current operation.
        values: node of the graph to its tensor or list of tensors.
        producers: parameters in order of use with the output axis that they produce.
        sites: activations that operations mix over.
        scopes: axes of tensors that operations make on the way, such as statistics.
    """

    axes: Axes = field(default_factory=Axes)
    operation: str = ""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    values: dict[fx.Node, Any] = field(default_factory=dict)
    producers: list[tuple[str, Node]] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    scopes: list[Dims] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """The (first) output's shape."""
        return self.shapes[0]

    @property
    def outputs(self) -> int:
        """How many tensors the operation returns."""
        return len(self.shapes)

    def contract(self, a: Value, dim_a: int, b: Value, dim_b: int) -> None:
        """The operation sums over `dim_a` of a and `dim_b` of b."""
        self.axes.unify(a.dims[dim_a], b.dims[dim_b])
        self.mixes(a, dim_a)
        self.mixes(b, dim_b)

    def mixes(self, value: Value, dim: int) -> None:
        """The operation sums over a dimension of `value`: its activations tell channels apart."""
        if value.parameter is None and not self.axes.is_pinned(value.dims[dim]):
            self.sites.append(Site(value.name, value.dims))

    def produces(self, axis: Node, weight: Value) -> None:
        """`axis` is a new axis that `weight` makes."""
        if weight.parameter is not None:
            self.producers.append((weight.parameter, axis))

    def run(self, node: fx.Node) -> None:
        """Apply the rule of one operation.

        Raises:
            UnknownOperationError: if there is none.
        """
        tensors = _values((node.args, node.kwargs), self.values)
        meta = node.meta.get("val")
        single = isinstance(meta, Tensor)
        outputs: list[Tensor] = [meta] if isinstance(meta, Tensor) else []
        if isinstance(meta, list | tuple):
            outputs = [m for m in meta if isinstance(m, Tensor)]
        if not outputs:
            return
        self.shapes = [tuple(int(size) for size in m.shape) for m in outputs]
        parameter = None
        if tensors and all(v.parameter is not None for v in tensors):
            parameter = tensors[0].parameter
        if _is_getitem(node):
            value = _replace(node.args[0], self.values)[node.args[1]]
            self.values[node] = replace(value, name=node.name)
            return
        if all(self.axes.is_pinned(axis) for v in tensors for axis in v.dims):
            results: Any = [[self.axes.pinned(size) for size in shape] for shape in self.shapes]
            parameter = None if tensors and any(v.parameter is None for v in tensors) else parameter
        else:
            results = self._apply(node)
            results = [results] if single else results
        for dims, shape in zip(results, self.shapes, strict=True):
            if tuple(axis.size for axis in dims) != shape:
                raise ValueError(f"the rule of {self.operation!r} does not fit node {node.name!r}: {shape}")
        values = [Value(list(dims), node.name, parameter) for dims in results]
        self.values[node] = values[0] if single else values

    def _apply(self, node: fx.Node) -> Any:
        schema = getattr(node.target, "_schema", None)
        name = schema.name.split("::")[-1] if schema is not None else str(node.target)
        self.operation = name if name in RULES else name.removesuffix("_")
        if schema is None or self.operation not in RULES:
            raise UnknownOperationError(
                f"model: no rule for operation {name!r} at node {node.name!r} ({_where(node)}); "
                f"operations with a rule: {', '.join(sorted(RULES))}"
            )
        arguments = dict(zip((a.name for a in schema.arguments), node.args)) | node.kwargs
        arguments = {key: _replace(value, self.values) for key, value in arguments.items()}
        try:
            return RULES[self.operation](self, **arguments)
        except TypeError as error:
            raise UnknownOperationError(
                f"model: the rule for operation {name!r} does not cover its use at node {node.name!r} "
                f"({_where(node)}): {error}"
            ) from error


def trace(
    model: nn.Module,
    example_input: Any,
    *,
    pin: Iterable[str] = (),
    carry: Iterable[str] = CARRIED,
) -> Trace:
    """The permutation symmetries of `model`, unproved. Arguments and errors as in `permutation_spec`."""
    model = copy.deepcopy(model).eval()
    args = example_input if isinstance(example_input, tuple) else (example_input,)
    program = torch.export.export(model, args, strict=False)
    aliases = _aliases(model)
    buffers = frozenset(name for name, _ in model.named_buffers(remove_duplicate=False))
    tracer = Tracer()
    axes = tracer.axes
    inputs, states = _enter(tracer, program, lambda name: any(fnmatch(name, p) for p in carry), aliases, pin)
    order: list[Value] = []
    for node in program.graph.nodes:
        if node.op == "call_function":
            tracer.run(node)
            order += _values(node, tracer.values)
        elif node.op == "output":
            for value in _values(node.args, tracer.values):
                for axis in value.dims:
                    axes.pin(axis)
        elif node.op != "placeholder":
            raise UnknownOperationError(f"model: node {node.name!r} of kind {node.op!r} has no rule")
    settle(axes, list(states.values()), [value.dims for value in order] + tracer.scopes)
    names = name_groups(axes, tracer.producers, states, order)
    parents = {name: names[axes.find(leaf.parents[0])] if leaf.parents else None for leaf, name in names.items()}
    for site in tracer.sites:
        site.axes = tuple(axis_layout(axes, axis, names) for axis in site.dims)
    tensors = {
        alias: tuple(axis_layout(axes, axis, names) for axis in states[name].dims)
        for name in states
        for alias in aliases[name]
    }
    wanted = [*dict(model.named_parameters(remove_duplicate=False)), *sorted(buffers)]
    return Trace(
        module=program.graph_module,
        inputs=inputs,
        tensors={name: tensors[name] for name in wanted if name in tensors},
        parents=parents,
        buffers=buffers,
        tied={alias: known[0] for alias, known in aliases.items() if alias != known[0]},
        sites=[site for site in tracer.sites if any(layout.groups_of(axis) for axis in site.axes)],
    )


def _enter(
    tracer: Tracer,
    program: ExportedProgram,
    carried: Callable[[str], bool],
    aliases: dict[str, list[str]],
    pin: Iterable[str],
) -> tuple[list[str | Tensor | None], dict[str, Value]]:
    """Give every placeholder of the graph its axes; returns what feeds them, and parameters and buffers by
    name.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    norms = [node for node in nodes.values() if "batch_norm" in str(node.target)]
    statistics = {argument for node in norms for argument in node.args[3:5]}
    states: dict[str, Value] = {}
    inputs: list[str | Tensor | None] = []
    for spec in program.graph_signature.input_specs:
        node, name = nodes[spec.arg.name], spec.target
        free = False
        if name is None or spec.kind not in (*STATES, InputKind.CONSTANT_TENSOR):
            name, source = None, None
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            source = program.constants[name]
        else:
            source = name = aliases[name][0]
            free = spec.kind is InputKind.PARAMETER or node in statistics or carried(name)
            free = free and bool(node.users) and not any(fnmatch(a, p) for a in aliases[name] for p in pin)
        shape = getattr(node.meta.get("val"), "shape", ())
        dims = [tracer.axes.free(int(n)) if free else tracer.axes.pinned(int(n)) for n in shape]
        tracer.values[node] = Value(dims, node.name, name)
        inputs.append(source if isinstance(source, str | Tensor) else None)
        if isinstance(source, str):
            states[source] = tracer.values[node]
    return inputs, states


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """Every name of a parameter or buffer to all names of the same tensor."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    by_tensor: dict[int, list[str]] = {}
    for name, tensor in named:
        by_tensor.setdefault(id(tensor), []).append(name)
    return {name: by_tensor[id(tensor)] for name, tensor in named}


def _values(argument: Any, values: dict[fx.Node, Any]) -> list[Value]:
    found: list[Value] = []
    fx.map_arg(argument, lambda node: found.extend(_flat(values.get(node))))
    return found


def _flat(value: Any) -> list[Value]:
    return [] if value is None else [value] if isinstance(value, Value) else list(value)


def _replace(argument: Any, values: dict[fx.Node, Any]) -> Any:
    return fx.map_arg(argument, lambda node: values.get(node))  # type: ignore[return-value]


def _is_getitem(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _where(node: fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return f"in module {stack[-1][0]!r}" if stack else "outside any module"
