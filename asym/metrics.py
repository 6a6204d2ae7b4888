"""What is measured: barriers along a path, monotonicity of a path. Intervals are in `asym.intervals`.

Barrier of a loss L at λ, with end points a (λ = 0) and b (λ = 1):

    B(λ) = L(λ) − [(1 − λ) L_a + λ L_b],      mid = B(½),      max = largest B over all points (never below 0)

For an accuracy the sign is turned, so that positive is worse in both. (Lim et al. 2024, section 4.1,
reports the mid-point of the test loss; `max` is reported beside it.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Barrier(NamedTuple):
    """Excess over the straight line between the end points; positive is worse."""

    mid: float
    max: float


class Monotonicity(NamedTuple):
    """How a loss falls along a path from initial to final weights.

    Attributes:
        max_rise: largest L(i+1) − L(i); negative if the loss falls at every step.
        monotone: max_rise ≤ 0.
        local_convexity: share of second differences L(i+1) − 2 L(i) + L(i−1) that are ≥ 0.
        below_chord: share of interior points on or below the chord from the first to the last point.
        below_second_point_chord: the same for the line over the whole path from the first value to the
            value of the *second* point. This is what the released code of Lim et al. computes under the
            name of the former.
    """

    max_rise: float
    monotone: bool
    local_convexity: float
    below_chord: float
    below_second_point_chord: float


def excess(values: ArrayLike, lambdas: ArrayLike | None = None) -> np.ndarray:
    """B(λ) at every point.

    Args:
        values: losses, `[..., k]`, from λ = 0 to λ = 1.
        lambdas: `[k]`, strictly rising from 0 to 1; equally spaced if not given.

    Returns:
        `[..., k]`; zero at both ends; NaN throughout where an end point is not finite.

    Raises:
        ValueError: fewer than two points, or lambdas of another length or order.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] < 2:
        raise ValueError(f"values: want at least 2 points, got shape {values.shape}")
    k = values.shape[-1]
    points = np.linspace(0, 1, k) if lambdas is None else np.asarray(lambdas, dtype=np.float64)
    if points.shape != (k,):
        raise ValueError(f"lambdas: shape {points.shape} for {k} values")
    if points[0] != 0 or points[-1] != 1 or not (np.diff(points) > 0).all():
        raise ValueError(f"lambdas: must rise from 0 to 1, got {points.tolist()}")
    # A diverged end point has no line to exceed: without this, finite points would lie −inf above it.
    ends = np.where(np.isfinite(values), values, np.nan)
    return values - ((1 - points) * ends[..., :1] + points * ends[..., -1:])


def barrier_curve(losses: ArrayLike, lambdas: ArrayLike | None = None) -> Barrier:
    """Mid-point and largest barrier of a loss curve `[k]`.

    Args:
        losses: `[k]`, from λ = 0 to λ = 1.
        lambdas: `[k]`, see `excess`; must hold ½.

    Raises:
        ValueError: as `excess`; or λ = ½ is not among the points.
    """
    losses = np.asarray(losses, dtype=np.float64)
    if losses.ndim != 1:
        raise ValueError(f"losses: want one curve, got shape {losses.shape}")
    above = excess(losses, lambdas)
    points = np.linspace(0, 1, len(losses)) if lambdas is None else np.asarray(lambdas, dtype=np.float64)
    middle = np.flatnonzero(np.abs(points - 0.5) < 1e-9)
    if len(middle) == 0:
        raise ValueError(f"lambdas: ½ is not among the {len(points)} points; use an odd number of equally spaced ones")
    return Barrier(float(above[middle[0]]), float(above.max()))


def accuracy_barrier_curve(accuracies: ArrayLike, lambdas: ArrayLike | None = None) -> Barrier:
    """Barriers of an accuracy curve `[k]`: end-point line minus value, so positive is worse here too."""
    return barrier_curve(-np.asarray(accuracies, dtype=np.float64), lambdas)


def monotonicity(losses: ArrayLike) -> Monotonicity:
    """Measures of monotone linear interpolation for losses `[k]` at equally spaced points, k ≥ 3.

    A curve with a value that is not finite gives NaN for every measure and is not monotone.

    Raises:
        ValueError: fewer than three points, or more than one curve.
    """
    losses = np.asarray(losses, dtype=np.float64)
    if losses.ndim != 1 or len(losses) < 3:
        raise ValueError(f"losses: want one curve of at least 3 points, got shape {losses.shape}")
    if not np.isfinite(losses).all():
        return Monotonicity(math.nan, False, math.nan, math.nan, math.nan)
    steps = np.diff(losses)
    along = np.linspace(0, 1, len(losses))

    def share_below(end: float) -> float:
        line = losses[0] + (end - losses[0]) * along
        return float(np.mean(losses[1:-1] <= line[1:-1]))

    return Monotonicity(
        max_rise=float(steps.max()),
        monotone=bool(steps.max() <= 0),
        local_convexity=float(np.mean(np.diff(losses, n=2) >= 0)),
        below_chord=share_below(losses[-1]),
        below_second_point_chord=share_below(losses[1]),
    )
