"""Ray and Slurm behind one interface: submit a call, wait for some, take the outcome of one, cancel.

Both are used plainly: neither retries anything, so that losses are counted in one place (`launch.py`).
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from asym.populations.launch import FOLDER, Launcher
from asym.populations.remote import Done, Failed, Place, call
from asym.populations.workers import cpu_count

STORE_BYTES = 2**28
"""Shared memory of a Ray that is started here; what does not fit goes to the disk."""
JOBS = 64
"""Slurm jobs at a time, unless said otherwise."""
MINUTES = 60
"""Time of a Slurm job, unless said otherwise."""


class Lost(NamedTuple):
    """A worker died."""

    reason: str


@runtime_checkable
class Engine(Protocol):
    """What `run_remote` needs."""

    at_once: int

    def submit(self, place: Place, function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> Any:
        """Hand a call over; a hashable handle."""
        ...

    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """Those that have ended, after some time or as soon as there is one."""
        ...

    def outcome(self, handle: Any) -> Done | Failed | Lost:
        """Of a call that has ended."""
        ...

    def cancel(self, handles: Sequence[Any]) -> None:
        """End calls and the processes that do them."""
        ...


def open_engine(launcher: Launcher) -> Engine:
    """Connect.

    Raises:
        ModuleNotFoundError: naming the extra that is missing.
        ConnectionError: if RAY_ADDRESS names a cluster that is not there.
    """
    try:
        return RayEngine(launcher) if launcher.engine == "ray" else SlurmEngine(launcher)
    except ModuleNotFoundError as error:
        if error.name not in ("ray", "submitit"):
            raise
        raise ModuleNotFoundError(
            f"launcher: {launcher.engine} needs the library {error.name}; pip install 'asym[{launcher.engine}]'"
        ) from None


class RayEngine:
    """Tasks of Ray (Moritz et al., "Ray: a distributed framework for emerging AI applications", 2018).

    A cluster is used if RAY_ADDRESS names one or this machine belongs to one; otherwise a Ray of this machine is
    started, with `at_once` workers, and ends with this process.
    """

    def __init__(self, launcher: Launcher) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # it would tell stdout of each worker that died
        import ray
        import ray.exceptions

        self.ray, self.errors = ray, ray.exceptions
        if not ray.is_initialized():
            self._connect(launcher)
        room = int(ray.cluster_resources().get("CPU", 1))
        self.at_once = launcher.at_once or max(JOBS, 2 * room)
        self.call = ray.remote(call).options(num_cpus=1, num_gpus=launcher.gpus, max_retries=0)

    def _connect(self, launcher: Launcher) -> None:
        address = os.environ.get("RAY_ADDRESS")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address != "local":
            try:
                self.ray.init(address=address or "auto", **quiet)
                return
            except ConnectionError:
                if address:
                    raise
        workers = launcher.at_once or cpu_count()
        self.ray.init(
            "local", num_cpus=workers, include_dashboard=False, object_store_memory=STORE_BYTES, **quiet
        )  # fmt: skip

    def submit(self, place: Place, function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> Any:
        """See `Engine`."""
        from ray import cloudpickle

        return self.call.remote(place, cloudpickle.dumps((function, tasks)), 1)

    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """See `Engine`."""
        return self.ray.wait(list(handles), num_returns=1, timeout=5.0)[0]

    def outcome(self, handle: Any) -> Done | Failed | Lost:
        """See `Engine`; RuntimeError if the worker could not even import this project."""
        try:
            return pickle.loads(self.ray.get(handle))
        except self.errors.RayTaskError as error:
            raise RuntimeError(f"a Ray worker could not do its task: {_last_line(error)}") from None
        except self.errors.RayError as error:
            return Lost(f"{type(error).__name__}, {str(error).strip().partition('. ')[0]}")

    def cancel(self, handles: Sequence[Any]) -> None:
        """See `Engine`."""
        for handle in handles:
            self.ray.cancel(handle, force=True)


class SlurmEngine:
    """Jobs of Slurm, one a share of tasks, submitted and watched by submitit; logs stay where a job was lost."""

    def __init__(self, launcher: Launcher) -> None:
        import submitit
        from submitit.core.utils import FailedJobError, UncompletedJobError

        logging.getLogger("submitit").setLevel(logging.CRITICAL)  # it would print to stdout
        self.errors = (UncompletedJobError, FailedJobError)
        self.together = launcher.together
        options = dict(launcher.slurm)
        self.cluster = options.pop("cluster", "slurm")
        jobs = launcher.at_once or (JOBS if self.cluster == "slurm" else cpu_count())
        self.at_once = -(-jobs // self.together)
        self.executor = submitit.AutoExecutor(folder=launcher.folder / FOLDER / "%j", cluster=self.cluster)
        minutes, memory = int(options.pop("time", MINUTES)), options.pop("mem_gb", None)
        self.executor.update_parameters(
            name="asym",
            timeout_min=minutes,
            cpus_per_task=self.together,
            gpus_per_node=1 if launcher.gpus else None,
            mem_gb=None if memory is None else float(memory),
            slurm_additional_parameters=options or None,
        )

    def submit(self, place: Place, function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> Any:
        """See `Engine`."""
        import cloudpickle

        return self.executor.submit(call, place, cloudpickle.dumps((function, tasks)), self.together)

    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """See `Engine`."""
        ended = [job for job in handles if job.done()]
        if not ended:
            time.sleep(2.0 if self.cluster == "slurm" else 0.1)
        return ended

    def outcome(self, handle: Any) -> Done | Failed | Lost:
        """See `Engine`."""
        if self.cluster == "local" and not handle.paths.result_pickle.exists():
            return Lost(
                f"the process of job {handle.job_id} ended without a result, its log is in {handle.paths.folder}"
            )
        try:
            outcome = pickle.loads(handle.result())
        except self.errors as error:
            return Lost(f"job {handle.job_id}: {_last_line(error)}, its log is in {handle.paths.folder}")
        shutil.rmtree(handle.paths.folder, ignore_errors=True)
        return outcome

    def cancel(self, handles: Sequence[Any]) -> None:
        """See `Engine`."""
        for job in handles:
            job.cancel(check=False)


def _last_line(error: Exception) -> str:
    """The line that says most: submitit's on the state of a job, or the last one of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")] or [type(error).__name__]
    return next((line for line in lines if "(state:" in line), lines[-1])
