"""Readers that are blind to a network's structure: statistics and an MLP, the flat vector, DMC, DeepSets.

    stats      statistics → [linear → ReLU → LayerNorm] × 2 → linear, width 256          119,297 parameters on ResNet-8
    flat       all weights → linear → ReLU → LayerNorm → linear, width 64                4,994,945
    dmc        1-D convolutions over the weights in their order: kernel 5, channels 2, 4, 8, 16, 32, 64 with ReLU, batch
               norm and max-pool after each, four more of 64 with a pool after every other, then a set readout: linear →
               LayerNorm → ReLU at each place, mean over places, two layers                105,357
    deepsets   each weight → linear → LayerNorm → ReLU, mean over all weights, three layers  8,897

The counts are the published ones (Lim et al. 2024, arXiv 2405.20231, section 4.6 and its code; DMC: Eilertsen et al.
2020, "Classifying the classifier"; DeepSets: Zaheer et al. 2017). Only trained entries are read. Statistics and the
flat vector are standardised with the training set's moments once `observe` was called; the released code feeds them as
they are. None of these knows scalings; statistics and DeepSets do not depend on the order of units.

All but the flat vector read networks of several architectures together. Statistics then have places for the tensors of
all of them by name, where those that a network lacks are given the mean of the networks that have them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.metanets.reader import Reader
from asym.metanets.stack import Stack, Stacks, as_list, without_subnormal
from asym.metanets.statistics import PER_TENSOR, count_statistics, statistics, tensor_names
from asym.symmetry.chain import Frame

FEWEST = 256
"""Weights that DMC needs: eight poolings by 2 leave one."""


class Standardise(nn.Module):
    """(x − mean) / deviation by column, with moments that are set once; the identity until then."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    @torch.no_grad()
    def set(self, rows: Tensor) -> None:
        """Take the moments of `n width`; constant columns keep their scale."""
        deviation = rows.std(0) if len(rows) > 1 else torch.zeros_like(rows[0])
        self.mean.copy_(rows.mean(0))
        self.scale.copy_(torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    def forward(self, x: Tensor) -> Tensor:
        """(n, width) → (n, width)."""
        return (x - self.mean) / self.scale


class Blind(Reader):
    """What these readers share: they see trained entries, as many as the chain (or `trained`) says.

    Args:
        chains: the architecture.
        trained: numbers of trained entries by tensor, where not all are (masked networks).
        options: of `Reader`.
    """

    structured = False
    counts: ClassVar[bool] = False
    """Whether it has a place for each trained entry or tensor, so that masks must leave what it was made for."""

    def __init__(self, chains: Frame | Sequence[Frame], *, trained: dict[str, int] | None = None, **options) -> None:
        super().__init__(chains, **options)
        shapes = self.chains[0].shapes
        sizes = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
        unknown = set(trained or {}) - set(sizes)
        if unknown:
            raise ValueError(f"trained: {min(unknown)!r} is no tensor of the chain; it has {', '.join(sizes)}")
        self.trained = sizes | (trained or {})

    def prepare(self, stack: Stack) -> Stack:
        """As `Reader.prepare`, and the masks must leave as many entries as the reader was made for."""
        stack = super().prepare(stack)
        masks = stack.masks or {}
        for name, size in self.trained.items() if self.counts and len(self.shapes) == 1 else ():
            found = int(masks[name].sum()) if name in masks else torch.Size(stack.chain.shapes[name]).numel()
            if found != size:
                raise ValueError(f"stack: {name!r} has {found} trained entries, the reader was made for {size}")
        return stack

    def features(self, stack: Stack) -> Tensor:
        """What the network reads, `n features`."""
        return stack.flat()


class StatNN(Blind):
    """Statistics and an MLP.

    Args:
        width: of both hidden layers; 1,000 without `norm` is the form of the NFN paper (1,059,001 parameters).
        norm: whether a LayerNorm follows each ReLU.
        options: of `Blind`.
    """

    mixes = True
    counts = True

    def __init__(self, chains: Frame | Sequence[Frame], *, width: int = 256, norm: bool = True, **options) -> None:
        super().__init__(chains, **options)
        self.names = tensor_names(self.chains) if len(self.shapes) > 1 else None
        inputs = PER_TENSOR * len(self.names) if self.names else count_statistics(self.chains[0], self.trained)
        self.standardise = Standardise(inputs)
        self.layers = nn.Sequential(
            *_hidden(inputs, width, norm), *_hidden(width, width, norm), nn.Linear(width, self.out)
        )

    def ahead(self, stack: Stack) -> Stack:
        """With statistics, unless they change from step to step."""
        if self.augment is not None or self.shuffle:
            return stack
        return dataclasses.replace(stack, features=self.features(self.prepare(stack)))

    def prepare(self, stack: Stack) -> Stack:
        """As `Blind.prepare`, where statistics are not known yet."""
        return stack if stack.features is not None else super().prepare(stack)

    def features(self, stack: Stack) -> Tensor:
        """`n 7·tensors`, NaN for tensors that other architectures have."""
        return statistics(stack, self.names) if stack.features is None else stack.features

    def observe(self, stacks: Stacks) -> None:
        """Take the moments of all features, of each tensor over the networks that have it."""
        rows = torch.cat([self.features(self.prepare(stack)) for stack in as_list(stacks)])
        self.standardise.set(rows if self.names is None else rows.where(~rows.isnan(), rows.nanmean(0)))

    def read(self, stack: Stack) -> Tensor:
        """(n, out)."""
        x = self.standardise(self.features(stack))
        return self.layers(x if self.names is None else x.where(~x.isnan(), torch.zeros_like(x)))


class FlatMLP(Blind):
    """One hidden layer on all weights; `width` is its size, options are those of `Blind`."""

    counts = True

    def __init__(self, chains: Frame | Sequence[Frame], *, width: int = 64, **options) -> None:
        super().__init__(chains, **options)
        inputs = sum(self.trained.values())
        self.standardise = Standardise(inputs)
        self.layers = nn.Sequential(*_hidden(inputs, width, True), nn.Linear(width, self.out))

    def observe(self, stacks: Stacks) -> None:
        """Take the moments of all features."""
        self.standardise.set(torch.cat([self.features(self.prepare(stack)) for stack in as_list(stacks)]))

    def read(self, stack: Stack) -> Tensor:
        """(n, out)."""
        return self.layers(self.standardise(self.features(stack)))


class DMC(Blind):
    """1-D convolutions over the weights in their order; `width` is the number of channels at the end.

    Raises:
        ValueError: if networks have fewer than 256 weights, which leaves nothing after eight poolings by 2.
    """

    mixes = True

    def __init__(self, chains: Frame | Sequence[Frame], *, width: int = 64, **options) -> None:
        super().__init__(chains, **options)
        fewest = min(sum(torch.Size(shape).numel() for shape in chain.shapes.values()) for chain in self.chains)
        fewest = min(fewest, sum(self.trained.values())) if len(self.chains) == 1 else fewest
        if fewest < FEWEST:
            raise ValueError(f"chains: DMC needs networks of at least {FEWEST} weights, got {fewest}")
        channels = [1, *(max(1, width // 2**k) for k in (5, 4, 3, 2, 1)), width]
        parts: list[nn.Module] = []
        for a, b in pairwise(channels):
            parts += [nn.Conv1d(a, b, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(b), nn.MaxPool1d(2)]
        for i in range(4):
            parts += [nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width)]
            parts += [nn.MaxPool1d(2)] if i % 2 else []
        self.convs = nn.Sequential(*parts)
        self.place = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, self.out))

    def read(self, stack: Stack) -> Tensor:
        """(n, out)."""
        places = self.convs(self.features(stack)[:, None]).movedim(1, 2)
        return self.head(self.place(places).mean(1))


class DeepSets(Blind):
    """A set of weights, blind to where each one stands; `width` is that of all layers."""

    mixes = True

    def __init__(self, chains: Frame | Sequence[Frame], *, width: int = 64, **options) -> None:
        super().__init__(chains, **options)
        self.each = nn.Sequential(nn.Linear(1, width), nn.LayerNorm(width), nn.ReLU())
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()]
        self.head = nn.Sequential(*layers, nn.Linear(width, self.out))

    def read(self, stack: Stack) -> Tensor:
        """(n, out)."""
        rows = without_subnormal(self.features(stack))
        linear, norm, _ = self.each
        # In place, and divided after the sum: the same bits as a mean of ReLUs in two passes less.
        each = F.relu_(norm(linear(rows[..., None])))
        return self.head(each.sum(1) / rows.shape[1])


def _hidden(inputs: int, outputs: int, norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Linear(inputs, outputs), nn.ReLU()]
    return [*layers, nn.LayerNorm(outputs)] if norm else layers
