"""Rules of operations that mix channels: products of matrices, convolutions, attention, embeddings.

The two sides of a contraction agree; what a weight produces is a new axis, the weight's own output axis.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asym.symmetry.nodes import Node
from asym.symmetry.rules import Dims, Value, broadcast, rule

if TYPE_CHECKING:
    from asym.symmetry.trace import Tracer


@rule("linear")
def linear(t: Tracer, input: Value, weight: Value, bias: Value | None = None) -> Dims:
    """input[..., i] weight[o, i] + bias[o]."""
    t.contract(input, -1, weight, -1)
    if weight.ndim == 1:
        return input.dims[:-1]
    return [*input.dims[:-1], _produced(t, weight, weight.dims[0], bias)]


def _produced(t: Tracer, weight: Value, axis: Node, bias: Value | None) -> Node:
    t.produces(axis, weight)
    if bias is not None:
        t.axes.unify(bias.dims[-1], axis)
    return axis


@rule("matmul mm bmm mv dot")
def matmul(t: Tracer, self: Value, mat2: Value | None = None, **other: Any) -> Dims:
    """The matrix product, batched and with broadcasting."""
    factor = mat2 if mat2 is not None else next(v for v in other.values() if isinstance(v, Value))
    return _matmul(t, self, factor)


def _matmul(t: Tracer, a: Value, b: Value) -> Dims:
    t.contract(a, -1, b, -1 if b.ndim == 1 else -2)
    batch = broadcast(t, a.dims[:-2], b.dims[:-2])
    rows, columns = ([] if a.ndim == 1 else [a.dims[-2]]), ([] if b.ndim == 1 else [b.dims[-1]])
    if a.parameter is None and b.parameter is None:  # attention written out
        for node in batch:
            t.axes.hint(node, "heads")
        t.axes.hint(a.dims[-1], "query_key")
        if columns:
            t.axes.hint(columns[0], "value")
    for side, nodes in ((a, rows), (b, columns)):
        if side.parameter is not None and nodes:
            t.produces(nodes[0], side)
    return [*batch, *rows, *columns]


@rule("addmm baddbmm")
def addmm(t: Tracer, self: Value, **factors: Any) -> Dims:
    """A matrix product plus a matrix or a row."""
    a, b = (value for value in factors.values() if isinstance(value, Value))
    return broadcast(t, _matmul(t, a, b), self.dims)


@rule("einsum")
def einsum(t: Tracer, equation: str, tensors: Sequence[Value], **_: Any) -> Dims:
    """Axes of one letter agree; a letter that is summed over is a contraction."""
    inputs, _arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    extra = max(value.ndim - len(term.replace("...", "")) for term, value in zip(terms, tensors))
    dots = "".join(spare[:extra])
    terms = [
        term.replace("...", dots[extra - (value.ndim - len(term.replace("...", ""))) :] if extra else "")
        for term, value in zip(terms, tensors)
    ]
    if not _arrow:
        joined = "".join(terms)
        output = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in dots))
    output = output.replace("...", dots)
    nodes: dict[str, Node] = {}
    for term, value in zip(terms, tensors):
        for d, letter in enumerate(term):
            node = value.dims[d]
            if letter not in nodes or nodes[letter].size == 1:
                nodes[letter] = node
            elif node.size > 1:
                t.axes.unify(nodes[letter], node)
            if letter not in output:
                t.mixes(value, d)
    for term, value in zip(terms, tensors):
        if value.parameter is not None:
            for letter in term:
                if sum(letter in other for other in terms) == 1:
                    t.produces(nodes[letter], value)
    return [nodes[letter] for letter in output]


@rule("conv1d conv2d conv3d")
def conv(t: Tracer, input: Value, weight: Value, bias: Value | None = None, groups: int = 1, **_: Any) -> Dims:
    """weight[o, i / groups, *kernel]; positions of kernel and image never move.

    With several groups, those move as blocks and channels inside their group; a depth-wise convolution has
    one channel in a group, so that its output moves with its input.
    """
    spatial = weight.ndim - 2
    channels = input.dims[-spatial - 1]
    for node in (*weight.dims[2:], *input.dims[input.ndim - spatial :]):
        t.axes.pin(node)
    out, into = weight.dims[:2]
    if groups == 1:
        t.contract(input, -spatial - 1, weight, 1)
    else:
        into = _grouped(t, channels, out, groups)
        t.axes.unify(weight.dims[1], into)
        if into.size > 1:
            t.mixes(input, -spatial - 1)
    out = _produced(t, weight, out, bias)
    return [*input.dims[: -spatial - 1], out, *(t.axes.pinned(size) for size in t.shape[-spatial:])]


@rule("conv_transpose1d conv_transpose2d conv_transpose3d")
def conv_transpose(
    t: Tracer, input: Value, weight: Value, bias: Value | None = None, groups: int = 1, **_: Any
) -> Dims:
    """weight[i, o / groups, *kernel]."""
    spatial = weight.ndim - 2
    for node in (*weight.dims[2:], *input.dims[input.ndim - spatial :]):
        t.axes.pin(node)
    t.contract(input, -spatial - 1, weight, 0)
    out = weight.dims[1]
    if groups > 1:
        outer, _inner = t.axes.split_product(weight.dims[0], [groups, weight.dims[0].size // groups])
        t.axes.hint(outer, "groups")
        within = t.axes.free(out.size, [outer] if outer.size > 1 else [], hint="within")
        t.axes.unify(out, within)
        out = t.axes.product([outer, out])
    out = _produced(t, weight, out, bias)
    return [*input.dims[: -spatial - 1], out, *(t.axes.pinned(size) for size in t.shape[-spatial:])]


def _grouped(t: Tracer, channels: Node, out: Node, groups: int) -> Node:
    """Tie the groups of a grouped convolution's input and output; returns the input axis inside a group."""
    outer, inner = t.axes.split_product(channels, [groups, channels.size // groups])
    outer_out, inner_out = t.axes.split_product(out, [groups, out.size // groups])
    t.axes.unify(outer, outer_out)
    if inner.size > 1 or inner_out.size > 1:
        t.axes.hint(outer, "groups")
    t.axes.hint(inner, "within")
    t.axes.hint(inner_out, "within")
    return inner


@rule("scaled_dot_product_attention")
def attention(
    t: Tracer,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
    **_: Any,
) -> Dims:
    """softmax(query keyᵀ) value: heads move as blocks, features of query and key together, those of value
    apart.
    """
    axes = t.axes
    t.contract(query, -1, key, -1)
    axes.unify(key.dims[-2], value.dims[-2])
    if is_causal:
        axes.pin(query.dims[-2])
        axes.pin(key.dims[-2])
    batches = [v.dims[:-2] for v in (query, key, value)]
    if enable_gqa and len({nodes[-1].size for nodes in batches}) > 1:  # heads share keys and values: left in place
        for nodes in batches:
            axes.pin(nodes[-1])
        batches = [nodes[:-1] for nodes in batches]
    batch = broadcast(t, broadcast(t, batches[0], batches[1]), batches[2])
    if enable_gqa and len(batch) < query.ndim - 2:
        batch = [*batch, query.dims[-3]]
    for node in batch:
        axes.hint(node, "heads")
    axes.hint(query.dims[-1], "query_key")
    axes.hint(value.dims[-1], "value")
    if attn_mask is not None:
        broadcast(t, [*batch, query.dims[-2], key.dims[-2]], attn_mask.dims)
    t.scopes += [[*batch, query.dims[-2], key.dims[-2]], [*batch, query.dims[-2]]]
    return [*batch, query.dims[-2], value.dims[-1]]


@rule("embedding")
def embedding(t: Tracer, weight: Value, indices: Value, **_: Any) -> Dims:
    """weight[token, feature]: tokens are inputs and never move."""
    t.axes.pin(weight.dims[0])
    t.produces(weight.dims[1], weight)
    return [*indices.dims, weight.dims[1]]
