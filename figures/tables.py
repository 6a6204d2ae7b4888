"""Reading tables for figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read(results: Path, name: str, columns: tuple[str, ...], made_by: str) -> pd.DataFrame:
    """A table of a results folder.

    Raises:
        FileNotFoundError: if it is not there, saying which command makes it.
        ValueError: if it cannot be read, is empty or lacks a column.
    """
    from asym.store import read_table

    path = results / name
    if not path.is_file():
        raise FileNotFoundError(f"--results: {path} is not there; `{made_by} --out {results}` makes it")
    try:
        table = read_table(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"--results: {path} cannot be read as CSV: {error}") from None
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"--results: {path} has no column {', '.join(missing)}")
    if table.empty:
        raise ValueError(f"--results: {path} has no rows; `{made_by} --out {results}` makes them")
    return table
