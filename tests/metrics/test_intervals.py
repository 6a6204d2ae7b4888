import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from asym import intervals


def test_mean_interval_by_hand():
    # s² = 2.5 for 1 … 5, standard error √(2.5 / 5), t(4) at 97.5 % = 2.776445.
    mean, low, high, n = intervals.mean_interval([1, 2, 3, 4, 5])
    assert (mean, n) == (3, 5)
    assert high - 3 == pytest.approx(2.776445105 * math.sqrt(0.5))
    assert 3 - low == pytest.approx(high - 3)
    assert intervals.mean_interval([1, 3], 0.5) == pytest.approx((2, 1, 3, 2))  # t(1) at 75 % is 1


def test_mean_interval_of_few_values():
    assert intervals.mean_interval([2.0])[::3] == (2, 1)
    assert all(map(math.isnan, intervals.mean_interval([2.0])[1:3]))
    empty = intervals.mean_interval([])
    assert empty.n == 0
    assert all(map(math.isnan, empty[:3]))


def test_missing_values_are_not_counted_and_infinite_ones_not_hidden():
    assert intervals.mean_interval([1, math.nan, 3]) == intervals.mean_interval([1, 3])
    mean, low, high, n = intervals.mean_interval([1, math.inf])
    assert (mean, n) == (math.inf, 2)
    assert math.isnan(low)
    assert math.isnan(high)


def test_the_interval_covers_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(2000, 5))
    found = [intervals.mean_interval(row, 0.8) for row in draws]
    assert np.mean([interval.low <= 0 <= interval.high for interval in found]) == pytest.approx(0.8, abs=0.03)


def test_paired_and_welch_agree_with_scipy():
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=8), generator.normal(1, 3, size=8)
    paired = stats.ttest_rel(a, b).confidence_interval(0.9)
    assert intervals.paired_interval(a, b, 0.9) == pytest.approx((np.mean(a - b), paired.low, paired.high, 8))
    c = b[:5]
    welch = stats.ttest_ind(a, c, equal_var=False).confidence_interval(0.9)
    assert intervals.welch_interval(a, c, 0.9) == pytest.approx((a.mean() - c.mean(), welch.low, welch.high, 5))


def test_pairs_are_pairs():
    assert intervals.paired_interval([1, 2, math.nan], [0, 1, 5]) == (1, 1, 1, 2)
    with pytest.raises(ValueError, match="pairs need equal shapes"):
        intervals.paired_interval([1, 2], [1])


def test_welch_of_few_or_equal_values():
    assert intervals.welch_interval([], [1]).n == 0
    assert intervals.welch_interval([3], [1, 2])[::3] == (1.5, 1)
    assert math.isnan(intervals.welch_interval([3], [1, 2]).low)
    assert intervals.welch_interval([2, 2], [1, 1]) == (1, 1, 1, 2)
    assert math.isnan(intervals.welch_interval([math.inf, 1], [1, 1]).mean)


def test_bootstrap_of_a_mean_is_close_to_its_standard_error():
    values = np.random.default_rng(2).normal(size=400)
    found = intervals.bootstrap_interval(values, np.mean, seed=0)
    half = 1.96 * values.std() / 20
    assert found.mean == values.mean()
    assert found.n == 400
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)


def test_bootstrap_draws_pairs_together():
    x = np.arange(20.0)

    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(stats.kendalltau(a, b).statistic)

    assert intervals.bootstrap_interval([x, x**3], correlation, seed=0, paired=True, resamples=50)[:3] == pytest.approx(
        (1, 1, 1)
    )
    low = intervals.bootstrap_interval([x, np.sin(x)], correlation, seed=0, paired=True, resamples=50).low
    assert low < 0


def test_bootstrap_is_the_same_for_the_same_seed_only():
    values = np.arange(10.0) ** 2
    first, again, other = (intervals.bootstrap_interval(values, np.mean, seed=s, resamples=100) for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_bootstrap_leaves_out_draws_without_an_answer():
    def undefined_without_spread(sample: np.ndarray) -> float:
        return math.nan if sample.min() == sample.max() else 1.0

    assert intervals.bootstrap_interval([0.0, 1.0], undefined_without_spread, seed=0, resamples=100) == (1, 1, 1, 2)
    nothing = intervals.bootstrap_interval([1.0, 1.0], undefined_without_spread, seed=0, resamples=10)
    assert all(map(math.isnan, nothing[:3]))
    assert math.isnan(intervals.bootstrap_interval([5.0], np.mean, seed=0).low)
    assert intervals.bootstrap_interval([], np.mean, seed=0).n == 0


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_fraction(level: float):
    for call in (
        lambda: intervals.mean_interval([1, 2], level),
        lambda: intervals.welch_interval([1, 2], [1, 2], level),
        lambda: intervals.bootstrap_interval([1, 2], np.mean, seed=0, level=level),
    ):
        with pytest.raises(ValueError, match="level: must lie between 0 and 1"):
            call()


def test_other_bad_bootstraps_are_refused():
    with pytest.raises(ValueError, match="resamples: must be at least 1"):
        intervals.bootstrap_interval([1, 2], np.mean, seed=0, resamples=0)
    with pytest.raises(ValueError, match=r"equal lengths, got \[2, 3\]"):
        intervals.bootstrap_interval([[1, 2], [1, 2, 3]], np.mean, seed=0, paired=True)


def test_shares_by_hand():
    assert intervals.share_interval(5, 10)[:3] == pytest.approx((0.5, 0.23659, 0.76341), abs=1e-5)
    z2 = 1.959964**2
    assert intervals.share_interval(0, 10) == pytest.approx((0.0, 0.0, z2 / (10 + z2), 10), abs=1e-6)
    assert intervals.share_interval(10, 10) == pytest.approx((1.0, 10 / (10 + z2), 1.0, 10), abs=1e-6)
    assert np.isnan(intervals.share_interval(0, 0)[:3]).all()


@given(st.integers(1, 200), st.data())
def test_a_share_lies_in_its_interval_and_turns_with_it(n, data):
    hits = data.draw(st.integers(0, n))
    share, other = intervals.share_interval(hits, n), intervals.share_interval(n - hits, n)
    assert 0 <= share.low <= share.mean <= share.high <= 1
    assert (share.low, share.high) == pytest.approx((1 - other.high, 1 - other.low), abs=1e-12)


def test_paired_shares_of_unrelated_items_have_the_unpaired_width():
    a, b = np.repeat([1, 1, 0, 0], 5), np.tile([1, 0], 10)
    x, y = intervals.share_interval(10, 20), intervals.share_interval(10, 20)
    found = intervals.paired_share_interval(a, b)
    assert found.mean == 0
    assert found.low == pytest.approx(-math.hypot(x.mean - x.low, y.high - y.mean))
    assert found.high == -found.low


def test_paired_shares_where_all_agree_still_have_a_width():
    found = intervals.paired_share_interval([1] * 10, [True] * 10)
    assert (found.mean, found.n) == (0, 10)
    assert found.high == pytest.approx(1 - intervals.share_interval(10, 10).low)
    assert intervals.paired_interval([1] * 10, [1] * 10)[1:3] == (0, 0)  # Student's t claims to be certain


def test_paired_shares_use_the_pairs():
    a, b = np.repeat([1.0, 0.0], 50), np.repeat([1.0, 0.0], [40, 60])
    paired, shuffled = intervals.paired_share_interval(a, b), intervals.paired_share_interval(a, b[::-1])
    assert paired.mean == pytest.approx(shuffled.mean) == pytest.approx(0.1)
    assert paired.high - paired.low < 0.6 * (shuffled.high - shuffled.low)
    back = intervals.paired_share_interval(b, a)
    assert (back.low, back.high) == pytest.approx((-paired.high, -paired.low))
    missing = intervals.paired_share_interval([*a, math.nan], [*b, 1.0])
    assert missing == paired


def test_the_paired_share_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(600):
        common = rng.random(40) < 0.5
        a = np.where(common, rng.random(40) < 0.9, rng.random(40) < 0.5)
        b = np.where(common, rng.random(40) < 0.8, rng.random(40) < 0.2)
        found = intervals.paired_share_interval(a, b)
        hits.append(found.low <= 0.2 <= found.high)
    assert 0.92 < np.mean(hits) < 0.99


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: intervals.share_interval(3, 2), "hits"),
        (lambda: intervals.share_interval(1, 2, level=1.0), "level"),
        (lambda: intervals.paired_share_interval([1, 0], [1]), "shapes"),
        (lambda: intervals.paired_share_interval([0.5], [1]), "0 and 1"),
    ],
)
def test_shares_of_something_else_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
