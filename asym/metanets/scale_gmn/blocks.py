"""The building blocks: canonical forms, invariant and equivariant functions of vectors with a multiplier.

A state x scales with a multiplier q of its unit (q > 0, q = ±1 or q = 1, see `asym.symmetry.chain`). With x̃ a form of x
that q does not change, and MLP = linear → LayerNorm → SiLU → linear,

    ScaleInv(x_1, …, x_k) = MLP([x̃_1; …; x̃_k]),        ScaleEq(x) = (Γ x) ⊙ ScaleInv(x),        Γ without bias

ScaleEq(q x) = q ScaleEq(x). Several x with the same multiplier are concatenated before they are made canonical, which
keeps their relative size. Source: Kalogeropoulos, Bouritsas, Panagakis, "Scale Equivariant Graph Metanetworks" (2024,
arXiv 2406.10685), section 5.1. Canonical forms:

    scale   x / ‖x‖, exactly 0 for x = 0
    sign    ρ(x) + ρ(−x) with an MLP ρ ("symmetrise"), or |x| ("canonicalise", which is invariant but forgets which
            channels differ in sign, so it tells fewer networks apart)
    none    x;  input and output nodes, whose q is 1 as well, take x / ‖x‖ as published

Start values differ from the published ones: there the output of an untrained network depends on its input by 1e-6,
since each round multiplies several small maps. Here the entries of Γ have variance 1 / fan-in, and the last bias of an
MLP that multiplies starts at 1.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.metanets.scale_gmn.dense import unit

SIGNS = ("symmetrise", "canonicalise")
FREE = ("none", "io")
"""Kinds of units with multiplier 1: hidden ones whose activation has no such law, and inputs and outputs."""


def gamma(inputs: int, outputs: int) -> nn.Linear:
    """A linear map without bias, entries of variance 1 / inputs."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer


class MLP(nn.Module):
    """Linear → LayerNorm → SiLU → linear on the concatenation of `parts` vectors of `width` channels.

    The first layer's weight is used part by part (`pieces`): a part that is the same for many edges is mapped once.
    """

    def __init__(
        self,
        parts: int,
        width: int,
        out: int | None = None,
        *,
        hidden: int | None = None,
        norm: bool = True,
        one: bool = False,
    ) -> None:
        super().__init__()
        hidden = hidden or width
        self.parts, self.width = parts, width
        self.first = nn.Linear(parts * width, hidden)
        self.norm = nn.LayerNorm(hidden) if norm else nn.Identity()
        self.second = nn.Linear(hidden, out or width)
        if one:
            nn.init.ones_(self.second.bias)

    @property
    def pieces(self) -> tuple[Tensor, ...]:
        """The first layer's weight, one matrix a part."""
        return self.first.weight.split(self.width, 1)

    def after(self, pre: Tensor) -> Tensor:
        """SiLU(LayerNorm(pre))."""
        return F.silu(self.norm(pre))

    def forward(self, x: Tensor) -> Tensor:
        """(…, parts · width) → (…, out)."""
        return self.second(self.after(self.first(x)))

    def summed(self, hidden: Tensor, axis: int, alive: Tensor | None = None) -> Tensor:
        """Σ over an axis of second(hidden), with the linear map after the sum; `alive` says which entries count."""
        if alive is not None:
            total = F.linear((hidden * alive).sum(axis), self.second.weight)
            return total + alive.sum(axis) * self.second.bias
        total = F.linear(hidden.sum(axis), self.second.weight)
        return total + hidden.shape[axis] * self.second.bias


class Canonical(nn.Module):
    """x̃ by the kind of its unit: "scale", "sign", "none" or "io"."""

    def __init__(self, width: int, kinds: Collection[str], *, sign: str, hidden: int, norm: bool) -> None:
        super().__init__()
        needs = "sign" in kinds and sign == "symmetrise"
        self.rho = MLP(1, width, width, hidden=hidden, norm=norm) if needs else None

    def forward(self, x: Tensor, kind: str) -> Tensor:
        """(…, width) → (…, width)."""
        if kind in ("scale", "io"):
            return unit(x)[0]
        if kind == "none":
            return x
        if self.rho is None:
            return x.abs()
        turned = F.linear(x, self.rho.first.weight)
        both = self.rho.after(self.rho.first.bias + turned) + self.rho.after(self.rho.first.bias - turned)
        return F.linear(both, self.rho.second.weight) + 2 * self.rho.second.bias


class ScaleEq(nn.Module):
    """(Γ x) ⊙ MLP(x̃) of x = [x_1; …; x_k], vectors that share a multiplier; units with q = 1 take a plain MLP.

    Args:
        parts: k.
        width: channels d of each, and of the result.
        kinds: kinds of units that occur.
        sign: "symmetrise" or "canonicalise".
        norm: whether MLPs have a LayerNorm.
    """

    def __init__(self, parts: int, width: int, kinds: Collection[str], *, sign: str, norm: bool) -> None:
        super().__init__()
        self.gamma = gamma(parts * width, width)
        self.mlp = MLP(parts, width, norm=norm, one=True)
        self.canonical = Canonical(parts * width, kinds, sign=sign, hidden=width, norm=norm)
        self.free = MLP(parts, width, norm=norm)

    def forward(self, x: Tensor, kind: str) -> Tensor:
        """(…, parts · width) → (…, width)."""
        if kind in FREE:
            return self.free(x)
        return self.gamma(x) * self.mlp(self.canonical(x, kind))


class Message(nn.Module):
    """Σ over the edges of a unit of ScaleEq([h; z]); the edges z have the unit's multiplier, its state h is optional.

    The two parts are made canonical apart, so that the receiver's share of every map is worked out once a node.

    Args:
        receiver: whether the receiver's state is in the message (the paper's form; the released code leaves it out).
        width, kinds, sign, norm: as in `ScaleEq`.
    """

    def __init__(self, receiver: bool, width: int, kinds: Collection[str], *, sign: str, norm: bool) -> None:
        super().__init__()
        parts = 2 if receiver else 1
        self.receiver, self.width = receiver, width
        self.gamma = gamma(parts * width, width)
        self.mlp = MLP(parts, width, norm=norm, one=True)
        self.canonical = Canonical(width, kinds, sign=sign, hidden=width, norm=norm)
        self.free = MLP(parts, width, norm=norm)

    def forward(
        self,
        z: Tensor,
        kind: str,
        axis: int,
        state: Tensor | None,
        canonical: Tensor | None,
        alive: Tensor | None = None,
    ) -> Tensor:
        """The sum over an axis of z `out in n d`: 1 is over sources, 0 over targets.

        Args:
            z: edges with the receiver's multiplier.
            kind: the receiver's.
            axis: that of the senders.
            state: the receiver's, `width n d`; None leaves it out (edges with a multiplier of their own).
            canonical: its canonical form.
            alive: 1 for senders that are there and 0 for padding, `senders n 1`; None if all are.
        """
        alive = None if alive is None else alive.unsqueeze(1 - axis)
        mlp = self.free if kind in FREE else self.mlp
        pre = F.linear(z if kind in FREE else self.canonical(z, kind), mlp.pieces[-1], mlp.first.bias)
        if self.receiver and state is not None:
            seen = state if kind in FREE or canonical is None else canonical
            pre = pre + F.linear(seen, mlp.pieces[0]).unsqueeze(axis)
        if kind in FREE:
            return mlp.summed(mlp.after(pre), axis, alive)
        lifted = F.linear(z, self.gamma.weight[:, -self.width :])
        if self.receiver and state is not None:
            lifted = lifted + F.linear(state, self.gamma.weight[:, : self.width]).unsqueeze(axis)
        lifted = lifted if alive is None else lifted * alive
        return (lifted * mlp.second(mlp.after(pre))).sum(axis)


def concat(*parts: Tensor | None) -> Tensor:
    """Those given, side by side."""
    given = [part for part in parts if part is not None]
    return given[0] if len(given) == 1 else torch.cat(given, -1)
