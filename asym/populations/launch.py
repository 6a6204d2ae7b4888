"""The tasks of `run_tasks`, spread over the machines of an engine that is there already: Ray, or Slurm by submitit.

A task is the same picklable call as in a local process, entered through `remote.call`: it computes with one thread in
the folder that the command was started in, so it gives the same bits on the same kind of device. What it computes is
kept in the store, a folder that all machines see. A worker that dies costs its own task alone, which is submitted again
a few times; whoever takes it finds in the store what was finished, and the last checkpoint of what was not.

Workers watch over a file that the command touches while it lives: a command that was killed leaves nobody at work.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from asym.populations.workers import WorkerLost

FOLDER = "launch"
"""Folder below the store for the file that tells workers that the command lives, and for logs."""
TAKES_PART = 0.05
"""How far one over a GPU's share may lie from a whole number: 0.33 is a third."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launcher:
    """Where tasks run, instead of in processes of this machine.

    Attributes:
        engine: `ray`: the cluster that RAY_ADDRESS or this machine knows of, otherwise one started here; `slurm`: jobs
            submitted from here.
        folder: the store, on a file system that all workers see; logs go to its `launch`.
        at_once: most tasks at work or in the queue at a time; None is as many as the engine has room for (Ray), or 64.
        gpus: share of a GPU for each worker, in [0, 1]. Ray places workers by it. Slurm knows whole GPUs: a job gets
            one, and as many workers as there are shares in it. Nothing stops a worker from taking more memory.
        resubmissions: how often a task whose worker died is submitted again.
        slurm: options of Slurm by name (`asym.names.SLURM_OPTIONS`). `time` in minutes, 60 if not given: a task that is
            cut off is submitted again and goes on from its checkpoint; `cluster` is `slurm`, or `local` for processes
            of this machine that are treated like jobs.
        patience_s: seconds after which workers end when nothing is heard of the command.
    """

    engine: Literal["ray", "slurm"]
    folder: Path
    at_once: int | None = None
    gpus: float = 0.0
    resubmissions: int = 3
    slurm: Mapping[str, str] = dataclasses.field(default_factory=dict)
    patience_s: float = 120.0

    def __post_init__(self) -> None:
        if not 0 <= self.gpus <= 1:
            raise ValueError(f"gpus: got {self.gpus}, must lie in [0, 1]")
        if self.resubmissions < 0:
            raise ValueError(f"resubmissions: got {self.resubmissions}, must be at least 0")
        if self.engine == "slurm" and abs(parts(self.gpus) - 1 / (self.gpus or 1)) > TAKES_PART:
            raise ValueError(f"gpus: got {self.gpus}, must be one over a whole number (1, 0.5, 0.33, 0.25) with slurm")

    @property
    def together(self) -> int:
        """Tasks that are submitted as one: those that share the GPU of a Slurm job."""
        return parts(self.gpus) if self.engine == "slurm" else 1


def parts(gpus: float) -> int:
    """How many workers share a GPU; 1 without one."""
    return round(1 / gpus) if gpus else 1


def run_remote(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    launcher: Launcher,
    *,
    on_tick: Callable[[float], None] = lambda amount: None,
    on_result: Callable[[Any], None] = lambda result: None,
) -> list[Any]:
    """`[function(*a) for a in arguments]` by the launcher's workers; results in the order of `arguments`.

    Ticks arrive with a task's result, summed.

    Raises:
        ModuleNotFoundError: without the engine's library.
        WorkerLost: if a task lost its worker more than `resubmissions` times.
        FileNotFoundError: if a worker does not see the store or the folder of the command.
        Exception: the first exception that a task raised; other tasks are dropped.
    """
    from asym.populations.engines import Lost, open_engine
    from asym.populations.remote import Failed, Place, beating

    size = launcher.together
    shares = [list(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    results: list[list[Any]] = [[] for _ in shares]
    waiting, losses = deque(range(len(shares))), Counter[int]()
    flying: dict[Any, int] = {}
    engine = open_engine(launcher)
    with beating(launcher.folder / FOLDER) as beat:
        place = Place.here(beat, launcher.patience_s)
        try:
            while waiting or flying:
                while waiting and len(flying) < engine.at_once:
                    share = waiting.popleft()
                    flying[engine.submit(place, function, shares[share])] = share
                for handle in engine.wait(list(flying)):
                    share = flying.pop(handle)
                    outcome = engine.outcome(handle)
                    if isinstance(outcome, Failed):
                        raise outcome.error
                    if isinstance(outcome, Lost):
                        losses[share] += 1
                        if (attempts := losses[share]) > launcher.resubmissions:
                            raise WorkerLost(
                                f"a task lost its worker in attempt {attempts} of {attempts}: {outcome.reason}; "
                                f"finished networks are kept, run the same command again to go on, with fewer --jobs "
                                f"or more memory for each if memory ran out"
                            )
                        waiting.appendleft(share)
                        continue
                    if outcome.ticked:
                        on_tick(outcome.ticked)
                    results[share] = outcome.results
                    for result in outcome.results:
                        on_result(result)
        except BaseException:
            engine.cancel(list(flying))
            raise
    return [result for share in results for result in share]
