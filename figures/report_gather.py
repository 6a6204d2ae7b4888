"""What a results folder holds, sorted into the sections of its page: tables, figures, and the commands behind them.

A table or figure belongs to the study whose name it begins with, and within it to the part (an ablation, say) whose
name follows. Figures become lossless WebP, a third of the PNG's size.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from figures.__main__ import STUDIES
from figures.report_captions import PARTS, about
from studies.checks import InputError

if TYPE_CHECKING:
    import pandas as pd

RUNS = "runs"
"""Name of the table of commands."""


@dataclass(frozen=True)
class Table:
    """A CSV file: name without suffix, as read, and its text."""

    name: str
    frame: pd.DataFrame
    text: str


@dataclass(frozen=True)
class Figure:
    """An image: name without suffix, bytes, their type, width and height in pixels."""

    name: str
    data: bytes
    mime: str
    width: int
    height: int


@dataclass(frozen=True)
class Command:
    """A command that made tables: its line, the settings that differ from the defaults, the commit."""

    line: str
    settings: str
    commit: str


@dataclass(frozen=True)
class Part:
    """Part of a section; the first one has no name and holds what belongs to the whole."""

    name: str
    commands: tuple[Command, ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Section:
    """A study, or what is no study's, with its parts."""

    name: str
    title: str
    asks: str
    parts: tuple[Part, ...]


def read_tables(results: Path) -> list[Table]:
    """All tables of a folder by name.

    Raises:
        InputError: if there is no table that belongs to a section of its own, or one cannot be read.
    """
    from asym.store import read_table

    if not results.is_dir():
        raise InputError(f"--results: {results} is no folder; `python -m studies.lmc --out {results}` makes tables")
    files = sorted(path for path in results.glob("*.csv") if path.is_file() and not path.name.startswith("."))
    tables = []
    for path in files:
        try:
            frame = read_table(path)
            text = path.read_bytes().decode("utf-8-sig")
        except (ValueError, OSError) as error:
            raise InputError(f"--results: {path} cannot be read as CSV: {error}") from None
        if not len(frame.columns):
            raise InputError(f"--results: {path} is empty; it has not even a line of column names")
        tables.append(Table(path.stem, frame, text))
    if all(study_of(table.name) == "other" for table in tables):
        there = f"only {', '.join(f'{table.name}.csv' for table in tables[:3])}" if tables else "no tables"
        raise InputError(
            f"--results: {there} in {results}, no table of {', '.join(STUDIES)}; "
            f"`python -m studies.lmc --out {results}` makes some"
        )
    return tables


def study_of(name: str) -> str:
    """The section that a table or figure belongs to, by its name."""
    found = [study for study in ("claims", *STUDIES, "benchmarks") if name == study or name.startswith(f"{study}_")]
    return max(found, key=len, default="other")


def undrawn(results: Path, tables: list[Table]) -> list[str]:
    """Studies that have tables but no figure in the folder."""
    drawn = {study_of(path.stem) for path in (results / "figures").glob("*.png")}
    present = {study_of(table.name) for table in tables}
    return [study for study in STUDIES if study in present - drawn]


def gather(results: Path, tables: list[Table]) -> list[Section]:
    """Sections in the order of the page: claims, the studies, speed, other tables."""
    images = [_figure(path) for path in sorted((results / "figures").glob("*.png"))]
    runs = next((table.frame for table in tables if table.name == RUNS), None)
    sections = []
    for name in ("claims", *STUDIES, "benchmarks", "other"):
        own = [table for table in tables if study_of(table.name) == name and table.name != RUNS]
        drawn = [image for image in images if study_of(image.name) == name]
        if own or (drawn and name != "other"):
            title, asks = about(name)
            sections.append(Section(name, title, asks, _parts(name, own, drawn, _commands(runs, name))))
    return sections


def _parts(
    study: str, tables: list[Table], figures: list[Figure], commands: list[tuple[Command, set[str]]]
) -> tuple[Part, ...]:
    names = list(PARTS.get(study, {}))
    for table in tables:
        stem = table.name[len(study) + 1 :].removesuffix("_summary").removesuffix("summary")
        if table.name.endswith("_summary") and stem and stem not in names:
            names.append(stem)

    def place(name: str) -> str:
        rest = name[len(study) + 1 :]
        return max((part for part in names if rest == part or rest.startswith(f"{part}_")), key=len, default="")

    def part_of(words: set[str]) -> str:
        return next((part for part in names if part.replace("_", "-") in words), "")

    parts = [
        Part(
            name,
            tuple(command for command, words in commands if part_of(words) == name),
            tuple(figure for figure in figures if place(figure.name) == name),
            tuple(sorted((t for t in tables if place(t.name) == name), key=lambda t: (not summary(t), t.name))),
        )
        for name in ("", *names)
    ]
    return tuple(part for part in parts if part.commands or part.figures or part.tables)


def summary(table: Table) -> bool:
    """Whether a table is shown first: a summary, or all that its section has."""
    return table.name.endswith("_summary") or study_of(table.name) in ("claims", "benchmarks")


def _commands(runs: pd.DataFrame | None, study: str) -> list[tuple[Command, set[str]]]:
    """Commands of a study, each with the words among its settings' values."""
    if runs is None or not {"study", "command"} <= set(runs.columns):
        return []
    found = []
    for row in runs[runs["study"] == study].astype(object).fillna("").to_dict("records"):
        try:
            settings = json.loads(row.get("settings") or "{}")
        except ValueError:
            settings = {}
        settings = settings if isinstance(settings, dict) else {}
        text = ", ".join(f"{name} {_value(value)}" for name, value in settings.items())
        command = Command(str(row["command"]), text, str(row.get("commit", "")))
        found.append((command, {value for value in settings.values() if isinstance(value, str)}))
    return found


def _value(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _figure(path: Path) -> Figure:
    from PIL import Image

    original = path.read_bytes()
    with Image.open(io.BytesIO(original)) as image:
        rows = image.convert("RGBA")
    white = Image.new("RGBA", rows.size, "white")
    white.alpha_composite(rows)
    stream = io.BytesIO()
    white.convert("RGB").save(stream, "WEBP", lossless=True, quality=50, method=4)
    small = stream.getvalue()
    data, mime = (small, "image/webp") if len(small) < len(original) else (original, "image/png")
    return Figure(path.stem, data, mime, *rows.size)
