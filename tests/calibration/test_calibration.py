import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.calibration import LARGEST, cross_entropy_at, fit_temperature


def test_by_hand():
    """Three of four right with logits ± 1 of a coin: the best p is ¾, so 2/T = log 3."""
    logits, labels = [[1.0, -1.0]] * 4, [0, 0, 0, 1]
    assert fit_temperature(logits, labels) == pytest.approx(2 / np.log(3), rel=1e-5)
    assert cross_entropy_at(logits, labels, 2 / np.log(3)) == pytest.approx(0.75 * np.log(4 / 3) + 0.25 * np.log(4))
    assert cross_entropy_at([[0.0, 0.0]], [1]) == pytest.approx(np.log(2))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 20))
def test_scaled_logits_have_scaled_temperatures_and_the_same_loss(seed, factor):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 40)
    logits = rng.standard_normal((40, 3)) + 1.5 * np.eye(3)[labels]
    one, other = fit_temperature(logits, labels), fit_temperature(factor * logits, labels)
    assert other == pytest.approx(factor * one, rel=1e-3)
    best = cross_entropy_at(logits, labels, one)
    assert best == pytest.approx(cross_entropy_at(factor * logits, labels, other), abs=1e-7)
    assert best <= min(cross_entropy_at(logits, labels, t) for t in (one / 2, one * 0.9, one * 1.1, 2 * one, 1.0))


def test_bounds_and_nan():
    sure = [[3.0, 0.0], [0.0, 3.0]]
    assert cross_entropy_at(sure, [0, 1], fit_temperature(sure, [0, 1])) < 1e-12
    assert fit_temperature(sure, [1, 0]) == pytest.approx(LARGEST, rel=0.1)
    assert np.isnan(fit_temperature([[np.nan, 0.0]], [0]))


@pytest.mark.parametrize(
    ("logits", "labels", "word"),
    [([[1.0, 2.0]], [2], "labels"), ([1.0], [0], "logits"), ([[1.0, 2.0]], [0, 1], "shapes")],
)
def test_bad_input(logits, labels, word):
    with pytest.raises(ValueError, match=word):
        fit_temperature(logits, labels)
    with pytest.raises(ValueError, match="temperature"):
        cross_entropy_at([[1.0, 2.0]], [0], 0.0)
