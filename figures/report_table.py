"""A table of results as HTML that is read, not only stored: three digits, the full number under the pointer.

    mean, mean_low, mean_high, mean_n   become one column   2.40 [2.11, 2.69]   and a column n

What is the same in every row is said once below the caption; columns without values are named there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from figures.style import COLOURS

if TYPE_CHECKING:
    import pandas as pd

LEADING = (
    "id", "claim", "setting", "verdict", "measure", "ours", "n", "published", "variant", "reader", "arm", "start",
    "benchmark",
)  # fmt: skip
"""Columns that say which row it is come first …"""
TRAILING = ("config", "wall_s", "device", "torch", "commit")
"""… and those that say where it is from, last."""
FOLDED = ("checks", "rule", "note", "command", "paper", "published_status")
"""Columns that a table of claims keeps in one, opened row by row."""
BARE = ("ours", "difference")
"""Columns whose interval is in the columns `low` and `high`."""
VERDICTS = {"holds": "●", "in part": "◐", "does not": "○", "not tested": "·"}
MISSING = "–"
_LONG, _MIDDLE = 48, 24
"""Characters from which a cell's text may wrap, at about as many a line."""


@dataclass(frozen=True)
class Cell:
    """What is shown (HTML), the full value, whether it is a number."""

    html: str
    title: str = ""
    number: bool = False
    wrap: str = ""
    """Class of a cell whose text may wrap."""


def table_html(frame: pd.DataFrame, name: str, *, claims: bool = False) -> str:
    """The table in a box that scrolls by itself.

    Args:
        frame: rows as read.
        name: of its file, without suffix; also makes the ids.
        claims: keep every column, those that back a verdict in one. Else what is the same in every row is said once,
            and columns without values are left out.
    """
    columns = _columns(frame.drop(columns="headline", errors="ignore") if claims else frame)
    notes = []
    if claims:
        columns = _folded(columns)
    elif len(frame) > 1:
        same = {c: cells[0] for c, cells in columns.items() if len(set(cells)) == 1}
        empty = [c for c, cell in same.items() if cell.html in (MISSING, "")]
        told = [f"{escape(c)} {cell.html}" for c, cell in same.items() if c not in empty]
        if len(same) < len(columns):
            columns = {c: cells for c, cells in columns.items() if c not in same}
            notes += [f"Same in every row: {', '.join(told)}."] if told else []
            notes += [f"No values: {escape(', '.join(empty))}."] if empty else []
    head = "".join(f'<th scope="col"{_class(cells)}>{_heading(c)}</th>' for c, cells in columns.items())
    body = "\n".join(f"<tr>{_row([cells[i] for cells in columns.values()])}</tr>" for i in range(len(frame)))
    note = f"<small>{' '.join(notes)}</small>" if notes else ""
    rows = f"{len(frame):,} row{'s' if len(frame) != 1 else ''}"
    label = f"{escape(name)}-caption"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{label}"><table>\n'
        f'<caption id="{label}"><div><b>{escape(name)}</b>, {rows} {note}</div></caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
    )


def short(value: float, *, padded: bool = False) -> str:
    """A number with three significant digits: 2.4, padded 2.40; powers of ten far from one.

    >>> short(0.0123456), short(4059309.8), short(2.4, padded=True)
    ('0.0123', '4.06×10⁶', '2.40')
    """
    if not math.isfinite(value):
        return MISSING if value != value else f"{value}".replace("inf", "∞").replace("-", "−")
    value = float(f"{value:.2e}")
    if value != 0 and not 1e-4 <= abs(value) < 1e5:
        digits, power = f"{value:.2e}".split("e")
        digits = digits if padded else digits.rstrip("0").rstrip(".")
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{digits}×10{raised}"
    elif abs(value) >= 1000:
        text = f"{value:.0f}"
    else:
        text = f"{value:#.3g}".rstrip(".") if padded else f"{value:.3g}"
    return text.replace("-", "−")


def _columns(frame: pd.DataFrame) -> dict[str, list[Cell]]:
    """Cells by column, in the order in which they are shown; intervals in one column with their means."""
    names = list(map(str, frame.columns))
    values = {name: frame.iloc[:, place].astype(object).tolist() for place, name in enumerate(names)}
    ends = {name: (f"{name}_low", f"{name}_high", f"{name}_n") for name in names if f"{name}_low" in values}
    ends = {name: found for name, found in ends.items() if found[1] in values}
    bare = next((name for name in BARE if name in values), None)
    if bare and {"low", "high"} <= set(values) and bare not in ends:
        ends[bare] = ("low", "high", "n")
    counts = _counts(values, ends)
    used = {name for found in ends.values() for name in found if name != "n"}
    columns: dict[str, list[Cell]] = {}
    for name in names:
        if name in used:
            continue
        if name in ends:
            low, high, n = (values.get(end) for end in ends[name])
            columns[name] = [
                _interval(v, low[i] if low else None, high[i] if high else None, n[i] if n else None, counts[i])
                for i, v in enumerate(values[name])
            ]
        else:
            columns[name] = [_cell(name, value) for value in values[name]]
    if any(count is not None for count in counts) and "n" not in columns:
        whole = [_cell("n", count) for count in counts]
        if not any(cells == whole for cells in columns.values()):
            columns["n"] = whole
    order = [*LEADING, *(name for name in columns if name not in (*LEADING, *TRAILING)), *TRAILING]
    return {name: columns[name] for name in order if name in columns}


def _folded(columns: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
    inner = [name for name in FOLDED if name in columns]
    if not inner:
        return columns
    folded = []
    for place in range(len(columns[inner[0]])):
        shown = [(name, columns[name][place].html) for name in inner if columns[name][place].html not in ("", MISSING)]
        terms = "".join(f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{html}</dd>" for name, html in shown)
        folded.append(Cell(f"<details><summary>show</summary><dl>{terms}</dl></details>" if terms else ""))
    return {name: cells for name, cells in columns.items() if name not in inner} | {"how to check": folded}


def _counts(values: dict[str, list[Any]], ends: dict[str, tuple[str, str, str]]) -> list[int | None]:
    """The largest n behind the means of each row."""
    length = len(next(iter(values.values()), []))
    columns = [values[n] for _, _, n in ends.values() if n in values]
    found = [[int(c[i]) for c in columns if _is_number(c[i])] for i in range(length)]
    return [max(counts, default=None) for counts in found]


def _interval(value: Any, low: Any, high: Any, n: Any, usual: int | None) -> Cell:
    if not _is_number(value):
        return _cell("", value)
    full = [repr(value)]
    html = short(float(value), padded=True)
    if _is_number(low) and _is_number(high):
        html += f" <small>[{short(float(low), padded=True)}, {short(float(high), padded=True)}]</small>"
        full.append(f"95 % interval {low!r} to {high!r}")
    if _is_number(n):
        full.append(f"n = {int(n)}")
        html += f" <small>n = {int(n)}</small>" if int(n) != usual else ""
    return Cell(html, "; ".join(full), number=True)


def _cell(name: str, value: Any) -> Cell:
    if isinstance(value, bool) or not _is_number(value):
        text = "" if _is_missing(value) else str(value)
        if _is_missing(value) and isinstance(value, float):
            return Cell(MISSING, number=True)
        if name == "variant" and text in COLOURS:
            return Cell(f'<i class="dot" style="background:{COLOURS[text]}"></i>{escape(text)}')
        if name == "verdict":
            mark = next((sign for start, sign in VERDICTS.items() if text.startswith(start)), "")
            return Cell(f'<span class="mark" aria-hidden="true">{mark}</span> {escape(text)}' if mark else escape(text))
        html = f"<code>{escape(text)}</code>" if name == "command" and text else escape(text)
        return Cell(html, wrap="l" if len(text) > _LONG else "m" if len(text) > _MIDDLE else "")
    if isinstance(value, int):
        return Cell(str(value).replace("-", "−"), number=True)
    html = short(float(value))
    full = repr(float(value))
    return Cell(html, full if html.replace("−", "-") not in (full, full.removesuffix(".0")) else "", number=True)


def _row(cells: list[Cell]) -> str:
    out = []
    for place, cell in enumerate(cells):
        kind = 'th scope="row"' if place == 0 else "td"
        title = f' title="{escape(cell.title)}"' if cell.title else ""
        out.append(f"<{kind}{_class([cell])}{title}>{cell.html}</{kind[:2]}>")
    return "".join(out)


def _class(cells: list[Cell]) -> str:
    if cells and all(cell.number or not cell.html for cell in cells) and any(cell.number for cell in cells):
        return ' class="n"'
    wraps = {cell.wrap for cell in cells}
    return next((f' class="{wrap}"' for wrap in ("l", "m") if wrap in wraps), "")


def _heading(name: str) -> str:
    return escape(name).replace("_", "_<wbr>")


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or value != value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
