"""Running an exported graph node by node, so that every activation can be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram


def operation(node: fx.Node) -> str:
    """The name of a node's operation, the same for its in-place form."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return getattr(node.target, "__name__", str(node.target))
    return schema.name.split("::")[-1].removesuffix("_")


def bound(node: fx.Node, values: Mapping[fx.Node, Any]) -> dict[str, Any]:
    """The operation's arguments by name, nodes replaced by their values."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None:
        raise ValueError(f"model: node {node.name!r} calls {node.target}, which is no operation of PyTorch")
    found = dict(zip((a.name for a in schema.arguments), node.args)) | dict(node.kwargs)
    return {name: _replace(value, values) for name, value in found.items()}


def placeholders(program: ExportedProgram) -> list[tuple[fx.Node, str | None]]:
    """What a graph is given: nodes with the name of the parameter, buffer or constant, None for an input."""
    nodes = {node.name: node for node in program.graph.nodes}
    return [(nodes[spec.arg.name], spec.target) for spec in program.graph_signature.input_specs]


def run_graph(program: ExportedProgram, state: Mapping[str, Tensor], inputs: tuple[Any, ...]) -> dict[fx.Node, Any]:
    """The value of every node of a graph; nothing is changed in place."""
    values: dict[fx.Node, Any] = {}
    given = iter(inputs)
    for node, name in placeholders(program):
        values[node] = next(given) if name is None else state[name] if name in state else program.constants[name]
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if operation(node) == "getitem":
            values[node] = values[node.args[0]][node.args[1]]
            continue
        arguments, target = bound(node, values), node.target
        names = [(a.name, a.kwarg_only) for a in target._schema.arguments if a.name in arguments]
        if target._schema.name.endswith("_"):
            arguments[names[0][0]] = arguments[names[0][0]].clone()
        positional = [arguments[name] for name, keyword in names if not keyword]
        values[node] = target(*positional, **{name: arguments[name] for name, keyword in names if keyword})
    return values


def kinks(values: Mapping[fx.Node, Any]) -> tuple[int, int, float]:
    """Units of ReLUs that are never on, and never off (in less than 2 % of what they see), and how uneven all are.

    The units of a four-dimensional tensor lie on axis 1, of others on the last one. A unit is uneven as far as it is
    on, or off, in less than 30 %.
    """
    dead, linear, uneven = 0, 0, 0.0
    for node, value in values.items():
        if node.op == "call_function" and operation(node) in ("relu", "leaky_relu"):
            units = value.movedim(1, -1) if value.ndim == 4 else value
            on = (units > 0).double().flatten(0, -2).mean(0)
            dead, linear = dead + int((on < 0.02).sum()), linear + int((on > 0.98).sum())
            uneven += float((0.3 - torch.minimum(on, 1 - on)).clamp(min=0).pow(2).sum())
    return dead, linear, uneven


def _replace(argument: Any, values: Mapping[fx.Node, Any]) -> Any:
    if isinstance(argument, fx.Node):
        return values[argument]
    if isinstance(argument, list | tuple):
        return [_replace(part, values) for part in argument]
    return argument


def flat(values: Any) -> list[Any]:
    """All values of nested lists."""
    return [p for value in values for p in (flat(value) if isinstance(value, list) else [value])]
