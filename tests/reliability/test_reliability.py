"""Calibration: hand-worked numbers, a brute-force reference, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.reliability import adaptive_ece, brier, ece, nll, reliability


def _random(seed, n=200, k=4, sharp=1.0):
    g = np.random.default_rng(seed)
    logits = sharp * g.normal(size=(n, k))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, g.integers(0, k, size=n)


def _brute_force(p, y, bins):
    total = 0.0
    for b in range(bins):
        inside = [i for i in range(len(y)) if b / bins < p[i].max() <= (b + 1) / bins]
        if inside:
            accuracy = sum(int(p[i].argmax() == y[i]) for i in inside) / len(inside)
            confidence = sum(p[i].max() for i in inside) / len(inside)
            total += len(inside) / len(y) * abs(accuracy - confidence)
    return total


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 20), st.floats(0.1, 8.0))
def test_ece_is_that_of_the_definition(seed, bins, sharp):
    p, y = _random(seed, n=60, sharp=sharp)
    assert ece(p, y, bins) == pytest.approx(_brute_force(p, y, bins), abs=1e-12)


def test_by_hand():
    p, y = [[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6]], [0, 1, 0, 1]
    # bins (4/5, …]: none; (3/5, 4/5]: 0.8, 0.8 with accuracy ½; (2/5, 3/5]: 0.6, 0.6 with accuracy 1
    assert ece(p, y, 5) == pytest.approx(0.5 * 0.3 + 0.5 * 0.4)
    assert adaptive_ece(p, y, 2) == pytest.approx(0.5 * 0.3 + 0.5 * 0.4)
    assert adaptive_ece(p, y, 1) == pytest.approx(abs(0.75 - 0.7))
    assert brier(p, y) == pytest.approx((0.08 + 1.28 + 0.32 + 0.32) / 4)
    assert nll(np.log(p), y) == pytest.approx(-(math.log(0.8) + math.log(0.2) + 2 * math.log(0.6)) / 4)


def test_certain_predictions_belong_to_the_last_bin():
    """A bin of its own for confidence 1 would give ½·0 + ½·0.02 and so on: here the two sorts cancel in one bin."""
    p = [[1.0, 0.0], [0.96, 0.04]]
    y = [1, 0]  # the certain one is wrong, the other right
    assert reliability(p, y).size[-1] == 2
    assert ece(p, y) == pytest.approx(abs(0.5 - 0.98))
    apart = 0.5 * 1.0 + 0.5 * 0.04
    assert apart > ece(p, y)


def test_adaptive_bins_hold_equally_many():
    p, y = _random(1, n=205)
    counts = reliability(p, y, adaptive=True).size
    assert counts.sum() == 205
    assert counts.max() - counts.min() <= 1


def test_calibrated_predictions_have_a_small_error():
    g = np.random.default_rng(0)
    c = g.uniform(0.5, 1.0, size=40_000)
    p = np.stack([c, 1 - c], axis=1)
    y = (g.uniform(size=len(c)) > c).astype(int)
    assert ece(p, y) < 0.02
    assert adaptive_ece(p, y) < 0.02
    assert ece(p, 1 - y) > 0.4


@pytest.mark.parametrize(
    ("p", "y", "word"),
    [
        ([[0.5, 0.5]], [2], "labels"),
        ([[0.5, 0.6]], [0], "probabilities"),
        ([[float("nan"), 0.5]], [0], "probabilities"),
        ([0.5, 0.5], [0], "want"),
        (np.zeros((0, 2)), np.zeros(0, int), "n ≥ 1"),
    ],
)
def test_bad_input(p, y, word):
    with pytest.raises(ValueError, match=word):
        ece(p, y)
