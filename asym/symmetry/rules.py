"""What every operation says about the axes of its inputs and outputs.

A rule is a function `rule(t, **arguments) -> output axes`, registered under the names of the operations it
covers and called with the operation's arguments by their schema names, tensors replaced by `Value`s. It
states which axes agree (`t.axes.unify`), which may not move (`t.axes.pin`), and names the axes of the result.
A rule is right if its operation commutes with every permutation that it leaves possible.

This file: operations that act entry by entry or reduce; `rules_mix` has those that mix channels,
`rules_shape` those that only rearrange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asym.symmetry.nodes import Node

if TYPE_CHECKING:
    from asym.symmetry.trace import Tracer

Dims = list[Node]
Rule = Callable[..., "Dims | list[Dims]"]

RULES: dict[str, Rule] = {}


@dataclass
class Value:
    """A tensor while tracing.

    Attributes:
        dims: its axes.
        name: the node of the graph that makes it.
        parameter: the parameter or buffer that it is, or is computed from alone; None if it depends on the
            input.
    """

    dims: Dims
    name: str
    parameter: str | None = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.dims)


def rule(names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the operations in `names` (separated by spaces, in-place forms included)."""

    def register(function: Rule) -> Rule:
        for name in names.split():
            if name in RULES:
                raise ValueError(f"operation {name!r} has two rules")
            RULES[name] = function
        return function

    return register


def wrap(dim: int, ndim: int) -> int:
    """A dimension counted from the front."""
    return dim % max(ndim, 1)


def dim_list(dim: int | Sequence[int] | None, ndim: int) -> list[int]:
    """Dimensions counted from the front; None and the empty list stand for all."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(ndim))
    return [wrap(d, ndim) for d in ([dim] if isinstance(dim, int) else dim)]


def broadcast(t: Tracer, *shapes: Sequence[Node]) -> Dims:
    """The axes of several shapes broadcast together."""
    result: Dims = []
    for back in range(1, max(len(dims) for dims in shapes) + 1):
        meeting = [dims[-back] for dims in shapes if len(dims) >= back]
        wide = [node for node in meeting if node.size > 1] or meeting
        for other in wide[1:]:
            t.axes.unify(wide[0], other)
        result.insert(0, wide[0])
    return result


@rule("""
    _to_copy abs add addcdiv addcmul alias alpha_dropout atan2 bitwise_and bitwise_not bitwise_or ceil
    celu clamp clamp_max clamp_min clone contiguous cos detach div dropout elu eq erf exp expm1
    feature_dropout floor floor_divide fmod ge gelu gt hardshrink hardsigmoid hardswish hardtanh
    isfinite isinf isnan le leaky_relu lerp lift_fresh lift_fresh_copy log log1p log2 log_sigmoid
    logical_and logical_not logical_or lt masked_fill maximum minimum mish mul multiply nan_to_num ne
    neg pow reciprocal relu relu6 remainder round rsqrt rsub selu sigmoid sign silu sin softplus
    softshrink sqrt square sub tan tanh threshold to true_divide type_as where
""")
def pointwise(t: Tracer, **arguments: Any) -> Dims:
    """Entry by entry, with broadcasting: axes that meet agree."""
    return broadcast(t, *(value.dims for value in arguments.values() if isinstance(value, Value)))


@rule("mean sum amax amin prod any all var std logsumexp norm linalg_vector_norm max min count_nonzero")
def reduce(t: Tracer, self: Value, dim: Any = None, keepdim: bool = False, **rest: Any) -> Dims | list[Dims]:
    """A symmetric function of the entries along some dimensions."""
    return _reduced(t, self, dim, keepdim, rest)


@rule("argmax argmin median mode")
def reduce_ordered(t: Tracer, self: Value, dim: Any = None, keepdim: bool = False, **rest: Any) -> Dims | list[Dims]:
    """A reduction that returns positions: they may not move."""
    for d in dim_list(dim, self.ndim):
        t.axes.pin(self.dims[d])
    return _reduced(t, self, dim, keepdim, rest)


def _reduced(t: Tracer, value: Value, dim: Any, keepdim: bool, rest: dict[str, Any]) -> Dims | list[Dims]:
    if isinstance(rest.get("other"), Value):  # max(a, b)
        return pointwise(t, a=value, b=rest["other"])
    dims = dim_list(dim, value.ndim)
    if t.outputs > 1:  # max(x, dim) also returns positions
        for d in dims:
            t.axes.pin(value.dims[d])
    kept = [t.axes.pinned(1) if d in dims else node for d, node in enumerate(value.dims) if keepdim or d not in dims]
    return kept if t.outputs == 1 else [kept] * t.outputs


@rule("softmax log_softmax _softmax _log_softmax")
def along(t: Tracer, self: Value, dim: int, **_: Any) -> Dims:
    """A normalisation along a dimension treats its entries alike; its statistics do not show the dimension."""
    t.scopes.append([node for d, node in enumerate(self.dims) if d != wrap(dim, self.ndim)])
    return self.dims


@rule("cumsum cumprod flip roll sort topk tril triu")
def ordered(t: Tracer, self: Value, dim: Any = None, dims: Any = None, **_: Any) -> Dims | list[Dims]:
    """The order along some dimensions matters: they may not move."""
    chosen = dim if dims is None else dims
    for d in dim_list(chosen, self.ndim):
        t.axes.pin(self.dims[d])
    result = [node if node.size == size else t.axes.pinned(size) for node, size in zip(self.dims, t.shape)]
    return result if t.outputs == 1 else [result] * t.outputs


@rule("batch_norm instance_norm")
def channel_norm(
    t: Tracer,
    input: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    running_mean: Value | None = None,
    running_var: Value | None = None,
    **_: Any,
) -> Dims:
    """Every channel (dimension 1) has its own statistics, scale and shift."""
    for vector in (weight, bias, running_mean, running_var):
        if vector is not None:
            t.axes.unify(vector.dims[0], input.dims[1])
    t.scopes.append([input.dims[1]])
    return input.dims


@rule("layer_norm rms_norm")
def layer_norm(
    t: Tracer,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    **_: Any,
) -> Dims:
    """Statistics over the last dimensions, which do not see their order; scale and shift move along."""
    for vector in (weight, bias):
        if vector is not None:
            for a, b in zip(vector.dims, input.dims[-len(normalized_shape) :]):
                t.axes.unify(a, b)
    t.scopes.append(input.dims[: -len(normalized_shape)])
    return input.dims


@rule("group_norm")
def group_norm(
    t: Tracer, input: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None, **_: Any
) -> Dims:
    """Statistics over groups of channels: groups may move as blocks, and channels inside their group.

    One group leaves every permutation possible.
    """
    channels = input.dims[1]
    if num_groups > 1:
        outer, inner = t.axes.split_product(channels, [num_groups, channels.size // num_groups])
        t.axes.hint(outer, "groups")
        t.axes.hint(inner, "within")
        t.scopes.append([input.dims[0], outer])
    for vector in (weight, bias):
        if vector is not None:
            t.axes.unify(vector.dims[0], channels)
    return input.dims


@rule("prelu")
def prelu(t: Tracer, self: Value, weight: Value) -> Dims:
    """A slope for every channel (dimension 1), or one for all."""
    if weight.dims[0].size > 1:
        t.axes.unify(weight.dims[0], self.dims[1])
    return self.dims


@rule("glu")
def glu(t: Tracer, self: Value, dim: int = -1) -> Dims:
    """One half gates the other."""
    dim = wrap(dim, self.ndim)
    half = self.dims[dim].size // 2
    first, second = t.axes.narrow(self.dims, dim, [half, half])
    for a, b in zip(first, second):
        t.axes.unify(a, b)
    return first
