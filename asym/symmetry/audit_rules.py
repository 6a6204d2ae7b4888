"""What every operation says about a change δx = A x + c of its input; see `audit_walk.py`.

A rule is called as rule(walk, node, known, numbers, result): the operation's arguments by name, once as what is known
of their change and once as tensors, and its result as a tensor. It returns what is known of the result. Notation: A, c
belong to the input, A', c' to the output; C = I − 1 1ᵀ/d removes the mean over channels.

The rules of layers are here; those of functions of entries, sums and products are in `audit_rules_pointwise.py`, of
norms in `audit_rules_norm.py`, of attention in `audit_rules_attention.py`.

| operation | needs | gives |
|---|---|---|
| ReLU, max | A diagonal, c = 0 (max: c free) | the same |
| other functions of one entry | A = 0, c = 0 | nothing moves |
| x + y | A equal | A, c_x + c_y |
| x · γ (parameter) | | D A D⁻¹ + diag(δγ / γ), D c, with D = diag(γ) |
| LayerNorm | C A 1 = 0, sym(C A C) = α C, C c = 0 | rotation R = antisym(C A C), then scale and shift |
| GroupNorm | in each group A = α I + R, R 1 = 0, c ∝ 1 | likewise |
| BatchNorm on batch statistics | A diagonal | scale and shift |
| BatchNorm on running statistics | | an affine map like any other |
| attention, each head | A_q = −A_kᵀ, c_q = 0 (c_k: soft-max ignores it) | A_v, c_v |
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from asym.symmetry.audit_system import Form
from asym.symmetry.audit_values import Known, Moved, Scores, Still, Unsupported, Weights, along, fresh_layout
from asym.symmetry.audit_walk import Walk, rule

DEPENDENT = 1e-10
"""Inputs of a layer are linearly dependent where a singular value is below this share of the largest."""


def change_of(walk: Walk, value: Known, dim: int) -> tuple[Form, Form]:
    """A and c along one dimension of an activation."""
    if isinstance(value, Weights | Scores):
        raise Unsupported
    if isinstance(value, Still):
        return Form.zero(0, 0), Form.zero(0)
    channel, position = value.channel.movedim(dim, -1), value.position.movedim(dim, -1)
    width = channel.shape[-1]
    return along(walk.system, value, channel.reshape(-1, width), position.reshape(-1, width))


def _space(walk: Walk, node: fx.Node, d: int) -> tuple[Form, Form]:
    """New unknowns for the change of a layer's output with d channels."""
    kind, new, eye = walk.kind(node), walk.system.new, torch.eye(d, dtype=torch.float64)
    if kind == "still":
        return Form.zero(d, d), Form.zero(d)
    if kind == "diagonal":
        return new(torch.diag_embed(eye)), Form.zero(d)
    if kind == "channel":
        return new(torch.diag_embed(eye), "norm scale"), new(eye, "norm shift")
    if kind == "full":
        return new(torch.eye(d * d).reshape(d * d, d, d)), new(eye)
    i, j = torch.triu_indices(d, d, 1)
    rotations = torch.zeros(len(i), d, d, dtype=torch.float64)
    rotations[torch.arange(len(i)), i, j], rotations[torch.arange(len(i)), j, i] = 1.0, -1.0
    scale, shift = new(eye[None], "norm scale"), new(torch.ones(1, d), "norm shift")
    return scale + new(rotations, "norm rotation"), shift


def _dependencies(rows: Tensor, constant: bool) -> tuple[Tensor, Tensor]:
    """Vectors r and numbers s with r·x = s for every row x (s = 0 without `constant`), `[n, m]` and `[n]`."""
    if constant:
        rows = torch.cat([rows, -torch.ones(len(rows), 1, dtype=rows.dtype)], 1)
    if len(rows) > 2 * rows.shape[1]:
        rows = torch.linalg.qr(rows, mode="r").R
    _, values, vectors = torch.linalg.svd(rows)
    rank = int((values > DEPENDENT * values[0]).sum())
    null = vectors[rank:]
    return (null[:, :-1], null[:, -1]) if constant else (null, torch.zeros(len(null), dtype=rows.dtype))


def _layer(
    walk: Walk,
    node: fx.Node,
    change: tuple[Form, Form],
    weight: Weights,
    bias: Weights | None,
    rows: Tensor,
    padded: bool,
) -> tuple[Form, Form]:
    """A', c' of a layer y[o] = Σ_ik W[o, i, k] x[i, k] + b[o] with weight `[o, i, k]`; its parameters change along.

    Args:
        walk: the walk.
        node: the layer's node.
        change: A and c of its input.
        weight: `[out, in, kernel]`.
        bias: `[out]`.
        rows: `[n, positions, in · kernel]`, what the weights see.
        padded: whether zeros stand in for inputs, which no shift c reaches.
    """
    w, system = weight.value, walk.system
    out, into, kernel = w.shape
    a, c = change
    a_out, c_out = _space(walk, node, out)
    dw = a_out.map(lambda t: torch.einsum("zop,pik->zoik", t, w))
    db = c_out if bias is None else c_out + a_out.map(lambda t: t @ bias.value)
    if len(a.idx):
        dw = dw - a.map(lambda t: torch.einsum("ojk,zji->zoik", w, t))
    if len(c.idx):
        moved = c.map(lambda t: torch.einsum("oik,zi->zok", w, t))
        if padded:
            system.require_zero(moved)
        db = db - moved.map(lambda t: t.sum(-1))
    r, s = _dependencies(rows.flatten(0, 1), bias is not None)
    if len(r):
        n = torch.eye(out, dtype=torch.float64)
        free = torch.einsum("op,rx->prox", n, r).reshape(out * len(r), out, into, kernel)
        extra = system.new(free, "dependent inputs")
        dw = dw + extra
        db = db - Form(extra.idx, torch.einsum("op,r->pro", n, s).flatten(0, 1))
    if groups := walk.ignored(
        node
    ):  # norms ignore a shift of all channels alike, GroupNorm if it is everywhere the same
        ones = blocks(out, max(groups, 1))[:: out // max(groups, 1)]
        each = torch.eye(into * kernel, dtype=torch.float64)
        if groups > 0 and rows.shape[1] > 1:
            each = _dependencies((rows[:, 1:] - rows[:, :1]).flatten(0, 1), False)[0]
        silent = torch.einsum("go,zx->gzox", ones, each).reshape(len(ones) * len(each), out, into, kernel)
        dw = dw + system.new(silent, "norm shift")
    walk.change(weight, dw)
    if bias is None:
        system.require_zero(db)
    else:
        walk.change(bias, db)
    return a_out, c_out


def moved(a: Form, c: Form, shape: tuple[int, ...], dim: int) -> Known:
    """An activation that changes by A and c along one dimension; still if they are zero."""
    if len(a.idx) == 0 and len(c.idx) == 0:
        return Still()
    return Moved(*fresh_layout(shape, dim), a, c)


def blocks(d: int, groups: int) -> Tensor:
    """`[d, d]`, 1 where two channels share a group."""
    group = torch.arange(d) // (d // groups)
    return (group[:, None] == group).double()


@rule("linear")
def linear(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """y = W x + b over the last dimension."""
    weight, bias = known["weight"], known.get("bias")
    if not isinstance(weight, Weights) or isinstance(bias, Moved | Still):
        raise Unsupported
    change = change_of(walk, known["input"], -1)
    rows = numbers["input"].flatten(1, -2) if result.ndim > 2 else numbers["input"][:, None]
    flat = Weights(weight.value[..., None], weight.source[..., None])
    a, c = _layer(walk, node, change, flat, bias, rows, False)
    return moved(a, c, tuple(result.shape), -1)


@rule("conv2d")
def conv2d(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """A linear layer on patches; with groups, one whose weights between groups are constant zeros."""
    weight, bias = known["weight"], known.get("bias")
    if not isinstance(weight, Weights) or isinstance(bias, Moved | Still) or isinstance(numbers.get("padding"), str):
        raise Unsupported
    change = change_of(walk, known["input"], 1)
    groups, w = numbers.get("groups", 1), weight.value
    options = {k: numbers[k] for k in ("dilation", "padding", "stride") if k in numbers}
    rows = F.unfold(numbers["input"], w.shape[2:], **options).movedim(1, -1)
    out, part = w.shape[:2]
    value = torch.zeros(out, part * groups, w[0, 0].numel(), dtype=w.dtype)
    source = torch.full(value.shape, -1)
    for g in range(groups):
        mine = slice(g * out // groups, (g + 1) * out // groups), slice(g * part, (g + 1) * part)
        value[mine], source[mine] = w.flatten(2)[mine[0]], weight.source.flatten(2)[mine[0]]
    padded = any(size > 0 for size in options.get("padding", [0]))
    a, c = _layer(walk, node, change, Weights(value, source), bias, rows, padded)
    return moved(a, c, tuple(result.shape), 1)


@rule("embedding")
def embedding(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """x = W[token]: any change of x is one of the table."""
    a, c = _space(walk, node, result.shape[-1])
    table = known["weight"]
    rows = len(table.value)
    dw = a.map(lambda t: torch.einsum("zop,vp->zvo", t, table.value))
    walk.change(table, dw + c.map(lambda t: t[:, None].expand(-1, rows, -1)))
    return moved(a, c, tuple(result.shape), -1)
