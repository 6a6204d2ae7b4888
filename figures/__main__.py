"""All figures of a folder of tables: `python -m figures [--results DIR]`.

A study's figures are drawn where one of its tables is there; the folder gets them as the study itself would write them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from figures.command import Config
from studies.checks import InputError
from studies.cli import run_command

STUDIES = ("lmc", "mli", "audit", "ablate", "bnn", "metanet", "inr", "transformer_metanet", "saffu")


def present(config: Config) -> list[str]:
    """Studies with a table in the folder.

    Raises:
        InputError: if there is none.
    """
    found = [s for s in STUDIES if any(config.results.glob(f"{s}.csv")) or any(config.results.glob(f"{s}_*.csv"))]
    if not found:
        raise InputError(f"--results: no table of {', '.join(STUDIES)} in {config.results}")
    return found


def draw(found: Sequence[str], config: Config) -> int:
    """Draw those of each study; the largest of their exit codes."""
    args = ["--results", str(config.results)]
    return max(importlib.import_module(f"figures.{study}").main(args) for study in found)


def main(args: Sequence[str] | None = None) -> int:
    """The command."""
    config: list[Config] = []

    def prepare(parsed: Config) -> list[str]:
        config.append(parsed)
        return present(parsed)

    codes: list[int] = []
    code = run_command(
        Config,
        prepare,
        lambda found: codes.append(draw(found, config[0])),
        prog="python -m figures",
        description=(__doc__ or "").split("\n\n")[0],
        args=args,
    )
    return code or max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
