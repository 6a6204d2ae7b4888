"""What every operation says about a change δx = A x + c of its input; see `audit_walk.py`.

A rule is called as rule(walk, node, known, numbers, result): the operation's arguments by name, once as what is known
of their change and once as tensors, and its result as a tensor. It returns what is known of the result. Notation: A, c
belong to the input, A', c' to the output; C = I − 1 1ᵀ/d removes the mean over channels.

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
from asym.symmetry.audit_values import Known, Moved, Scores, Shares, Still, Unsupported, Weights, along, fresh_layout
from asym.symmetry.audit_walk import HOMOGENEOUS, ODD, Walk, operation, rule

DEPENDENT = 1e-10
"""Inputs of a layer are linearly dependent where a singular value is below this share of the largest."""


def _change_of(walk: Walk, value: Known, dim: int) -> tuple[Form, Form]:
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
        ones = _blocks(out, max(groups, 1))[:: out // max(groups, 1)]
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


def _moved(a: Form, c: Form, shape: tuple[int, ...], dim: int) -> Known:
    if len(a.idx) == 0 and len(c.idx) == 0:
        return Still()
    return Moved(*fresh_layout(shape, dim), a, c)


@rule("linear")
def linear(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """y = W x + b over the last dimension."""
    weight, bias = known["weight"], known.get("bias")
    if not isinstance(weight, Weights) or isinstance(bias, Moved | Still):
        raise Unsupported
    change = _change_of(walk, known["input"], -1)
    rows = numbers["input"].flatten(1, -2) if result.ndim > 2 else numbers["input"][:, None]
    flat = Weights(weight.value[..., None], weight.source[..., None])
    a, c = _layer(walk, node, change, flat, bias, rows, False)
    return _moved(a, c, tuple(result.shape), -1)


@rule("conv2d")
def conv2d(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """A linear layer on patches; with groups, one whose weights between groups are constant zeros."""
    weight, bias = known["weight"], known.get("bias")
    if not isinstance(weight, Weights) or isinstance(bias, Moved | Still) or isinstance(numbers.get("padding"), str):
        raise Unsupported
    change = _change_of(walk, known["input"], 1)
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
    return _moved(a, c, tuple(result.shape), 1)


@rule("embedding")
def embedding(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """x = W[token]: any change of x is one of the table."""
    a, c = _space(walk, node, result.shape[-1])
    table = known["weight"]
    rows = len(table.value)
    dw = a.map(lambda t: torch.einsum("zop,vp->zvo", t, table.value))
    walk.change(table, dw + c.map(lambda t: t[:, None].expand(-1, rows, -1)))
    return _moved(a, c, tuple(result.shape), -1)


@rule(" ".join(HOMOGENEOUS | ODD))
def of_each_entry(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """f(s x) = s f(x) for s > 0 (ReLU) or for s = −1 (odd functions); a largest entry commutes with shifts too."""
    value, name = known["self"], operation(node)
    if not isinstance(value, Moved):
        return Still()
    if (name in ODD) != walk.odd:
        raise Unsupported
    off = 1 - torch.eye(value.width)
    walk.system.require_zero(value.a.map(lambda t: t * off))
    walk.system.retag(value.a, "unit scaling", (None, "affine scale"))
    if "max" in name:
        return _pooled(value, numbers, result)
    walk.system.require_zero(value.c)
    return Moved(value.channel, value.position, value.a, Form.zero(value.width))


@rule("mean sum avg_pool2d adaptive_avg_pool2d")
def averaged(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """An average over positions commutes with A and c; a sum or an average with padding only with A."""
    value = known["self"]
    if not isinstance(value, Moved):
        return Still()
    if operation(node) == "sum" or any(numbers.get("padding") or [0]):
        walk.system.require_zero(value.c)
    return _pooled(value, numbers, result)


def _pooled(value: Moved, numbers: dict[str, Any], result: Tensor) -> Moved:
    """The layout after positions were brought together."""
    dims = numbers.get("dim")
    if dims is None:
        if result.ndim != 4:
            raise Unsupported
        first = value.channel[:, :, :1, :1]
        if not bool((value.channel == first).all()):
            raise Unsupported
        return value.with_layout(first.expand(result.shape), fresh_layout(tuple(result.shape), 1)[1])
    dims, keep = ([dims] if isinstance(dims, int) else dims), bool(numbers.get("keepdim", False))
    channel, position = value.channel.amin(dims, keep), value.position.amin(dims, keep)
    if not bool((channel == value.channel.amax(dims, keep)).all()):
        raise Unsupported
    return value.with_layout(channel, position)


@rule("add sub")
def added(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """x + y: both carry the same A; to a constant A has to do nothing; a parameter moves along."""
    first, second = known["self"], known["other"]
    sign = (1.0 if operation(node) == "add" else -1.0) * numbers.get("alpha", 1)
    if isinstance(second, Moved) and not isinstance(first, Moved):
        if sign != 1:
            raise Unsupported
        first, second, numbers = second, first, {"other": numbers["self"]}
    if not isinstance(first, Moved):
        raise Unsupported
    layout = _broadcast(first, result)
    if isinstance(second, Moved):
        other = _broadcast(second, result)
        if not bool((layout.channel == other.channel).all()) or first.width != second.width:
            raise Unsupported
        walk.system.require_zero(first.a - second.a)
        mean = (first.a + second.a).map(lambda t: t / 2)  # equal, and shows the unknowns of both
        return Moved(layout.channel, layout.position, mean, first.c + second.c.map(lambda t: sign * t))
    if isinstance(second, Still):
        walk.system.require_zero(first.a)
        return Moved(layout.channel, layout.position, Form.zero(first.width, first.width), first.c)
    if isinstance(second, int | float):
        shift = torch.full((first.width,), sign * float(second), dtype=torch.float64)
        return Moved(layout.channel, layout.position, first.a, first.c - first.a.map(lambda t: t @ shift))
    return _add_weights(walk, node, layout, second, sign)


def _add_weights(walk: Walk, node: fx.Node, value: Moved, weights: Weights, sign: float) -> Known:
    """x + P with P of shape `[…, d]` or `[d, 1, 1]`: P's change makes up for what A and c do not."""
    system, d = walk.system, value.width
    shape = value.channel.shape
    full = weights.value.expand(shape)
    channel = value.channel[0].reshape(-1)
    p, source = sign * full[0].reshape(-1), weights.source.expand(shape)[0].reshape(-1)
    position = value.position[0].reshape(-1)
    rows = []
    for at in position.unique():
        members = (position == at).nonzero().ravel()
        if len(members) != d:
            raise Unsupported
        rows.append(members[channel[members].argsort()])
    places = torch.stack(rows)
    table, numbers = p[places], source[places]
    if bool((numbers < 0).all()):  # a constant, such as positions written as waves
        base = table[0]
        differences = table - base
        system.require_zero(value.a.map(lambda t: torch.einsum("zij,pj->zpi", t, differences)))
        return Moved(value.channel, value.position, value.a, value.c - value.a.map(lambda t: t @ base))
    shift = Form.zero(d) if walk.kind(node) in ("still", "diagonal") else system.new(torch.eye(d))
    change = value.a.map(lambda t: torch.einsum("zij,pj->zpi", t, table))
    change = change + (shift - value.c).map(lambda t: t[:, None].expand(-1, len(table), -1))
    if walk.ignored(node) < 0:
        n = len(table)
        free = torch.eye(n, dtype=torch.float64)[..., None].expand(n, n, d)
        change = change + system.new(free, "norm shift")
    walk.change(Weights(table, numbers), change.map(lambda t: sign * t))
    return Moved(value.channel, value.position, value.a, shift)


def _broadcast(value: Moved, result: Tensor) -> Moved:
    return value.with_layout(value.channel.expand(result.shape), value.position.expand(result.shape))


@rule("mul div")
def scaled(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """x times a number, a parameter per channel, or another activation (a gate)."""
    first, second = known["self"], known["other"]
    if isinstance(first, Scores) and isinstance(second, int | float):
        return first
    if isinstance(second, Moved) and not isinstance(first, Moved) and operation(node) == "mul":
        first, second, numbers = second, first, {"self": numbers["other"], "other": numbers["self"]}
    if not isinstance(first, Moved):
        raise Unsupported
    if isinstance(second, int | float):
        factor = float(second) if operation(node) == "mul" else 1 / float(second)
        return Moved(first.channel, first.position, first.a, first.c.map(lambda t: factor * t))
    if operation(node) == "div":
        raise Unsupported
    layout = _broadcast(first, result)
    if isinstance(second, Weights):
        return _scale(walk, layout, second)
    off = 1 - torch.eye(first.width)
    gate = _broadcast(second, result) if isinstance(second, Moved) else None
    a = first.a
    for value in (layout, *([gate] if gate else [])):
        walk.system.require_zero(value.c)
        walk.system.require_zero(value.a.map(lambda t: t * off))
    if gate:
        if not bool((gate.channel == layout.channel).all()):
            raise Unsupported
        a = a + gate.a
    return Moved(layout.channel, layout.position, a, Form.zero(first.width))


def _scale(walk: Walk, value: Moved, weights: Weights) -> Known:
    d, shape = value.width, value.channel.shape
    numbers, source = weights.value.expand(shape).reshape(-1), weights.source.expand(shape).reshape(-1)
    channel = value.channel.reshape(-1)
    at = torch.stack([(channel == k).nonzero()[0, 0] for k in range(d)])
    gamma, entry = numbers[at], source[at]
    if not bool((numbers == gamma[channel]).all()):
        raise Unsupported
    eye = torch.eye(d, dtype=torch.float64)
    free = walk.system.new(torch.diag_embed(eye)[entry >= 0], "affine scale")
    walk.change(Weights(gamma, entry), free.map(lambda t: t.diagonal(dim1=1, dim2=2) * gamma))
    a = value.a.map(lambda t: gamma[:, None] * t / gamma) + free
    return Moved(value.channel, value.position, a, value.c.map(lambda t: gamma * t))


def _affine(walk: Walk, rotation: Form, known: dict[str, Any], d: int) -> tuple[Form, Form]:
    """A', c' after scale g and shift β of a norm whose normalised input changes by R z."""
    system, eye = walk.system, torch.eye(d, dtype=torch.float64)
    weight, bias = known.get("weight"), known.get("bias")
    g = torch.ones(d, dtype=torch.float64) if weight is None else weight.value
    beta = torch.zeros(d, dtype=torch.float64) if bias is None else bias.value
    a = rotation.map(lambda t: g[:, None] * t / g)
    if weight is not None:
        scale = system.new(torch.diag_embed(eye)[weight.source >= 0], "affine scale")
        walk.change(weight, scale.map(lambda t: t.diagonal(dim1=1, dim2=2) * g))
        a = a + scale
    moved = a.map(lambda t: t @ beta)
    if bias is None:
        return a, -moved
    free = bias.source >= 0
    shift = system.new(eye[free], "affine shift")
    walk.change(bias, (shift + moved).map(lambda t: t * free))
    return a, shift - moved.map(lambda t: t * ~free)


def _blocks(d: int, groups: int) -> Tensor:
    """`[d, d]`, 1 where two channels share a group."""
    group = torch.arange(d) // (d // groups)
    return (group[:, None] == group).double()


@rule("layer_norm")
def layer_norm(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """z = C x / |C x| · √d over the last dimension, then g z + β."""
    if len(numbers["normalized_shape"]) != 1:
        raise Unsupported
    d, value, system = result.shape[-1], known["input"], walk.system
    rotation = Form.zero(d, d)
    if isinstance(value, Moved):
        a, c = _change_of(walk, value, -1)
        centre = torch.eye(d, dtype=torch.float64) - 1 / d
        system.require_zero(a.map(lambda t: (centre @ t).sum(-1)))
        system.require_zero(c.map(lambda t: t @ centre))
        inner = a.map(lambda t: centre @ t @ centre)
        rotation = _rotation(walk, inner, centre[None])
    a, c = _affine(walk, rotation, known, d)
    return _moved(a, c, tuple(result.shape), -1)


def _rotation(walk: Walk, a: Form, parts: Tensor) -> Form:
    """The antisymmetric part of A; its symmetric part has to be a multiple of each of `parts` `[g, d, d]`."""
    symmetric = a.map(lambda t: (t + t.mT) / 2)
    norms = parts.pow(2).sum((1, 2)).clamp(min=1e-300)
    share = symmetric.map(lambda t: torch.einsum("zij,gij,g,gkl->zkl", t, parts, 1 / norms, parts))
    walk.system.require_zero(symmetric - share)
    return a.map(lambda t: (t - t.mT) / 2)


@rule("group_norm")
def group_norm(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """Mean and variance over the channels of a group and all positions."""
    d, groups, system, value = result.shape[1], numbers["num_groups"], walk.system, known["input"]
    rotation = Form.zero(d, d)
    if isinstance(value, Moved):
        a, c = _change_of(walk, value, 1)
        block = _blocks(d, groups)
        mean = block * groups / d
        system.require_zero(a.map(lambda t: t * (1 - block)))
        system.require_zero(c.map(lambda t: t - t @ mean))
        ids = torch.arange(d) // (d // groups)
        parts = torch.stack([torch.diag((ids == g).double()) for g in range(groups)])
        rotation = _rotation(walk, a, parts)
        system.require_zero(rotation.map(lambda t: t.sum(-1)))
    a, c = _affine(walk, rotation, known, d)
    return _moved(a, c, tuple(result.shape), 1)


@rule("batch_norm")
def batch_norm(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """On batch statistics every channel's scale and shift vanish; on running statistics it is an affine map."""
    d, value, system = result.shape[1], known["input"], walk.system
    training = bool(numbers["training"])
    if not isinstance(value, Moved) or training:
        if isinstance(value, Moved):
            a, _ = _change_of(walk, value, 1)
            system.require_zero(a.map(lambda t: t * (1 - torch.eye(d))))
        a, c = _affine(walk, Form.zero(d, d), known, d)
        return _moved(a, c, tuple(result.shape), 1)
    a, c = _change_of(walk, value, 1)
    sigma = (numbers["running_var"] + numbers["eps"]).sqrt()
    a_in = a.map(lambda t: t / sigma[:, None] * sigma)
    c_in = (c + a.map(lambda t: t @ numbers["running_mean"])).map(lambda t: t / sigma)
    g = known["weight"].value if known.get("weight") is not None else torch.ones(d, dtype=torch.float64)
    a, c = _affine(walk, a_in, known, d)
    return _moved(a, c + c_in.map(lambda t: g * t), tuple(result.shape), 1)


def _heads(walk: Walk, value: Moved) -> list[tuple[Form, Form]]:
    """A and c of each head of `[…, heads, tokens, features]`."""
    found = []
    for h in range(value.channel.shape[-3] if value.channel.ndim > 3 else 1):
        many = value.channel.ndim > 3
        channel, position = (t.select(-3, h) if many else t for t in (value.channel, value.position))
        width = channel.shape[-1]
        found.append(along(walk.system, value, channel.reshape(-1, width), position.reshape(-1, width)))
    return found


def _scores(walk: Walk, query: Known, key: Known) -> Scores:
    """q·k of each head, both with features last, stays but for what soft-max ignores."""
    system, shifts = walk.system, []
    q = _heads(walk, query) if isinstance(query, Moved) else []
    k = _heads(walk, key) if isinstance(key, Moved) else []
    for h in range(max(len(q), len(k))):
        if q and k:
            system.require_zero(q[h][0] + k[h][0].map(lambda t: t.mT))
        else:
            system.require_zero((q or k)[h][0])
        if q:
            system.require_zero(q[h][1])
            system.retag(q[h][0], "query-key GL")
        if k:
            system.retag(k[h][0], "query-key GL")
            system.retag(k[h][1], "key shift")
            shifts.append(k[h][1])
    return Scores(shifts)


def _attended(walk: Walk, value: Known, result: Tensor) -> Known:
    """Averages of values over tokens change as the values do."""
    if not isinstance(value, Moved):
        return Still()
    for a, c in _heads(walk, value):
        walk.system.retag(a, "value-output GL")
        walk.system.retag(c, "value shift")
    if tuple(value.channel.shape) != tuple(result.shape):
        raise Unsupported
    return value


@rule("scaled_dot_product_attention")
def attention(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """softmax(q·k) v for each head: q and k may be mixed against each other, v by anything that comes after."""
    parts = [known[name] for name in ("query", "key", "value")]
    if numbers.get("enable_gqa") or any(isinstance(part, Weights) for part in parts):
        raise Unsupported
    _scores(walk, parts[0], parts[1])
    return _attended(walk, parts[2], result)


@rule("softmax")
def softmax(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """Over the keys: what is the same for all of them cancels."""
    if not isinstance(known["self"], Scores) or numbers["dim"] not in (-1, result.ndim - 1):
        raise Unsupported
    return Shares()


@rule("matmul mm bmm")
def matmul(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """Attention written out (q kᵀ, then weights times v), or M x with a constant M that mixes nodes of a graph."""
    first, second = known["self"], known["mat2" if "mat2" in known else "other"]
    if isinstance(first, Moved) and isinstance(second, Moved | Still) and result.ndim > 2:
        turned = second.with_layout(second.channel.mT, second.position.mT) if isinstance(second, Moved) else second
        return _scores(walk, first, turned)
    if isinstance(first, Shares):
        return _attended(walk, second, result)
    if not isinstance(first, Still | Weights) or not isinstance(second, Moved) or second.channel.ndim != 2:
        raise Unsupported
    walk.hold(first)
    channel = second.channel[:1]
    if not bool((second.channel == channel).all()):
        raise Unsupported
    sums = numbers["self"].to_dense().sum(-1)
    if not torch.allclose(sums, torch.ones_like(sums)):
        walk.system.require_zero(second.c)
    position = torch.arange(len(result))[:, None].expand(result.shape)
    return second.with_layout(channel.expand(result.shape), position)


@rule("cat")
def cat(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """Channels laid end to end keep their own changes; positions laid end to end share one, parameters included."""
    parts, dim = known["tensors"], numbers.get("dim", 0)
    moved = [part for part in parts if isinstance(part, Moved)]
    if not moved or any(isinstance(part, Still) for part in parts):
        raise Unsupported
    first = moved[0]
    across = first.channel.select(dim, 0).unsqueeze(dim)
    if len(moved) == len(parts) and not bool((first.channel == across).all()):
        offset, channels = 0, []
        for part in moved:
            channels.append(part.channel + offset)
            offset += part.width
        wide = [(sum(p.width for p in moved[:i]), p) for i, p in enumerate(moved)]
        forms = []
        for start, part in wide:
            coef = torch.zeros(len(part.a.idx), offset, offset, dtype=torch.float64)
            coef[:, start : start + part.width, start : start + part.width] = part.a.coef
            forms.append(Form(part.a.idx, coef))
        a = forms[0]
        for form in forms[1:]:
            a = a + form
        positions = torch.cat([p.position.expand_as(p.channel) for p in moved], dim)
        return Moved(torch.cat(channels, dim), positions, a, Form.cat([p.c for p in moved]))
    for part in moved[1:]:
        walk.system.require_zero(first.a - part.a)
        walk.system.require_zero(first.c - part.c)
    channels, positions, start = [], [], 0
    for part in parts:
        if isinstance(part, Moved):
            channels.append(part.channel)
            positions.append(part.position + start)
            start += int(part.position.max()) + 1
            continue
        shape = part.value.shape
        if shape[-1] != first.width or dim % len(shape) == len(shape) - 1:
            raise Unsupported
        table = Weights(part.value[0].reshape(-1, first.width), part.source[0].reshape(-1, first.width))
        n = len(table.value)
        change = first.a.map(lambda t, p=table.value: torch.einsum("zij,pj->zpi", t, p))
        change = change + first.c.map(lambda t, n=n: t[:, None].expand(-1, n, -1))
        if walk.ignored(node) < 0:
            free = torch.eye(n, dtype=torch.float64)[..., None].expand(n, n, first.width)
            change = change + walk.system.new(free, "norm shift")
        walk.change(table, change)
        channel, position = fresh_layout(tuple(shape), -1)
        channels.append(channel)
        positions.append(position + start)
        start += int(position.max()) + 1
    return Moved(torch.cat(channels, dim), torch.cat(positions, dim), first.a, first.c)
