"""Matrices from features of a set of terms to its outputs, whole or of low rank, of one block or of stacked ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b on the last axis, `… inputs` → `… outputs`; blocks may come first in all three."""
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    if x.ndim == 3 and x.shape[1] < weight.shape[1]:  # so that the gradient of the weight lies as the weight does
        turned = torch.bmm(weight, x.mT) if bias is None else torch.baddbmm(bias[..., None], weight, x.mT)
        return turned.mT
    rows = x if x.ndim == 3 else x.flatten(1, -2)
    y = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    return y if x.ndim == 3 else fresh_view(y, (*x.shape[:-1], y.shape[-1]))


def fresh_view(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor that nobody else holds in another shape; what is added to it in place costs no copy in backward passes,
    as it does with views.
    """
    return torch.ops.aten._unsafe_view(x, shape)


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

    def forward(self, x: Tensor, factors: Tensor | None = None) -> Tensor:
        """`… inputs` → `… outputs`, inputs times factors first."""
        if factors is not None and x.ndim == factors.ndim + 1:  # a row a network
            x, factors = x * factors[..., None, :], None
        weight = self._times(factors)
        if self.up is None:
            return affine(x, weight, self.bias)
        return affine(affine(x, weight), self.up, self.bias)

    def apart(self, x: Tensor, factors: Tensor, splits: Sequence[int]) -> list[Tensor]:
        """The outputs without constants in parts of these widths, each with memory of its own."""
        weight = self._times(factors)
        if self.up is None:
            return [affine(x, rows) for rows in weight.split(splits, -2)]
        thin = affine(x, weight)
        return [affine(thin, rows) for rows in self.up.split(splits, -2)]

    def rows_for(self, x: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """(x', W) with the outputs x' Wᵀ, without constants: of x itself where no gradient goes through it."""
        weight = self._times(factors)
        if self.up is None:
            return x, weight
        return (affine(x, weight), self.up) if x.requires_grad else (x, self.up @ weight)

    def matrix(self) -> Tensor:
        """The whole matrix, `outputs inputs`."""
        return self.weight if self.up is None else self.up @ self.weight

    def on_rows(self, x: Tensor) -> Tensor:
        """The matrix times `inputs m`: `outputs m`."""
        return self.weight @ x if self.up is None else self.up @ (self.weight @ x)

    def _times(self, factors: Tensor | None) -> Tensor:
        return self.weight if factors is None else self.weight * factors[..., None, :]
