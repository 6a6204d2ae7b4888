"""Tasks spread over processes of one computing thread each.

On a CPU, small networks train about twice as fast in two processes of one thread as in one process of two. A task is a
picklable call whose result is also kept in the store, so a task that was lost costs itself alone. Every process, the
parent's own included when it does the work, computes with one thread: the number of processes changes no bit.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asym.populations.launch import Launcher

_ticks: Any = None


class WorkerLost(RuntimeError):
    """A worker process died (killed, or out of memory)."""


def cpu_count() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def prepare_process() -> None:
    """Set this process up for computing: one thread, freed memory kept."""
    import torch

    from asym.populations.plan import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()


def tick(amount: float) -> None:
    """Report progress from inside a task, in the unit of the caller's choice."""
    if _ticks is not None:
        _ticks(amount)


def run_tasks(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    jobs: int = 1,
    launcher: Launcher | None = None,
    on_tick: Callable[[float], None] = lambda amount: None,
    on_result: Callable[[Any], None] = lambda result: None,
) -> list[Any]:
    """`[function(*a) for a in arguments]`, in `jobs` processes; results in the order of `arguments`.

    With one job, or one task, the work is done in this process; with a launcher, by its workers, however few the tasks.

    Args:
        function: a module-level function.
        arguments: one tuple a task, picklable.
        jobs: number of processes, at least 1.
        launcher: other machines that do the work (`asym.populations.launch`).
        on_tick: receives the amounts that tasks `tick`, in this process.
        on_result: receives each result as soon as it is there, in this process.

    Raises:
        WorkerLost: if a worker died; with a launcher, if a task lost its worker too often.
        Exception: the first exception that a task raised; tasks not yet started are dropped.
    """
    if jobs < 1:
        raise ValueError(f"jobs: must be at least 1, got {jobs}")
    if launcher is not None and arguments:
        from asym.populations.launch import run_remote

        return run_remote(function, arguments, launcher, on_tick=on_tick, on_result=on_result)
    if min(jobs, len(arguments)) <= 1:
        return _run_here(function, arguments, on_tick, on_result)
    context = multiprocessing.get_context("spawn")
    ticks = context.Queue()
    done = threading.Event()
    listener = threading.Thread(target=_listen, args=(ticks, done, on_tick), daemon=True)
    listener.start()
    executor = ProcessPoolExecutor(min(jobs, len(arguments)), context, _start_worker, (ticks, os.getpid()))
    try:
        futures = [executor.submit(function, *a) for a in arguments]
        pending = set(futures)
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                on_result(future.result())
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise WorkerLost(
            "a worker process died (killed, or out of memory); finished networks are kept, "
            "run the same command again to go on, with fewer --jobs if memory ran out"
        ) from None
    except BaseException:
        for process in list((executor._processes or {}).values()):  # no public way to end running tasks
            process.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
        done.set()
        listener.join()
        ticks.close()


def _run_here(
    function: Callable[..., Any], arguments: Sequence[tuple], on_tick: Callable, on_result: Callable
) -> list[Any]:
    import torch

    global _ticks
    threads, before = torch.get_num_threads(), _ticks
    _ticks = on_tick
    prepare_process()
    results = []
    try:
        for a in arguments:
            results.append(function(*a))
            on_result(results[-1])
        return results
    finally:
        _ticks = before
        torch.set_num_threads(threads)


def _start_worker(ticks: Any, parent: int) -> None:
    import signal

    global _ticks
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    _ticks = ticks.put
    prepare_process()


def _end_with_parent(parent: int) -> None:
    """End this process when its parent is gone: a killed command must not leave workers that hold runs locked."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _listen(ticks: Any, done: threading.Event, on_tick: Callable[[float], None]) -> None:
    while True:
        try:
            on_tick(ticks.get(timeout=0.1))
        except queue.Empty:
            if done.is_set():
                return
