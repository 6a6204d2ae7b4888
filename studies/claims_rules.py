"""How a verdict is reached: a claim is a few checks, a check is an interval against a bound, and the rest is counting.

A check asks whether a quantity lies on one side of a bound, and answers by its 95 % interval:

    yes         the whole interval lies on the claimed side of the bound
    no          the whole interval lies on the other side
    undecided   the bound is inside it, or there is no interval (n = 1)

A comparison is the interval of a difference against 0, "about equal" one inside ± a margin (no: wholly outside),
"exactly" needs every row. The verdict of a claim in one setting, from its checks:

    holds       all yes                in part     some yes, others not
    does not    no yes, some no        undecided   no yes, no no
    not tested  the tables have no rows for it

A comparison of barriers has a guard beside it: end points whose accuracies are alike. Without that "holds" becomes "in
part"; the guard by itself earns nothing. Nothing else enters: not the published value, which was measured at another
scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asym.intervals import Interval, mean_interval, paired_interval, welch_interval

if TYPE_CHECKING:
    import pandas as pd

PAPER = "Empirical Impact of Neural Parameter Symmetries"
LATER = "later work on asymmetric networks"
OWN = "this project"
VERDICTS = ("holds", "in part", "does not", "undecided", "not tested")


class NoRows(Exception):
    """The tables have no rows for a check."""


class Tables:
    """The tables of a results folder, read when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missing: dict[str, None] = {}
        """Names of those that were asked for and are not there, or have no rows, in order."""
        self.asked: set[str] = set()
        """Names of those that were asked for since this was cleared."""
        self._read: dict[str, pd.DataFrame] = {}

    def __call__(self, name: str, **where: Any) -> pd.DataFrame:
        """Rows of `<name>.csv` in which each column has the given value, or one of a tuple of values.

        Raises:
            NoRows: there is no such table, or no such row.
            ValueError: the file is no table, one of another study, or lacks a column.
        """
        if name not in self._read:
            self._read[name] = self._open(name)
        self.asked.add(name)
        rows = self._read[name]
        self.lacks([column for column in where if column not in rows], name)
        for column, value in where.items():
            rows = rows[rows[column].isin(value if isinstance(value, tuple) else (value,))]
        if rows.empty:
            raise NoRows(f"{name}.csv has no row with {where}")
        return rows

    def lacks(self, columns: Sequence[str], *names: str) -> None:
        """Raise a ValueError for columns that tables lack, if there are any; by default those of the tables asked."""
        if columns:
            those = names or sorted(n for n in self.asked if not set(columns) <= set(self._read[n]))
            files = " or ".join(str(self.folder / f"{name}.csv") for name in those) or f"a table of {self.folder}"
            raise ValueError(
                f"--out: {files} has no column {', '.join(columns)}: it is of another study or an older version; run "
                "the study again, or remove the file"
            )

    def _open(self, name: str) -> pd.DataFrame:
        from asym.store import read_table

        file = self.folder / f"{name}.csv"
        try:
            table = read_table(file)
        except FileNotFoundError:
            self.missing[name] = None
            raise NoRows(f"{name}.csv is not there") from None
        except (ValueError, OSError) as error:
            raise ValueError(f"--out: {file} cannot be read as CSV: {error}") from None
        if not len(table.columns):
            raise ValueError(f"--out: {file} is empty; remove it, or run its study again")
        if table.empty:
            self.missing[name] = None
        for study in set(table["study"].dropna()) if "study" in table else ():
            if name != study and not name.startswith(f"{study}_"):
                raise ValueError(f"--out: {file} has rows of the study {study}; run the right one, or remove the file")
        return table


class Check(NamedTuple):
    """One question to the tables, and its answer."""

    text: str
    """What the number is."""
    asked: str
    """What was asked of it: `> 0.5`, `within ± 0.1`."""
    found: Interval
    holds: bool | None
    """None: undecided."""
    guard: bool = False
    """A condition of a fair comparison: where it is not met, nothing holds more than in part; it earns nothing."""


def above(text: str, found: Interval, bound: float = 0.0) -> Check:
    """Does the quantity exceed the bound?"""
    return Check(text, f"> {bound:g}", found, _beyond(found.low, found.high, bound))


def below(text: str, found: Interval, bound: float = 0.0) -> Check:
    """Does the quantity stay below the bound?"""
    return Check(text, f"< {bound:g}", found, _beyond(-found.high, -found.low, -bound))


def inside(text: str, found: Interval, margin: float) -> Check:
    """Is the quantity within ± margin of 0?"""
    holds: bool | None = None
    if not math.isnan(found.low):
        outside = found.low > margin or found.high < -margin
        holds = True if -margin < found.low and found.high < margin else (False if outside else None)
    return Check(text, f"within ± {margin:g}", found, holds)


def exactly(text: str, found: Iterable[float], wanted: Iterable[float]) -> Check:
    """Does every value equal the one it should have?"""
    pairs = list(zip(found, wanted))
    right = sum(a == b for a, b in pairs)
    share = right / len(pairs)
    return Check(text, f"all ({right} of {len(pairs)})", Interval(share, math.nan, math.nan, len(pairs)), share == 1.0)


def _beyond(low: float, high: float, bound: float) -> bool | None:
    """Whether an interval lies above a bound; None if the bound is inside, or the interval missing."""
    if math.isnan(low) or math.isnan(high):
        return None
    return True if low > bound else (False if high < bound else None)


def mean_of(rows: pd.DataFrame, column: str) -> Interval:
    """Mean over rows with Student's interval."""
    return mean_interval(rows[column].to_numpy(dtype=float))


def independent(a: pd.DataFrame, b: pd.DataFrame, column: str, factor: float = 1.0) -> Interval:
    """Mean of a minus `factor` times that of b, Welch's interval."""
    return welch_interval(a[column].to_numpy(dtype=float), factor * b[column].to_numpy(dtype=float))


def paired(a: pd.DataFrame, b: pd.DataFrame, column: str, by: Sequence[str]) -> Interval:
    """Mean of a − b over rows that agree in `by`, Student's interval.

    Raises:
        NoRows: no rows agree.
    """
    both = a[[*by, column]].merge(b[[*by, column]], on=list(by), suffixes=("_a", "_b"))
    if both.empty:
        raise NoRows(f"no pairs by {', '.join(by)}")
    if both.duplicated(list(by)).any():
        raise ValueError(f"by: rows are not told apart by {', '.join(by)}")
    return paired_interval(both[f"{column}_a"].to_numpy(dtype=float), both[f"{column}_b"].to_numpy(dtype=float))


def given(
    rows: pd.DataFrame, value: str = "difference", low: str = "low", high: str = "high", n: str = "n"
) -> Interval:
    """The interval that a table holds already, from its only row.

    Raises:
        NoRows: there are several rows, or none.
    """
    if len(rows) != 1:
        raise NoRows(f"{len(rows)} rows where one is needed")
    row = rows.iloc[0]
    found = Interval(float(row[value]), float(row[low]), float(row[high]), int(row[n]))
    if math.isnan(found.mean):
        raise NoRows(f"no number in column {value}")
    return found


def of_zoo(tables: Tables, study: str, name: str, zoo: dict[str, Any], **where: Any) -> pd.DataFrame:
    """Rows of a table of readers whose networks are those of one zoo; the study's summary says which by their config.

    Args:
        tables: of a results folder.
        study: whose summary it is.
        name: of the table.
        zoo: column of the summary → its value.
        where: column of the table → its value.

    Raises:
        NoRows: there are none.
    """
    known = set(tables(f"{study}_summary", **zoo)["config"])
    rows = tables(name, **where)
    rows = rows[rows["config"].isin(known)]
    if rows.empty:
        raise NoRows(f"{name}.csv has no row with {where} of {zoo}")
    return rows


def apart(a: Interval, b: Interval) -> Interval:
    """a − b of two independent estimates, from their intervals: half-widths added in squares on each side."""
    low = math.hypot(a.mean - a.low, b.high - b.mean)
    high = math.hypot(a.high - a.mean, b.mean - b.low)
    mean = a.mean - b.mean
    return Interval(mean, mean - low, mean + high, min(a.n, b.n))


@dataclass(frozen=True)
class Setting:
    """Where a claim is confronted."""

    name: str
    """Networks and data."""
    command: str
    """What makes the rows; `python -m studies.` is put before it."""
    checks: Callable[[Tables], list[Check]]


@dataclass(frozen=True)
class Claim:
    """A claim and where it is confronted."""

    id: str
    paper: str
    text: str
    published: str
    status: str
    """verified in a source, second-hand, derived, or – (no number was published)."""
    settings: tuple[Setting, ...] = ()
    headline: bool = False
    """Shown in the README."""
    elsewhere: str = ""
    """Why no table can tell, or which test does."""


def verdict(checks: Sequence[Check]) -> str:
    """One of `VERDICTS`; see the module's text."""
    if not checks:
        return "not tested"
    main = [check for check in checks if not check.guard]
    yes = sum(check.holds is True for check in main)
    no = sum(check.holds is False for check in main)
    if yes == len(main):
        return "holds" if all(check.holds for check in checks) else "in part"
    return "in part" if yes else ("does not" if no else "undecided")


def number(value: float) -> str:
    """Three significant digits, or three decimals below one."""
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}"


def spelt(found: Interval) -> str:
    """`0.12 [0.10, 0.14], n = 5`."""
    text = number(found.mean)
    if not math.isnan(found.low):
        text += f" [{number(found.low)}, {number(found.high)}]"
    return f"{text}, n = {found.n}"


def row_of(claim: Claim, setting: Setting | None, checks: Sequence[Check]) -> dict[str, Any]:
    """One row of `claims.csv`."""
    answer = {True: "yes", False: "no", None: "undecided"}
    row: dict[str, Any] = {
        "id": claim.id, "paper": claim.paper, "claim": claim.text, "published": claim.published,
        "published_status": claim.status, "setting": setting.name if setting else "",
        "measure": checks[0].text if checks else "",
    }  # fmt: skip
    first = checks[0].found if checks else Interval(math.nan, math.nan, math.nan, 0)
    row |= {"ours": first.mean, "low": first.low, "high": first.high, "n": first.n, "verdict": verdict(checks)}
    row["checks"] = "; ".join(f"{c.text} {c.asked}? {spelt(c.found)}: {answer[c.holds]}" for c in checks)
    row["command"] = f"python -m studies.{setting.command}" if setting else ""
    return row | {"note": claim.elsewhere, "headline": claim.headline}
