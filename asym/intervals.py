"""Intervals: Student's t, paired and Welch's differences, Wilson's and Newcombe's for shares, the bootstrap.

Values that are missing (NaN) are left out and not counted; a single value has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from asym.seeds import numpy_generator


class Interval(NamedTuple):
    """An estimate with its confidence interval and the number of values behind it."""

    mean: float
    low: float
    high: float
    n: int


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean and Student's t interval: mean ± t(n − 1) · s / √n.

    Args:
        values: any shape; NaN are left out and not counted in n.
        level: coverage, between 0 and 1.

    Returns:
        The interval is NaN for n = 1, everything is for n = 0.

    Raises:
        ValueError: level out of range.
    """
    _check_level(level)
    present = _present(values)
    n = len(present)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    if n == 1 or not np.isfinite(present).all():
        return Interval(float(present.sum() / n), math.nan, math.nan, n)
    half = stats.t.ppf((1 + level) / 2, n - 1) * present.std(ddof=1) / math.sqrt(n)
    mean = present.mean()
    return Interval(float(mean), float(mean - half), float(mean + half), n)


def paired_interval(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Student's t interval of the mean of a − b over pairs; pairs with a NaN are left out.

    Raises:
        ValueError: different shapes, level out of range.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"a, b: pairs need equal shapes, got {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore"):
        return mean_interval(a - b, level)


def welch_interval(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Welch's interval of mean(a) − mean(b) for independent samples of unequal variance.

        ± t(ν) · √(q_a + q_b),    ν = (q_a + q_b)² / (q_a²/(n_a − 1) + q_b²/(n_b − 1)),    q = s²/n

    Returns:
        n is the smaller of the two sizes; the interval is NaN if that is below 2. NaN are left out.

    Raises:
        ValueError: level out of range.
    """
    _check_level(level)
    a, b = _present(a), _present(b)
    n = min(len(a), len(b))
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Interval(math.nan, math.nan, math.nan, n)
    difference = float(a.mean() - b.mean())
    if n == 1:
        return Interval(difference, math.nan, math.nan, n)
    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    if va + vb == 0:
        return Interval(difference, difference, difference, n)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = float(stats.t.ppf((1 + level) / 2, freedom) * math.sqrt(va + vb))
    return Interval(difference, difference - half, difference + half, n)


def share_interval(hits: int, n: int, level: float = 0.95) -> Interval:
    """Share of `hits` among `n` with Wilson's interval, which is of use at shares of 0 and 1 too.

        (p + z²/2n ± z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n),    p = hits / n

    (Wilson, "Probable inference, the law of succession, and statistical inference", 1927.)

    Raises:
        ValueError: hits outside 0 … n, level out of range.
    """
    _check_level(level)
    if not 0 <= hits <= n:
        raise ValueError(f"hits: got {hits} of {n}")
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    p, z2 = hits / n, float(stats.norm.ppf((1 + level) / 2)) ** 2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # At the ends rounding must not leave the share itself outside.
    return Interval(p, 0.0 if hits == 0 else centre - half, 1.0 if hits == n else centre + half, n)


def paired_share_interval(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Difference of two shares over the same items, share(a) − share(b), with Newcombe's interval.

    With Wilson's limits l, u of each share p and the correlation φ of the two, corrected for continuity,

        low  = p_a − p_b − √((p_a − l_a)² − 2 φ (p_a − l_a)(u_b − p_b) + (u_b − p_b)²)
        high = p_a − p_b + √((u_a − p_a)² − 2 φ (u_a − p_a)(p_b − l_b) + (p_b − l_b)²)

    (Newcombe, "Improved confidence intervals for the difference between binomial proportions based on paired data",
    1998, method 10.) Unlike Student's t it has a width where all items agree.

    Args:
        a: `[n]`, 0 or 1 (or false and true); pairs with a NaN are left out.
        b: `[n]`, likewise.

    Raises:
        ValueError: different shapes, other values than 0 and 1, level out of range.
    """
    _check_level(level)
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"a, b: pairs need equal shapes, got {a.shape} and {b.shape}")
    there = ~(np.isnan(a) | np.isnan(b))
    a, b = a[there], b[there]
    if not np.isin([*a, *b], (0, 1)).all():
        raise ValueError("a, b: shares are of values 0 and 1")
    n = len(a)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    both, first, second = int((a * b).sum()), int((a > b).sum()), int((a < b).sum())
    neither = n - both - first - second
    p, low_a, high_a, _ = share_interval(both + first, n, level)
    q, low_b, high_b, _ = share_interval(both + second, n, level)
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    cross = both * neither - first * second
    phi = (min(cross, max(cross - n / 2, 0)) / math.sqrt(margins)) if margins else 0.0

    def reach(x: float, y: float) -> float:
        return math.sqrt(max(x * x - 2 * phi * x * y + y * y, 0.0))

    return Interval(p - q, p - q - reach(p - low_a, high_b - q), p - q + reach(high_a - p, q - low_b), n)


def bootstrap_interval(
    values: ArrayLike | Sequence[ArrayLike],
    statistic: Callable[..., Any],
    *,
    seed: int,
    level: float = 0.95,
    resamples: int = 2_000,
    paired: bool = False,
) -> Interval:
    """Percentile bootstrap interval of any statistic.

    Args:
        values: `[n, ...]`; with `paired` several arrays `[n, ...]` whose items belong together and are
            drawn together, such as true and predicted accuracies for a rank correlation.
        statistic: called with each array; gives one number.
        seed: of the draws.
        level: coverage.
        resamples: how many.
        paired: whether `values` is a sequence of arrays.

    Returns:
        The statistic of the values themselves and the interval; draws for which the statistic is NaN (a
        constant sample has no correlation) are left out; the interval is NaN for n < 2.

    Raises:
        ValueError: arrays of different length, level or resamples out of range.
    """
    _check_level(level)
    if resamples < 1:
        raise ValueError(f"resamples: must be at least 1, got {resamples}")
    arrays = [np.asarray(array) for array in values] if paired else [np.asarray(values)]  # type: ignore[union-attr]
    n = len(arrays[0])
    if any(len(array) != n for array in arrays):
        raise ValueError(f"values: paired arrays need equal lengths, got {[len(array) for array in arrays]}")
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    estimate = float(statistic(*arrays))
    if n == 1:
        return Interval(estimate, math.nan, math.nan, 1)
    generator = numpy_generator(seed, "metrics", "bootstrap")
    draws = np.empty(resamples)
    for index in range(resamples):
        places = generator.integers(0, n, size=n)
        draws[index] = statistic(*(array[places] for array in arrays))
    draws = draws[~np.isnan(draws)]
    if len(draws) == 0:
        return Interval(estimate, math.nan, math.nan, n)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), n)


def _present(values: ArrayLike) -> np.ndarray:
    flat = np.asarray(values, dtype=np.float64).ravel()
    return flat[~np.isnan(flat)]


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level: must lie between 0 and 1, got {level}")
