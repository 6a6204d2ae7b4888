"""The command of a figure script: check that its tables are there, draw, say which files were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.cli import run_command


@dataclass(frozen=True)
class Config:
    """Settings of the figures."""

    results: Path = Path("results")
    """Folder of tables; figures go to its folder `figures`."""


def run_figures(
    name: str,
    doc: str | None,
    check: Callable[[Any], Any],
    draw: Callable[[Any], Iterable[Path]],
    args: Sequence[str] | None = None,
    config_class: type[Config] = Config,
) -> int:
    """Parse, check, draw; returns the exit code.

    Args:
        name: of the script's module.
        doc: its docstring, whose first paragraph opens the help.
        check: config → anything; raises where a table is missing or is no table of the study.
        draw: config → files written.
        args: the command line, `sys.argv[1:]` by default.
        config_class: settings, where there are more than the folder.
    """

    def checked(config: Any) -> Any:
        check(config)
        return config

    def work(config: Any) -> None:
        for file in draw(config):
            print(file)

    text = (doc or "").split("\n\n")[0]
    return run_command(config_class, checked, work, prog=f"python -m figures.{name}", description=text, args=args)
