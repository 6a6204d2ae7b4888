"""Differences, bins and matching of the interpolation study's tables, by hand."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies import mli
from studies.mli_setup import lr_edges
from studies.mli_tables import MEANS, SHARES, by_lr, differences, match, matched, summary


def _rows(variant, accuracies, monotone, lr=0.01):
    base = dict.fromkeys(MEANS, 0.5) | dict.fromkeys(SHARES, False)
    head = {"config": variant, "preset": "p", "arch": "a", "dataset": "d", "variant": variant, "diverged": 0, "lr": lr}
    return [
        head | base | {"network": k, "test_acc": acc, "smooth_monotone": bool(m), "train_loss": 1 - acc}
        for k, (acc, m) in enumerate(zip(accuracies, monotone))
    ]


def test_weaker_networks_do_not_pass_for_smoother_ones():
    """In both families exactly the weak networks are monotone; one family has more of them."""
    strong = _rows("standard", [0.91, 0.92, 0.93, 0.94, 0.51], [0, 0, 0, 0, 1])
    weak = _rows("w", [0.515, 0.525, 0.535, 0.545, 0.915], [1, 1, 1, 1, 0])
    rows = pd.DataFrame(strong + weak)
    plain = differences(rows, ["standard", "w"]).set_index("measure").loc["smooth_monotone"]
    assert (plain["mean"], plain["other_mean"], plain["difference"]) == pytest.approx((0.8, 0.2, 0.6))
    fair = matched(rows, ["standard", "w"]).set_index(["matched_on", "measure"]).loc[("test_acc", "smooth_monotone")]
    assert (fair["n"], fair["difference"]) == (2, 0)
    assert (fair["variant"], fair["other"], fair["interval"]) == ("w", "standard", "newcombe")
    assert fair["low"] < 0 < fair["high"]


def test_differences_are_paired_and_leave_diverged_networks_out():
    rows = pd.DataFrame(_rows("standard", [0.5, 0.6, 0.7], [0, 0, 1]) + _rows("w", [0.6, 0.7, 0.8], [1, 1, 1]))
    table = differences(rows, ["standard", "w"]).set_index("measure")
    assert table.loc["test_acc", ["n", "difference", "low", "high"]].tolist() == pytest.approx([3, 0.1, 0.1, 0.1])
    lost = rows["variant"].eq("w") & rows["network"].eq(1)
    rows.loc[lost, "diverged"] = 4
    rows["smooth_monotone"] = rows["smooth_monotone"].astype(object).mask(lost, None)
    table = differences(rows, ["standard", "w"]).set_index("measure")
    assert table.loc["smooth_monotone", ["n", "mean", "other_mean"]].tolist() == [2, 1, 0.5]
    assert table.loc["diverged_share", "difference"] == pytest.approx(1 / 3)


def test_a_family_without_survivors_leaves_the_rest_of_the_tables():
    rows = pd.DataFrame(_rows("standard", [0.9, 0.8], [0, 1]) + _rows("w", [0.9, 0.8], [1, 1]))
    dead = pd.DataFrame(_rows("sigma", [0.9, 0.9], [1, 1])).assign(
        diverged=2, **dict.fromkeys((*MEANS, *SHARES), np.nan)
    )
    rows = pd.concat([rows, dead])
    table = matched(rows, ["standard", "sigma", "w"])
    by = table.set_index(["variant", "other", "matched_on", "measure"])["n"]
    assert by[("sigma", "standard", "test_acc", "smooth_monotone")] == 0
    assert by[("w", "standard", "test_acc", "smooth_monotone")] == 2
    assert list(summary(rows).set_index("variant").loc["sigma", ["networks", "diverged"]]) == [2, 2]


def test_bins_of_the_rate():
    edges = lr_edges(mli.Config())
    assert edges == pytest.approx([0.005, 0.0158114, 0.05, 0.158114, 0.5])
    rates = [0.005, 0.0158, 0.02, 0.499, 0.5]
    rows = pd.DataFrame([row | {"lr": lr} for lr, row in zip(rates, _rows("w", [0.9] * 5, [1, 0, 1, 1, 0]))])
    table = by_lr(rows, edges)
    assert list(table["networks"]) == [2, 1, 2]
    assert list(table["smooth_monotone"]) == [0.5, 1.0, 0.5]
    assert list(table["lr_low"]) == [edges[0], edges[1], edges[3]]
    assert lr_edges(mli.Config(lr=0.3)) == [0.3, 0.3]


def test_matching_by_hand():
    assert match(np.array([0.0, 1.0]), np.array([1.05, 5.0]), 0.1) == ([1], [0])
    # The nearest first, 1.0 with 1.05, would leave 1.15 alone: two pairs are better than one.
    assert match(np.array([1.0, 1.15]), np.array([1.05, 0.95]), 0.11) == ([0, 1], [1, 0])
    assert match(np.array([]), np.array([1.0]), 1.0) == ([], [])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.lists(st.integers(0, 12), min_size=4, max_size=5))
def test_matching_is_the_best_there_is(a, b):
    rows, columns = match(np.array(a, float), np.array(b, float), 2.0)
    gaps = [abs(a[i] - b[j]) for i, j in zip(rows, columns)]
    assert len(set(rows)) == len(rows) == len(set(columns))
    assert all(gap <= 2 for gap in gaps)
    orders = permutations(range(len(b)), len(a))
    every = [[abs(x - b[j]) for x, j in zip(a, order) if abs(x - b[j]) <= 2] for order in orders]
    most = max(len(found) for found in every)
    assert len(gaps) == most
    assert sum(gaps) == min(sum(found) for found in every if len(found) == most)
