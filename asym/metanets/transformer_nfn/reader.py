"""Transformer-NFN: a reader of transformers, published form and ours.

    for each block: [equivariant layer → ReLU on A, B, a, b] × layers → invariant layer → LayerNorm
    blocks side by side → LayerNorm → linear → LayerNorm → ReLU → linear → LayerNorm → ReLU → linear
    embedding → linear;   classifier → [linear → ReLU] × 3;   all side by side → linear

with 10 channels and 10 numbers throughout, one equivariant layer (Tran et al. 2025, arXiv 2410.04209, and its released
code). ReLU on A, B, a, b alone keeps the symmetry, since those are only permuted. Weights are those of each block.

Ours beside it: `rank` for the low-rank form, `heads` for what the published layers cannot see (`heads.py`), `residual`
for transformers with residual connections, `parts` to read less. Different: fixed sizes of all sources and of the
entries of embedding and classifier are taken from the training networks (`layer.py`), and the end is linear: which
numbers are learnt, and whether through a sigmoid, is for the training to say. The published form without sizes has
`scaled=False`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asym.metanets.blind import Standardise
from asym.metanets.reader import Reader, choose
from asym.metanets.stack import Stack, Stacks, as_list
from asym.metanets.transformer_nfn.heads import Gates, HeadReadout
from asym.metanets.transformer_nfn.layer import EquivariantLayer, InvariantLayer
from asym.metanets.transformer_nfn.products import Composed, Weights
from asym.metanets.transformer_nfn.stacking import keep_names, stacked, taken
from asym.symmetry.encoder import PARTS, Encoder

OBSERVED = 256
"""Networks that sizes are taken from, at most."""


class Branch(nn.Module):
    """The layers of one block: weights → `n width` numbers; of all blocks at once where it is stacked."""

    def __init__(
        self, encoder: Encoder, channels: Sequence[int], width: int, rank: int | None, probes: int, residual: bool
    ) -> None:
        super().__init__()
        size, ends = encoder.size, [1, *channels]
        kind = {"rank": rank, "residual": residual}
        self.layers = nn.ModuleList(
            EquivariantLayer(size, *pair, first=k == 0, **kind) for k, pair in enumerate(zip(ends, channels))
        )
        count = len(ends) - 1 if probes else 0
        self.gates = nn.ModuleList(
            Gates(size, a, b, probes, residual=residual) for a, b in list(zip(ends, channels))[:count]
        )
        self.invariant = InvariantLayer(size, ends[-1], width, first=not channels, **kind)
        self.readout = HeadReadout(size, ends[-1], probes, width, residual=residual) if probes else None
        self.norm = nn.LayerNorm(width * (2 if probes else 1))

    def forward(self, x: Weights) -> Tensor:
        """`n width`, or twice as many with a readout over heads, of stacked blocks."""
        attention, sums = Composed(x), None
        for place, layer in enumerate(self.layers):
            before = attention
            attention = self._attention(place, before)
            if place + 1 == len(self.layers):
                sums = layer.rectified_sums(before, x)  # type: ignore[operator]
            else:
                x = self._rectified(layer.perceptron(before, x))  # type: ignore[operator]
        numbers = [self.invariant.terms(attention, x, sums)] + ([self.readout(attention.x)] if self.readout else [])
        weight, bias = (t[..., None, :] for t in (self.norm.weight, self.norm.bias))
        return F.layer_norm(torch.cat(numbers, -1), self.norm.normalized_shape) * weight + bias

    @torch.no_grad()
    def settle(self) -> None:
        """Keep large coefficients in the order in memory in which products with composed attention read them."""
        for weight in self.invariant.terms.wide.values():
            weight.data = weight.data.movedim(-4, -2).contiguous().movedim(-2, -4)

    @torch.no_grad()
    def observe(self, x: Weights) -> None:
        """Set the sizes of sources in each layer, from the first to the last."""
        attention = Composed(x)
        for place, layer in enumerate(self.layers):
            layer.observe(attention, x)  # type: ignore[operator]
            if len(self.gates):
                self.gates[place].tokens.observe(attention.x)  # type: ignore[operator, union-attr]
            before, attention = attention, self._attention(place, attention)
            x = self._rectified(layer.perceptron(before, x))  # type: ignore[operator]
        self.invariant.terms.observe(attention, x)
        if self.readout:
            self.readout.tokens.observe(attention.x)

    def _attention(self, place: int, before: Composed) -> Composed:
        """Attention of the next layer; it stays composed as long as no gate asks for what it is."""
        layer: EquivariantLayer = self.layers[place]  # type: ignore[assignment]
        if not len(self.gates):
            return layer.compose(before)
        return Composed(self.gates[place](before.x, layer.attention(before.x)))

    @staticmethod
    def _rectified(x: Weights) -> dict[str, Tensor]:
        return {symbol: F.relu(tensor) for symbol, tensor in x.items()}


class TransformerNFN(Reader):
    """Equivariant layers, invariants, and a perceptron.

    Args:
        chains: the `Encoder`, from `encoder_of`.
        channels: of the equivariant layers; () for invariants of the weights themselves.
        width: numbers of each block's invariants, of the head and of the other branches.
        rank: of the low-rank form; None for the whole layers.
        probes: vectors for each pair of matrices of a head; 0 is the published form, blind to heads.
        residual: whether P_O is left out of the group; None is yes for ordinary transformers and no for others.
        parts: what is read, any of encoder, embedding, classifier; parts that a transformer lacks are left out.
        scaled: whether sizes are taken from the training networks.
        options: of `Reader`; those that act on chains have no meaning here.

    Raises:
        ValueError: for options out of range or parts that leave nothing to read.
    """

    def __init__(
        self,
        chains: Encoder,
        *,
        channels: Sequence[int] = (10,),
        width: int = 10,
        rank: int | None = None,
        probes: int = 0,
        residual: bool | None = None,
        parts: Sequence[str] = PARTS,
        scaled: bool = True,
        **options,
    ) -> None:
        super().__init__(chains, **options)
        encoder: Encoder = self.chains[0]  # type: ignore[assignment]
        residual = encoder.size.ordinary if residual is None else residual
        for name, value, least in (
            ("width", width, 1),
            ("rank", 1 if rank is None else rank, 1),
            ("probes", probes, 0),
        ):
            if value < least:
                raise ValueError(f"{name}: {value}; must be at least {least}")
        if any(c < 1 for c in channels):
            raise ValueError(f"channels: {tuple(channels)}; each must be at least 1")
        for option in ("gauge", "augment", "shuffle"):
            if getattr(self, option):
                raise ValueError(
                    f"{option}: acts on chains, not on transformers; see asym.symmetry.attention_canonical"
                )
        for part in parts:
            choose("parts", part, PARTS)
        self.scaled = scaled
        self.others = {part: encoder.parts[part] for part in PARTS[1:] if part in parts and encoder.parts[part]}
        self.blocks: Any = None
        wide = 0
        if "encoder" in parts:
            kind = {"channels": channels, "width": width, "rank": rank, "probes": probes, "residual": residual}
            branches = [self._branch(encoder, **kind) for _ in encoder.names]
            self.blocks = stacked(branches)
            keep_names(self, "blocks", len(branches))
            self.blocks.settle()
            inner = len(branches) * width * (2 if probes else 1)
            self.head = nn.Sequential(
                nn.LayerNorm(inner), *_step(inner, width), *_step(width, width), nn.Linear(width, width)
            )
            wide += width
        self.moments = nn.ModuleDict({part: Standardise(encoder.count(part)) for part in self.others})
        self.branches = nn.ModuleDict()
        for part in self.others:
            deep = [nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
            first = nn.Linear(encoder.count(part), width)
            self.branches[part] = nn.Sequential(first, *(deep if part == "classifier" else []))
            wide += width
        if not wide:
            raise ValueError(f"parts: {tuple(parts)} leave nothing to read")
        self.end = nn.Linear(wide, self.out)

    def observe(self, stacks: Stacks) -> None:
        """Take sizes of sources, and mean and deviation of entries of embedding and classifier."""
        if not self.scaled:
            return
        (stack,) = as_list(stacks)
        few = stack.rows(slice(0, OBSERVED))
        if self.blocks is not None:
            self.blocks.observe(self.weights(few))
        for part, moments in self.moments.items():
            moments.set(self._flat(part, stack))  # type: ignore[operator]

    def read(self, stack: Stack) -> Tensor:
        """(n, out)."""
        found = []
        if self.blocks is not None:
            found.append(self.head(self.blocks(self.weights(stack)).transpose(0, 1).flatten(1)))
        found += [branch(self.moments[part](self._flat(part, stack))) for part, branch in self.branches.items()]
        return self.end(torch.cat(found, -1))

    def each_block(self) -> list[Branch]:
        """The layers of each block, with weights of their own."""
        return [] if self.blocks is None else [taken(self.blocks, k) for k in range(len(self.chains[0].names))]

    def weights(self, stack: Stack) -> dict[str, Tensor]:
        """All blocks, as first axis, with one channel, heads side by side."""
        names: Sequence[Mapping[str, str]] = stack.chain.names  # type: ignore[union-attr]
        found = {s: torch.stack([stack.tensors[block[s]] for block in names]).unsqueeze(2) for s in names[0]}
        return {s: t if s in "abo" else t.mT for s, t in found.items()}

    def _branch(self, encoder: Encoder, **options: Any) -> Any:
        """What reads one block, made once for each."""
        return Branch(encoder, **options)

    def _flat(self, part: str, stack: Stack) -> Tensor:
        return torch.cat([stack.tensors[name].flatten(1) for name in self.others[part]], 1)


def _step(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU()]
