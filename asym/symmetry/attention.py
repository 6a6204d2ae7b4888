"""The symmetry group of transformer blocks that Transformer-NFN respects: its elements, and how they act on weights.

Per block, with blocks independent of each other, the group is S_h × GL(d_k)^h × GL(d_v)^h × P_D × P_{D_A}. An element
(τ, M, N, P_O, P_A) acts by

    Q_s ← Q_τ(s) M_τ(s)ᵀ     K_s ← K_τ(s) M_τ(s)⁻¹     V_s ← V_τ(s) N_τ(s)     O_s ← N_τ(s)⁻¹ O_τ(s) P_O
    A ← P_O⁻¹ A P_A          a ← a P_A                 B ← P_A⁻¹ B             b ← b

Source: Tran et al. 2025, "Equivariant Neural Functional Networks for Transformers" (arXiv 2410.04209), sections 3, 4.
Why each factor leaves the block's function alone (notation of `encoder.py`):

- heads: attention is a sum over heads. M: Q_s K_sᵀ ← Q_s Mᵀ (K_s M⁻¹)ᵀ = Q_s Mᵀ M⁻ᵀ K_sᵀ. N: V_s N N⁻¹ O_s.
- P_A: ReLU acts on each unit, so (h P_A) P_A⁻¹ B = h B with h = ReLU(norm(z) A + a).
- P_O: z ← z P_O, and a norm without scale and shift commutes with permutations, so norm(z P_O) P_O⁻¹ A = norm(z) A.
  With a residual connection z is added to the stream, whose axis is fixed by everything that reads it later: P_O is
  then no symmetry.

`random_element` draws well-conditioned M, N, or, as the published augmentation does, entries uniform on [−s, s] with no
check: a 16 × 16 matrix then has a condition number of about 50 in the median, with a heavy tail. The range s is no more
than a factor: Q, V times s and K, O divided by it. Exact symmetries that this group leaves out: `attention_more.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from asym.symmetry.encoder import Block, Sizes

FACTORS = ("heads", "query-key", "value-out", "out", "hidden")
"""Factors of the group: τ, M, N, P_O, P_A."""
RESIDUAL_FACTORS = ("heads", "query-key", "value-out", "hidden")
"""Those that residual connections leave."""


@dataclass(frozen=True)
class Element:
    """A group element for one block, or a stack of them with equal leading axes.

    Permutations are indices as in `tensor[perm]`: column j of X P stands at `perm[j]` in X.
    """

    heads: Int[Tensor, "*lead h"]
    query_key: Float[Tensor, "*lead h k k"]
    """M_s."""
    value_out: Float[Tensor, "*lead h v v"]
    """N_s."""
    out: Int[Tensor, "*lead d"]
    """P_O."""
    hidden: Int[Tensor, "*lead m"]
    """P_A."""

    @property
    def condition(self) -> float:
        """Largest condition number of all M_s and N_s."""
        return max(float(torch.linalg.cond(m.double()).max()) for m in (self.query_key, self.value_out))


def random_element(
    size: Sizes,
    lead: Sequence[int],
    generator: torch.Generator,
    *,
    factors: Sequence[str] = FACTORS,
    condition: float = 10.0,
    spread: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Element:
    """A random element; factors that are not asked for are the identity.

    Args:
        size: of the block.
        lead: leading axes, one element for each of their entries; () for a single one.
        generator: to draw from, on the CPU.
        factors: any of `FACTORS`.
        condition: M and N have singular values log-uniform between 1/√condition and √condition, so that this bounds
            their condition number; at least 1.
        spread: if given, entries of M and N are uniform on [−spread, spread] instead, as published.
        dtype: of M and N.

    Raises:
        ValueError: for an unknown factor, a condition below 1 or a spread that is not positive.
    """
    for factor in factors:
        if factor not in FACTORS:
            raise ValueError(f"factors: {factor!r}; choose from {', '.join(FACTORS)}")
    if not 1 <= condition < math.inf:
        raise ValueError(f"condition: {condition}; must be a finite number of at least 1")
    if spread is not None and not 0 < spread < math.inf:
        raise ValueError(f"spread: {spread}; must be a positive number")

    def permutation(factor: str, count: int) -> Tensor:
        if factor in factors:
            return torch.rand(*lead, count, generator=generator, dtype=torch.float64).argsort(-1)
        return torch.arange(count).expand(*lead, count).clone()

    def matrix(factor: str, width: int) -> Tensor:
        shape = (*lead, size.heads, width, width)
        if factor not in factors:
            return torch.eye(width, dtype=dtype).expand(shape).clone()
        if spread is not None:
            return (spread * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)).to(dtype)
        left, right = (orthogonal(shape, generator) for _ in range(2))
        powers = torch.rand(shape[:-1], generator=generator, dtype=torch.float64) - 0.5
        return ((left * condition ** powers[..., None, :]) @ right).to(dtype)

    return Element(
        permutation("heads", size.heads),
        matrix("query-key", size.key),
        matrix("value-out", size.value),
        permutation("out", size.dim),
        permutation("hidden", size.hidden),
    )


def orthogonal(shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "*lead d d"]:
    """Random orthogonal matrices in float64, uniform (Haar) in their group."""
    q, r = torch.linalg.qr(torch.randn(*shape, generator=generator, dtype=torch.float64))
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]


def act(element: Element, block: Block) -> dict[str, Tensor]:
    """The block's image; leading axes of the element come first in the block's tensors, others (channels) follow.

    Raises:
        ValueError: if the sizes of element and block differ.
    """
    lead = element.heads.ndim - 1
    extra = block["a"].ndim - 1 - lead
    h, k, v = element.query_key.shape[-3], element.query_key.shape[-1], element.value_out.shape[-1]
    d, m = element.out.shape[-1], element.hidden.shape[-1]
    rows = d + ("o" in block)
    sizes = {
        "Q": (h, rows, k),
        "K": (h, rows, k),
        "V": (h, rows, v),
        "O": (h, v, d),
        "A": (d, m),
        "a": (m,),
        "B": (m, d),
    }
    for symbol, shape in sizes.items():
        if extra < 0 or tuple(block[symbol].shape[-len(shape) :]) != shape:
            raise ValueError(f"block: {symbol} has shape {tuple(block[symbol].shape)}, the element acts on {shape}")

    def channels(x: Tensor) -> Tensor:
        return x[(slice(None),) * lead + (None,) * extra].to(block["Q"].device)

    def pick(x: Tensor, perm: Tensor, axis: int) -> Tensor:
        """x with entry perm[i] at place i of an axis counted from the end."""
        index = perm.reshape(*perm.shape[:-1], *(1,) * (x.ndim + axis - lead), -1, *(1,) * (-axis - 1))
        return x.gather(axis, index.to(x.device).expand(x.shape))

    q, k_, v_, o = (pick(block[symbol], element.heads, -3) for symbol in "QKVO")
    mixing, values = (
        channels(x.gather(-3, element.heads[..., None, None].expand(x.shape))).to(block["Q"].dtype)
        for x in (element.query_key, element.value_out)
    )
    return {
        "Q": q @ mixing.mT,
        "K": torch.linalg.solve(mixing, k_, left=False),
        "V": v_ @ values,
        "O": pick(torch.linalg.solve(values, o), element.out, -1),
        "A": pick(pick(block["A"], element.out, -2), element.hidden, -1),
        "a": pick(block["a"], element.hidden, -1),
        "B": pick(block["B"], element.hidden, -2),
        "b": block["b"],
        **({"o": pick(block["o"], element.out, -1)} if "o" in block else {}),
    }
