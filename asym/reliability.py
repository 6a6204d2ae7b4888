"""How well predicted probabilities say how often they are right.

With confidence c = max_k p_k and hit a ∈ {0, 1} of each of N predictions, in bins B:

    ECE = Σ_B |B|/N · |mean of a over B − mean of c over B|

    ece            15 bins of equal width (b/15, (b+1)/15]             (Guo et al. 2017)
    adaptive_ece   15 bins that hold equally many predictions, by rank of c
    brier          mean over predictions of Σ_k (p_k − y_k)²,          0 … 2
    nll            mean of − log p of the right class, in nats

`torchmetrics.classification.MulticlassCalibrationError(norm="l1")` agrees with `ece` but for one thing: it puts c = 1
into a bin of its own, a sixteenth one beside its fifteen, while here such predictions belong to the last bin. The
absolute value of a sum is at most the sum of absolute values, so torchmetrics' value is never below this one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

BINS = 15


class Bins(NamedTuple):
    """A reliability diagram: one entry a bin; NaN in empty ones."""

    size: np.ndarray
    confidence: np.ndarray
    """Mean confidence."""
    accuracy: np.ndarray
    """Share of right predictions."""

    @property
    def error(self) -> float:
        """Σ |B|/N · |accuracy − confidence|."""
        gap = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(self.size * gap) / self.size.sum())


def reliability(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS, *, adaptive: bool = False) -> Bins:
    """Bins of predictions by their confidence.

    Args:
        probabilities: `[n, k]`, rows sum to one.
        labels: `[n]`, integers in 0 … k − 1.
        bins: how many, at least 1.
        adaptive: equally many predictions a bin (as near as n allows) in place of equal widths.

    Raises:
        ValueError: for other shapes, labels out of range, no predictions, rows that are no probabilities.
    """
    p, y = _check(probabilities, labels)
    if bins < 1:
        raise ValueError(f"bins: got {bins}, must be at least 1")
    confidence, hit = p.max(axis=1), p.argmax(axis=1) == y
    if adaptive:
        place = np.empty(len(y), dtype=np.int64)
        place[np.argsort(confidence, kind="stable")] = np.arange(len(y)) * bins // len(y)
    else:
        place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        return Bins(
            count,
            np.bincount(place, confidence, bins) / count,
            np.bincount(place, hit.astype(float), bins) / count,
        )


def ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal width, 0 … 1; see `reliability`."""
    return reliability(probabilities, labels, bins).error


def adaptive_ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal size, 0 … 1; see `reliability`."""
    return reliability(probabilities, labels, bins, adaptive=True).error


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Brier score over all classes, 0 … 2; see `reliability`."""
    p, y = _check(probabilities, labels)
    return float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)))


def nll(log_probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean negative log-likelihood in nats, from log-probabilities `[n, k]`."""
    log_p = np.asarray(log_probabilities, dtype=np.float64)
    _, y = _check(np.exp(log_p), labels)
    return float(-log_p[np.arange(len(y)), y].mean())


def _check(probabilities: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if p.ndim != 2 or y.shape != p.shape[:1] or len(y) == 0:
        raise ValueError(f"probabilities, labels: want [n, k] and [n] with n ≥ 1, got {p.shape} and {y.shape}")
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(f"labels: must lie in 0 … {p.shape[1] - 1}, got {y.min()} … {y.max()}")
    if not (np.isfinite(p).all() and (p >= -1e-9).all() and np.allclose(p.sum(axis=1), 1, atol=1e-4)):
        raise ValueError("probabilities: rows must be non-negative and sum to 1")
    return p, y
