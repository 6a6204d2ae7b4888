"""Populations in the store: trained once, found again by whoever asks for the same.

The unit is a chunk: networks that are trained together, in a composition that a fixed rule gives. Its run is named by
the hash of architecture, data, members and plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from asym.data import Data
from asym.populations.dropout import check_dropout
from asym.populations.layout import Layout
from asym.populations.plan import Plan, make_plan
from asym.populations.population import Population
from asym.populations.train import SHARED, Trained, train_chunk
from asym.store import Run, Store

KIND = "population"


def plan_for(population: Population, device: torch.device | str) -> Plan:
    """The numerical plan of a population on a device; its chunk is never larger than the population.

    Raises:
        ValueError: for dropout where the architecture has no place for it.
    """
    first = population.members[0]
    network = population.architecture.build(first.seed, first.mask_seed)
    check_dropout(network, population.architecture.arch, [m.recipe for m in population.members])
    shape, batch = population.architecture.input_shape, first.recipe.batch_size
    plan = make_plan(network, shape, batch, torch.device(device))
    chunk = min(plan.chunk, len(population.members))
    return dataclasses.replace(plan, chunk=chunk)


def chunks_of(population: Population, plan: Plan) -> list[Population]:
    """Split into chunks of at most `plan.chunk` members that share optimiser, batch size, augmentation and images.

    Members keep their order within a group, so a population's first chunks are those of any longer one.
    """
    groups: dict[tuple, list] = {}
    for member in population.members:
        groups.setdefault(tuple(getattr(member.recipe, field) for field in SHARED), []).append(member)
    return [
        dataclasses.replace(population, members=tuple(members[at : at + plan.chunk]))
        for members in groups.values()
        for at in range(0, len(members), plan.chunk)
    ]


def run_config(chunk: Population, plan: Plan) -> dict[str, Any]:
    """What determines the trained weights of a chunk."""
    return {**chunk.config, "plan": dataclasses.asdict(plan)}


def run_of(store: Store, chunk: Population, plan: Plan) -> Run:
    """The store's run of a chunk, finished or not."""
    return store.run(KIND, run_config(chunk, plan))


def train_or_load(
    store: Store,
    chunk: Population,
    data: Data,
    plan: Plan,
    *,
    device: torch.device | str = "cpu",
    state: dict[str, Any] | None = None,
    on_epoch: Callable[[int], None] = lambda networks: None,
) -> Trained:
    """Train a chunk, or go on where an interrupted training stopped, or load the finished one.

    Args:
        store: where runs are kept.
        chunk: the networks, see `chunks_of`.
        data: must have the fingerprint that the population names.
        plan: numerical choices.
        device: where to train.
        state: further facts to keep beside the result, such as versions.
        on_epoch: called once an epoch with the number of networks, for a loaded chunk too.

    Raises:
        ValueError: if the data are not those that the population names.
        CorruptRun: if the stored files are damaged.
    """
    if len(chunk.members) > plan.chunk:
        raise ValueError(f"chunk: {len(chunk.members)} members, the plan trains {plan.chunk} together; see chunks_of")
    if data.fingerprint != chunk.data:
        raise ValueError(f"data: the population names {chunk.data}, got {data.name} with {data.fingerprint}")
    run = run_of(store, chunk, plan)
    with run.lock():
        if run.finished:
            run.verify()
            for epoch in range(max(m.recipe.epochs for m in chunk.members)):
                on_epoch(sum(m.recipe.epochs > epoch for m in chunk.members))
            return load(run)
        trained = train_chunk(
            chunk.architecture, chunk.members, data, plan, device=device, checkpoint=run, on_epoch=on_epoch
        )
        _keep(run, chunk, trained, state or {})
    return trained


def train_population(
    store: Store,
    population: Population,
    data: Data,
    plan: Plan,
    *,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int], None] = lambda networks: None,
) -> Trained:
    """`train_or_load` for every chunk of a population; the networks come in the order of `population.members`.

    Raises:
        ValueError, CorruptRun: see `train_or_load`.
    """
    chunks = chunks_of(population, plan)
    parts = [train_or_load(store, chunk, data, plan, device=device, on_epoch=on_epoch) for chunk in chunks]
    place = {member: i for i, member in enumerate(population.members)}
    places = [place[member] for chunk in chunks for member in chunk.members]
    back = sorted(range(len(places)), key=places.__getitem__)
    history, first = [], 0
    for part in parts:
        history += [entry | {"network": places[first + int(entry["network"])]} for entry in part.history]
        first += len(part.diverged)
    diverged = [epoch for part in parts for epoch in part.diverged]
    return Trained(
        theta=torch.cat([part.theta for part in parts])[back],
        running=torch.cat([part.running for part in parts])[back],
        history=history,
        diverged=[diverged[i] for i in back],
        wall_s=sum(part.wall_s for part in parts),
    )


def load(run: Run) -> Trained:
    """The result of a finished run."""
    tensors, state = run.tensors(), run.state()
    history = [{str(k): v for k, v in row.items()} for row in run.table("history").to_dict("records")]
    return Trained(tensors["theta"], tensors["running"], history, state["diverged"], state["wall_s"])


def _keep(run: Run, chunk: Population, trained: Trained, state: dict[str, Any]) -> None:
    constants: dict[str, Tensor] = {}
    first = chunk.members[0]
    layout = Layout.trainable(chunk.architecture.build(first.seed, first.mask_seed))
    for mask_seed in sorted({m.mask_seed for m in chunk.members}):
        network = chunk.architecture.build(first.seed, mask_seed)
        moving = {*layout.names, *Layout.running(network).names}
        fixed = {name: value for name, value in network.state_dict().items() if name not in moving}
        constants |= {f"mask_seed={mask_seed}/{name}": value.clone() for name, value in fixed.items()}
    tensors = {"theta": trained.theta, "running": trained.running, **constants}
    run.finish(
        tensors,
        {"history": pd.DataFrame(trained.history)},
        {
            **state,
            "diverged": trained.diverged,
            "wall_s": trained.wall_s,
            "layout": [[name, list(shape)] for name, shape in zip(layout.names, layout.shapes)],
        },
    )


def cached(
    store: Store,
    kind: str,
    config: dict[str, Any],
    compute: Callable[[], tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]],
) -> Run:
    """The finished run of `config`, computed now if it is not in the store; `compute` gives tensors, tables, state."""
    run = store.run(kind, config)
    with run.lock():
        if run.finished:
            run.verify()
        else:
            run.finish(*compute())
    return run
