"""Equivariant and invariant layers of Transformer-NFN: the table of terms and one loop.

Weights have a channel axis, and heads side by side: Q, K `n c D (h d_k)`, V `n c D (h d_v)`, O `n c (h d_v) D`, A
`n c D D_A`, a `n c D_A`, B `n c D_A D`, b `n c D`. So S = Q Kᵀ is a single product that sums over heads first, where
the published code carries the head axis through all contractions. For each set of tied axes (`table.py`) the sources
stand side by side as features `n *tied f`, and one matrix maps them to all outputs of the set.

With a rank r, large coefficients become products of thin ones. Each standing axis of S and T meets r vectors,

    z_r = Σ_i u_ripᵀ S_i v_ri = Σ_i Σ_s (Q_isᵀ u_ri)ᵀ (K_isᵀ v_ri),

which never forms S, and matrices of a set (and those on the rows of Q, K, V) are products of two of rank r, where that
is smaller. Any constant tensor is allowed there, so that a low rank changes nothing in equivariance.

Sums over n entries are divided by √n, and every source by a fixed number, its size on the training networks
(`observe`): constant factors, which the group does not see. Then each source adds equally to the variance of outputs of
about 1. The published initialisation has neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asym.metanets.transformer_nfn.table import (
    OUTPUTS,
    PERCEPTRON,
    PRODUCTS,
    TermSet,
    acted_axes,
    axis_size,
    term_sets,
    width,
)
from asym.symmetry.encoder import Sizes

Weights = Mapping[str, Tensor]
"""Q, K, V, O, A, a, B, b of a block with channels, heads side by side."""


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
        share: variance of the outputs where the features have variance 1.
        bias: whether constants are added.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, rank: int | None, share: float, *, bias: bool) -> None:
        super().__init__()
        total = sum(inputs)
        thin = rank if rank is not None and rank * (total + outputs) < total * outputs else None
        columns = torch.cat([torch.full((n,), math.sqrt(share / (len(inputs) * n))) for n in inputs])
        self.weight = nn.Parameter(torch.randn(thin or outputs, total) * columns)
        self.up = nn.Parameter(torch.randn(outputs, thin) / math.sqrt(thin)) if thin else None
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """`… inputs` → `… outputs`."""
        if self.up is None:
            return F.linear(x, self.weight, self.bias)
        return F.linear(F.linear(x, self.weight), self.up, self.bias)


class Features(nn.Module):
    """The sources of one set side by side: `n *tied f`, each divided by its size."""

    scale: Tensor

    def __init__(self, size: Sizes, channels: int, acted: str, terms: TermSet, rank: int | None) -> None:
        super().__init__()
        self.size, self.acted, self.terms, self.rank = size, acted, terms, rank
        self.register_buffer("scale", torch.ones(len(terms.sources)))
        self.probes = nn.ParameterDict()
        self.widths = []
        for name in terms.sources:
            free = [axis for axis in PERCEPTRON[name] if axis not in acted]
            vectors = rank if name in PRODUCTS else None
            if vectors is not None:
                for axis in free:
                    length = axis_size(axis, size)
                    self.probes[name + axis] = nn.Parameter(torch.randn(vectors, channels, length) / math.sqrt(length))
            self.widths.append(vectors or channels * width(PERCEPTRON[name], acted, size))

    def forward(self, x: Weights) -> Tensor:
        """`n *tied f`."""
        parts = [self.source(name, x) / self.scale[i] for i, name in enumerate(self.terms.sources)]
        return torch.cat(parts, -1)

    def observe(self, x: Weights) -> None:
        """Set the sizes: root mean squares over these networks."""
        for i, name in enumerate(self.terms.sources):
            size = self.source(name, x).square().mean().sqrt()
            self.scale[i] = torch.where(size > 0, size, 1.0)

    def source(self, name: str, x: Weights) -> Tensor:
        """One source, `n *tied f`: channels and standing axes last."""
        tied, axes = self.terms.tied, PERCEPTRON[name]
        if name in PRODUCTS and self.rank is not None:
            return self._probed(name, x)
        tensor = x[name]
        for place in reversed(range(len(axes))):
            if axes[place] in self.acted and axes[place] not in tied:
                tensor = tensor.sum(2 + place) / math.sqrt(tensor.shape[2 + place])
        left = [axis for axis in axes if axis not in self.acted or axis in tied]
        order = [2 + left.index(axis) for axis in tied]
        rest = [2 + place for place, axis in enumerate(left) if axis not in tied]
        return tensor.permute(0, *order, 1, *rest).flatten(1 + len(tied))

    def _probed(self, name: str, x: Weights) -> Tensor:
        """r numbers of S or T, from their factors: standing axes against vectors, others summed or kept."""
        left, right = (x[symbol] for symbol in PRODUCTS[name])
        one, other = PERCEPTRON[name]
        right = right.mT if name == "S" else right  # n c (h d) q
        shape = math.sqrt(left.shape[-1] * left.shape[1])
        u = torch.einsum("rcp,ncph->nrch", self.probes[name + one], left)
        if other in self.terms.tied:
            return torch.einsum("nrch,nchj->njr", u, right) / shape
        if other in self.acted:
            v = right.sum(-1)[:, None] / math.sqrt(right.shape[-1])
        else:
            v = torch.einsum("rcq,nchq->nrch", self.probes[name + other], right)
        return (u * v).sum((-1, -2)) / shape


def with_products(x: Weights, rank: int | None) -> Weights:
    """The weights with S and T beside them, where they are needed."""
    if rank is not None:
        return x
    products = {}
    for name, (left, right) in PRODUCTS.items():
        product = x[left] @ (x[right].mT if name == "S" else x[right])
        products[name] = product / math.sqrt(x[left].shape[-1])
    return {**x, **products}


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
        self.size, self.c_out, self.rank, self.acted = size, c_out, rank, acted_axes(residual)
        self.sets = term_sets(PERCEPTRON, OUTPUTS, self.acted)
        self.features = nn.ModuleList(Features(size, c_in, self.acted, terms, rank) for terms in self.sets)
        self.maps = nn.ModuleList(
            Mix(f.widths, sum(self.splits(t)), rank, 1 / len(self.sets), bias=not t.tied)  # type: ignore[arg-type]
            for t, f in zip(self.sets, self.features)
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
        found: dict[str, Tensor] = {s: self._rows(s, x[s]) for s in "QKV"}
        found["O"] = self._columns(x["O"])
        known = with_products(x, self.rank)
        for terms, features, mix in zip(self.sets, self.features, self.maps):
            for name, part in zip(terms.outputs, mix(features(known)).split(self.splits(terms), -1)):
                part = self._spread(part, name, terms.tied)
                found[name] = found[name] + part if name in found else part
        return {**found, "A": found["A"].contiguous(), "B": found["B"].contiguous()}

    def observe(self, x: Weights) -> None:
        """Set the sizes of all sources by these networks."""
        known = with_products(x, self.rank)
        for features in self.features:
            features.observe(known)  # type: ignore[operator]

    def _rows(self, symbol: str, x: Tensor) -> Tensor:
        """A matrix on the rows, of all channels: `n c D m` → `n e D m`."""
        mix: Mix = self.rows[symbol]  # type: ignore[assignment]
        flat = x.flatten(1, 2)
        y = mix.weight @ flat if mix.up is None else mix.up @ (mix.weight @ flat)
        return y.unflatten(1, (self.c_out, -1))

    def _columns(self, o: Tensor) -> Tensor:
        if "O" in self.rows:
            return self._rows("O", o.mT).mT
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
        return part


class InvariantLayer(nn.Module):
    """From weights with `channels` channels to `outputs` numbers that the group does not change.

    The terms of the set without tied axes: S, T, A, B, a, b, summed over acted axes, and a constant.
    """

    def __init__(
        self, size: Sizes, channels: int, outputs: int, *, rank: int | None = None, residual: bool = False
    ) -> None:
        super().__init__()
        self.rank = rank
        acted = acted_axes(residual)
        self.features = Features(size, channels, acted, term_sets(PERCEPTRON, OUTPUTS, acted)[0], rank)
        self.mix = Mix(self.features.widths, outputs, rank, 1.0, bias=True)

    def forward(self, x: Weights) -> Tensor:
        """`n outputs`."""
        return self.mix(self.features(with_products(x, self.rank)))

    def observe(self, x: Weights) -> None:
        """Set the sizes of all sources by these networks."""
        self.features.observe(with_products(x, self.rank))
