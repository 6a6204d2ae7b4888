"""Rules of functions of single entries, sums, products and concatenation; see `audit_rules.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from asym.symmetry.audit_graph import operation
from asym.symmetry.audit_system import Form
from asym.symmetry.audit_values import Known, Moved, Scores, Still, Unsupported, Weights, fresh_layout
from asym.symmetry.audit_walk import HOMOGENEOUS, ODD, Walk, rule


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
