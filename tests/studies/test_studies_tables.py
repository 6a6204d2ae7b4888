"""Summaries and text of tables, by hand."""

import numpy as np
import pandas as pd
import pytest

from studies.tables import interval_text, render, summarise


def test_summaries_leave_missing_values_out_and_say_n():
    rows = pd.DataFrame({"g": ["x", "x", "x", "y"], "v": [1.0, 3.0, float("nan"), 5.0]})
    out = summarise(rows, ["g"], ["v"]).set_index("g")
    assert (out.loc["x", "v"], out.loc["x", "v_n"], out.loc["x", "pairs"]) == (2.0, 2, 3)
    assert out.loc["x", "v_high"] - 2.0 == pytest.approx(12.706, rel=1e-3)  # t of 1 degree of freedom, s/√n = 1
    assert np.isnan(out.loc["y", "v_low"])


def test_text_of_intervals_and_tables():
    assert interval_text(1.0, 0.5, 1.5) == "1.000 [0.500, 1.500]"
    assert interval_text(1.0, float("nan"), float("nan")) == "1.000"
    assert interval_text(float("nan"), 0, 0) == "–"
    assert render(["a", "b"], [["xx", "1"]]) == "a   b\n──  ─\nxx  1"
