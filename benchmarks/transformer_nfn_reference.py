"""Transformer-NFN the plain way: every term a product of its own, with the head axis carried through the contractions.

As the published code does it: Q_s K_sᵀ and V_s O_s are formed for each head, and each of the 41 terms with an input has
its own coefficient tensor and its own `einsum`, whose input still has the heads. PyTorch's `einsum` then sums over an
axis that only one factor has before it multiplies; `literal` works every term out for each head, and sums at the end.
It starts from the weights of a `TransformerNFN`, which it copies, and gives its outputs (float64: to rounding).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asym.metanets import Stack
from asym.metanets.transformer_nfn import EquivariantLayer, InvariantLayer, TransformerNFN
from asym.metanets.transformer_nfn.layer import Terms
from asym.metanets.transformer_nfn.table import PERCEPTRON, axis_size
from asym.symmetry.encoder import split

HEADS_APART = {"S": "hpq", "T": "hpj"}


class Term(nn.Module):
    """One term: `einsum` of a source with its coefficients, and axes of 1 where the output has more.

    With `literal`, sources with heads give a result for each head, and those are added up.
    """

    def __init__(self, equation: str, weight: Tensor, ones: tuple[int, ...], *, literal: bool) -> None:
        super().__init__()
        self.apart = literal and equation.startswith("nih")
        self.equation = equation.replace("->no", "->noh") if self.apart else equation
        self.ones = ones
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """The term's part of its output."""
        y = torch.einsum(self.equation, x, self.weight)
        y = y.sum(2) if self.apart else y
        for place in self.ones:
            y = y.unsqueeze(place)
        return y


def terms_of(part: Terms, splits: list[int], outputs: tuple[str, ...], literal: bool) -> list[tuple[str, str, Term]]:
    """(output, source, term) of one set, whose matrices are cut into coefficient tensors."""
    size, acted, tied, found = part.size, part.acted, part.terms.tied, []
    columns: dict[str, Tensor] = dict(zip(part.names, part.mix.weight.split(part.widths, 1)))
    columns |= {name: weight.flatten(1) for name, weight in part.wide.items()}
    starts = [sum(part.widths[:k]) for k in range(len(part.widths) + 1)]
    factors = {name: float(part.inverse[starts[k]]) for k, name in enumerate((*part.names, *part.wide))}
    for source in part.terms.sources:
        axes = PERCEPTRON[source]
        free = [a for a in axes if a not in acted]
        lengths = [axis_size(a, size) for a in free]
        for output, rows in zip(outputs, columns[source].split(splits, 0)):
            axes_out = PERCEPTRON.get(output, "")
            names = {a: {"q": "z", "j": "y"}[a] for a in axes_out if a not in acted}
            out_lengths = [axis_size(a, size) for a in names]
            channels = len(rows) // math.prod(out_lengths)
            coefficient = rows.reshape(channels, *out_lengths, -1, *lengths) * factors[source]
            coefficient = coefficient.movedim(1 + len(names), 1)  # o i *standing *free
            kept = "".join(names.get(a, a) for a in axes_out if a in tied or a in names)
            ones = tuple(2 + k for k, a in enumerate(axes_out) if a in acted and a not in tied)
            letters = HEADS_APART.get(source, axes)
            equation = f"ni{letters},oi{''.join(names.values())}{''.join(free)}->no{kept}"
            found.append((output, source, Term(equation, coefficient, ones, literal=literal)))
    return found


class PlainLayer(nn.Module):
    """The plain form of an `EquivariantLayer` without low rank, on heads apart."""

    def __init__(self, layer: EquivariantLayer, literal: bool) -> None:
        super().__init__()
        d, e = layer.size.dim, layer.c_out
        self.into: list[tuple[str, str]] = []
        self.terms = nn.ModuleList()
        self.constants = nn.ParameterDict()
        for part in layer.sets:
            self._add(layer, part, literal)  # type: ignore[arg-type]
        self.rows = nn.ParameterDict()
        for symbol in "QKV":
            weight = layer.rows[symbol].weight.detach().reshape(e, d, -1, d)  # type: ignore[union-attr, operator]
            self.rows[symbol] = nn.Parameter(weight.transpose(1, 2).contiguous())  # o i j p
        self.keep = nn.Parameter(layer.keep.detach().clone())
        self.spread = nn.Parameter(layer.spread.detach() / math.sqrt(d))

    def _add(self, layer: EquivariantLayer, part: Terms, literal: bool) -> None:
        splits = layer.splits(part.terms)
        for output, source, term in terms_of(part, splits, part.terms.outputs, literal):
            self.into.append((output, source))
            self.terms.append(term)
        if part.mix.bias is not None:
            for output, constant in zip(part.terms.outputs, part.mix.bias.detach().split(splits)):
                free = len(constant) // layer.c_out
                shape = {"A": (-1, 1, 1), "a": (-1, 1), "B": (-1, 1, free), "b": (-1, free)}[output]
                self.constants[output] = nn.Parameter(constant.clone().reshape(shape))

    def forward(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """Blocks with heads as an axis: `n i h D d_k`, …"""
        known = with_head_products(x)
        found: dict[str, Tensor] = {
            s: torch.einsum("nihpk,oijp->nohjk", x[s], weight) for s, weight in self.rows.items()
        }
        summed = torch.einsum("nihkj,oi->nohk", x["O"], self.spread)[..., None]
        found["O"] = torch.einsum("nihkj,oi->nohkj", x["O"], self.keep) + summed
        for (output, source), term in zip(self.into, self.terms):
            part = term(known[source])
            found[output] = found[output] + part if output in found else part
        return {s: y + self.constants[s] if s in self.constants else y for s, y in found.items()}


class PlainInvariant(nn.Module):
    """The plain form of an `InvariantLayer`."""

    def __init__(self, layer: InvariantLayer, literal: bool) -> None:
        super().__init__()
        found = terms_of(layer.terms, [layer.terms.mix.weight.shape[0]], ("",), literal)
        self.sources = [source for _, source, _ in found]
        self.terms = nn.ModuleList(term for _, _, term in found)
        self.bias = nn.Parameter(layer.terms.mix.bias.detach().clone())  # type: ignore[union-attr]

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        """`n outputs`."""
        known = with_head_products(x)
        parts = [term(known[source]) for source, term in zip(self.sources, self.terms)]
        return torch.stack(parts).sum(0) + self.bias


def with_head_products(x: dict[str, Tensor]) -> dict[str, Tensor]:
    """S and T of every head, `n i h D D`."""
    return {
        **x,
        "S": torch.einsum("nihpk,nihqk->nihpq", x["Q"], x["K"]),
        "T": torch.einsum("nihpk,nihkj->nihpj", x["V"], x["O"]),
    }


class PlainTransformerNFN(nn.Module):
    """The plain form of a `TransformerNFN` of one equivariant layer that reads encoders alone."""

    def __init__(self, model: TransformerNFN, *, literal: bool = True) -> None:
        super().__init__()
        branches = model.each_block()
        self.layers = nn.ModuleList(PlainLayer(branch.layers[0], literal) for branch in branches)  # type: ignore[index]
        self.invariants = nn.ModuleList(PlainInvariant(branch.invariant, literal) for branch in branches)  # type: ignore[arg-type]
        self.norms = nn.ModuleList(nn.LayerNorm(branch.norm.normalized_shape) for branch in branches)  # type: ignore[union-attr, arg-type]
        self.end = nn.Sequential(model.head, model.end)

    def forward(self, stack: Stack) -> Tensor:
        """`n out`."""
        found = []
        for block, layer, invariant, norm in zip(
            split(stack.chain, stack.tensors), self.layers, self.invariants, self.norms
        ):
            y = layer({s: t[:, None] for s, t in block.items()})
            y = {s: F.relu(t) if s in "AaBb" else t for s, t in y.items()}
            found.append(norm(invariant(y)))
        return self.end(torch.cat(found, -1))
