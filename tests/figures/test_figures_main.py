"""All figures at once."""

from __future__ import annotations

import importlib
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


@pytest.mark.parametrize("folder", ["", "missing"])
def test_no_tables_is_one_line(folder, tmp_path, capsys):
    assert main(["--results", str(tmp_path / folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--results" in err
