import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

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


def test_mean_interval_by_hand():
    # s² = 2.5 for 1 … 5, standard error √(2.5 / 5), t(4) at 97.5 % = 2.776445.
    mean, low, high, n = metrics.mean_interval([1, 2, 3, 4, 5])
    assert (mean, n) == (3, 5)
    assert high - 3 == pytest.approx(2.776445105 * math.sqrt(0.5))
    assert 3 - low == pytest.approx(high - 3)
    assert metrics.mean_interval([1, 3], 0.5) == pytest.approx((2, 1, 3, 2))  # t(1) at 75 % is 1


def test_mean_interval_of_few_values():
    assert metrics.mean_interval([2.0])[::3] == (2, 1)
    assert all(map(math.isnan, metrics.mean_interval([2.0])[1:3]))
    empty = metrics.mean_interval([])
    assert empty.n == 0
    assert all(map(math.isnan, empty[:3]))


def test_missing_values_are_not_counted_and_infinite_ones_not_hidden():
    assert metrics.mean_interval([1, math.nan, 3]) == metrics.mean_interval([1, 3])
    mean, low, high, n = metrics.mean_interval([1, math.inf])
    assert (mean, n) == (math.inf, 2)
    assert math.isnan(low)
    assert math.isnan(high)


def test_the_interval_covers_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(2000, 5))
    found = [metrics.mean_interval(row, 0.8) for row in draws]
    assert np.mean([interval.low <= 0 <= interval.high for interval in found]) == pytest.approx(0.8, abs=0.03)


def test_paired_and_welch_agree_with_scipy():
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=8), generator.normal(1, 3, size=8)
    paired = stats.ttest_rel(a, b).confidence_interval(0.9)
    assert metrics.paired_interval(a, b, 0.9) == pytest.approx((np.mean(a - b), paired.low, paired.high, 8))
    c = b[:5]
    welch = stats.ttest_ind(a, c, equal_var=False).confidence_interval(0.9)
    assert metrics.welch_interval(a, c, 0.9) == pytest.approx((a.mean() - c.mean(), welch.low, welch.high, 5))


def test_pairs_are_pairs():
    assert metrics.paired_interval([1, 2, math.nan], [0, 1, 5]) == (1, 1, 1, 2)
    with pytest.raises(ValueError, match="pairs need equal shapes"):
        metrics.paired_interval([1, 2], [1])


def test_welch_of_few_or_equal_values():
    assert metrics.welch_interval([], [1]).n == 0
    assert metrics.welch_interval([3], [1, 2])[::3] == (1.5, 1)
    assert math.isnan(metrics.welch_interval([3], [1, 2]).low)
    assert metrics.welch_interval([2, 2], [1, 1]) == (1, 1, 1, 2)
    assert math.isnan(metrics.welch_interval([math.inf, 1], [1, 1]).mean)


def test_bootstrap_of_a_mean_is_close_to_its_standard_error():
    values = np.random.default_rng(2).normal(size=400)
    found = metrics.bootstrap_interval(values, np.mean, seed=0)
    half = 1.96 * values.std() / 20
    assert found.mean == values.mean()
    assert found.n == 400
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)


def test_bootstrap_draws_pairs_together():
    x = np.arange(20.0)

    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(stats.kendalltau(a, b).statistic)

    assert metrics.bootstrap_interval([x, x**3], correlation, seed=0, paired=True, resamples=50)[:3] == pytest.approx(
        (1, 1, 1)
    )
    low = metrics.bootstrap_interval([x, np.sin(x)], correlation, seed=0, paired=True, resamples=50).low
    assert low < 0


def test_bootstrap_is_the_same_for_the_same_seed_only():
    values = np.arange(10.0) ** 2
    first, again, other = (metrics.bootstrap_interval(values, np.mean, seed=s, resamples=100) for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_bootstrap_leaves_out_draws_without_an_answer():
    def undefined_without_spread(sample: np.ndarray) -> float:
        return math.nan if sample.min() == sample.max() else 1.0

    assert metrics.bootstrap_interval([0.0, 1.0], undefined_without_spread, seed=0, resamples=100) == (1, 1, 1, 2)
    nothing = metrics.bootstrap_interval([1.0, 1.0], undefined_without_spread, seed=0, resamples=10)
    assert all(map(math.isnan, nothing[:3]))
    assert math.isnan(metrics.bootstrap_interval([5.0], np.mean, seed=0).low)
    assert metrics.bootstrap_interval([], np.mean, seed=0).n == 0


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_fraction(level: float):
    for call in (
        lambda: metrics.mean_interval([1, 2], level),
        lambda: metrics.welch_interval([1, 2], [1, 2], level),
        lambda: metrics.bootstrap_interval([1, 2], np.mean, seed=0, level=level),
    ):
        with pytest.raises(ValueError, match="level: must lie between 0 and 1"):
            call()


def test_other_bad_bootstraps_are_refused():
    with pytest.raises(ValueError, match="resamples: must be at least 1"):
        metrics.bootstrap_interval([1, 2], np.mean, seed=0, resamples=0)
    with pytest.raises(ValueError, match=r"equal lengths, got \[2, 3\]"):
        metrics.bootstrap_interval([[1, 2], [1, 2, 3]], np.mean, seed=0, paired=True)


def test_shares_by_hand():
    assert metrics.share_interval(5, 10)[:3] == pytest.approx((0.5, 0.23659, 0.76341), abs=1e-5)
    z2 = 1.959964**2
    assert metrics.share_interval(0, 10) == pytest.approx((0.0, 0.0, z2 / (10 + z2), 10), abs=1e-6)
    assert metrics.share_interval(10, 10) == pytest.approx((1.0, 10 / (10 + z2), 1.0, 10), abs=1e-6)
    assert np.isnan(metrics.share_interval(0, 0)[:3]).all()


@given(st.integers(1, 200), st.data())
def test_a_share_lies_in_its_interval_and_turns_with_it(n, data):
    hits = data.draw(st.integers(0, n))
    share, other = metrics.share_interval(hits, n), metrics.share_interval(n - hits, n)
    assert 0 <= share.low <= share.mean <= share.high <= 1
    assert (share.low, share.high) == pytest.approx((1 - other.high, 1 - other.low), abs=1e-12)


def test_paired_shares_of_unrelated_items_have_the_unpaired_width():
    a, b = np.repeat([1, 1, 0, 0], 5), np.tile([1, 0], 10)
    x, y = metrics.share_interval(10, 20), metrics.share_interval(10, 20)
    found = metrics.paired_share_interval(a, b)
    assert found.mean == 0
    assert found.low == pytest.approx(-math.hypot(x.mean - x.low, y.high - y.mean))
    assert found.high == -found.low


def test_paired_shares_where_all_agree_still_have_a_width():
    found = metrics.paired_share_interval([1] * 10, [True] * 10)
    assert (found.mean, found.n) == (0, 10)
    assert found.high == pytest.approx(1 - metrics.share_interval(10, 10).low)
    assert metrics.paired_interval([1] * 10, [1] * 10)[1:3] == (0, 0)  # Student's t claims to be certain


def test_paired_shares_use_the_pairs():
    a, b = np.repeat([1.0, 0.0], 50), np.repeat([1.0, 0.0], [40, 60])
    paired, shuffled = metrics.paired_share_interval(a, b), metrics.paired_share_interval(a, b[::-1])
    assert paired.mean == pytest.approx(shuffled.mean) == pytest.approx(0.1)
    assert paired.high - paired.low < 0.6 * (shuffled.high - shuffled.low)
    back = metrics.paired_share_interval(b, a)
    assert (back.low, back.high) == pytest.approx((-paired.high, -paired.low))
    missing = metrics.paired_share_interval([*a, math.nan], [*b, 1.0])
    assert missing == paired


def test_the_paired_share_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(600):
        common = rng.random(40) < 0.5
        a = np.where(common, rng.random(40) < 0.9, rng.random(40) < 0.5)
        b = np.where(common, rng.random(40) < 0.8, rng.random(40) < 0.2)
        found = metrics.paired_share_interval(a, b)
        hits.append(found.low <= 0.2 <= found.high)
    assert 0.92 < np.mean(hits) < 0.99


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.share_interval(3, 2), "hits"),
        (lambda: metrics.share_interval(1, 2, level=1.0), "level"),
        (lambda: metrics.paired_share_interval([1, 0], [1]), "shapes"),
        (lambda: metrics.paired_share_interval([0.5], [1]), "0 and 1"),
    ],
)
def test_shares_of_something_else_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
