"""How well accuracies are predicted: rank correlation, its intervals and its ceiling; R² and mean absolute error.

Kendall's τ-b of x and y over n networks, with the sign matrices X_ij = sign(x_i − x_j) and Y likewise:

    τ = Σ_ij X_ij Y_ij / √(Σ_ij |X_ij| · Σ_ij |Y_ij|)

so that pairs tied in either count in neither numerator nor that factor. Within strata, all three sums run over pairs of
one stratum only: what the hyper-parameters that define the strata say about the accuracy is then worth nothing. A
bootstrap sample that holds network i w_i times has the sums wᵀ (X ∘ Y) w and so on, so that all samples come from three
matrix products. Differences between readers are taken within each sample (a paired bootstrap over test networks).

Kendall 1945, "The treatment of ties in ranking problems"; Efron & Tibshirani 1993 (percentile intervals).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from asym.intervals import Interval
from asym.seeds import numpy_generator

RESAMPLES = 1_000


class Ceiling(NamedTuple):
    """Expected τ-b where accuracies are measured on finitely many images."""

    repeat: float
    """Between two independent measurements of the same networks."""
    perfect: float
    """Between a measurement and the true accuracies: what a reader that knows those would get."""


def kendall(truth: ArrayLike, predictions: ArrayLike, strata: ArrayLike | None = None) -> float:
    """Kendall's τ-b of predictions `[n]` or the mean over several `[s, n]`, in [−1, 1]; NaN where one is constant.

    Args:
        truth: `[n]`.
        predictions: `[n]`, or `[s, n]` of s trainings.
        strata: `[n]` labels; only pairs of equal label count.

    Raises:
        ValueError: for other shapes, or values that are not finite.
    """
    return Ranks(truth, strata).tau(predictions)


def r_squared(truth: ArrayLike, predictions: ArrayLike) -> float:
    """1 − Σ (y − ŷ)² / Σ (y − ȳ)²; NaN where the truth is constant.

    Raises:
        ValueError: for different shapes.
    """
    y, p = _pair(truth, predictions)
    spread = float(((y - y.mean()) ** 2).sum())
    return 1 - float(((y - p) ** 2).sum()) / spread if spread > 0 else math.nan


def recalibrated_r_squared(truth: ArrayLike, predictions: ArrayLike) -> float:
    """R² after the best affine map of the predictions, the squared correlation: ranking apart from calibration."""
    y, p = _pair(truth, predictions)
    if y.std() == 0 or p.std() == 0:
        return math.nan
    return float(np.corrcoef(y, p)[0, 1] ** 2)


def mean_absolute_error(truth: ArrayLike, predictions: ArrayLike) -> float:
    """Σ |y − ŷ| / n, in the units of y.

    Raises:
        ValueError: for different shapes.
    """
    y, p = _pair(truth, predictions)
    return float(np.abs(y - p).mean())


class Ranks:
    """Test networks with their measured accuracies: τ-b of any reader, intervals and differences over one set of draws.

    Args:
        truth: `[n]` measured accuracies.
        strata: `[n]` labels; only pairs of equal label count.
        seed: of the draws.
        resamples: how many.

    Raises:
        ValueError: for values that are not finite, fewer than two networks, or labels of another length.
    """

    def __init__(
        self, truth: ArrayLike, strata: ArrayLike | None = None, *, seed: int = 0, resamples: int = RESAMPLES
    ) -> None:
        y = np.asarray(truth, dtype=np.float64)
        if y.ndim != 1 or len(y) < 2 or not np.isfinite(y).all():
            raise ValueError(f"truth: want at least two finite accuracies, got shape {y.shape}")
        self.n, self.seed, self.resamples = len(y), seed, resamples
        self.same: np.ndarray | None = None
        if strata is not None:
            labels = np.unique(np.asarray(strata), return_inverse=True)[1]
            if labels.shape != y.shape:
                raise ValueError(f"strata: {labels.shape} labels for {len(y)} networks")
            self.same = labels[:, None] == labels[None, :]
        self.signs = self._signs(y)
        self.untied = np.abs(self.signs)
        self._weights: np.ndarray | None = None

    def tau(self, predictions: ArrayLike) -> float:
        """τ-b of `[n]`, or the mean over `[s, n]`."""
        ones = np.ones((1, self.n), dtype=np.float32)
        return float(np.mean([self._draw(p, ones)[0] for p in self._rows(predictions)]))

    def interval(self, predictions: ArrayLike, *, level: float = 0.95) -> Interval:
        """τ-b with its percentile interval over drawn networks; trainings `[s, n]` are averaged in each draw."""
        return percentile_interval(self.tau(predictions), self.draws(predictions), self.n, level=level)

    def difference(self, a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> Interval:
        """τ-b of a minus that of b, both read on the same draws."""
        return percentile_interval(self.tau(a) - self.tau(b), self.draws(a) - self.draws(b), self.n, level=level)

    def draws(self, predictions: ArrayLike) -> np.ndarray:
        """τ-b in each draw, `[resamples]`."""
        if self._weights is None:
            generator = numpy_generator(self.seed, "rank metrics", "bootstrap")
            drawn = generator.multinomial(self.n, np.full(self.n, 1 / self.n), size=self.resamples)
            self._weights = drawn.astype(np.float32)
        return np.mean([self._draw(p, self._weights) for p in self._rows(predictions)], axis=0)

    def _draw(self, p: np.ndarray, weights: np.ndarray) -> np.ndarray:
        other = self._signs(p)

        def total(matrix: np.ndarray) -> np.ndarray:
            return np.einsum("rn,rn->r", weights @ matrix, weights, dtype=np.float64)

        joint = total(self.untied) * total(np.abs(other))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(joint > 0, total(self.signs * other) / np.sqrt(joint), np.nan)

    def _signs(self, values: np.ndarray) -> np.ndarray:
        signs = np.sign(values[:, None] - values[None, :]).astype(np.float32)
        return signs if self.same is None else np.where(self.same, signs, np.float32(0))

    def _rows(self, predictions: ArrayLike) -> np.ndarray:
        rows = np.atleast_2d(np.asarray(predictions, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != self.n or not np.isfinite(rows).all():
            raise ValueError(f"predictions: want finite numbers for {self.n} networks, got shape {rows.shape}")
        return rows


def percentile_interval(estimate: float, draws: ArrayLike, n: int, *, level: float = 0.95) -> Interval:
    """An estimate with the percentiles of its draws, those that are NaN left out; n is the number of networks.

    Raises:
        ValueError: level out of range.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: must lie between 0 and 1, got {level}")
    values = np.asarray(draws, dtype=np.float64)
    present = values[~np.isnan(values)]
    if not len(present):
        return Interval(estimate, math.nan, math.nan, n)
    low, high = np.quantile(present, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), n)


def label_noise_ceiling(accuracies: ArrayLike, images: int, *, seed: int = 0, draws: int = 20) -> Ceiling:
    """What τ-b is limited to by accuracies that are shares of `images` images.

    The measured accuracies stand for the true ones and are measured again, binomially. Networks here are measured on
    the same images, whose common ups and downs do not change ranks: the truth lies above these numbers, and a reader
    that learns what those images have in common may pass `perfect`.

    Raises:
        ValueError: accuracies outside [0, 1], images or draws below 1.
    """
    p = np.asarray(accuracies, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("accuracies: want fractions in [0, 1]")
    if images < 1 or draws < 1:
        raise ValueError(f"images, draws: {images} and {draws}; must be at least 1")
    generator = numpy_generator(seed, "rank metrics", "ceiling")
    repeats, perfects = [], []
    for _ in range(draws):
        first, second = generator.binomial(images, p) / images, generator.binomial(images, p) / images
        repeats.append(kendall(first, second))
        perfects.append(kendall(first, p))
    return Ceiling(float(np.mean(repeats)), float(np.mean(perfects)))


def match_spread(a: ArrayLike, b: ArrayLike, *, bins: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Places in `a` and in `b` of the largest subsets whose accuracies have one histogram.

    Both are cut into `bins` equal bins over their common range, and in each bin as many are drawn from either as the
    smaller has.

    Returns:
        Two arrays of equal length, each ascending.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    edges = np.linspace(low, high, bins + 1)[1:-1]
    generator = numpy_generator(seed, "rank metrics", "match")
    places: tuple[list[int], list[int]] = ([], [])
    of_x, of_y = np.digitize(x, edges), np.digitize(y, edges)
    for k in range(bins):
        here = [np.flatnonzero(of == k) for of in (of_x, of_y)]
        count = min(map(len, here))
        for found, out in zip(here, places):
            out += generator.permutation(found)[:count].tolist()
    return np.sort(np.array(places[0], dtype=int)), np.sort(np.array(places[1], dtype=int))


def strata_of(columns: Sequence[ArrayLike], bins: int = 3) -> np.ndarray:
    """One label a network from several hyper-parameters: numbers with more than `bins` values are cut at quantiles."""
    labels = None
    for column in columns:
        values = np.asarray(column)
        codes = np.unique(values, return_inverse=True)[1]
        if codes.max(initial=0) >= bins and values.dtype.kind in "fiu":
            edges = np.quantile(values.astype(float), np.linspace(0, 1, bins + 1)[1:-1])
            codes = np.digitize(values.astype(float), edges)
        labels = codes if labels is None else labels * (codes.max(initial=0) + 1) + codes
    if labels is None:
        raise ValueError("columns: got none")
    return np.unique(labels, return_inverse=True)[1]


def _pair(truth: ArrayLike, predictions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y, p = np.asarray(truth, dtype=np.float64), np.asarray(predictions, dtype=np.float64)
    if y.shape != p.shape or not y.size:
        raise ValueError(f"truth, predictions: want equal shapes with values, got {y.shape} and {p.shape}")
    return y, p
