"""Equivariant and invariant layers of Transformer-NFN: the table of terms and one loop.

Weights have a channel axis, and heads side by side: Q, K `n c D (h d_k)`, V `n c D (h d_v)`, O `n c (h d_v) D`, A
`n c D D_A`, a `n c D_A`, B `n c D_A D`, b `n c D`. So S = Q Kᵀ is a single product that sums over heads first, where
the published code carries the head axis through all contractions. For each set of tied axes (`table.py`) the sources
stand side by side as features `n *tied f`, and one matrix maps them to all outputs of the set.

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
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asym.metanets.transformer_nfn.products import PAIRS, Composed, Explicit, Weights
from asym.metanets.transformer_nfn.table import (
    OUTPUTS,
    PERCEPTRON,
    TermSet,
    acted_axes,
    axis_size,
    term_sets,
    width,
)
from asym.symmetry.encoder import Sizes


def merge_heads(block: Weights) -> dict[str, Tensor]:
    """From heads as an axis of their own (`n c h D d_k`, …) to heads side by side."""
    beside = {s: block[s].transpose(-3, -2).flatten(-2) for s in "QKV"}
    return {**block, **beside, "O": block["O"].flatten(-3, -2)}


def separate_heads(block: Weights, heads: int) -> dict[str, Tensor]:
    """The inverse of `merge_heads`."""
    apart = {s: block[s].unflatten(-1, (heads, -1)).transpose(-3, -2) for s in "QKV"}
    return {**block, **apart, "O": block["O"].unflatten(-2, (heads, -1))}


class Mix(nn.Module):
    """A matrix from features to outputs, or a product of two where a rank is given and that is smaller.

    Args:
        inputs: widths of the sources, side by side; each source adds equally to the variance of the outputs.
        outputs: width of all outputs.
        rank: largest rank; None for none.
        share: variance of the outputs that each source adds, where its features have variance 1.
        bias: whether constants are added.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, rank: int | None, share: float, *, bias: bool) -> None:
        super().__init__()
        total = sum(inputs)
        thin = rank if rank is not None and rank * (total + outputs) < total * outputs else None
        columns = torch.cat([torch.full((n,), math.sqrt(share / n)) for n in inputs])
        self.weight = nn.Parameter(torch.randn(thin or outputs, total) * columns)
        self.up = nn.Parameter(torch.randn(outputs, thin) / math.sqrt(thin)) if thin else None
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """`… inputs` → `… outputs`."""
        if self.up is None:
            return F.linear(x, self.weight, self.bias)
        return F.linear(F.linear(x, self.weight), self.up, self.bias)

    def on_rows(self, x: Tensor) -> Tensor:
        """The matrix times `… inputs m`: `… outputs m`."""
        return self.weight @ x if self.up is None else self.up @ (self.weight @ x)


class Terms(nn.Module):
    """All terms of one set of tied axes: sources, each divided by its size, and the matrix to all outputs.

    Args:
        size: of the block.
        channels: of the weights.
        acted: axes that the group permutes.
        terms: the set.
        outputs: width of all outputs.
        rank: of the low-rank form.
        share: see `Mix`.
    """

    inverse: Tensor

    def __init__(
        self, size: Sizes, channels: int, acted: str, terms: TermSet, outputs: int, rank: int | None, share: float
    ) -> None:
        super().__init__()
        self.size, self.acted, self.terms, self.rank = size, acted, terms, rank
        self.probes, self.wide = nn.ParameterDict(), nn.ParameterDict()
        self.names: list[str] = []
        self.widths: list[int] = []
        share = share / len(terms.sources)
        for name in terms.sources:
            free = [axis for axis in PERCEPTRON[name] if axis not in acted]
            wide = width(PERCEPTRON[name], acted, size)
            if name in PAIRS and rank is None and len(free) == 2:  # its matrix stands apart: S is not copied
                weight = torch.randn(outputs, channels, size.dim, size.dim) * math.sqrt(share / (channels * wide))
                self.wide[name] = nn.Parameter(weight)
                continue
            vectors = rank if name in PAIRS else None
            if vectors is not None:
                for axis in free:
                    vector = torch.randn(vectors, channels, size.dim) / math.sqrt(size.dim)
                    self.probes[name + axis] = nn.Parameter(vector)
            self.names.append(name)
            self.widths.append(vectors or channels * wide)
        self.mix = Mix(self.widths, outputs, rank, share, bias=not terms.tied)
        self.register_buffer("inverse", torch.zeros(sum(self.widths) + len(self.wide)))
        self._set([self._summed(name, channels) ** -0.5 for name in (*self.names, *self.wide)])

    def forward(self, attention: Explicit, x: Weights) -> Tensor:
        """`n *tied outputs`; `n outputs *tied` where all axes of the sources are tied."""
        if len(self.terms.tied) == 2:
            flat = x[self.names[0]].flatten(2)
            return ((self.mix.weight * self.inverse) @ flat).unflatten(2, x[self.names[0]].shape[2:])
        rest = self.inverse[: sum(self.widths)]
        y = self.mix(torch.cat([self.source(name, attention, x) for name in self.names], -1) * rest)
        for k, (name, weight) in enumerate(self.wide.items()):
            y = y + attention.against(name, weight, self.inverse[len(rest) + k])
        return y

    def observe(self, attention: Explicit, x: Weights) -> None:
        """Set the sizes of the sources: root mean squares over these networks."""
        found = [self.source(name, attention, x) for name in self.names] + [attention.outer(n) for n in self.wide]
        sizes = [float(source.square().mean().sqrt()) for source in found]
        self._set([1 / size if size > 0 else 1.0 for size in sizes])

    def source(self, name: str, attention: Explicit, x: Weights) -> Tensor:
        """One source, `n *tied f`: channels and standing axes last, sums as they are."""
        tied, axes = self.terms.tied, PERCEPTRON[name]
        if name in PAIRS:
            return self._product(name, attention)
        tensor = x[name]
        gone = [2 + place for place, axis in enumerate(axes) if axis in self.acted and axis not in tied]
        tensor = tensor.sum(gone) if gone else tensor
        left = [axis for axis in axes if axis not in self.acted or axis in tied]
        order = [2 + left.index(axis) for axis in tied]
        rest = [2 + place for place, axis in enumerate(left) if axis not in tied]
        return tensor.permute(0, *order, 1, *rest).flatten(1 + len(tied))

    def _product(self, name: str, attention: Explicit) -> Tensor:
        """S or T: standing axes whole or against vectors, others summed or kept."""
        left, right = PAIRS[name]
        one, other = PERCEPTRON[name]
        if self.rank is None:
            if other in self.terms.tied:
                return attention.outer(name).permute(0, 3, 1, 2).flatten(2)
            return attention.starts(attention.ends()).flatten(1)
        u = attention.rows(left, self.probes[name + one])  # n c r (h d)
        if other in self.terms.tied:
            return (u @ attention.columns()).sum(1).mT
        if other in self.acted:
            return (u @ attention.ends()[..., None]).sum((1, 3))
        return (u * attention.rows(right, self.probes[name + other])).sum((1, 3))

    def _summed(self, name: str, channels: int) -> int:
        """How many entries a source's numbers are sums over: its variance where entries have variance 1."""
        count = math.prod(
            axis_size(axis, self.size)
            for axis in PERCEPTRON[name]
            if axis in self.acted and axis not in self.terms.tied
        )
        if name in PAIRS:
            count *= self.size.heads * (self.size.key if name == "S" else self.size.value)
            count *= channels if self.rank is not None else 1
        return count

    def _set(self, factors: Sequence[float]) -> None:
        lengths = torch.tensor([*self.widths, *(1 for _ in self.wide)])
        self.inverse.copy_(torch.tensor(factors, dtype=torch.float64).repeat_interleave(lengths))


class EquivariantLayer(nn.Module):
    """From `c_in` to `c_out` channels, commuting with the group.

    Args:
        size: of the block.
        c_in: channels read.
        c_out: channels written.
        rank: of the low-rank form, None for the whole one.
        residual: whether the factor P_O, which residual connections forbid, is left out.
    """

    def __init__(self, size: Sizes, c_in: int, c_out: int, *, rank: int | None = None, residual: bool = False) -> None:
        super().__init__()
        self.size, self.c_out, self.acted = size, c_out, acted_axes(residual)
        sets = term_sets(PERCEPTRON, OUTPUTS, self.acted)
        self.sets = nn.ModuleList(
            Terms(size, c_in, self.acted, terms, sum(self.splits(terms)), rank, 1 / len(sets)) for terms in sets
        )
        d = size.dim
        rows = "QKVO" if residual else "QKV"
        self.rows = nn.ModuleDict({s: Mix([c_in * d], c_out * d, rank, 1.0, bias=False) for s in rows})
        if not residual:
            self.keep = nn.Parameter(torch.randn(c_out, c_in) / math.sqrt(2 * c_in))
            self.spread = nn.Parameter(torch.randn(c_out, c_in) / math.sqrt(2 * c_in))

    def splits(self, terms: TermSet) -> list[int]:
        """Widths of a set's outputs."""
        return [self.c_out * width(PERCEPTRON[name], self.acted, self.size) for name in terms.outputs]

    def forward(self, x: Weights) -> dict[str, Tensor]:
        """Weights with `c_in` channels → weights with `c_out` channels."""
        attention = {s: self._on_rows(s, x[s]) for s in "QKV"}
        return {**attention, "O": self._on_columns(x["O"]), **self.perceptron(Explicit(x), x)}

    def perceptron(self, attention: Explicit, x: Weights) -> dict[str, Tensor]:
        """A, a, B, b of the output."""
        found: dict[str, Tensor] = {}
        for part in self.sets:
            terms: TermSet = part.terms  # type: ignore[assignment]
            whole = part(attention, x)
            if len(terms.tied) == 2:
                (name,) = terms.outputs
                found[name] = whole + found[name]
                continue
            for name, y in zip(terms.outputs, whole.split(self.splits(terms), -1)):
                y = self._spread(y, name, terms.tied)
                found[name] = y + found[name] if name in found else y  # the larger first: the sum lies like it
        return found

    def compose(self, attention: Composed) -> Composed:
        """Attention of the output, without working it out for any network."""
        d, like = self.size.dim, attention.x["Q"]
        maps = attention.maps or dict.fromkeys("QKVO", torch.eye(d, dtype=like.dtype, device=like.device)[None])
        rows = {s: mix.on_rows(maps[s].flatten(0, 1)).unflatten(0, (-1, d)) for s, mix in self.rows.items()}  # type: ignore[operator]
        if "O" not in rows:
            rows["O"] = torch.einsum("ec,cjq->ejq", self.keep, maps["O"])
            rows["O"] = rows["O"] + torch.einsum("ec,cq->eq", self.spread, maps["O"].sum(1))[:, None] / math.sqrt(d)
        return Composed(attention.x, rows, attention.base)

    def observe(self, attention: Explicit, x: Weights) -> None:
        """Set the sizes of all sources by these networks."""
        for part in self.sets:
            part.observe(attention, x)  # type: ignore[operator]

    def _on_rows(self, symbol: str, x: Tensor) -> Tensor:
        """A matrix on the rows, of all channels: `n c D m` → `n e D m`."""
        return self.rows[symbol].on_rows(x.flatten(1, 2)).unflatten(1, (self.c_out, -1))  # type: ignore[operator]

    def _on_columns(self, o: Tensor) -> Tensor:
        if "O" in self.rows:
            return self._on_rows("O", o.mT).mT
        mean = torch.einsum("ec,nch->neh", self.spread, o.sum(-1) / math.sqrt(o.shape[-1]))
        return torch.einsum("ec,nchj->nehj", self.keep, o) + mean[..., None]

    def _spread(self, part: Tensor, name: str, tied: str) -> Tensor:
        """`n *tied (c free)` → `n c *axes` with axes of 1 where the part is the same for all entries."""
        axes = PERCEPTRON[name]
        free = [axis for axis in axes if axis not in self.acted]
        lengths = [axis_size(axis, self.size) for axis in free]
        part = part.unflatten(-1, (self.c_out, *lengths)).movedim(1 + len(tied), 1)
        have = [*tied, *free]
        part = part.permute(0, 1, *(2 + have.index(axis) for axis in axes if axis in have))
        for place, axis in enumerate(axes):
            if axis not in have:
                part = part.unsqueeze(2 + place)
        return part.contiguous() if name == "A" else part


class InvariantLayer(nn.Module):
    """From weights with `channels` channels to `outputs` numbers that the group does not change.

    The terms of the set without tied axes: S, T, A, B, a, b, summed over acted axes, and a constant.
    """

    def __init__(
        self, size: Sizes, channels: int, outputs: int, *, rank: int | None = None, residual: bool = False
    ) -> None:
        super().__init__()
        acted = acted_axes(residual)
        self.terms = Terms(size, channels, acted, term_sets(PERCEPTRON, OUTPUTS, acted)[0], outputs, rank, 1.0)

    def forward(self, x: Weights) -> Tensor:
        """`n outputs`."""
        return self.terms(Explicit(x), x)
