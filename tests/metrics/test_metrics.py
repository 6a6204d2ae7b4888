import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asym import metrics

CURVES = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=9).filter(lambda curve: len(curve) % 2 == 1)


def test_barrier_by_hand():
    # The line from 1 to 3 is 1, 1.5, 2, 2.5, 3; the excess 0, 1, 3, −1, 0.
    barrier = metrics.barrier_curve([1, 2.5, 5, 1.5, 3])
    assert barrier == (3, 3)
    assert metrics.excess([1, 2.5, 5, 1.5, 3]).tolist() == [0, 1, 3, -1, 0]


def test_the_largest_barrier_may_lie_elsewhere_and_is_never_negative():
    assert metrics.barrier_curve([0, 5, 1, 0, 0]) == (1, 5)
    assert metrics.barrier_curve([2, 1, 0, 1, 2]) == (-2, 0)


def test_accuracy_barriers_are_positive_when_the_accuracy_drops():
    # End points .8 and .6, their average .7; accuracy .3 half-way.
    mid, largest = metrics.accuracy_barrier_curve([0.8, 0.3, 0.6])
    assert mid == pytest.approx(0.4)
    assert largest == pytest.approx(0.4)
    assert metrics.accuracy_barrier_curve([0.5, 0.75, 0.5]) == (-0.25, 0)


def test_lambdas_need_not_be_equally_spaced():
    # At λ = .25 the line from 0 to 4 is 1, at ½ it is 2.
    assert metrics.barrier_curve([0, 3, 2.5, 4], [0, 0.25, 0.5, 1]) == (0.5, 2)


def test_excess_of_many_curves_at_once():
    curves = np.array([[[0, 2, 0], [1, 1, 1]]])
    assert metrics.excess(curves).tolist() == [[[0, 2, 0], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("losses", "lambdas", "message"),
    [
        ([1, 2, 3, 4], None, "½ is not among the 4 points"),
        ([1, 2, 3], [0, 0.4, 1], "½ is not among the 3 points"),
        ([1, 2, 3], [0, 0.5, 0.9], "must rise from 0 to 1"),
        ([1, 2, 3], [1, 0.5, 0], "must rise from 0 to 1"),
        ([1, 2, 3, 4], [0, 0.5, 0.5, 1], "must rise from 0 to 1"),
        ([1, 2, 3], [0, 1], r"lambdas: shape \(2,\) for 3 values"),
        ([1], None, "at least 2 points"),
        ([[1, 2, 3]], None, "want one curve"),
    ],
)
def test_curves_without_a_barrier_are_refused(losses: list, lambdas: list | None, message: str):
    with pytest.raises(ValueError, match=message):
        metrics.barrier_curve(losses, lambdas)


def test_a_diverged_network_has_no_barrier():
    for losses in ([math.nan, 1, 1], [1, math.nan, 1], [math.inf, 1, 1]):
        assert all(map(math.isnan, metrics.barrier_curve(losses)))
    assert metrics.barrier_curve([1, math.inf, 1]) == (math.inf, math.inf)


@given(CURVES, st.floats(-10, 10), st.floats(-10, 10))
def test_a_barrier_ignores_straight_lines(curve: list[float], offset: float, slope: float):
    line = offset + slope * np.linspace(0, 1, len(curve))
    expected, found = metrics.barrier_curve(curve), metrics.barrier_curve(np.array(curve) + line)
    assert found == pytest.approx(expected, abs=1e-9)
    assert metrics.barrier_curve(line) == pytest.approx((0, 0), abs=1e-12)


@given(CURVES)
def test_a_barrier_is_the_same_from_either_end(curve: list[float]):
    assert metrics.barrier_curve(curve[::-1]) == pytest.approx(metrics.barrier_curve(curve), abs=1e-9)


def test_monotonicity_by_hand():
    # Steps −3, +1, −2, −1; second differences 4, −3, 1.
    # Chord from 5 to 0: 3.75, 2.5, 1.25 against 2, 3, 1. Line from 5 to the second value 2: 4.25, 3.5, 2.75.
    found = metrics.monotonicity([5, 2, 3, 1, 0])
    assert found.max_rise == 1
    assert found.monotone is False
    assert found.local_convexity == pytest.approx(2 / 3)
    assert found.below_chord == pytest.approx(2 / 3)
    assert found.below_second_point_chord == 1


def test_the_second_point_makes_a_different_and_easier_chord():
    # A slow start: every interior point is above the chord to the last, none above the line to the second value.
    found = metrics.monotonicity([10, 10, 9, 8, 0])
    assert found.monotone is True
    assert found.max_rise == 0
    assert found.below_chord == 0
    assert found.below_second_point_chord == 1


def test_a_straight_descent_is_convex_monotone_and_on_its_chord():
    assert metrics.monotonicity([4, 3, 2, 1, 0]) == (-1, True, 1, 1, 1)


def test_a_diverged_path_is_not_monotone():
    found = metrics.monotonicity([3, math.nan, 1])
    assert found.monotone is False
    assert math.isnan(found.max_rise)
    assert math.isnan(found.below_chord)


@pytest.mark.parametrize("losses", [[1, 2], [[1, 2, 3]]])
def test_what_is_no_path_is_refused(losses: list):
    with pytest.raises(ValueError, match="one curve of at least 3 points"):
        metrics.monotonicity(losses)
