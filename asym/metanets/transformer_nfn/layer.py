"""Equivariant and invariant layers of Transformer-NFN: the table of terms and one loop.

Weights have a channel axis, and heads side by side: Q, K `n c D (h d_k)`, V `n c D (h d_v)`, O `n c (h d_v) D`, A
`n c D D_A`, a `n c D_A`, B `n c D_A D`, b `n c D`. So S = Q Kᵀ is a single product that sums over heads first, where
the published code carries the head axis through all contractions. For each set of tied axes (`table.py`) the sources
stand side by side as features `n *tied f`, and one matrix maps them to all outputs of the set.

Blocks may come as one more axis in front of all of these and of all parameters (`stacking.py`): a product for all of
them in place of one for each. Axes are counted from the end for that.

With a rank r, large coefficients become products of thin ones. Each standing axis of S and T meets r vectors,

    z_r = Σ_i u_ripᵀ S_i v_ri = Σ_i Σ_s (Q_isᵀ u_ri)ᵀ (K_isᵀ v_ri),

which never forms S, and matrices of a set (and those on the rows of Q, K, V) are products of two of rank r, where that
is smaller. Any constant tensor is allowed there, so that a low rank changes nothing in equivariance.

Every source is divided by a fixed number: its size on the training networks (`observe`), before that the square root of
the number of entries that it sums over. The group does not see constant factors. So each source adds equally to the
variance of outputs of about 1. The published initialisation has none of this.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asym.metanets.transformer_nfn.mixing import Mix, affine
from asym.metanets.transformer_nfn.products import Composed, Explicit, Weights
from asym.metanets.transformer_nfn.sums import PlaneSums, RowSums
from asym.metanets.transformer_nfn.table import (
    OUTPUTS,
    PERCEPTRON,
    TermSet,
    acted_axes,
    axis_size,
    sources,
    term_sets,
    width,
)
from asym.metanets.transformer_nfn.terms import Terms
from asym.symmetry.encoder import Sizes


def merge_heads(block: Weights) -> dict[str, Tensor]:
    """From heads as an axis of their own (`n c h D d_k`, …) to heads side by side."""
    beside = {s: block[s].transpose(-3, -2).flatten(-2) for s in "QKV"}
    return {**block, **beside, "O": block["O"].flatten(-3, -2)}


def separate_heads(block: Weights, heads: int) -> dict[str, Tensor]:
    """The inverse of `merge_heads`."""
    apart = {s: block[s].unflatten(-1, (heads, -1)).transpose(-3, -2) for s in "QKV"}
    return {**block, **apart, "O": block["O"].unflatten(-2, (heads, -1))}


class EquivariantLayer(nn.Module):
    """From `c_in` to `c_out` channels, commuting with the group.

    Args:
        size: of the block.
        c_in: channels read.
        c_out: channels written.
        rank: of the low-rank form, None for the whole one.
        residual: whether the factor P_O, which residual connections forbid, is left out.
        first: whether it reads the transformer itself, which may have a tensor that layers do not write.
    """

    def __init__(
        self,
        size: Sizes,
        c_in: int,
        c_out: int,
        *,
        rank: int | None = None,
        residual: bool = False,
        first: bool = True,
    ) -> None:
        super().__init__()
        self.size, self.c_out, self.acted = size, c_out, acted_axes(residual)
        sets = term_sets(sources(size, first), OUTPUTS, self.acted)
        self.sets = nn.ModuleList(
            Terms(size, c_in, self.acted, terms, sum(self.splits(terms)), rank, 1 / len(sets)) for terms in sets
        )
        lengths = dict.fromkeys("QKV", size.rows) | ({"O": size.dim} if residual else {})
        self.rows = nn.ModuleDict({s: Mix([c_in * d], c_out * d, rank, 1.0, bias=False) for s, d in lengths.items()})
        if not residual:
            self.keep = nn.Parameter(torch.randn(c_out, c_in) / math.sqrt(2 * c_in))
            self.spread = nn.Parameter(torch.randn(c_out, c_in) / math.sqrt(2 * c_in))

    def splits(self, terms: TermSet) -> list[int]:
        """Widths of a set's outputs."""
        return [self.c_out * width(name, self.acted, self.size) for name in terms.outputs]

    def forward(self, x: Weights) -> dict[str, Tensor]:
        """Weights with `c_in` channels → weights with `c_out` channels."""
        return {**self.attention(x), **self.perceptron(Explicit(x), x)}

    def attention(self, x: Weights) -> dict[str, Tensor]:
        """Q, K, V, O of the output."""
        return {**{s: self._on_rows(s, x[s]) for s in "QKV"}, "O": self._on_columns(x["O"])}

    def perceptron(self, attention: Explicit, x: Weights) -> dict[str, Tensor]:
        """A, a, B, b of the output.

        Parts are added where the largest of them lies: `n *tied (c free)`, or `n c j k` for A with both axes acted.
        """
        parts: dict[str, list[tuple[str, Tensor]]] = {}
        for part in self.sets:
            terms: TermSet = part.terms  # type: ignore[assignment]
            if len(terms.tied) == 2:
                parts[terms.outputs[0]].append((terms.tied, part(attention, x)))
                continue
            for name, y in zip(terms.outputs, part.apart(attention, x, self.splits(terms))):  # type: ignore[operator]
                parts.setdefault(name, []).append((terms.tied, y))
        found = {}
        for name, own in parts.items():
            tied, y = own.pop()
            for other, z in reversed(own):
                y = y.add_(self._wide(z, other) if len(tied) == 2 else z.unsqueeze(-2))
            found[name] = y if len(tied) == 2 else self._named(y, name, tied)
        return found

    def rectified_sums(self, attention: Explicit, x: Weights) -> Tensor:
        """A, a, B, b of the output after a ReLU, summed over acted axes, side by side: `l n f`; blocks are stacked."""
        by = {part.terms.tied: part for part in self.sets}  # type: ignore[union-attr]
        none, unit = by[""], by["k"]
        seen = unit._features(attention, x)  # type: ignore[operator]  # of A, a, B, whose sums over k the others read
        summed = [seen.sum(-2), *(none.source(name, attention, x) for name in ("b", "o") if name in none.names)]  # type: ignore[operator]
        constant = none(attention, x, torch.cat(summed, -1))
        seen, weight = unit.mix.rows_for(seen, unit.inverse)  # type: ignore[union-attr, operator]
        *moving, still = self.splits(none.terms)  # type: ignore[arg-type]
        fixed, found, start = F.relu(constant[..., -still:]), [], 0
        if "jk" in by:
            start = moving[0]
            rows = by["j"](attention, x) + constant[..., None, :start]
            columns = affine(seen, weight[..., :start, :])
            plane = by["jk"].mix.weight * by["jk"].inverse[..., None, :]  # type: ignore[union-attr, operator]
            found.append(PlaneSums.apply(x["A"], plane, rows.mT, columns.mT))
        found.append(RowSums.apply(seen, weight[..., start:, :], constant[..., start:-still]))
        return torch.cat([*found, fixed], -1)

    def compose(self, attention: Composed) -> Composed:
        """Attention of the output, without working it out for any network."""
        d, rows = self.size.dim, {}
        for s, mix in self.rows.items():
            whole = mix.on_rows(attention.maps[s].flatten(-3, -2)) if attention.maps else mix.matrix()  # type: ignore[operator]
            rows[s] = whole.unflatten(-2, (self.c_out, -1))
        if "O" not in rows and attention.maps:
            before = attention.maps["O"]
            rows["O"] = torch.einsum("...ec,...cjq->...ejq", self.keep, before)
            ones = before.sum(-2, keepdim=True) / math.sqrt(d)
            rows["O"] = rows["O"] + torch.einsum("...ec,...cjq->...ejq", self.spread, ones)
        elif "O" not in rows:
            eye = torch.eye(d, dtype=self.keep.dtype, device=self.keep.device)
            rows["O"] = self.keep[..., None] * eye + self.spread[..., None] / math.sqrt(d)
        return Composed(attention.x, rows, attention.base)

    def observe(self, attention: Explicit, x: Weights) -> None:
        """Set the sizes of all sources by these networks."""
        for part in self.sets:
            part.observe(attention, x)  # type: ignore[operator]

    def _on_rows(self, symbol: str, x: Tensor) -> Tensor:
        """A matrix on the rows, of all channels: `n c D m` → `n e D m`."""
        return self.rows[symbol](x.flatten(-3, -2).mT).mT.unflatten(-2, (self.c_out, -1))

    def _on_columns(self, o: Tensor) -> Tensor:
        if "O" in self.rows:
            return self._on_rows("O", o.mT).mT
        mean = torch.einsum("...ec,...nch->...neh", self.spread, o.sum(-1) / math.sqrt(o.shape[-1]))
        return torch.einsum("...ec,...nchj->...nehj", self.keep, o) + mean[..., None]

    def _wide(self, part: Tensor, tied: str) -> Tensor:
        """`n *tied c` → `n c j k` with axes of 1 for those that are not tied."""
        if not tied:
            return part[..., None, None]
        return part.mT[..., None] if tied == "j" else part.mT.contiguous()[..., None, :]

    def _named(self, part: Tensor, name: str, tied: str) -> Tensor:
        """`n *tied (c free)` → `n c *axes`."""
        axes = PERCEPTRON[name]
        free = [axis for axis in axes if axis not in self.acted]
        part = part.unflatten(-1, (self.c_out, *(axis_size(axis, self.size) for axis in free))) if free else part
        start = part.ndim - len(axes) - 1
        places = {axis: start + k for k, axis in enumerate(tied)} | {
            axis: start + len(tied) + 1 + k for k, axis in enumerate(free)
        }
        return part.permute(*range(start), start + len(tied), *(places[axis] for axis in axes))


class InvariantLayer(nn.Module):
    """From weights with `channels` channels to `outputs` numbers that the group does not change.

    The terms of the set without tied axes: S, T, A, B, a, b, summed over acted axes, and a constant.
    """

    def __init__(
        self,
        size: Sizes,
        channels: int,
        outputs: int,
        *,
        rank: int | None = None,
        residual: bool = False,
        first: bool = True,
    ) -> None:
        super().__init__()
        acted = acted_axes(residual)
        terms = term_sets(sources(size, first), OUTPUTS, acted)[0]
        self.terms = Terms(size, channels, acted, terms, outputs, rank, 1.0)

    def forward(self, x: Weights) -> Tensor:
        """`n outputs`."""
        return self.terms(Explicit(x), x)
