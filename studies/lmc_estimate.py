"""What a run of the connectivity study would cost: networks, epochs, time and disk, from one timed step."""

from __future__ import annotations

import dataclasses
import time

from asym.populations import run_tasks, train_chunk
from studies.lmc import Config, Job
from studies.lmc_pairs import CheckpointTask, Task
from studies.setup import default_jobs

BYTES_PER_ENTRY = 4


def estimate(config: Config, jobs: list[Job]) -> str:
    """A few lines; each variant's step is timed on this machine, measurements along lines are not counted."""
    device = next(iter(jobs[0].tasks.values()))[0].device
    lines, total_s, total_bytes, networks = [], 0.0, 0, 0
    for job in jobs:
        task = next(iter(job.tasks.values()))[0]
        if isinstance(task, CheckpointTask):
            return f"{' and '.join(task.files)}: two networks to measure, nothing to train; nothing was written"
        epochs = task.population.members[0].recipe.epochs
        count = len(job.trials) + 2 * len(next(iter(job.tasks.values())))
        per_epoch = run_tasks(time_epoch, [(task,)])[0]
        seconds, size = count * epochs * per_epoch, count * task.columns["params"] * BYTES_PER_ENTRY
        recipe = task.population.members[0].recipe
        rate = f"rate from {', '.join(map(str, job.tasks))}" if len(job.tasks) > 1 else f"rate {recipe.lr:g}"
        lines.append(
            f"{job.variant}: {recipe.optimizer}, {rate}, {recipe.schedule} schedule with {recipe.warmup:g} epochs of "
            f"warm-up, weight decay {recipe.weight_decay:g}, batches of {recipe.batch_size}, {task.plan.dtype}"
        )
        lines.append(
            f"{job.variant}: {count} networks ({len(job.trials)} of them to choose the rate), {epochs} epochs of "
            f"{per_epoch:.2g} s, {task.columns['params']:,} trainable parameters"
        )
        total_s, total_bytes, networks = total_s + seconds, total_bytes + size, networks + count
    processes = default_jobs(config, device, networks)
    lines.append(
        f"together: {networks} networks, about {total_s / processes / 60:.2g} min of training in {processes} "
        f"process(es), about {total_bytes / 1e6:.2g} MB in {config.runs}; nothing was written"
    )
    return "\n".join(lines)


def time_epoch(task: Task) -> float:
    """Seconds of an epoch of one network, from a few timed batches."""
    data, member = task.data.load(), task.population.members[0]
    batch = member.recipe.batch_size
    few = min(len(data.train.labels), 3 * batch)
    part = dataclasses.replace(
        data,
        train=dataclasses.replace(data.train, images=data.train.images[:few], labels=data.train.labels[:few]),
    )
    once = dataclasses.replace(
        member, recipe=dataclasses.replace(member.recipe, epochs=1, schedule="constant", warmup=0.0)
    )
    times = []
    for _ in range(2):
        start = time.perf_counter()
        train_chunk(task.population.architecture, [once], part, task.plan, device=task.device)
        times.append(time.perf_counter() - start)
    return min(times) * len(data.train.labels) / few
