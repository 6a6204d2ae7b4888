"""A reader of transformers that knows permutations only, to see what GL is worth: sets of units, no products.

    inner unit c of head s     (Q_s·c, K_s·c) and (V_s·c, O_sc·)        mean over c of a perceptron on each
    head s                     both means side by side                  mean over s of a perceptron
    hidden unit k              (A_·k, a_k, B_k·)                        mean over k of a perceptron

and the means with b side by side → the block's numbers. Axes that P_O permutes (columns of O, rows of A) are read as
their mean and root mean square; with residual connections they stand still and are read as they are. Order of heads,
of hidden units and of inner units of a head leaves the answer alone, M_s and N_s in general do not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asym.metanets.transformer_nfn.mixing import affine
from asym.metanets.transformer_nfn.products import Weights
from asym.metanets.transformer_nfn.reader import TransformerNFN
from asym.symmetry.encoder import Encoder, Sizes


class UnitBranch(nn.Module):
    """Sets of units of one block, or of stacked ones: weights → `n width` numbers.

    Args:
        size: of the block.
        hidden: width of the perceptrons.
        width: numbers.
        residual: whether P_O is left out of the group.
    """

    def __init__(self, size: Sizes, hidden: int, width: int, residual: bool) -> None:
        super().__init__()
        self.heads, self.residual = size.heads, residual
        seen = size.dim if residual else 2
        widths = {"query": 2 * size.rows, "value": size.rows + seen, "unit": seen + 1 + size.dim}
        widths["still"] = size.dim * (1 + size.ordinary)
        self.each = nn.ModuleDict({kind: nn.Linear(count, hidden) for kind, count in widths.items()})
        for kind, count in widths.items():
            self.register_buffer(f"inverse_{kind}", torch.ones(count))
        self.head = nn.Linear(2 * hidden, hidden)
        self.last = nn.Linear(3 * hidden, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Weights) -> Tensor:
        """`n width`."""
        found = {}
        for kind, tokens in self.tokens(x).items():
            scaled = tokens * self._inverse(kind).unflatten(-1, (*(1,) * (tokens.ndim - 2), -1))
            layer: Any = self.each[kind]
            found[kind] = F.relu(affine(scaled, layer.weight, layer.bias)).mean(-2)
        pair = torch.cat([found["query"], found["value"]], -1)
        heads = F.relu(affine(pair, self.head.weight, self.head.bias)).mean(-2)
        numbers = affine(torch.cat([heads, found["unit"], found["still"]], -1), self.last.weight, self.last.bias)
        weight, bias = (t[..., None, :] for t in (self.norm.weight, self.norm.bias))
        return F.layer_norm(numbers, self.norm.normalized_shape) * weight + bias

    def settle(self) -> None:
        """Nothing is large here."""

    @torch.no_grad()
    def observe(self, x: Weights) -> None:
        """Set the sizes of all entries of tokens: root mean squares over these networks and their units."""
        for kind, tokens in self.tokens(x).items():
            size = tokens.flatten(1, -2).square().mean(1).sqrt()
            self._inverse(kind).copy_(torch.where(size > 0, 1 / size, 1.0))

    def tokens(self, x: Weights) -> dict[str, Tensor]:
        """`l n [h] units entries` of each kind, of stacked blocks."""
        block = {symbol: tensor[:, :, 0] for symbol, tensor in x.items()}
        queries, keys, values = (block[symbol].mT for symbol in "QKV")
        pairs = {
            "query": torch.cat([queries, keys], -1),
            "value": torch.cat([values, self._seen(block["O"])], -1),
        }
        found = {kind: tokens.unflatten(-2, (self.heads, -1)) for kind, tokens in pairs.items()}
        found["unit"] = torch.cat([self._seen(block["A"].mT), block["a"][..., None], block["B"]], -1)
        return found | {"still": torch.cat([block[s] for s in "bo" if s in block], -1)[:, :, None]}

    def _seen(self, rows: Tensor) -> Tensor:
        """Rows along the axis of P_O: as they are, or mean and root mean square."""
        if self.residual:
            return rows
        return torch.stack([rows.mean(-1), rows.square().mean(-1).sqrt()], -1)

    def _inverse(self, kind: str) -> Tensor:
        return self.get_buffer(f"inverse_{kind}")


class UnitReader(TransformerNFN):
    """`TransformerNFN` with sets of units in place of its layers.

    Args:
        chains: the `Encoder`.
        hidden: width of the perceptrons.
        options: of `TransformerNFN`; those of its layers have no meaning here.

    Raises:
        ValueError: for options out of range.
    """

    def __init__(self, chains: Any, *, hidden: int = 32, **options) -> None:
        if hidden < 1:
            raise ValueError(f"hidden: {hidden}; must be at least 1")
        self.hidden = hidden
        super().__init__(chains, **options)

    def _branch(self, encoder: Encoder, **options: Any) -> UnitBranch:
        return UnitBranch(encoder.size, self.hidden, options["width"], options["residual"])
