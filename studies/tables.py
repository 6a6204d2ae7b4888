"""Rows, summaries and what is printed: the same for every study."""

from __future__ import annotations

import functools
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

VOLATILE = ("wall_s", "commit", "device", "torch")
"""Columns in which two runs of one config may differ."""


@functools.cache
def commit() -> str:
    """The checked-out commit of this project, `+dirty` where files differ from it, `unknown` outside git."""
    here = Path(__file__).resolve().parent.parent

    def git(*args: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *args], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != here:
            return "unknown"
        return git("rev-parse", "--short=12", "HEAD") + ("+dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def device_name(device: str) -> str:
    """What a row says of the device: `cpu`, or the accelerator's name; that of a worker's cannot be known here."""
    import torch

    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name(torch.device(device))
    return device


def summarise(rows: pd.DataFrame, by: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Mean, 95 % Student-t interval and n of each value in each group, in the order of first appearance.

    A row that is missing a value (a network that diverged) does not count in that value's n; `pairs` counts all rows.
    """
    import pandas as pd

    from asym.intervals import mean_interval

    out = []
    for key, group in rows.groupby(list(by), sort=False, dropna=False):
        row = dict(zip(by, key)) | {"pairs": len(group)}
        for value in values:
            mean, low, high, n = mean_interval(group[value].to_numpy(dtype=float))
            row |= {value: mean, f"{value}_low": low, f"{value}_high": high, f"{value}_n": n}
        out.append(row)
    return pd.DataFrame(out)


def interval_text(mean: float, low: float, high: float, digits: int = 3) -> str:
    """`0.123 [0.100, 0.146]`; without an interval where n = 1."""
    if math.isnan(mean):
        return "–"
    if math.isnan(low):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def render(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A plain-text table: first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [columns, *lines]) for i in range(len(columns))]

    def row(cells: Sequence[str]) -> str:
        rest = (f"{cell:>{w}}" for cell, w in zip(cells[1:], widths[1:]))
        return "  ".join([f"{cells[0]:<{widths[0]}}", *rest]).rstrip()

    return "\n".join([row(columns), "  ".join("─" * w for w in widths), *map(row, lines)])
