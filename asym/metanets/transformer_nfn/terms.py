"""The terms of one set of tied axes (`table.py`): sources, each divided by its size, and the matrix to all outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asym.metanets.transformer_nfn.mixing import Mix, fresh_view
from asym.metanets.transformer_nfn.products import PAIRS, Explicit, Weights
from asym.metanets.transformer_nfn.table import ORDINARY, TermSet, axis_size, width
from asym.symmetry.encoder import Sizes


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
            free = [axis for axis in ORDINARY[name] if axis not in acted]
            wide = width(name, acted, size)
            if name in PAIRS and rank is None and len(free) == 2:  # its matrix stands apart: S is not copied
                lengths = [axis_size(axis, size, name) for axis in free]
                weight = torch.randn(outputs, channels, *lengths) * math.sqrt(share / (channels * wide))
                self.wide[name] = nn.Parameter(weight)
                continue
            vectors = rank if name in PAIRS else None
            if vectors is not None:
                for axis in free:
                    length = axis_size(axis, size, name)
                    vector = torch.randn(vectors, channels, length) / math.sqrt(length)
                    self.probes[name + axis] = nn.Parameter(vector)
            self.names.append(name)
            self.widths.append(vectors or channels * wide)
        self.mix = Mix(self.widths, outputs, rank, share, bias=not terms.tied)
        self.register_buffer("inverse", torch.zeros(sum(self.widths) + len(self.wide)))
        self._set(torch.tensor([self._summed(name, channels) ** -0.5 for name in (*self.names, *self.wide)]))

    def forward(self, attention: Explicit, x: Weights, sums: Tensor | None = None) -> Tensor:
        """`n *tied outputs`; `n outputs *tied` where all axes of the sources are tied.

        Args:
            attention: S, T, or what they are made of.
            x: A, a, B, b.
            sums: those summed over all acted axes, side by side, in place of x where no axis is tied.
        """
        if len(self.terms.tied) == 2:
            source = x[self.names[0]]
            weight = (self.mix.weight * self.inverse[..., None, :])[..., None, :, :]
            y = weight @ source.flatten(-2)
            return fresh_view(y, (*y.shape[:-1], *source.shape[-2:]))
        y = self.mix(self._features(attention, x, sums), self.inverse[..., : sum(self.widths)])
        for k, (name, weight) in enumerate(self.wide.items()):
            y = y + attention.against(name, weight, self.inverse[..., sum(self.widths) + k])
        return y

    def apart(self, attention: Explicit, x: Weights, splits: Sequence[int]) -> list[Tensor]:
        """Parts of `n *tied outputs` of these widths."""
        if not self.terms.tied:
            return list(self(attention, x).split(splits, -1))
        return self.mix.apart(self._features(attention, x), self.inverse, splits)

    def observe(self, attention: Explicit, x: Weights) -> None:
        """Set the sizes of the sources: root mean squares over these networks, for each block."""
        found = [self.source(name, attention, x) for name in self.names] + [attention.outer(n) for n in self.wide]
        lead = self.inverse.ndim - 1
        sizes = torch.stack([source.flatten(lead).square().mean(-1).sqrt() for source in found], -1)
        self._set(torch.where(sizes > 0, 1 / sizes, 1.0))

    def source(self, name: str, attention: Explicit, x: Weights) -> Tensor:
        """One source, `n *tied f`: channels and standing axes last, sums as they are."""
        tied, axes = self.terms.tied, ORDINARY[name]
        if name in PAIRS:
            return self._product(name, attention)
        tensor = x[name]
        channel = tensor.ndim - len(axes) - 1
        gone = [k for k, axis in enumerate(axes) if axis in self.acted and axis not in tied]
        tensor = tensor.sum([channel + 1 + k for k in gone]) if gone else tensor
        left = [axis for k, axis in enumerate(axes) if k not in gone]
        order = [channel + 1 + left.index(axis) for axis in tied]
        rest = [channel + 1 + k for k, axis in enumerate(left) if axis not in tied]
        return tensor.permute(*range(channel), *order, channel, *rest).flatten(channel + len(tied))

    def _features(self, attention: Explicit, x: Weights, sums: Tensor | None = None) -> Tensor:
        names = self.names if sums is None else [name for name in self.names if name in PAIRS]
        found = [self.source(name, attention, x) for name in names]
        return torch.cat(found if sums is None else [*found, sums], -1)

    def _product(self, name: str, attention: Explicit) -> Tensor:
        """S or T: standing axes whole or against vectors, others summed or kept."""
        left, right = PAIRS[name]
        one, other = ORDINARY[name]
        if self.rank is None:
            if other in self.terms.tied:
                return attention.outer(name).movedim(-1, -3).flatten(-2)
            return attention.starts(attention.ends()).flatten(-2)
        u = attention.rows(left, self.probes[name + one])  # n c r (h d)
        if other in self.terms.tied:
            return (u @ attention.columns()).sum(-3).mT
        if other in self.acted:
            return (u @ attention.ends()[..., None]).sum((-3, -1))
        return (u * attention.rows(right, self.probes[name + other])).sum((-3, -1))

    def _summed(self, name: str, channels: int) -> int:
        """How many entries a source's numbers are sums over: its variance where entries have variance 1."""
        count = math.prod(
            axis_size(axis, self.size) for axis in ORDINARY[name] if axis in self.acted and axis not in self.terms.tied
        )
        if name in PAIRS:
            count *= self.size.heads * (self.size.key if name == "S" else self.size.value)
            count *= channels if self.rank is not None else 1
        return count

    def _set(self, factors: Tensor) -> None:
        lengths = torch.tensor([*self.widths, *(1 for _ in self.wide)], device=factors.device)
        self.inverse.copy_(factors.repeat_interleave(lengths, -1))
