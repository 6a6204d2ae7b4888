"""The explicit solution of a soft-max layer, from one table of sums.

Layer ŷ = softmax(h U) with inputs h ≥ 0 of norm ‖h‖₁ = κ, targets y (one-hot, or any distribution), and

    F = Σ_m h_m ⊗ y_m   [d, n],        F_· = Σ_j F_j   [n],        n = Σ_m y_m = F_· / κ.

Statement (arXiv 2311.07498; the sign is as here, with plus in its place the loss explodes):

    U = log F − ((κ − 1)/κ) log F_·

What it is. Multinomial naive Bayes has θ_ji = F_ji / F_·i and scores log n_i + Σ_j h_j log θ_ji. Since F_· = κ n and
Σ h = κ, that equals h U − log κ: the same soft-max, the prior log n spread evenly over the κ units of input norm. So U
maximises the joint likelihood always; it minimises the cross-entropy if the κ draws that make up an input are
independent given the target (in the limit of many samples; exactly for one-hot inputs). Otherwise features are counted
several times and U is over-confident.

Priming number. Scaled inputs h K/κ satisfy the statement with K in place of κ, which gives the family

    U(K) = (K/κ) log F − ((K − 1)/κ) log F_·                                            U(κ) is the statement

K is a confidence: the logits are those of naive Bayes with its likelihood tempered to the power K/κ. It is chosen on
held-out data (`choose_priming`). Cells of F without any count get `smoothing` (ε), as do all others.

Conditions: h ≥ 0; κ constant, or its mean where it nearly is; known targets; fixed layers below. The cross-entropy of
one layer is convex in U: this is a start, never another basin. F is a sum over samples: shards add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

SMOOTHING = 1e-2


def outer_sums(h: Float[Tensor, "m d"], y: Int[Tensor, " m"] | Float[Tensor, "m n"], outputs: int) -> Tensor:
    """F = Σ h ⊗ y `[d, n]`; y as classes or as distributions."""
    if y.ndim == 1:
        return h.new_zeros(outputs, h.shape[1]).index_add_(0, y, h).T
    return h.T @ y


def solve_softmax(
    sums: Float[Tensor, "d n"],
    *,
    norm: float = 1.0,
    priming: float | None = None,
    smoothing: float = SMOOTHING,
) -> Float[Tensor, "d n"]:
    """U(K).

    Args:
        sums: F.
        norm: κ, the (mean) norm of inputs.
        priming: K; None is κ, the statement.
        smoothing: ε > 0, added to every cell of F, or 0 where no cell is empty.

    Raises:
        ValueError: negative sums; a norm or priming number that is not positive; an empty cell without smoothing.
    """
    if norm <= 0 or (priming is not None and priming <= 0):
        raise ValueError(f"norm, priming: got {norm}, {priming}, must be positive")
    if smoothing < 0 or bool((sums < 0).any()):
        raise ValueError("sums, smoothing: must not be negative; inputs of an explicit layer are not")
    if smoothing == 0 and bool((sums == 0).any()):
        raise ValueError("smoothing: got 0, but there are sums of 0 whose logarithm is wanted; give a positive one")
    k = norm if priming is None else priming
    table = sums + smoothing
    return (k * table.log() - (k - 1) * table.sum(0).log()) / norm


def naive_bayes(
    sums: Float[Tensor, "d n"], *, norm: float = 1.0, tempering: float = 1.0, smoothing: float = SMOOTHING
) -> tuple[Float[Tensor, "d n"], Float[Tensor, " n"]]:
    """Weights and bias of multinomial naive Bayes, a log θ and log n, with the same smoothing of F.

    U(K) of `solve_softmax` gives the same distribution for a = K / κ.
    """
    table = sums + smoothing
    total = table.sum(0)
    return tempering * (table / total).log(), (total / norm).log()


class Choice(NamedTuple):
    """The best of several values, with the loss of each."""

    value: float
    losses: dict[float, float]


def choose_priming(loss: Callable[[float], float], candidates: Sequence[float]) -> Choice:
    """The candidate K with the lowest held-out loss; of equal ones, and NaN counting as worst, the first.

    Raises:
        ValueError: no candidate.
    """
    if not candidates:
        raise ValueError("candidates: none given")
    losses = {value: loss(value) for value in candidates}
    best = min(losses, key=lambda value: losses[value] if losses[value] == losses[value] else float("inf"))
    return Choice(best, losses)


def cross_entropy(h: Float[Tensor, "m d"], weight: Float[Tensor, "d n"], y: Tensor) -> float:
    """Mean loss of a layer in nats."""
    return float(functional.cross_entropy(h @ weight, y))
