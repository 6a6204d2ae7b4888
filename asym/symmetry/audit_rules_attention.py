"""Rules of attention, whole or written out as products and soft-max; see `audit_rules.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from asym.symmetry.audit_system import Form
from asym.symmetry.audit_values import Known, Moved, Scores, Shares, Still, Unsupported, Weights, along
from asym.symmetry.audit_walk import Walk, rule


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
