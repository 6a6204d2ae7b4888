"""What every study does before work starts: load the data, find the device, check folders, tables and the store."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from asym.data import Data, load
from asym.models import get_arch
from asym.populations import Plan, Population, cpu_count, train_chunk
from asym.store import CorruptRun, Store, read_table
from studies.checks import InputError, check_folder
from studies.cli import CommonConfig
from studies.launching import check_engine
from studies.tables import commit, device_name


@dataclasses.dataclass(frozen=True)
class DataArgs:
    """How to load the data set; hashable, so that a process loads it once."""

    dataset: str
    data_dir: str | None
    download: bool
    dataset_name: str | None
    train_size: int | None
    cache_dir: str | None
    image_size: int | None = None

    def load(self) -> Any:
        """The data set, an `asym.data.Data`."""
        return _load(self)

    @classmethod
    def of(cls, config: CommonConfig, default: str, train_size: int | None = None) -> DataArgs:
        """The data set that a config names, `default` if it names none; decoded images are kept beside the runs."""
        return cls(
            config.dataset or default,
            str(config.data_dir) if config.data_dir else None,
            config.download,
            config.dataset_name,
            train_size,
            None if config.dry_run else str(config.runs / "cache"),
            config.image_size,
        )


@functools.lru_cache(maxsize=2)
def _load(args: DataArgs) -> Any:
    return load(**dataclasses.asdict(args))


def check_places(config: CommonConfig, tables: Mapping[str, Sequence[str]]) -> None:
    """Find out now, not after hours, that there is no launcher, no folder to write to, or a table that is another's.

    Args:
        config: names the folders.
        tables: name of a table → the columns that make its rows unique.

    Raises:
        ValueError: naming the flag and the folder or file.
    """
    check_engine(config)
    check_folder("out", config.out)
    check_folder("runs", config.runs)
    for name, key in tables.items():
        file = config.out / f"{name}.csv"
        if file.exists() and not set(key) <= set(read_table(file).columns):
            raise InputError(f"--out: {file} is not a table of this study, it has no column {' and '.join(key)}")


def check_domain(arch: str, data: Data) -> None:
    """Find out that a network cannot be called with these data.

    Raises:
        InputError: naming both and what to choose.
    """
    domain = get_arch(arch).domain
    if domain == data.domain:
        return
    if domain == "coordinates":
        raise InputError(f"--arch: {arch} takes coordinates, not the items of {data.name}; see python -m studies.inr")
    if domain == "graph":
        raise InputError(f"--dataset: {arch} takes a graph, {data.name} has images; choose digits-graph or ogbn-arxiv")
    raise InputError(f"--arch: {arch} takes images, {data.name} is a graph; choose gnn or gnn-linear")


def check_stored(config: CommonConfig, stored: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Verify what the store already holds of a study, given as kind and config of every run that it may touch.

    Raises:
        CorruptRun: naming the damaged file, unless --retrain is given; then the damaged run is removed.
    """
    store = Store(config.runs)
    for kind, what in stored:
        try:
            run = store.run(kind, what)
            if run.path.exists():
                run.verify()
        except CorruptRun:
            if not config.retrain:
                raise
            if not config.dry_run:
                store.discard(kind, what)


def resolve_device(config: CommonConfig) -> str:
    """`cpu`, `cuda:N` or `mps` from the flag; `auto` takes an accelerator if there is one.

    Workers of other machines compute on the processor, or on the GPU that they are given, which this machine may lack.

    Raises:
        InputError: if the device is unknown or missing.
    """
    name = config.device
    if config.launcher != "local":
        if config.gpus_per_worker is None:
            return "cpu"
        if config.dry_run and not torch.cuda.is_available():
            raise InputError("--dry-run: times a few steps here, where no GPU is; leave out --gpus-per-worker")
        return "cuda:0"
    if name == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(f"--device: {name} is not there; CUDA devices found: {torch.cuda.device_count()}")
        if device.type == "mps" and not torch.backends.mps.is_available():
            raise InputError("--device: mps is not there")
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError
    except RuntimeError:
        raise InputError(f"--device: unknown {name!r}; valid: auto, cpu, cuda, cuda:N, mps") from None
    return "cuda:0" if name == "cuda" else name


def check_no_gpu(config: CommonConfig) -> None:
    """Raise an `InputError` if GPUs are asked for by a study that computes on processors."""
    if config.gpus_per_worker is not None:
        raise InputError("--gpus-per-worker: has no meaning here, this study computes on processors")


def device_here(device: str) -> str:
    """The device, or `cpu` for what a command without a GPU does itself beside the work of its workers."""
    return "cpu" if device.startswith("cuda") and not torch.cuda.is_available() else device


def default_jobs(config: CommonConfig, device: str, tasks: int) -> int:
    """Processes: one for smoke and on an accelerator, else one a processor, at most one a task."""
    if config.jobs is not None:
        return min(config.jobs, max(tasks, 1))
    return 1 if config.preset == "smoke" or device != "cpu" else max(1, min(cpu_count(), tasks))


def stamp(device: str) -> dict[str, str]:
    """The cells of a row that say where and with what it was computed."""
    return {"device": device_name(device), "torch": torch.__version__, "commit": commit()}


def time_epoch(population: Population, plan: Plan, data_args: DataArgs, device: str) -> float:
    """Seconds of an epoch of one network, from a few timed batches."""
    data, member = data_args.load(), population.members[0]
    batch = member.recipe.batch_size
    part = data.with_train(data.train.parts(3 * batch)[0])
    once = dataclasses.replace(
        member, recipe=dataclasses.replace(member.recipe, epochs=1, schedule="constant", warmup=0.0)
    )
    times = []
    for _ in range(2):
        start = time.perf_counter()
        train_chunk(population.architecture, [once], part, plan, device=device)
        times.append(time.perf_counter() - start)
    return min(times) * len(data.train) / len(part.train)
