"""Sums of rectified outputs, which are all that an invariant layer reads of A, a, B: without keeping what is summed.

    s_no = Σ_k ReLU(y_nko),    y = x Wᵀ + z 1_k,        s_ne = Σ_jk ReLU(y_nejk),    y = φ A + r 1_k + c 1_j

With the masks m = [y > 0], s is linear in masked sums of the inputs, and those are the derivatives:

    M_nfo = Σ_k m_nko x_nkf,  N_no = Σ_k m_nko:    s = Σ_f W_of M_nfo + z N,    ∂s/∂W_of = M_nfo,    ∂s/∂z = N

and so for φ, r, c. So forward passes make y, turn it into its mask in place, in groups of networks so that it stays in
the cache, and keep M, N; backward passes touch nothing of the size of y, unless x or A need gradients themselves.
Blocks come first in all tensors here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

CACHE = 3 * 2**16
"""Entries of y that are made at once, if need be those of one network."""


class RowSums(Function):
    """Σ_k ReLU(x Wᵀ + z): x `l n k f`, W `l o f`, z `l n o` → `l n o`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shift: Tensor) -> Tensor:  # noqa: D102
        seen = torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)
        keep, across, shift = ctx.needs_input_grad[0], weight.mT, shift.contiguous()
        masks, parts = [], []
        for some in _groups(x.shape[0], x.shape[1], x.shape[2] * weight.shape[1]):
            own = x[some]
            y = torch.bmm(own.flatten(1, 2), across[some[0]]).unflatten(1, own.shape[1:3])
            y.gt_(-shift[some][:, :, None])
            masked = seen[some].mT @ y  # l n (f + 1) o
            parts.append((masked, (masked[:, :, :-1] * across[some[0], None]).sum(2)))
            masks += [y] if keep else []
            del y  # the next one takes its place
        moments, found = (_joined(part, shift) for part in zip(*parts))
        found = found + shift * moments[:, :, -1]
        ctx.save_for_backward(moments, weight, *(masks if keep else ()))
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:  # type: ignore[override]  # noqa: D102
        moments, weight, *masks = ctx.saved_tensors
        to_x = (_joined(masks, grad) * grad[:, :, None]) @ weight[:, None] if masks else None
        return to_x, (moments[:, :, :-1] * grad[:, :, None]).sum(1).mT, grad * moments[:, :, -1]


class PlaneSums(Function):
    """Σ_jk ReLU(φ A + r + c): A `l n i j k`, φ `l e i`, r `l n e j`, c `l n e k` → `l n e`."""

    @staticmethod
    def forward(ctx: Any, plane: Tensor, weight: Tensor, rows: Tensor, columns: Tensor) -> Tensor:  # noqa: D102
        keep, flat, wide = ctx.needs_input_grad[0], plane.flatten(-2), weight[:, None]
        even = flat.unflatten(-1, plane.shape[-2:])
        columns = columns.contiguous()
        masks, parts = [], []
        for some in _groups(plane.shape[0], plane.shape[1], rows[0, 0].numel() * columns.shape[-1]):
            if plane.shape[2] == 1:
                y = torch.addcmul(columns[some][..., None, :], wide[some[0]][..., None], even[some])
            else:
                y = (wide[some[0]] @ flat[some]).unflatten(-1, plane.shape[-2:]).add_(columns[some][..., None, :])
            y.gt_(-rows[some][..., None])
            parts.append((y.flatten(-2) @ flat[some].mT, y.sum(-1), y.sum(-2)))
            masks += [y] if keep else []
            del y  # the next one takes its place
        moments, over_columns, over_rows = (_joined(part, rows) for part in zip(*parts))
        found = (moments * wide).sum(-1) + (over_columns * rows).sum(-1) + (over_rows * columns).sum(-1)
        ctx.save_for_backward(moments, over_columns, over_rows, weight, *(masks if keep else ()))
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:  # type: ignore[override]  # noqa: D102
        moments, over_columns, over_rows, weight, *masks = ctx.saved_tensors
        wide, to_plane = grad[..., None], None
        if masks:
            mask = _joined(masks, grad)
            turned = weight.mT[:, None] @ (mask * wide[..., None]).flatten(-2)
            to_plane = turned.unflatten(-1, mask.shape[-2:])
        return to_plane, (moments * wide).sum(1), over_columns * wide, over_rows * wide


def _groups(blocks: int, networks: int, each: int) -> list[tuple[slice, slice]]:
    """Blocks and networks that are worked out together: all, or some networks of one block."""
    if blocks * networks * each <= CACHE:
        return [(slice(None), slice(None))]
    size = max(1, CACHE // max(each, 1))
    return [(slice(k, k + 1), slice(i, i + size)) for k in range(blocks) for i in range(0, networks, size)]


def _joined(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Parts of all groups as `l n …`."""
    return torch.cat([part.flatten(0, 1) for part in parts]).unflatten(0, like.shape[:2])
