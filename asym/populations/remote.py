"""The worker's side of a task on another machine, and the sign of life that both sides share."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asym.files import remove_abandoned, temporary_name
from asym.populations.workers import WorkerLost, run_tasks

BEAT_S = 5.0
"""Seconds between signs of life."""
SEEN_S = 30.0
"""A new file may take this long until another machine sees it through a network file system."""


@dataclasses.dataclass(frozen=True)
class Done:
    """What a worker sends back: results of its tasks, and the sum of what they ticked."""

    results: list[Any]
    ticked: float


@dataclasses.dataclass(frozen=True)
class Failed:
    """The exception that a task raised."""

    error: Exception


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the command runs, for workers to do as it does."""

    folder: str
    imports: tuple[str, ...]
    beat: str
    patience_s: float
    seen_s: float = SEEN_S

    @classmethod
    def here(cls, beat: Path, patience_s: float) -> Place:
        """That of this process."""
        folder = os.getcwd()
        return cls(folder, tuple(path or folder for path in sys.path), str(beat), patience_s)

    def enter(self) -> None:
        """Make relative paths and imports mean here what they mean there.

        Raises:
            FileNotFoundError: if this machine sees another file system.
        """
        host = socket.gethostname()
        try:
            os.chdir(self.folder)
        except OSError:
            raise FileNotFoundError(
                f"worker on {host}: the folder {self.folder}, where the command was started, is not there; start it in "
                f"a folder that all workers see"
            ) from None
        sys.path.extend(path for path in self.imports if path not in sys.path)
        until = time.monotonic() + self.seen_s
        while not os.path.exists(self.beat):
            if time.monotonic() > until:
                raise FileNotFoundError(
                    f"--runs: {Path(self.beat).parent.parent} on the worker {host} is not the folder of this command, "
                    f"must be one that all workers see"
                )
            time.sleep(0.5)


def call(place: Place, payload: bytes, jobs: int) -> bytes:
    """Do the tasks of `payload`, a pickled function and its list of arguments, in `jobs` processes; a pickled outcome.

    Bytes go both ways: they are read once the worker can import what the command can, and arrays come back writable.
    """
    outcome: Done | Failed
    try:
        place.enter()
        function, tasks = pickle.loads(payload)
        ticks: list[float] = []
        with watching(place):
            outcome = Done(run_tasks(function, tasks, jobs=jobs, on_tick=ticks.append), 0.0)
        outcome = dataclasses.replace(outcome, ticked=float(sum(ticks)))
        return pickle.dumps(outcome)
    except WorkerLost:
        raise
    except Exception as error:
        if type(error).__module__.startswith("submitit."):  # the end of a job's time, told by an exception
            raise
        outcome = Failed(_portable(error))
    return pickle.dumps(outcome)


def _portable(error: Exception) -> Exception:
    """The error, with the worker's traceback as a note; its text alone if it cannot travel."""
    error.add_note(f"on {socket.gethostname()}:\n{''.join(traceback.format_exception(error))}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


@contextlib.contextmanager
def beating(folder: Path) -> Iterator[Path]:
    """A file that is touched every few seconds while this process lives, and gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder)
    beat = folder.resolve() / temporary_name("beat")
    beat.touch()
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(BEAT_S):
            with contextlib.suppress(OSError):  # a file system that is away for a moment
                os.utime(beat)

    thread = threading.Thread(target=touch, daemon=True)
    thread.start()
    try:
        yield beat
    finally:
        ended.set()
        thread.join()
        beat.unlink(missing_ok=True)


class Pulse:
    """When a file was last seen to change, by the clock of whoever looks: clocks of machines differ."""

    def __init__(self, beat: str, now: float) -> None:
        self.beat, self.last, self.heard = beat, -1, now

    def silence(self, now: float) -> float:
        """Seconds without a change that could be seen."""
        with contextlib.suppress(OSError):
            changed = os.stat(self.beat).st_mtime_ns
            if changed != self.last:
                self.last, self.heard = changed, now
        return now - self.heard


@contextlib.contextmanager
def watching(place: Place) -> Iterator[None]:
    """End this process when nothing was heard of the command for its patience; files are whole or absent then too."""
    ended, pulse = threading.Event(), Pulse(place.beat, time.monotonic())

    def watch() -> None:
        while not ended.wait(min(BEAT_S, place.patience_s / 4)):
            if pulse.silence(time.monotonic()) > place.patience_s:
                os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
