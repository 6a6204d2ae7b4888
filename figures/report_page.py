"""The page: one HTML document that needs nothing but itself, from the sections of a results folder.

Style and script are the package's files `report.css` and `report.js`; without the script all is there but the sorting.
A policy in the head forbids every request, so that the page cannot come to depend on a network.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from urllib.parse import quote

from figures.report_captions import caption, part_title
from figures.report_gather import Command, Figure, Part, Section, Table, study_of, summary
from figures.report_table import VERDICTS, table_html
from figures.style import COLOURS, NAMES

LONGEST_SHOWN = 200
"""Rows; longer tables are for download alone."""
LARGEST_INSIDE = 4_000_000
"""Bytes; larger tables are linked to in the page's own folder."""
SCREEN_PX = 0.62
"""Pixels of the screen for one of a figure: 200 dots an inch become letters of about 14 pixels."""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page_html(sections: Sequence[Section], notes: Mapping[str, str]) -> str:
    """The document.

    Args:
        sections: in the order of the page.
        notes: section name → what to say about figures that are not there.
    """
    tables = sum(len(part.tables) for section in sections for part in section.parts)
    figures = sum(len(part.figures) for section in sections for part in section.parts)
    index = "\n".join(_entry(section) for section in sections)
    body = "\n".join(_section(section, notes.get(section.name, "")) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="color-scheme" content="light dark">
<title>asym: parameter symmetries, measured</title>
<link rel="icon" href="data:,">
<style>
{_asset("report.css")}</style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header>
<h1>Parameter symmetries of neural networks, measured</h1>
<p>{_count(tables, "table")} and {_count(figures, "figure")} of the project asym. Numbers have three digits; the full
one is under the pointer and in the file. Brackets hold 95 % intervals, n is the number of independent measurements. A
click on a column's name sorts. Columns are explained in <code>results/README.md</code>.</p>
{_legend(sections)}</header>
<nav aria-label="Contents">
<h2>Contents</h2>
<ul>
{index}
</ul>
</nav>
<main id="content">
{body}
</main>
<script>
{_asset("report.js")}</script>
</body>
</html>
"""


def _entry(section: Section) -> str:
    parts = [part for part in section.parts if part.name]
    inner = "".join(f'<li><a href="#{_id(section, part)}">{_title(section, part)}</a></li>' for part in parts)
    inner = f"<ul>{inner}</ul>" if inner else ""
    return f'<li><a href="#{escape(section.name)}">{escape(section.title)}</a>{inner}</li>'


def _section(section: Section, note: str) -> str:
    parts = "\n".join(_part(section, part) for part in section.parts)
    note = f'<p class="note">{note}</p>\n' if note else ""
    configs = _configs(section) if not any(part.commands for part in section.parts) else ""
    name = escape(section.name)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{escape(section.title)}</h2>\n'
        f"<p>{escape(section.asks)}</p>\n{_verdicts(section)}{note}{configs}{parts}</section>\n"
    )


def _part(section: Section, part: Part) -> str:
    shown = [table for table in part.tables if summary(table) and len(table.frame) <= LONGEST_SHOWN]
    folded = [table for table in part.tables if table not in shown and len(table.frame) <= LONGEST_SHOWN]
    body = _commands(part.commands)
    body += "".join(_figure(figure) for figure in part.figures)
    body += "".join(table_html(table.frame, table.name, claims=table.name == "claims") for table in shown)
    for table in folded:
        inside = table_html(table.frame, table.name)
        body += f"<details><summary>{escape(table.name)}: {_rows(table)}</summary>\n{inside}</details>\n"
    if part.tables:
        body += f'<ul class="files" aria-label="Files">{"".join(map(_file, part.tables))}</ul>\n'
    if not part.name:
        return body
    name = _id(section, part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h3 id="{name}-title">{_title(section, part)}</h3>\n{body}</section>\n'
    )


def _commands(commands: Sequence[Command]) -> str:
    if not commands:
        return ""
    items = []
    for command in commands:
        note = "; ".join(
            [
                *([] if command.settings else ["default settings"]),
                *([f"commit {command.commit}"] * bool(command.commit)),
            ]
        )
        items.append(f"<li><code>{escape(command.line)}</code><small>{escape(note)}</small></li>")
    return f'<p class="by">Made by</p>\n<ul class="commands">{"".join(items)}</ul>\n'


def _configs(section: Section) -> str:
    """Presets and configs that a study's tables hold, where no table of commands says how they were made."""
    if section.name in ("claims", "benchmarks", "other"):
        return ""
    found: dict[str, Counter[str]] = {"preset": Counter(), "config": Counter()}
    for part in section.parts:
        for table in part.tables:
            for column in found:
                if column in table.frame:
                    found[column].update(dict.fromkeys(table.frame[column].dropna().astype(str), 1))
    presets, configs = (", ".join(sorted(found[column])) or "none named" for column in ("preset", "config"))
    return (
        f"<p>Made by <code>python -m studies.{escape(section.name)}</code>; presets: {escape(presets)}.</p>\n"
        f"<details><summary>{len(found['config'])} configs</summary><p><code>{escape(configs)}</code></p></details>\n"
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _verdicts(section: Section) -> str:
    """How many claims hold, in part or not."""
    table = next((t for part in section.parts for t in part.tables if t.name == "claims"), None)
    if section.name != "claims" or table is None or "verdict" not in table.frame:
        return ""
    counts = Counter(table.frame["verdict"].dropna().astype(str))
    order = sorted(counts, key=lambda v: next((i for i, start in enumerate(VERDICTS) if v.startswith(start)), 9))
    return f"<p>{escape('; '.join(f'{verdict}: {counts[verdict]}' for verdict in order))}.</p>\n"


def _figure(figure: Figure) -> str:
    words, seen = caption(figure.name)
    source = f"data:{figure.mime};base64,{base64.b64encode(figure.data).decode()}"
    width, height = (round(SCREEN_PX * length) for length in (figure.width, figure.height))
    drawn = f"python -m figures.{study_of(figure.name)}"
    return (
        f'<figure id="{escape(figure.name)}"><div class="plate" tabindex="0" role="group" '
        f'aria-label="{escape(words)}">'
        f'<img src="{source}" width="{width}" height="{height}" alt="{escape(seen)}"></div>\n'
        f"<figcaption>{escape(words)} <small>Drawn by <code>{escape(drawn)}</code>.</small></figcaption></figure>\n"
    )


def _file(table: Table) -> str:
    name = escape(f"{table.name}.csv")
    size = len(table.text.encode())
    inside = size <= LARGEST_INSIDE
    # A comma, dot or colon may stand in such a link as it is, which keeps tables of numbers near their own size.
    source = (
        f"data:text/csv;charset=utf-8,{quote(table.text, safe=',.:;+-_/=()[]')}"
        if inside
        else quote(f"{table.name}.csv")
    )
    where = "" if inside else "; not in this page, it lies beside it"
    amount = f"{size / 1e6:.1f} MB" if size > 1e6 else f"{max(1, round(size / 1e3))} kB"
    return f'<li><a download="{name}" href="{escape(source)}">{name}</a> {_rows(table)}, {amount}{where}</li>'


def _rows(table: Table) -> str:
    rows, columns = table.frame.shape
    return f"{rows:,} row{'s' if rows != 1 else ''}, {columns} column{'s' if columns != 1 else ''}"


def _legend(sections: Sequence[Section]) -> str:
    """Colours of the variants that the tables name."""
    frames = [t.frame for section in sections for part in section.parts for t in part.tables if "variant" in t.frame]
    present = {str(value) for frame in frames for value in frame["variant"].dropna().unique()}
    items = [
        f'<li><i class="dot" style="background:{COLOURS[name]}"></i><code>{name}</code> {escape(NAMES[name])}</li>'
        for name in COLOURS
        if name in present
    ]
    return (
        f'<ul class="legend" aria-label="Colours of the variants"><li>Variants:</li>{"".join(items)}</ul>\n'
        if items
        else ""
    )


def _id(section: Section, part: Part) -> str:
    return escape(f"{section.name}-{part.name}")


def _title(section: Section, part: Part) -> str:
    return escape(part_title(section.name, part.name))


def _asset(name: str) -> str:
    return files("figures").joinpath(name).read_text(encoding="utf-8")
