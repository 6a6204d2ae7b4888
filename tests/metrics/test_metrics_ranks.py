"""Rank correlations against hand-worked numbers and scipy, their intervals, and what accuracies allow."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from asym.rank_metrics import (
    Ranks,
    kendall,
    label_noise_ceiling,
    match_spread,
    mean_absolute_error,
    r_squared,
    recalibrated_r_squared,
    strata_of,
)

VALUES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=12)


@given(VALUES)
def test_tau_is_scipys(pairs):
    x, y = (np.array(column, dtype=float) for column in zip(*pairs))
    expected = stats.kendalltau(x, y).statistic if len(set(x)) > 1 and len(set(y)) > 1 else math.nan
    assert kendall(x, y) == pytest.approx(expected, nan_ok=True)


def test_tau_by_hand():
    # Of the pairs of 1, 2, 3 two are in order and one is not.
    assert kendall([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert kendall([1, 2, 3], [[1, 2, 3], [3, 2, 1]]) == 0
    assert math.isnan(kendall([1, 2, 3], [5, 5, 5]))


def test_what_only_tells_strata_apart_is_worth_nothing_within_them():
    strata = np.repeat([0, 1], 4)
    truth = np.array([1, 2, 3, 4, 11, 12, 13, 14.0])
    assert kendall(truth, strata) > 0.7
    assert math.isnan(kendall(truth, strata, strata))
    assert kendall(truth, truth, strata) == 1
    # In order within the second stratum, reversed within the first.
    assert kendall(truth, [4, 3, 2, 1, 5, 6, 7, 8], strata) == 0


@given(VALUES.filter(lambda v: len(v) > 4))
@settings(max_examples=20)
def test_draws_are_tau_of_the_drawn_networks(pairs):
    x, y = (np.array(column, dtype=float) for column in zip(*pairs))
    ranks = Ranks(x, seed=3, resamples=5)
    draws = ranks.draws(y)
    assert ranks._weights is not None
    for draw, weights in zip(draws, ranks._weights.astype(int)):
        a, b = np.repeat(x, weights), np.repeat(y, weights)
        known = len(set(a)) > 1 and len(set(b)) > 1
        assert draw == pytest.approx(stats.kendalltau(a, b).statistic if known else math.nan, nan_ok=True, abs=1e-6)


def test_differences_are_paired():
    generator = np.random.default_rng(0)
    truth = generator.normal(size=150)
    good = truth + 0.5 * generator.normal(size=150)
    better = truth + 0.9 * (good - truth)
    ranks = Ranks(truth, resamples=400)
    mean, low, high, n = ranks.difference(better, good)
    assert n == 150
    assert 0 < low < mean < high
    wide = [ranks.interval(p) for p in (better, good)]
    assert wide[0].low < wide[1].high  # the unpaired intervals overlap
    assert ranks.difference(good, good) == (0, 0, 0, 150)


def test_intervals_cover_as_often_as_they_say():
    # τ of a bivariate normal is 2 asin(ρ) / π (Greiner).
    rho, hits = 0.6, 0
    truth = 2 * math.asin(rho) / math.pi
    generator = np.random.default_rng(1)
    for _ in range(100):
        x = generator.normal(size=60)
        y = rho * x + math.sqrt(1 - rho**2) * generator.normal(size=60)
        _, low, high, _ = Ranks(x, resamples=200).interval(y)
        hits += low <= truth <= high
    assert 85 <= hits <= 99


def test_fit_measures_by_hand():
    assert r_squared([0, 1, 2], [0, 1, 1]) == pytest.approx(0.5)
    assert r_squared([0, 2], [1, 1]) == 0
    assert math.isnan(r_squared([1, 1], [0, 1]))
    assert recalibrated_r_squared([0, 1, 2], [10, 8, 6]) == pytest.approx(1)
    assert mean_absolute_error([0, 1], [0.5, 0]) == 0.75


def test_noise_lowers_the_ceiling_and_many_images_lift_it():
    accuracies = np.linspace(0.1, 0.95, 100)
    few, many = (label_noise_ceiling(accuracies, images, draws=5) for images in (50, 5_000))
    assert few.repeat < few.perfect < many.perfect < 1
    assert many.repeat > 0.97
    with pytest.raises(ValueError, match="fractions"):
        label_noise_ceiling([73.8], 500)


def test_matched_zoos_have_one_histogram():
    generator = np.random.default_rng(0)
    a, b = generator.uniform(0.1, 0.9, 500), generator.uniform(0.4, 1.0, 300)
    left, right = match_spread(a, b)
    assert len(left) == len(right) == len(set(left.tolist()))
    edges = np.linspace(min(a.min(), b.min()), max(a.max(), b.max()), 21)
    assert np.array_equal(np.histogram(a[left], edges)[0], np.histogram(b[right], edges)[0])
    assert a[left].min() >= 0.355  # the edge of the bin that holds 0.4
    same = match_spread(a, a)
    assert len(same[0]) == 500


def test_strata_cut_numbers_and_keep_names():
    labels = strata_of([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], ["adam", "sgd", "adam", "sgd", "adam", "sgd"]], bins=2)
    assert len(set(labels.tolist())) == 4
    assert labels[0] == labels[2] != labels[1]


def test_refusals():
    with pytest.raises(ValueError, match="predictions"):
        kendall([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="finite"):
        kendall([1, math.nan], [1, 2])
    with pytest.raises(ValueError, match="strata"):
        kendall([1, 2, 3], [1, 2, 3], [0, 1])
