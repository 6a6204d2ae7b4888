"""Temperature scaling: one number that repairs the confidence of a classifier and none of its decisions.

    p(y | x) = softmax(z / T),      T = argmin over T > 0 of the mean cross-entropy on held-out data

(Guo et al., "On Calibration of Modern Neural Networks", 2017.) The cross-entropy is convex in β = 1/T, so that its
only minimum is found by a bounded search over log β. A network between two others is often right and unsure: its
logits are small, its loss is high. Barriers of calibrated losses tell that apart from being wrong (Ito et al., "Do We
Really Need Permutations?", 2026).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

LARGEST = 1e3
"""Temperatures are sought between 1/LARGEST and LARGEST."""


def cross_entropy_at(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> float:
    """Mean cross-entropy in nats of softmax(logits / temperature), in float64.

    Args:
        logits: `[b, c]`.
        labels: `[b]`, integers in [0, c).
        temperature: positive.

    Raises:
        ValueError: if the shapes do not fit or the temperature is not positive.
    """
    z, y = _checked(logits, labels)
    if not 0 < temperature < np.inf:
        raise ValueError(f"temperature: {temperature}; must be a positive number")
    return _loss(z, y, 1 / temperature)


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The temperature with the lowest mean cross-entropy, between 1/1000 and 1000.

    Near the lower bound, where the loss is zero to the last digit, if every label is the largest logit; at the upper
    one if logits do worse than guessing at random. NaN if a logit is not finite.

    Raises:
        ValueError: if the shapes do not fit.
    """
    z, y = _checked(logits, labels)
    if not np.isfinite(z).all():
        return float("nan")
    edge = np.log(LARGEST)
    found = minimize_scalar(lambda s: _loss(z, y, np.exp(s)), bounds=(-edge, edge), method="bounded",
                            options={"xatol": 1e-6})  # fmt: skip
    return float(np.exp(-found.x))


def _loss(z: np.ndarray, y: np.ndarray, beta: float) -> float:
    scaled = beta * z
    return float(np.mean(np.logaddexp.reduce(scaled, axis=1) - scaled[np.arange(len(y)), y]))


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    if z.ndim != 2 or y.shape != z.shape[:1] or not len(y):
        raise ValueError(f"logits, labels: want shapes [b, c] and [b] with b ≥ 1, got {z.shape} and {y.shape}")
    if y.min() < 0 or y.max() >= z.shape[1]:
        raise ValueError(f"labels: must lie in [0, {z.shape[1]}), got {y.min()} to {y.max()}")
    return z, y
