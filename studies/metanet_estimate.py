"""What a run of the accuracy-prediction study would cost, from a few timed steps; writes nothing."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pandas as pd
import torch

from asym.data.zoos import NetworkZoo
from asym.metanets import accumulate
from asym.populations import Layout, run_tasks
from asym.populations.zoo_nets import about, effective
from asym.seeds import torch_generator
from studies.metanet import Config
from studies.metanet_files import open_files
from studies.metanet_read import Zoo, make_reader
from studies.metanet_setup import TUNING, Item, Prepared, items, rates, reading
from studies.setup import default_jobs, time_epoch

CHECK_SHARE = 0.1
"""What reading the validation networks adds to an epoch, roughly."""
STACK_SPEED = 3.0
"""How much faster a network is in a full chunk than alone, roughly."""


def plan_text(config: Config, prepared: Prepared) -> str:
    """Lines for people."""
    lines, seconds = [], 0.0
    for family in prepared.families:
        if not family.plans:
            lines.append(
                f"files: {family.columns['networks']} networks of {family.columns['network_params']:,} weights"
            )
            continue
        members = [member for part, _ in family.chunks for member in part.members]
        per_epoch: dict[Any, float] = {}
        spent = 0.0
        for chunk, plan in family.chunks:
            if chunk.architecture not in per_epoch:
                task = (chunk, plan, prepared.data, prepared.device)
                per_epoch[chunk.architecture] = run_tasks(time_epoch, [task])[0] / STACK_SPEED
            epochs = sum(m.recipe.epochs * m.recipe.train_fraction for m in chunk.members)
            spent += epochs * per_epoch[chunk.architecture]
        seconds += spent
        lines.append(
            f"{family.variant}: {len(members)} networks of {family.columns['network_params']:,} trained parameters, "
            f"{family.columns['network_epochs']} epochs, about {spent / 60:.2g} min"
        )
    steps: dict[str, float] = {}
    work: dict[str, float] = {}
    count = 0
    for item in items(config, prepared):
        if item.reader not in steps:
            steps[item.reader] = run_tasks(_time_step, [(config, prepared, item)])[0]
        networks = item.train or round(0.6 * prepared.defaults.networks)
        trials = len(rates(prepared, item.reader))
        kinds: list[tuple[int, int | str]] = [(prepared.defaults.repeats, 0)]
        if item.part == "whole" and trials > 1:
            kinds.append((trials, TUNING))
        for trainings, repeat in kinds:
            protocol = reading(config, prepared, item, 1e-3, repeat).protocol
            each = 1 if "boost" in item.reader else protocol.epochs * math.ceil(networks / protocol.batch)
            work[item.reader] = work.get(item.reader, 0.0) + trainings * each * steps[item.reader] * (1 + CHECK_SHARE)
            count += trainings
    lines += [f"{reader}: {steps[reader]:.2g} s a step, {work[reader] / 60:.2g} min in all" for reader in work]
    seconds += sum(work.values())
    jobs = default_jobs(config, prepared.device, count)
    lines.append(
        f"together: {count} trainings of readers, about {seconds / jobs / 60:.2g} min in {jobs} process(es), at most; "
        "nothing was written"
    )
    return "\n".join(lines)


def _time_step(config: Config, prepared: Prepared, item: Item) -> float:
    """Seconds of a step on one batch of random networks; of a whole fit for trees, which is taken to be two."""
    if "boost" in item.reader:
        return 2.0
    some = reading(config, prepared, item, 1e-3, TUNING)
    zoo = random_zoo(prepared, item, config.batch_size) if config.files is None else some_of(config)
    reader = make_reader(some, zoo).train()
    stacks = [reader.ahead(stack) for stack in zoo.stacks]
    target = torch.zeros(sum(len(stack) for stack in stacks), 1)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        accumulate(reader, stacks, target, torch.nn.functional.mse_loss, piece=some.protocol.piece)
        times.append(time.perf_counter() - start)
    return min(times)


def some_of(config: Config) -> Zoo:
    """As many networks of a published zoo as a batch."""
    assert config.files is not None
    found = open_files(config.files)
    return Zoo.of([found.take(np.arange(min(len(found), config.batch_size)))])


def random_zoo(prepared: Prepared, item: Item, n: int) -> Zoo:
    """Random networks of a zoo's architecture, as many as a batch."""
    plans = item.family.plans
    zoos = []
    for i, plan in enumerate(plans):
        own = len(range(i, n, len(plans))) or 1
        chunk = plan.populations()[0]
        layout = Layout.trainable(chunk.architecture.build(0))
        theta = 0.2 * torch.randn(own, layout.size, generator=torch_generator(0, "metanet", "estimate", i))
        tensors, masks = effective(chunk, theta)
        kind = chunk.architecture.activation or "own"
        table = pd.DataFrame({"run": range(own), "test_acc": [0.5] * own, "activation": [kind] * own})
        zoos.append(NetworkZoo(tensors, table, masks, about(plan, prepared.data.load())))
    return Zoo.of(zoos)


__all__ = ["plan_text", "random_zoo"]
