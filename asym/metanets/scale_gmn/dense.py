"""States of layered networks as dense tensors, and the canonical form of a vector under positive scaling.

The networks of a stack share their architecture, so no edge needs an index. With the axis n of networks inside,

    nodes of layer l   `width_l n d`,        edges of layer l   `width_l width_{l−1} n d`  (target, source),

a source's state meets all its edges by broadcasting over the first axis, a target's over the second, and summing
messages over sources is a sum over the second axis. A linear map of a pair [a_ij; v_j] is a map of a_ij plus a map of
v_j, the latter done once a node; a linear map after a sum is done once a node too. The plain form with gather and
scatter, which does all of this once an edge, is in `benchmarks/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from asym.symmetry.residual import Wires


class Raw(NamedTuple):
    """Edges before the first round: weights of the input networks and the map that would lift them to d channels."""

    features: Float[Tensor, "out in n taps"]
    lift: Float[Tensor, "d taps"]


Edges = Tensor | Raw
"""Edges of a layer, `out in n d`, or before the first round raw ones."""


def project(edges: Edges, weight: Float[Tensor, "k d"]) -> Float[Tensor, "out in n k"]:
    """W e for every edge; raw edges are mapped by the product W · lift, far cheaper than lifting them first."""
    if isinstance(edges, Raw):
        return F.linear(edges.features, weight @ edges.lift)
    return F.linear(edges, weight)


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = inverse_or_zero(norm)
        result = x * inverse
        ctx.save_for_backward(result, inverse)
        ctx.set_materialize_grads(False)
        return result, norm

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grads: Tensor | None
    ) -> Tensor | None:
        (du, dn), (result, inverse) = grads, ctx.saved_tensors
        if du is None:
            return None if dn is None else result * dn
        along = torch.linalg.vecdot(du, result).unsqueeze(-1)
        found = torch.addcmul(du, result, along, value=-1).mul_(inverse)
        return found if dn is None else found.addcmul_(result, dn)


def unit(x: Float[Tensor, "*b d"]) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b 1"]]:
    """x / ‖x‖ and ‖x‖ over the last axis; 0, 0 and derivative 0 where x = 0 (a dead unit, a zero kernel).

    There is no small constant in the denominator (published: 1e-10): the scale of x goes to rounding, whatever it is.
    First derivatives only.
    """
    return _Unit.apply(x)  # type: ignore[return-value]


class _UnitOverSources(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: Tensor) -> Tensor:
        inverse = inverse_or_zero(torch.linalg.vector_norm(x, dim=(1, 3), keepdim=True)) * count.sqrt()
        result = x * inverse
        ctx.save_for_backward(result, inverse, count)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        result, inverse, count = ctx.saved_tensors
        along = torch.einsum("oind,oind->on", grad, result)[:, None, :, None] / count
        return torch.addcmul(grad, result, along, value=-1).mul_(inverse), None


def unit_over_sources(x: Float[Tensor, "out in n d"], count: Tensor) -> Float[Tensor, "out in n d"]:
    """√count · x / ‖x‖ with the norm over sources and channels together; 0 and derivative 0 where all is 0.

    Args:
        x: edges.
        count: of sources, one number or `n 1`; without gradient.
    """
    return _UnitOverSources.apply(x, count)  # type: ignore[return-value]


def inverse_or_zero(norm: Tensor) -> Tensor:
    """1 / norm, and 0 with derivative 0 where that would not be finite."""
    small = norm < 2 * torch.finfo(norm.dtype).tiny
    return torch.where(small, torch.zeros_like(norm), torch.where(small, torch.ones_like(norm), norm).reciprocal())


@dataclass(frozen=True)
class Round:
    """What one round of message passing has to do, by number of node layer (from 0) and edge layer (from 1)."""

    nodes: frozenset[int]
    forward: frozenset[int]
    backward: frozenset[int]
    edges: frozenset[int]


def schedule(
    wires: Wires, rounds: int, read: frozenset[int], *, both: bool, edge_updates: bool, weights: bool
) -> list[Round]:
    """The rounds, without what cannot reach the output: found from the last round to the first.

    With the states of the output alone read (`read` = {L}), the last round needs the last layer's edges only, the one
    before those of the last two layers, and so on. Leaving the rest out changes no output.

    Args:
        wires: how the input networks hang together.
        rounds: of message passing.
        read: node layers that the readout reads.
        both: whether messages go backwards too.
        edge_updates: whether edges change between rounds.
        weights: whether all final edges are read.
    """
    ends = dict(enumerate(zip(wires.sources, wires.targets), start=1))
    nodes, edges = read, frozenset(ends) if weights else frozenset()
    found = []
    for step in reversed(range(rounds)):
        updated = edges if edge_updates and (step < rounds - 1 or weights) else frozenset()
        ahead = frozenset(e for e, (_, target) in ends.items() if target in nodes)
        back = frozenset(e for e, (source, _) in ends.items() if source in nodes) if both else frozenset()
        found.append(Round(nodes, ahead, back, updated))
        touched = ahead | back | updated
        joined = [pair for pair in wires.skips if pair[1] in nodes or (both and pair[0] in nodes)]
        nodes = nodes.union(*([*ends[e]] for e in touched), *joined)
        edges = touched | edges
    return found[::-1]
