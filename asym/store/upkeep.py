"""Looking after a folder of runs: what is there, is it whole, what can go."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from asym.files import remove_abandoned
from asym.store.errors import CorruptRun
from asym.store.runs import CHECKPOINT, FINISHED, Run
from asym.store.store import Store


class RunInfo(NamedTuple):
    """One line of a listing; `modified` is in seconds since the epoch, `size` in bytes."""

    kind: str
    hash: str
    state: Literal["finished", "checkpoint", "started"]
    size: int
    modified: float


def describe(store: Store) -> list[RunInfo]:
    """All runs, sorted by kind and hash; reads names and sizes only."""
    return [_describe(folder) for folder in store.folders()]


def _describe(folder: Path) -> RunInfo:
    if (folder / FINISHED).exists():
        state = "finished"
    elif (folder / CHECKPOINT).exists():
        state = "checkpoint"
    else:
        state = "started"
    size, modified = 0, 0.0
    for path in (folder, *folder.iterdir()):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process is writing here
            continue
        size += status.st_size if path != folder else 0
        modified = max(modified, status.st_mtime)
    return RunInfo(folder.parent.name, folder.name, state, size, modified)


def find_damage(store: Store) -> list[CorruptRun]:
    """Compare all checksums of all runs; what does not fit, one entry a run."""
    damaged = []
    for folder in store.folders():
        try:
            store.open(folder.parent.name, folder.name).verify()
        except CorruptRun as error:
            damaged.append(error)
    return damaged


def prune(store: Store, *, unfinished: bool = False, dry_run: bool = False) -> list[Path]:
    """Delete temporary files of processes that are gone; returns what was deleted, sorted.

    Args:
        store: where to look.
        unfinished: also runs without a result, but those that a process holds.
        dry_run: delete nothing, say what would be.
    """
    doomed = []
    if unfinished:
        for folder in store.folders():
            if not (folder / FINISHED).exists() and _remove_run(folder, dry_run):
                doomed.append(folder)
    rest = remove_abandoned(store.root, recursive=True, dry_run=dry_run)
    return sorted([*doomed, *(path for path in rest if not any(parent in doomed for parent in path.parents))])


def _remove_run(folder: Path, dry_run: bool) -> bool:
    run = Run(folder, {})  # its config.json may be damaged
    try:
        with run.lock(timeout=0):
            if run.finished:  # by another process, between the look and the lock
                return False
            if not dry_run:
                run.discard()
    except TimeoutError:
        return False
    return True
