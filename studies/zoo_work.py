"""Zoos trained, labelled and put together, for every study that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asym.populations import Plan, Population, run_tasks
from asym.populations.zoo_nets import ZooPlan, assemble, label_chunk
from asym.store import Store
from studies.cli import CommonConfig
from studies.launching import launcher_of
from studies.progress import Progress
from studies.setup import DataArgs, default_jobs


def train_zoos(config: CommonConfig, families: Sequence[Any], data: DataArgs, device: str, what: str) -> None:
    """Train and label what is missing of the zoos, the longest chunks first, and put each together.

    Args:
        config: where runs are kept, how many processes.
        families: each has `plans`, one for each architecture, and their `chunks`; those without (files) are ready.
        data: what the networks are trained on.
        device: where.
        what: the networks, in the line of progress.
    """
    tasks = [(str(config.runs), chunk, plan, data, device) for family in families for chunk, plan in family.chunks]
    if not tasks:
        return
    tasks.sort(key=lambda task: -sum(m.recipe.epochs * m.recipe.train_fraction for m in task[1].members))
    total = sum(member.recipe.epochs for task in tasks for member in task[1].members)
    count = sum(len(task[1].members) for task in tasks)
    with Progress(total, f"{count} {what}", quiet=config.quiet) as progress:
        jobs, launcher = default_jobs(config, device, len(tasks)), launcher_of(config)
        run_tasks(label_task, tasks, jobs=jobs, launcher=launcher, on_tick=progress.add)
    run_tasks(assemble_task, [(str(config.runs), plan, data, device) for family in families for plan in family.plans])


def label_task(runs: str, chunk: Population, plan: Plan, data: DataArgs, device: str) -> None:
    """Train and label one chunk."""
    label_chunk(Store(runs), chunk, plan, data.load(), device)


def assemble_task(runs: str, plan: ZooPlan, data: DataArgs, device: str) -> None:
    """Put one zoo together."""
    assemble(Store(runs), plan, data.load(), device)
