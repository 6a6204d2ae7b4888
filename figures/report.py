"""One page of a results folder: claims, figures and tables, each with its commands and its data to take away.

    python -m figures.report --results results

Writes `report.html` into the folder, a single file that needs no network and no server. Figures are taken from the
folder's `figures`; those of a study that has tables but none are drawn first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import figures.command as command
from figures.__main__ import draw
from studies.checks import InputError, check_folder
from studies.cli import run_command

if TYPE_CHECKING:
    from figures.report_gather import Table


@dataclass(frozen=True)
class Config(command.Config):
    """Settings of the page."""

    output: Path | None = None
    """The page's file; by default `report.html` in the folder of tables."""
    redraw: bool = False
    """Draw all figures again first."""


def prepare(config: Config) -> tuple[Config, list[Table]]:
    """Read all tables; writes nothing.

    Raises:
        InputError: if the folder has none, one cannot be read, or the page cannot be written.
    """
    from figures.report_gather import read_tables

    tables = read_tables(config.results)
    page = output(config)
    if page.is_dir():
        raise InputError(f"--output: {page} is a folder, must be a file's name")
    check_folder("output", page.parent)
    return config, tables


def write(config: Config, tables: list[Table]) -> Path:
    """Draw what is not drawn yet, write the page as a whole or not at all; returns its path."""
    from asym.files import write_text
    from figures.report_gather import STUDIES, gather, study_of, undrawn
    from figures.report_page import page_html

    present = {study_of(table.name) for table in tables}
    studies = [s for s in STUDIES if s in present] if config.redraw else undrawn(config.results, tables)
    notes = {}
    for study in studies:
        if draw([study], command.Config(results=config.results)) != 0:
            line = escape(f"python -m figures.{study} --results {config.results}")
            notes[study] = f"Its figures could not be drawn from these tables; <code>{line}</code> says why."
    page = output(config)
    write_text(page, page_html(gather(config.results, tables), notes))
    return page


def output(config: Config) -> Path:
    """Where the page goes."""
    return config.results / "report.html" if config.output is None else config.output


def main(args: Sequence[str] | None = None) -> int:
    """The command."""
    return run_command(
        Config,
        prepare,
        lambda prepared: print(write(*prepared)),
        prog="python -m figures.report",
        description=(__doc__ or "").split("\n\n")[0],
        args=args,
    )


__all__ = ["Config", "main", "write"]

if __name__ == "__main__":
    sys.exit(main())
