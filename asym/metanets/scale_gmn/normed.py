"""What comes through a norm: messages along the edges of a layer W whose outputs are normed before they are added.

For x_i = σ(… + γ_i N(W x)_i + β_i) with N over all channels at once, edges of W scale as c / q_j with one c > 0 for the
whole layer, and γ_i, β_i with q_i (`asym.symmetry.residual`). So

    u_i = Σ_j ScaleEq(z_ij),   z_ij = (Γ_e e_ij) ⊙ (Γ_v h_j)          multiplier c
    ũ   = u / rms(u)           by the joint norm of all units         invariant, and keeps how units compare
    m_i = (Γ_γ γ_i) ⊙ MLP([canonical(Γ_γ γ_i); ũ_i])                  multiplier q_i

β_i is part of the unit's bias, where the network sees it too. The norm N forgets c up to its ε alone, the message does
so exactly: that a layer's outputs are small beside ε cannot be read off it.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from asym.metanets.scale_gmn.blocks import FREE, MLP, Canonical, gamma
from asym.metanets.scale_gmn.dense import unit


class Normed(nn.Module):
    """From sums before a norm to messages behind it; arguments as in `ScaleEq`."""

    def __init__(self, width: int, kinds: Collection[str], *, sign: str, norm: bool) -> None:
        super().__init__()
        self.gain = gamma(1, width)
        self.mlp = MLP(2, width, norm=norm, one=True)
        self.canonical = Canonical(width, kinds, sign=sign, hidden=width, norm=norm)
        self.free = MLP(2, width, norm=norm)

    def forward(self, sums: Tensor, gains: Tensor, kind: str) -> Tensor:
        """(width, n, d), gains (width, n), the units' kind → (width, n, d)."""
        gain, joint = self.gain(gains[..., None]), relative(sums)
        if kind in FREE:
            return self.free(torch.cat([gain, joint], -1))
        return gain * self.mlp(torch.cat([self.canonical(gain, kind), joint], -1))


class PlainNormed(nn.Module):
    """MLP([u_i; Γ_γ γ_i]), for permutations alone."""

    def __init__(self, width: int, *, norm: bool) -> None:
        super().__init__()
        self.gain = gamma(1, width)
        self.mlp = MLP(2, width, norm=norm)

    def forward(self, sums: Tensor, gains: Tensor) -> Tensor:
        """As `Normed.forward`."""
        return self.mlp(torch.cat([sums, self.gain(gains[..., None])], -1))


def relative(x: Tensor) -> Tensor:
    """x `*units n d` over the root mean square of its norms over all units of a network; 0 where all are 0."""
    rows = x.movedim(-2, 0).flatten(1)
    scaled = unit(rows)[0] * (rows.shape[1] / x.shape[-1]) ** 0.5
    return scaled.unflatten(1, (*x.shape[:-2], x.shape[-1])).movedim(0, -2)


__all__ = ["Normed", "PlainNormed", "relative"]
