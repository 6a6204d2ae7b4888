"""Claims: which published claims about parameter symmetries hold here, how surely, and how to check each.

Nothing is trained and no figure is typed: `claims.csv` is worked out from the other tables of a results folder by the
rule that `studies/claims_rules.py` writes down. A claim has a row for each setting in which it was confronted, and one
without numbers if it was in none.

    python -m studies.claims
    python -m studies.claims --out my-results --quiet

From a notebook: `from studies import claims; table = claims.run(claims.Config())`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from studies.checks import InputError, check_choice, check_folder
from studies.cli import run_command
from studies.notebook import settle

if TYPE_CHECKING:
    import pandas as pd

    from studies.claims_rules import Claim, Tables

KEY = ("id", "setting")
LETTERS = "ABCDNPH"
"""First letters of ids, in order: four papers, this project's own findings, its hypotheses on SAFFU."""
MARKS = ("<!-- claims -->", "<!-- /claims -->")
"""What stands around the list in a document."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the table of claims."""

    out: Path = Path("results")
    """Folder of the other tables; `claims.csv` is written there."""
    ids: tuple[str, ...] = ()
    """Claims to print with all their checks, by id; nothing is written then."""
    docs: tuple[Path, ...] = ()
    """Markdown files whose list of claims, between its marks, is written anew: all claims in a file that lies in the
    folder --out, beside the tables; the headline claims in any other."""
    quiet: bool = False
    """No table on the terminal."""
    debug: bool = False
    """Show the traceback of a failure."""

    def __post_init__(self) -> None:
        settle(self)
        for name in self.ids:
            check_choice("ids", name, [claim.id for claim in all_claims()])
        if not self.out.is_dir():
            raise InputError(f"--out: {self.out} is no folder; `python -m studies.lmc` makes tables")
        check_folder("out", self.out)
        for file in self.docs:
            if not file.is_file():
                raise InputError(f"--docs: {file} does not exist")
            if any(mark not in file.read_text(encoding="utf-8") for mark in MARKS):
                raise InputError(f"--docs: {file} has no list between {MARKS[0]} and {MARKS[1]}")


def all_claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the table: by paper, then by number."""
    from studies import claims_landscape, claims_language, claims_readers, claims_training, claims_transformers

    found = (
        *claims_landscape.CLAIMS, *claims_training.CLAIMS, *claims_readers.CLAIMS, *claims_transformers.CLAIMS,
        *claims_language.CLAIMS,
    )  # fmt: skip
    return tuple(sorted(found, key=lambda claim: (LETTERS.index(claim.id[0]), int(claim.id[1:]))))


def rows_of(claim: Claim, tables: Tables) -> list[dict[str, Any]]:
    """A row for each setting that the tables know, or one that says that there is none."""
    from studies.claims_rules import NoRows, row_of

    rows = []
    for setting in claim.settings:
        tables.asked.clear()
        try:
            checks = setting.checks(tables)
        except NoRows:
            continue
        except KeyError as error:
            text = str(error.args[0])
            tables.lacks(re.findall(r"'([^']+)'", text) or [text])  # pandas names several as "['a', 'b'] not in index"
            raise
        if checks:
            rows.append(row_of(claim, setting, checks))
    return rows or [row_of(claim, None, ())]


def work_out(config: Config, ids: Sequence[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """All claims, or those of some ids, and the names of the tables that they asked for in vain; writes nothing.

    Raises:
        ValueError: a table of the folder cannot be read, or lacks columns.
    """
    import pandas as pd

    from studies.claims_rules import Tables

    tables = Tables(config.out)
    asked = [claim for claim in all_claims() if not ids or claim.id in ids]
    rows = [row for claim in asked for row in rows_of(claim, tables)]
    return pd.DataFrame(rows), list(tables.missing)


def run(config: Config) -> pd.DataFrame:
    """Work out all claims, write `claims.csv` and the lists of `docs`.

    Raises:
        ValueError: a table of the folder cannot be read, or lacks columns.
    """
    table, _ = work_out(config)
    keep(config, table)
    return table


def keep(config: Config, table: pd.DataFrame) -> None:
    """Write the table, and its lists: the full one into documents beside it, the headlines into others."""
    from asym.files import write_text

    write_text(config.out / "claims.csv", table.to_csv(index=False, lineterminator="\n"))
    for file in config.docs:
        beside = file.resolve().parent == config.out.resolve()
        write_text(file, with_list(file.read_text(encoding="utf-8"), table, headlines=not beside))


def with_list(text: str, table: pd.DataFrame, *, headlines: bool) -> str:
    """A document whose list of claims, between its marks, is that of the table."""
    lines = headline_list(table) if headlines else full_list(table)
    block = "\n".join([MARKS[0], *lines, MARKS[1]])
    return re.sub(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", lambda _: block, text, flags=re.DOTALL)


SHOWN = 3
"""Settings of a headline claim."""


def headline_list(table: pd.DataFrame) -> list[str]:
    """A line for each headline claim: its first settings' verdicts with their numbers, and what speaks against them."""
    lines = ["| claim | published | here [95 % interval] |", "|---|---|---|"]
    for name, rows in table[table["headline"]].groupby("id", sort=False):
        found = "; ".join(_told(row) if row["setting"] else "not tested" for row in rows[:SHOWN].to_dict("records"))
        found += f"; {len(rows) - SHOWN} more settings in the full list" if len(rows) > SHOWN else ""
        first = rows.iloc[0]
        lines.append(f"| {name}: {first['claim']} | {_published(first)} | {found} |")
    return lines


def full_list(table: pd.DataFrame) -> list[str]:
    """A line for each claim and setting."""
    lines = ["| id | claim | published (status) | setting | verdict | checks |", "|---|---|---|---|---|---|"]
    for row in table.to_dict("records"):
        checks = row["checks"] or row["note"]
        cells = (row["id"], row["claim"], _published(row), row["setting"], row["verdict"], checks.replace("|", "\\|"))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _told(row: dict[Any, Any]) -> str:
    """Verdict, setting and first number of a row, and the first other check that does not say yes."""
    text = f"**{row['verdict']}** ({row['setting']}): {row['measure']} {_number(row)}"
    others = [check for check in row["checks"].split("; ")[1:] if not check.endswith(": yes")]
    return f"{text}; {others[0]}" if others else text


def _published(row: Any) -> str:
    """The published value and how it is known."""
    known = row["published"] not in ("–", "open question", "hypothesis") and row["published_status"] != "–"
    return f"{row['published']} ({row['published_status']})" if known else row["published"]


def _number(row: dict[Any, Any]) -> str:
    from asym.intervals import Interval
    from studies.claims_rules import spelt

    return spelt(Interval(row["ours"], row["low"], row["high"], row["n"]))


def summary_text(table: pd.DataFrame) -> str:
    """The terminal's table, and how often each verdict was reached."""
    from studies.claims_rules import VERDICTS
    from studies.tables import render

    lines = [
        [
            r["id"],
            f"{r['claim'][:64]:<64}",
            f"{r['setting'][-34:]:<34}",
            r["verdict"],
            _number(r) if r["setting"] else "–",
        ]
        for r in table.to_dict("records")
    ]
    counts = table["verdict"].value_counts()
    told = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if name in counts)
    columns = ("id", "claim", "setting", "verdict", "first check")
    return f"{render(columns, lines)}\n{len(table)} rows: {told}"


def full_text(table: pd.DataFrame, ids: Sequence[str]) -> str:
    """Claims with all their checks."""
    parts = []
    for row in table[table["id"].isin(ids)].to_dict("records"):
        parts.append(f"{row['id']}: {row['claim']} (published: {_published(row)})")
        parts.append(f"  {row['setting'] or row['note']}: {row['verdict']}")
        parts += [f"    {check}" for check in row["checks"].split("; ") if check]
        parts += [f"    {row['command']}"] if row["command"] else []
    return "\n".join(parts)


def main(args: Sequence[str] | None = None) -> int:
    """The command."""

    prog = "python -m studies.claims"

    def work(both: tuple[Config, tuple[pd.DataFrame, list[str]]]) -> None:
        config, (table, missing) = both
        if missing:
            files = ", ".join(f"{name}.csv" for name in missing)
            print(f"{prog}: not there or without rows, so that claims go without them: {files}", file=sys.stderr)
        if config.ids:
            print(full_text(table, config.ids))
            return
        keep(config, table)
        if not config.quiet:
            print(summary_text(table))

    about = (__doc__ or "").split("\n\n")[0]
    return run_command(Config, lambda c: (c, work_out(c, c.ids)), work, prog=prog, description=about, args=args)


if __name__ == "__main__":
    sys.exit(main())
