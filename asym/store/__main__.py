"""`python -m asym.store list|verify|prune`: look after a folder of runs.

Exit codes: 0 done, 1 `verify` found damage, 2 bad input (one line on stderr).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from asym.store.store import Store
from asym.store.upkeep import RunInfo, describe, find_damage, prune


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    if not options.runs.is_dir():
        print(f"python -m asym.store: --runs: {options.runs} is not a folder", file=sys.stderr)
        return 2
    return options.command(Store(options.runs), options)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m asym.store", description="Look after a folder of runs.")
    commands = parser.add_subparsers(required=True, metavar="list|verify|prune", parser_class=_Parser)
    for name, command, text in (
        ("list", _list, "what is there: kind, hash, state, size, age"),
        (
            "verify",
            _verify,
            "compare all checksums; exit code 1 and one line a damaged run if any does not fit",
        ),
        ("prune", _prune, "delete temporary files of processes that are gone"),
    ):
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
        sub.set_defaults(command=command)
        if name == "prune":
            sub.add_argument("--unfinished", action="store_true", help="also runs without a result")
            sub.add_argument("--dry-run", action="store_true", help="delete nothing, say what would be")
    return parser


def _list(store: Store, _: argparse.Namespace) -> int:
    infos = describe(store)
    now = time.time()
    rows = [("kind", "hash", "state", "size", "age"), *(_row(info, now) for info in infos)]
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    finished = sum(info.state == "finished" for info in infos)
    print(f"{len(infos)} runs, {finished} finished, {_size(sum(info.size for info in infos))}")
    return 0


def _verify(store: Store, _: argparse.Namespace) -> int:
    damaged = find_damage(store)
    for error in damaged:
        print(error)
    print(f"{len(store.folders())} runs, {len(damaged)} damaged")
    return 1 if damaged else 0


def _prune(store: Store, options: argparse.Namespace) -> int:
    doomed = prune(store, unfinished=options.unfinished, dry_run=options.dry_run)
    for path in doomed:
        print(path)
    print(f"{len(doomed)} {'would be deleted' if options.dry_run else 'deleted'}")
    return 0


def _row(info: RunInfo, now: float) -> tuple[str, ...]:
    return info.kind, info.hash, info.state, _size(info.size), _age(now - info.modified)


def _size(size: float | int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


if __name__ == "__main__":
    sys.exit(main())
