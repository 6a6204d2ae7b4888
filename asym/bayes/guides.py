"""Families of variational posteriors: Gaussian per layer, low rank plus diagonal, in closed form.

For the D random entries of a layer, with rank K ≥ 0, mean μ, diagonal d and factors v_1 … v_K (rows of V):

    q(w) = N(μ, diag(d) + (1/K) Σ_k v_k v_kᵀ),        w = μ + Vᵀ ε / √K + √d ⊙ ξ,     ε ∈ R^K, ξ ∈ R^D standard normal

Against the prior N(0, s² I) and with G = V diag(d)⁻¹ Vᵀ / K (a K × K matrix), the determinant lemma gives

    KL(q ‖ p) = ½ [ (Σ d + ‖V‖²/K + ‖μ‖²) / s² − D + D log s² − Σ log d − log det(I + G) ]

Source: ELRG-VI (Tomczak et al., NeurIPS 2020), which Lim et al. 2024 use with K = 4 and a diagonal that is not learned
(log d = −10 in MLPs, −12 in ResNets). K = 0 with a learned diagonal is the mean-field normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

GUIDES = ("normal", "lowrank", "last")
DIAGONALS = ("learned", "constant")


@dataclass(frozen=True)
class Guide:
    """A family of variational posteriors."""

    name: str = "lowrank"
    """normal: mean-field; lowrank: low rank plus diagonal in each layer; last: the latter in the last layer alone."""
    rank: int | None = None
    """K; None is 0 for `normal` and 4 for the others."""
    diagonal: str | None = None
    """learned or constant; None is constant for `lowrank` and learned for the others."""
    log_variance: float = -10.0
    """log d: its constant value, or where a learned diagonal starts."""
    local: bool | None = None
    """Draw outputs of linear layers, not their weights (`asym.bayes.local`); None does so for `normal`."""

    def __post_init__(self) -> None:
        if self.name not in GUIDES:
            raise ValueError(f"guide: unknown {self.name!r}; valid: {', '.join(GUIDES)}")
        if self.diagonal is not None and self.diagonal not in DIAGONALS:
            raise ValueError(f"diagonal: unknown {self.diagonal!r}; valid: {', '.join(DIAGONALS)}")
        if self.rank is not None and self.name == "normal" and self.rank != 0:
            raise ValueError(f"rank: got {self.rank}; guide normal has none, choose lowrank")
        if self.rank is not None and self.name != "normal" and self.rank < 1:
            raise ValueError(f"rank: got {self.rank}, must be at least 1 for guide {self.name}")
        if self.name == "normal" and self.diagonal == "constant":
            raise ValueError("diagonal: guide normal has a learned diagonal, 'constant' would leave nothing to learn")
        if not math.isfinite(self.log_variance):
            raise ValueError(f"log_variance: got {self.log_variance}, must be a finite number")

    @property
    def factors(self) -> int:
        """K."""
        return self.rank if self.rank is not None else 0 if self.name == "normal" else 4

    @property
    def learns_diagonal(self) -> bool:
        """Whether d is learned."""
        return (self.diagonal or ("constant" if self.name == "lowrank" else "learned")) == "learned"

    @property
    def draws_outputs(self) -> bool:
        """Whether linear layers use local reparametrisation."""
        return self.local if self.local is not None else self.name == "normal"

    @property
    def last_only(self) -> bool:
        """Whether only the last layer is random."""
        return self.name == "last"


def draw(
    mean: Float[Tensor, "n d"],
    factor: Float[Tensor, "n k d"] | None,
    log_variance: Float[Tensor, "n d"] | float,
    shared: Float[Tensor, "n k"] | None,
    own: Float[Tensor, "n d"] | None,
) -> Float[Tensor, "n d"]:
    """μ + Vᵀ ε / √K + √d ⊙ ξ for n posteriors; a part is left out where its noise is None."""
    value = mean
    if factor is not None and shared is not None:
        value = value + torch.einsum("nk,nkd->nd", shared / math.sqrt(factor.shape[1]), factor)
    if own is not None:
        value = value + _exp(0.5 * log_variance) * own
    return value


def gram(factor: Float[Tensor, "n k d"], log_variance: Float[Tensor, "n d"] | float) -> Float[Tensor, "n k k"]:
    """G = V diag(d)⁻¹ Vᵀ / K."""
    k = factor.shape[1]
    if isinstance(log_variance, Tensor):
        scaled = factor * (-0.5 * log_variance).exp()[:, None, :]
        return scaled @ scaled.mT / k
    return factor @ factor.mT * (math.exp(-log_variance) / k)


def kl_parts(
    mean: Float[Tensor, "n d"],
    factor: Float[Tensor, "n k d"] | None,
    log_variance: Float[Tensor, "n d"] | float,
    mask: Tensor | None,
    entries: int,
    variance: float,
    g: Float[Tensor, "n k k"] | None,
) -> Float[Tensor, " n"]:
    """KL(q ‖ p) of a layer but for − ½ log det(I + G), which the caller adds for all layers at once.

    Args:
        mean: μ, zero at entries that are no random variables.
        factor: V, zero there too.
        log_variance: log d, one number if it is constant.
        mask: True at random entries, `n d` or `1 d`; None if all are.
        entries: number D of random entries.
        variance: s² of the prior.
        g: G.
    """
    square = mean.square().sum(dim=1)
    if isinstance(log_variance, Tensor):
        own, logs = log_variance.exp(), log_variance
        if mask is not None:
            own, logs = own * mask, logs * mask
        trace, log_det = own.sum(dim=1), logs.sum(dim=1)
        if factor is not None:
            trace = trace + factor.square().sum(dim=(1, 2)) / factor.shape[1]
    else:
        trace, log_det = torch.full_like(square, entries * math.exp(log_variance)), entries * log_variance
        if g is not None:
            trace = trace + math.exp(log_variance) * g.diagonal(dim1=1, dim2=2).sum(dim=1)
    return 0.5 * ((trace + square) / variance - entries + entries * math.log(variance) - log_det)


def log_det_and_inverse(g: Float[Tensor, "*l k k"]) -> tuple[Tensor, Tensor]:
    """log det(I + G) and (I + G)⁻¹ for positive semi-definite G; NaN, not an error, where G is not finite."""
    eye = torch.eye(g.shape[-1], dtype=g.dtype, device=g.device)
    chol, failed = torch.linalg.cholesky_ex(g + eye)
    value = 2 * chol.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    return torch.where(failed > 0, torch.nan, value), torch.cholesky_inverse(chol)


def log_det_one_plus(g: Float[Tensor, "*l k k"]) -> Tensor:
    """log det(I + G), see `log_det_and_inverse`."""
    return log_det_and_inverse(g)[0]


def _exp(x: Tensor | float) -> Tensor | float:
    return x.exp() if isinstance(x, Tensor) else math.exp(x)
