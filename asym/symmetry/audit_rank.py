"""The rank of a network's Jacobian, in float64, by a gap among its singular values.

J = ∂ outputs / ∂ trainable parameters at random inputs; its null space are the directions along which the network's
function stays the same to first order. Columns are scaled to length one, which changes no rank and lets directions of
different size be compared. Values below `FLOOR` · largest are candidates for zero; the rank is where the ratio of
neighbouring values is largest among them, and that ratio is reported: below about 10³ a rank is not to be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

FLOOR = 1e-7
ROUNDING = 1e-16


@dataclass(frozen=True)
class Rank:
    """A numerical rank.

    Attributes:
        rank: the rank.
        nullity: number of columns minus rank.
        gap: ratio of the last singular value that counts to the first that does not (or to rounding).
        kept: the last that counts, as a share of the largest.
        dropped: the first that does not, likewise; 0 if there is none.
        saturated: whether half of the rows already had this rank.
        rows: rows of the Jacobian.
    """

    rank: int
    nullity: int
    gap: float
    kept: float
    dropped: float
    saturated: bool
    rows: int


def jacobian(
    model: nn.Module, state: Mapping[str, Tensor], sources: Mapping[str, Tensor], total: int, x: Any, joint: bool
) -> Float[Tensor, "rows total"]:
    """∂ outputs / ∂ trainable entries, one row for every output of every example.

    Args:
        model: a float64 module.
        state: parameters and buffers by name.
        sources: flat numbers of trainable entries (`trainable_sources`).
        total: how many there are.
        x: what the model is called with.
        joint: whether examples meet in the network, so that they cannot be taken one by one.
    """
    wanted = {name: source for name, source in sources.items() if bool((source >= 0).any())}
    trainable = {name: state[name] for name in wanted}
    rest = {name: value for name, value in state.items() if name not in wanted}

    def whole(values: dict[str, Tensor], x: Any) -> Tensor:
        return functional_call(model, {**rest, **values}, (x,))

    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be batched
        part = _parts(whole, trainable, x, joint)
    count = len(next(iter(part.values())))
    rows = torch.zeros(count, total, dtype=torch.float64)
    for name, source in wanted.items():
        free = source.ravel() >= 0
        rows.index_add_(1, source.ravel()[free], part[name].reshape(count, source.numel())[:, free])
    return rows


def _parts(whole: Any, trainable: dict[str, Tensor], x: Any, joint: bool) -> dict[str, Tensor]:
    """The Jacobian by parameter, `[rows, *shape]`."""
    if joint:
        return jacrev(lambda values: whole(values, x).flatten(), chunk_size=64)(trainable)  # type: ignore
    each = vmap(jacrev(lambda values, x: whole(values, x[None])[0].flatten()), in_dims=(None, 0), chunk_size=32)
    return {name: value.flatten(0, 1) for name, value in each(trainable, x).items()}


def shares_statistics(model: nn.Module) -> bool:
    """Whether examples of a batch meet in the network, as in BatchNorm without running statistics."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is None for m in model.modules())


def spectral_rank(blocks: Iterable[Float[Tensor, "rows columns"]]) -> tuple[Rank, Float[Tensor, "columns columns"]]:
    """Rank of a matrix that is given in blocks of rows, until as many rows again have not changed it.

    A ReLU network is linear piece by piece: a direction may stay hidden until an input lies in the right piece, so that
    a rank can only be trusted if more inputs do not raise it.

    Returns:
        The rank, and the triangular factor R of the matrix, for which |R v| = |J v|.
    """
    factor = values = torch.zeros(0)
    rows, ranks = 0, []
    for block in blocks:
        factor = torch.linalg.qr(torch.cat([factor, block]) if rows else block, mode="r")[1]
        rows += len(block)
        values = _spectrum(factor)
        ranks.append(_cut(values))
        if len(ranks) > 1 and ranks[-1] == ranks[-2]:
            break
    if not ranks:
        raise ValueError("blocks: there are none")
    rank, columns = ranks[-1], factor.shape[1]
    relative = values / values[0].clamp(min=1e-300) if len(values) else values
    kept = float(relative[rank - 1]) if rank else 1.0
    dropped = float(relative[rank]) if rank < len(relative) else 0.0
    saturated = len(ranks) > 1 and ranks[-1] == ranks[-2]
    return Rank(rank, columns - rank, kept / max(dropped, ROUNDING), kept, dropped, saturated, rows), factor


def _spectrum(factor: Tensor) -> Tensor:
    norms = factor.norm(dim=0)
    used = norms > 1e-13 * norms.max().clamp(min=1e-300)
    return torch.linalg.svdvals(factor[:, used] / norms[used])


def _cut(values: Tensor) -> int:
    if len(values) == 0:
        return 0
    relative = (values / values[0]).clamp(min=ROUNDING)
    below = torch.cat([relative[1:], torch.tensor([ROUNDING], dtype=values.dtype)])
    ratio = relative / below
    ratio[below >= FLOOR] = 0.0
    small = bool((relative < FLOOR).any())
    return int(ratio.argmax()) + 1 if small else len(values)
