"""Result tables as CSV files that git can show: rows of the same key are replaced, everything else stays.

    new table = old rows, those of a key in `rows` updated in place, then the rows with new keys

Columns: those of the file in their order, then new ones. Cells that are not touched keep their text to the
byte. Numbers are written in full (`repr` of the float64 value), NaN as `nan`, a missing cell as nothing.
Integers stay integers: pandas turns a column of them to floats as soon as one is missing, so in a key
column, and in a column whose cells in the file are all integers, 3.0 is written as 3.
"""

from __future__ import annotations

import csv
import io
import math
import numbers
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from asym.files import remove_abandoned, write_text

TEXT_COLUMNS = ("config", "commit")
"""Columns that are text whatever they look like: a hash may consist of digits alone."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?([0-9]+\.[0-9]*|[0-9]+(\.[0-9]+)?e[+-]?[0-9]{1,3}|inf)")


def update_table(
    path: str | Path, rows: pandas.DataFrame, key: Sequence[str], volatile: Sequence[str] = ()
) -> pandas.DataFrame:
    """Add rows to a CSV file or replace those of the same key, safe with several processes; the whole table.

    Args:
        path: the file; made if missing, with its folder.
        rows: new rows; cells are strings, booleans, numbers or missing.
        key: the columns that identify a row.
        volatile: columns such as wall times in which the same result may differ; a row that agrees with the
            one in the file in all others is left as it is.

    In a row that is replaced, a column that `rows` lacks keeps its cell.

    Raises:
        ValueError: a key column is missing, a key occurs twice in `rows`, a cell has another type, or the
        file is no
            table (it is left as it is).
    """
    from filelock import FileLock

    path = Path(path).resolve()  # a link to a table stays a link
    key = list(key)
    missing = [name for name in key if name not in rows.columns]
    if missing or not key:
        raise ValueError(f"key: {missing or 'no columns'} not in the rows' columns {list(rows.columns)}")
    if not rows.columns.is_unique:
        raise ValueError(f"rows: a column occurs twice in {list(rows.columns)}")
    new_columns = [str(name) for name in rows.columns]
    cells = _to_text(rows)
    positions = [new_columns.index(name) for name in key]
    new_keys = [_key(row, positions) for row in cells]
    if len(set(new_keys)) < len(new_keys):
        repeated = next(entry for entry in new_keys if new_keys.count(entry) > 1)
        raise ValueError(f"rows: the key {dict(zip(key, repeated))} occurs more than once")

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / f".{path.name}.lock"):
        columns, table = _read_text(path)
        columns = columns + [name for name in new_columns if name not in columns]
        table = [row + [""] * (len(columns) - len(row)) for row in table]
        places = [columns.index(name) for name in new_columns]
        whole = [name in key or _holds_integers(table, place) for name, place in zip(new_columns, places)]
        old_positions = [columns.index(name) for name in key]
        index = {_key(row, old_positions): row for row in table}
        for entry, row in zip(new_keys, cells):
            target = index.get(entry)
            if target is None:
                target = [""] * len(columns)
                table.append(target)
            new = [_as_integer(cell) if integer else cell for cell, integer in zip(row, whole)]
            differing = {columns[place] for place, cell in zip(places, new) if target[place] != cell}
            if differing <= set(volatile):
                continue
            for place, cell in zip(places, new):
                target[place] = cell
        if len(cells) or not path.exists():
            write_text(path, _format(columns, table))
        remove_abandoned(path.parent)  # tables are kept in git: nothing of a killed process may stay among them
    return _typed(columns, table)


def read_table(path: str | Path) -> pandas.DataFrame:
    """A CSV table with the types it was written with, as far as its text shows them.

    A column of whole numbers is int64 (Int64 if cells are missing), of true and false bool (boolean), of
    numbers float64, else text; `TEXT_COLUMNS` are always text.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: its lines differ in length.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such table")
    return _typed(*_read_text(path))


def _to_text(rows: pandas.DataFrame) -> list[list[str]]:
    columns = []
    for place, name in enumerate(rows.columns):
        series = rows.iloc[:, place]
        values = list(series)
        # In a column of text a NaN is how pandas spells a missing cell; among numbers it is a measurement.
        text = any(isinstance(value, str) for value in values) or isinstance(series.dtype, pandas.StringDtype)
        columns.append([_cell(value, str(name), text) for value in values])
    return [list(row) for row in zip(*columns)]


def _cell(value: Any, column: str, text: bool) -> str:
    if value is None or value is pandas.NA or value is pandas.NaT:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return "" if text and math.isnan(number) else repr(number)
    raise ValueError(f"rows: column {column!r} holds a {type(value).__name__}; a cell is text, a boolean or a number")


def _key(row: list[str], positions: list[int]) -> tuple[str, ...]:
    return tuple(_as_integer(row[place]) for place in positions)


def _as_integer(text: str) -> str:
    return text[:-2] if re.fullmatch(r"-?[0-9]+\.0", text) else text


def _holds_integers(table: list[list[str]], place: int) -> bool:
    present = [row[place] for row in table if row[place]]
    return bool(present) and all(_INTEGER.fullmatch(cell) for cell in present)


def _read_text(path: Path) -> tuple[list[str], list[list[str]]]:
    if not path.exists():
        return [], []
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not a UTF-8 text file") from None
    lines = list(csv.reader(io.StringIO(content, newline="")))
    if not lines:
        return [], []
    columns, table = lines[0], [line for line in lines[1:] if line]
    if len(set(columns)) < len(columns):
        raise ValueError(f"{path}: a column occurs twice in the first line")
    for number, line in enumerate(table, start=1):
        if len(line) != len(columns):
            raise ValueError(f"{path}: row {number} has {len(line)} cells, the first line {len(columns)}")
    return columns, table


def _format(columns: list[str], table: list[list[str]]) -> str:
    # A lone empty cell would make an empty line, which reads as no row.
    return "".join((",".join(map(_quote, row)) or '""') + "\n" for row in [columns, *table])


def _quote(cell: str) -> str:
    # Python's csv module leaves a carriage return bare before 3.13, and then reads it as the end of the row.
    return '"' + cell.replace('"', '""') + '"' if any(sign in cell for sign in ',"\r\n') else cell


def _typed(columns: list[str], table: list[list[str]]) -> pandas.DataFrame:
    return pandas.DataFrame(
        {name: _typed_column(name, [row[place] for row in table]) for place, name in enumerate(columns)},
        columns=pandas.Index(columns),
    )


def _typed_column(name: str, cells: list[str]) -> pandas.Series:
    present = [cell for cell in cells if cell != ""]
    complete = len(present) == len(cells)
    if name not in TEXT_COLUMNS and present:
        if all(_INTEGER.fullmatch(cell) for cell in present):
            numbers_ = [int(cell) if cell else pandas.NA for cell in cells]
            return pandas.Series(numbers_, dtype="int64" if complete else "Int64")
        if all(cell in ("True", "False") for cell in present):
            flags = [cell == "True" if cell else pandas.NA for cell in cells]
            return pandas.Series(flags, dtype="bool" if complete else "boolean")
        if all(cell == "nan" or _INTEGER.fullmatch(cell) or _FLOAT.fullmatch(cell) for cell in present):
            return pandas.Series([float(cell) if cell else math.nan for cell in cells], dtype="float64")
    return pandas.Series([cell if cell else None for cell in cells], dtype="str")
