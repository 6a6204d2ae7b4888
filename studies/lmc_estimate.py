"""What a run of the connectivity study would cost: networks, epochs, time and disk, from one timed step."""

from __future__ import annotations

from asym.populations import run_tasks
from studies.lmc import Config, Job
from studies.lmc_pairs import CheckpointTask
from studies.setup import default_jobs, time_epoch

BYTES_PER_ENTRY = 4


def plan_text(config: Config, jobs: list[Job]) -> str:
    """A few lines; each variant's step is timed on this machine, measurements along lines are not counted."""
    device = next(iter(jobs[0].tasks.values()))[0].device
    lines, total_s, total_bytes, networks = [], 0.0, 0, 0
    for job in jobs:
        task = next(iter(job.tasks.values()))[0]
        if isinstance(task, CheckpointTask):
            return f"{' and '.join(task.files)}: two networks to measure, nothing to train; nothing was written"
        epochs = task.population.members[0].recipe.epochs
        count = len(job.trials) + 2 * len(next(iter(job.tasks.values())))
        per_epoch = run_tasks(time_epoch, [(task.population, task.plan, task.data, task.device)])[0]
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
