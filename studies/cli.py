"""From a config dataclass to a command: flags, presets, one-line errors and exit codes, the same for every study.

Exit codes: 0 done; 2 bad input, found before work starts, one line on stderr and nothing written; 1 failed while
running, or a flag was found to be wrong only then; 130 interrupted. Nothing heavy is imported here, so that `--help`
and bad flags answer at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from asym.names import PRESETS
from studies.checks import InputError, check_choice, check_least
from studies.launching import check_launch
from studies.notebook import settle
from studies.parsing import as_flag, parse
from studies.record import keep
from studies.rooms import Rooms

C = TypeVar("C")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonConfig:
    """The flags that every study has; a study's config adds its own. A value of None is set by the preset."""

    preset: Literal["smoke", "laptop", "paper"] = "laptop"
    """smoke: does it run; laptop: digits, tuned rates; paper: the published recipe."""
    dataset: str | None = None
    """digits, fashion_mnist, mnist, cifar10, cifar100, imagefolder:PATH, the graphs digits-graph and ogbn-arxiv, or
    `package.module:loader`."""
    seed: int = 0
    """Determines masks, fixed values, initial weights, data order and augmentation."""
    data_dir: Path | None = None
    """Folder with the data set's files."""
    image_size: int | None = None
    """Resize the images of an imagefolder to this many pixels a side."""
    download: bool = False
    """Allow the data set to be downloaded into --data-dir."""
    dataset_name: str | None = None
    """Name of the data set in tables."""
    out: Path = Path("results")
    """Folder of tables and figures."""
    runs: Path = Path("runs")
    """Folder of trained networks."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    jobs: int | None = None
    """Processes of one thread each; with --launcher ray or slurm, workers at a time."""
    launcher: Literal["local", "ray", "slurm"] = "local"
    """Who works: processes of this machine, a Ray cluster or Slurm jobs; all workers must see the folder --runs."""
    gpus_per_worker: float | None = None
    """With --launcher ray or slurm: a GPU, or a share of one such as 0.25, for each worker."""
    slurm: tuple[str, ...] = ()
    """With --launcher slurm: options of the jobs, such as partition=gpu time=60 mem_gb=8 (time in minutes)."""
    retrain: bool = False
    """Train damaged runs again instead of stopping at them."""
    dry_run: bool = False
    """Print what would be done, with estimates of time and disk, and write nothing."""
    quiet: bool = False
    """No progress and no table."""
    debug: bool = False
    """Show the traceback of a failure."""

    def __post_init__(self) -> None:
        settle(self)
        check_choice("preset", self.preset, PRESETS)
        for flag in ("jobs", "image_size"):
            check_least(flag.replace("_", "-"), getattr(self, flag), 1)
        if self.dataset_name is not None and not re.fullmatch(r"\w[\w.+ -]*", self.dataset_name):
            raise InputError(f"--dataset-name: got {self.dataset_name!r}, must be letters, digits, '_', '.', '+', '-'")
        if self.image_size is not None and not str(self.dataset).startswith("imagefolder:"):
            raise InputError("--image-size: has no meaning without --dataset imagefolder:PATH")
        check_launch(self)


def run_command(
    config_class: type[C],
    prepare: Callable[[C], Any],
    execute: Callable[[Any], Any],
    *,
    prog: str,
    description: str,
    args: Sequence[str] | None = None,
) -> int:
    """Parse, check, work; returns the exit code.

    Args:
        config_class: frozen dataclass whose field docstrings are the help texts.
        prepare: checks everything that can be checked and returns what `execute` needs; writes nothing.
        execute: does the work, and prints.
        prog: the command, for messages.
        description: first lines of the help.
        args: the command line, `sys.argv[1:]` by default.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without λ and σ gets question marks, not a crash
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        config = parse(config_class, arguments, prog=prog, description=description)
        prepared = prepare(config)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _reader_gone()
    except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
        print(f"{prog}: {as_flag(one_line(error), config_class)}", file=sys.stderr)
        return 2
    except (Exception, SystemExit) as error:  # a user's own module may raise anything
        if "--debug" in arguments or (isinstance(error, SystemExit) and not error.code):
            raise
        print(f"{prog}: {type(error).__name__}: {one_line(error)}", file=sys.stderr)
        return 2
    kept, again = "nothing is lost", "run it again"
    if (runs := getattr(config, "runs", None)) is not None:
        kept = f"finished networks and checkpoints are kept in {runs}"
        again = "run the same command again to go on, with --debug for the traceback"
    try:
        execute(prepared)
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted; {kept}; {again.split(',')[0]}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return _reader_gone()
    except InputError as error:  # a flag that only what was made could judge
        print(f"{prog}: {one_line(error)}; {kept}", file=sys.stderr)
        return 1
    except Exception as error:  # the last resort of a command: say what happened and what is kept
        if getattr(config, "debug", False):
            raise
        print(f"{prog}: failed: {type(error).__name__}: {one_line(error)}; {kept}; {again}", file=sys.stderr)
        return 1
    return 0


def run_study(
    name: str,
    doc: str | None,
    config_class: type[CommonConfig],
    rooms: Rooms | Callable[[Any], Rooms],
    *,
    draw: Callable[[Any, Any], Iterable[Path]] | None = None,
    note: str = "",
    args: Sequence[str] | None = None,
) -> int:
    """The command of a study: check, then say what would be done, or do it, print its summary and draw its figures.

    Args:
        name: of the study's module and of its figures' module.
        doc: the module's docstring; its first paragraph opens the help.
        config_class: see `run_command`.
        rooms: where its work is done, or which, by config.
        draw: (figures' module, config) → files drawn; by default its `draw(config.out)`.
        note: further lines of the help.
        args: the command line, `sys.argv[1:]` by default.
    """

    about = (doc or "").split("\n\n")[0]

    def rooms_of(config: Any) -> Rooms:
        return rooms if isinstance(rooms, Rooms) else rooms(config)

    def work(both: tuple[Any, Any]) -> None:
        config, prepared = both
        where = rooms_of(config)
        if config.dry_run:
            print(where.plan_text(config, prepared))
            return
        rows = where.execute(config, prepared)
        keep(name, config)
        if not config.quiet:
            print(where.summary_text(config, prepared, rows))
            figures = importlib.import_module(f"figures.{name}")
            for file in draw(figures, config) if draw else figures.draw(config.out):
                print(f"figure: {file}", file=sys.stderr)

    return run_command(
        config_class,
        lambda config: (config, rooms_of(config).prepare(config)),
        work,
        prog=f"python -m studies.{name}",
        description=f"{about} Flags whose default is None are set by the preset{note or '.'}",
        args=args,
    )


def _reader_gone() -> int:
    """Whoever read the output has closed it (`| head`): say no more, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def one_line(error: BaseException) -> str:
    """The text of an error without line breaks."""
    text = str(error) if not isinstance(error, KeyError) else f"missing key {error}"
    return re.sub(r"\s+", " ", text).strip()
