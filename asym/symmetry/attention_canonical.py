"""One representative for each orbit of transformers, but for rotations, to be read in place of the weights.

Block by block, without residual connections (symbols as in `encoder.py`, symmetries as in `attention_more.py`):

    null rows     rows of Q, K, V, A lose their mean
    norm shift    columns of O lose their mean
    next shift    columns of B, and b, lose their mean
    ReLU scale    ‖(A_·k, a_k)‖ = 1, B_k· takes the factor
    next scale    ‖(B, b)‖ = 1
    GL            Q_s K_sᵀ = U Σ Wᵀ: Q_s = U √Σ, K_s = W √Σ, the largest entry of each column of U positive; so V, O
    norm scale    Σ_s ‖V_s O_s‖² = 1
    order         heads by ‖Q_s K_sᵀ‖, hidden units by ‖B_k·‖, the axis of P_O by the norms of O's columns, descending

The function stays as it is (with ε = 0 in the norms); rotations behind a norm remain, which contain P_O, for which the
order of columns is as good a choice as any. Ties and equal singular values, which trained networks do not have, would
leave a choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from asym.symmetry.encoder import Block

KEPT = ("norm-rotation", "between-blocks")
"""Symmetries that are not removed."""


def canonical(blocks: Sequence[Block]) -> list[dict[str, Tensor]]:
    """The representatives of networks with any leading axes."""
    return [_canonical(block) for block in blocks]


def _canonical(block: Block) -> dict[str, Tensor]:
    q, k, v, a = (block[s] - block[s].mean(-2, keepdim=True) for s in "QKVA")
    o, down = (block[s] - block[s].mean(-1, keepdim=True) for s in "OB")
    bias = block["b"] - block["b"].mean(-1, keepdim=True)
    norm = _nonzero((a.square().sum(-2) + block["a"].square()).sqrt())
    a, up, down = a / norm[..., None, :], block["a"] / norm, down * norm[..., None]
    whole = _nonzero((down.square().sum((-1, -2)) + bias.square().sum(-1)).sqrt())
    down, bias = down / whole[..., None, None], bias / whole[..., None]
    q, k, strength = _factors(q, k.mT)
    v, o, values = _factors(v, o)
    root = _nonzero(values.sum(-1)).sqrt().sqrt()[..., None, None, None]
    v, o = v / root, o.mT / root
    heads = strength.argsort(-1, descending=True)
    q, k, v, o = (_pick(x, heads, -3) for x in (q, k, v, o))
    columns = o.square().sum((-2, -3)).argsort(-1, descending=True)
    units = down.square().sum(-1).argsort(-1, descending=True)
    return {
        "Q": q,
        "K": k,
        "V": v,
        "O": o.gather(-1, columns[..., None, None, :].expand(o.shape)),
        "A": _pick(_pick(a, columns, -2), units, -1),
        "a": up.gather(-1, units),
        "B": _pick(down, units, -2),
        "b": bias,
    }


def _factors(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U √Σ, W √Σ and ‖·‖² of left right = U Σ Wᵀ, as many columns as `left` has."""
    width = left.shape[-1]
    u, s, wt = torch.linalg.svd(left @ right, full_matrices=False)
    u, s, w = u[..., :width], s[..., :width], wt.mT[..., :width]
    missing = width - u.shape[-1]  # heads wider than D: columns of zeros
    if missing > 0:
        u, w = (torch.nn.functional.pad(x, (0, missing)) for x in (u, w))
        s = torch.nn.functional.pad(s, (0, missing))
    top = u.gather(-2, u.abs().argmax(-2, keepdim=True))
    sign = torch.where(top < 0, -1.0, 1.0).to(u)
    s = torch.where(s > 100 * torch.finfo(s.dtype).eps * s[..., :1], s, torch.zeros_like(s))  # rounding is no direction
    root = s.sqrt()[..., None, :]
    return u * sign * root, w * sign * root, s.square().sum(-1)


def _pick(x: Tensor, order: Tensor, axis: int) -> Tensor:
    lead = order.ndim - 1
    index = order.reshape(*order.shape[:-1], *(1,) * (x.ndim + axis - lead), -1, *(1,) * (-axis - 1))
    return x.gather(axis, index.expand(x.shape))


def _nonzero(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.ones_like(x))
