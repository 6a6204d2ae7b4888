"""Panels of the Bayesian figures: what differs is not drawn together."""

from __future__ import annotations

import numpy as np
import pandas as pd

from figures.bnn import _kinds


def _rows(**columns) -> pd.DataFrame:
    return pd.DataFrame({"kl_weight": [0.125, 0.125, 1.0], "variant": ["standard", "w", "w"], **columns})


def test_one_panel_a_weight_of_the_kl():
    kinds = _kinds(_rows(log_variance=-10.0, guide="lowrank", rank=4.0, lr=5e-4))
    assert [(title, len(part)) for title, part in kinds] == [("KL × 0.125", 2), ("KL × 1", 1)]


def test_families_that_differ_stand_apart_and_are_named():
    kinds = _kinds(_rows(log_variance=[-10.0, -20.0, -10.0], guide="lowrank", rank=np.nan))
    titles = [title for title, _ in kinds]
    assert titles == ["KL × 0.125, log-variance -20", "KL × 0.125, log-variance -10", "KL × 1, log-variance -10"]
    assert [len(part) for _, part in kinds] == [1, 1, 1]


def test_no_rows_no_panels():
    assert _kinds(_rows(guide="lowrank").iloc[:0]) == []


def test_a_width_found_by_equal_size_stays_in_the_panel():
    rows = _rows(width=[1.0, 0.9, 1.0])
    rows["variant"] = ["standard", "standard-equal", "standard"]
    assert [(title, len(part)) for title, part in _kinds(rows)] == [("KL × 0.125", 2), ("KL × 1", 1)]
    rows["variant"] = "standard"  # a width that the user gave is another setting
    assert len(_kinds(rows)) == 3
