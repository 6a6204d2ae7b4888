"""All figures at once."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest

from figures.__main__ import STUDIES, main

RESULTS = Path(__file__).resolve().parents[2] / "results"


def test_every_script_is_among_them():
    scripts = {file.stem for file in (RESULTS.parent / "figures").glob("*.py")}
    commands = {
        name
        for name in scripts - {"__init__", "__main__"}
        if hasattr(importlib.import_module(f"figures.{name}"), "main")
    }
    assert commands == {*STUDIES, "report"}


def test_what_has_tables_is_drawn(tmp_path, capsys):
    for file in RESULTS.glob("audit*.csv"):
        shutil.copy(file, tmp_path)
    assert main(["--results", str(tmp_path)]) == 0
    assert {file.name for file in (tmp_path / "figures").glob("*.png")} >= {
        "audit_laptop.png",
        "audit_swaps_laptop.png",
    }
    assert "audit_laptop.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    "table",
    ["lmc_curves", "audit_swaps", "ablate_plane_grid", "bnn_curves", "bnn_nuts", "bnn_plane", "saffu_quality_summary",
     "transformer_metanet_moves", "transformer_metanet_heads"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"], ids=["no byte", "another table"])
def test_a_table_beside_the_first_that_is_none_stops_before_anything_is_drawn(table, text, tmp_path, capsys):
    study = max((s for s in STUDIES if table.startswith(f"{s}_")), key=len)
    for file in RESULTS.glob(f"{study}*.csv"):
        shutil.copy(file, tmp_path)
    (tmp_path / f"{table}.csv").write_text(text)
    assert importlib.import_module(f"figures.{study}").main(["--results", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert re.search(rf"--results: .*{table}\.csv has no column", err)
    assert err.count("\n") == 1
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("folder", ["", "missing"])
def test_no_tables_is_one_line(folder, tmp_path, capsys):
    assert main(["--results", str(tmp_path / folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--results" in err
