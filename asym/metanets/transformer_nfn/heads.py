"""What a reader can see of single heads: tokens that GL does not change, a readout over heads, gates.

Layers whose terms are those of `table.py` see attention only through S = Σ_s Q_s K_sᵀ and T = Σ_s V_s O_s. Proof: Q
and K (V and O) of every later layer are the first ones times matrices that do not depend on the head or the network, so
all later S and T are linear in the first; the other outputs see S and T alone. So neither can tell which query-key pair
goes with which value-output pair, nor the heads from any mixture of them with the same sums, though the transformer's
function depends on both.

For head s, with learnt vectors u_r, v_r, w_r,

    t_s = ( Σ_i u_riᵀ Q_is K_isᵀ v_ri,  Σ_i w_riᵀ V_is O_is 1 )_r

is unchanged by M_s, N_s and P_O, and follows its head under τ. So Σ_s ρ(t_s) is invariant (and sees the pairing), and
σ(G t_s) times the layer's Q_s, K_s, V_s, O_s is equivariant: attention of one head answers to what the head is. Under
residual connections the columns of O stand still, and meet vectors of their own in place of 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asym.metanets.transformer_nfn.mixing import affine
from asym.metanets.transformer_nfn.products import Weights
from asym.symmetry.encoder import Sizes


class Tokens(nn.Module):
    """Tokens of all heads, `n h 2·count`, each number divided by its size on the training networks.

    Args:
        size: of the block.
        channels: of the weights.
        count: probes of each pair.
        residual: whether the columns of O stand still.
    """

    scale: Tensor

    def __init__(self, size: Sizes, channels: int, count: int, *, residual: bool) -> None:
        super().__init__()
        self.heads, self.count = size.heads, count
        lengths = dict.fromkeys("uvw", size.rows) | ({"x": size.dim} if residual else {})
        self.probes = nn.ParameterDict(
            {name: torch.randn(count, channels, length) / math.sqrt(length) for name, length in lengths.items()}
        )
        self.register_buffer("scale", torch.ones(2 * count))

    def forward(self, x: Weights) -> Tensor:
        """`n h 2·count`."""
        return self.raw(x) / self.scale[..., None, None, :]

    def observe(self, x: Weights) -> None:
        """Set the sizes: root mean squares over these networks and their heads."""
        size = self.raw(x).square().mean((-3, -2)).sqrt()
        self.scale.copy_(torch.where(size > 0, size, 1.0))

    def raw(self, x: Weights) -> Tensor:
        """Tokens in their own units."""
        queries, keys = (self._rows(name, x[symbol]) for name, symbol in (("u", "Q"), ("v", "K")))
        values = self._rows("w", x["V"])
        if "x" in self.probes:
            outs = self._rows("x", x["O"].mT)
        else:
            outs = (x["O"].sum(-1) / math.sqrt(x["O"].shape[-1])).unflatten(-1, (self.heads, -1))[..., None, :]
        pairs = [
            (a * b).sum((-4, -1)) / math.sqrt(a.shape[-4] * a.shape[-1]) for a, b in ((queries, keys), (values, outs))
        ]
        return torch.cat(pairs, -1)

    def _rows(self, name: str, x: Tensor) -> Tensor:
        """Rows `n c D (h d)` against vectors: `n c h count d`."""
        seen = self.probes[name].transpose(-3, -2).unsqueeze(-4) @ x  # n c count (h d)
        return seen.unflatten(-1, (self.heads, -1)).transpose(-3, -2)


class HeadReadout(nn.Module):
    """Σ_s ρ(t_s) / √h with a perceptron ρ: `n width`."""

    def __init__(self, size: Sizes, channels: int, count: int, width: int, *, residual: bool) -> None:
        super().__init__()
        self.tokens = Tokens(size, channels, count, residual=residual)
        self.each = nn.Sequential(nn.Linear(2 * count, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: Weights) -> Tensor:
        """`n width`."""
        first, last = self.each[0], self.each[2]
        inner = F.relu(affine(self.tokens(x), first.weight, first.bias))  # type: ignore[arg-type]
        return affine(inner, last.weight, last.bias).sum(-2) / math.sqrt(self.tokens.heads)  # type: ignore[arg-type]


class Gates(nn.Module):
    """Factors 2 σ(G t_s) of each head's Q, K, V, O, a set for each channel; 1 at tokens of zero."""

    def __init__(self, size: Sizes, c_in: int, c_out: int, count: int, *, residual: bool) -> None:
        super().__init__()
        self.c_out = c_out
        self.tokens = Tokens(size, c_in, count, residual=residual)
        self.gate = nn.Linear(2 * count, 4 * c_out)
        nn.init.zeros_(self.gate.bias)

    def forward(self, before: Weights, after: Weights) -> dict[str, Tensor]:
        """Gate what a layer made of `before`."""
        found = affine(self.tokens(before), self.gate.weight, self.gate.bias)
        factors = 2 * found.sigmoid().unflatten(-1, (4, self.c_out))  # n h 4 e
        gated = dict(after)
        for k, symbol in enumerate("QKVO"):
            x, factor = after[symbol], factors[..., k, :].mT  # n e h
            wide = factor.repeat_interleave(x.shape[-2 if symbol == "O" else -1] // factor.shape[-1], -1)
            gated[symbol] = x * wide[..., None] if symbol == "O" else x * wide[..., None, :]
        return gated
