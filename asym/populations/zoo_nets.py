"""The networks of a zoo: trained in chunks, labelled, and put together as one stack with one table.

A `ZooPlan` says which; `label_chunk` trains one chunk and measures its networks; `assemble` puts the chunks together,
with the weights that networks compute with (where(mask, weight, fixed) in masked layers) and a row for each of them.
All three keep what they did in the store.

Network k has the seed of (seed, k) and the k-th draw of hyper-parameters, whatever the variant: zoos of two variants
are paired. With `one_seed` all networks share one seed, as in the Small CNN Zoo; initial weights then differ in their
distribution alone, and the order of images not at all. Several activations are dealt to the networks in turn. A
checkpoint after e epochs is the network that was trained for e epochs from the same start: at a constant rate that is
the same, to rounding.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from asym.data import Data
from asym.data.zoos import NetworkZoo, finite
from asym.populations.evaluate import Evaluator
from asym.populations.layout import Layout
from asym.populations.plan import Plan
from asym.populations.population import Architecture, Member, Population
from asym.populations.recipes import Recipe
from asym.populations.runs import cached, chunks_of, load, plan_for, run_config, run_of, train_or_load
from asym.populations.workers import tick
from asym.populations.zoos import draw_recipes
from asym.seeds import derived_seed
from asym.store import Run, Store, config_hash

LABELS, ZOO = "zoo-labels", "zoo"
LABEL_VERSION = 1
"""Raised by hand whenever labels or the stack would come out differently."""
HYPER = (
    "optimizer", "lr", "weight_decay", "smoothing", "epochs", "train_fraction", "start", "start_std", "batch_size",
    "dropout",
)  # fmt: skip
"""Columns with hyper-parameters; `dropout` is there in zoos that have some."""


@dataclasses.dataclass(frozen=True)
class ZooPlan:
    """Which networks a zoo has.

    Raises:
        ValueError: naming the field, for a number out of range.
    """

    zoo: str
    """Name of the distributions, see `asym.populations.zoos`."""
    architecture: Architecture
    networks: int
    """Trainings."""
    seed: int
    data: str
    """Fingerprint of the data set."""
    fixed: tuple[tuple[str, Any], ...] = ()
    """Field of a recipe → value in place of the drawn one."""
    epochs_scale: float = 1.0
    activations: tuple[str, ...] = ()
    """Activations in turn; none: the architecture's own."""
    checkpoints: tuple[int, ...] = ()
    """Epochs after which a network is kept too, before its last."""
    one_seed: bool = False
    part: tuple[int, int] = (0, 1)
    """(i, m): of m plans that share one draw of hyper-parameters and seeds, the one with networks i, i + m, …"""

    def __post_init__(self) -> None:
        if self.networks < 1:
            raise ValueError(f"networks: got {self.networks}, must be at least 1")
        if min(self.checkpoints, default=1) < 1:
            raise ValueError(f"checkpoints: got {self.checkpoints}, must be at least 1 epoch")
        place, parts = self.part
        if not 0 <= place < min(parts, self.networks):
            raise ValueError(f"part: got {self.part} of {self.networks} networks, must be (i, m) with 0 ≤ i < m")

    @property
    def recipes(self) -> list[Recipe]:
        """The recipe of each training."""
        return _recipes(self.zoo, self.networks, self.seed, self.epochs_scale, self.fixed)

    def populations(self) -> list[Population]:
        """One for each activation."""
        mask_seed = derived_seed(self.seed, "mask", "zoo")
        kinds = self.activations or (None,)
        members: dict[Any, list[Member]] = {kind: [] for kind in kinds}
        place, parts = self.part
        for k, recipe in list(enumerate(self.recipes))[place::parts]:
            seed = derived_seed(self.seed, "network", "zoo", 0 if self.one_seed else k)
            for epochs in (*(e for e in self.checkpoints if e < recipe.epochs), recipe.epochs):
                member = Member(seed, mask_seed, dataclasses.replace(recipe, epochs=epochs))
                members[kinds[k // parts % len(kinds)]].append(member)
        return [
            Population(
                dataclasses.replace(self.architecture, activation=kind or self.architecture.activation),
                tuple(own),
                self.data,
            )
            for kind, own in members.items()
            if own
        ]

    def chunks(self, device: str) -> list[tuple[Population, Plan]]:
        """Networks that are trained together, with their numerical plan."""
        return _chunks(self, device)

    def config(self, device: str) -> dict[str, Any]:
        """What determines the zoo, as plain data."""
        chunks = [labels_config(chunk, plan) for chunk, plan in self.chunks(device)]
        return {"version": LABEL_VERSION, "chunks": [config_hash(chunk) for chunk in chunks]}


@functools.lru_cache(maxsize=4)
def _recipes(zoo: str, n: int, seed: int, scale: float, fixed: tuple[tuple[str, Any], ...]) -> list[Recipe]:
    return draw_recipes(zoo, n, seed, epochs_scale=scale, fixed=dict(fixed))


@functools.lru_cache(maxsize=4)
def _chunks(zoo: ZooPlan, device: str) -> list[tuple[Population, Plan]]:
    found = []
    for population in zoo.populations():
        plan = plan_for(population, device)
        found += [(chunk, plan) for chunk in chunks_of(population, plan)]
    return found


def labels_config(chunk: Population, plan: Plan) -> dict[str, Any]:
    """What determines the labels of a chunk."""
    return {"version": LABEL_VERSION, "networks": run_config(chunk, plan)}


def label_chunk(store: Store, chunk: Population, plan: Plan, data: Data, device: str = "cpu") -> Run:
    """Train a chunk and measure its networks on the training and the test split; a network's row has NaN where its
    weights are not finite. `tick` is called with 1 an epoch and network.
    """
    trained = train_or_load(store, chunk, data, plan, device=device, on_epoch=tick)

    def measure() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        first = chunk.members[0]
        known = [field for field in HYPER if field != "dropout" or any(m.recipe.dropout for m in chunk.members)]
        network = chunk.architecture.build(first.seed, first.mask_seed)
        splits = {"train": data.train, "test": data.test}
        evaluate = Evaluator(network, Layout.trainable(network), data, splits, device=device)
        rows = []
        for member, theta, diverged in zip(chunk.members, trained.theta, trained.diverged):
            whole = bool(torch.isfinite(theta).all())
            found = evaluate(theta) if whole else dict.fromkeys(splits, (float("nan"), float("nan")))
            labels = {f"{name}_{what}": found[name][i] for name in splits for i, what in enumerate(("loss", "acc"))}
            hyper = {field: getattr(member.recipe, field) for field in known}
            rows.append({"seed": member.seed, "diverged": diverged, **labels, **hyper})
        return {}, {"networks": pd.DataFrame(rows)}, {}

    return cached(store, LABELS, labels_config(chunk, plan), measure)


def assemble(store: Store, plan: ZooPlan, data: Data, device: str = "cpu") -> Run:
    """The zoo as one run: tensors of the networks whose weights are finite, their table, and how many were dropped.

    Raises:
        CorruptRun: if a file of the store is damaged.
    """

    def build() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        place = {}
        for k, recipe in enumerate(plan.recipes):
            seed = derived_seed(plan.seed, "network", "zoo", 0 if plan.one_seed else k)
            for epochs in (*plan.checkpoints, recipe.epochs):
                place[seed, dataclasses.replace(recipe, epochs=epochs)] = k
        parts, masks, tables = [], {}, []
        for chunk, numeric in plan.chunks(device):
            table = label_chunk(store, chunk, numeric, data, device).table("networks")
            theta = load(run_of(store, chunk, numeric)).theta
            tensors, masks = effective(chunk, theta)
            parts.append(tensors)
            runs = [place[member.seed, member.recipe] for member in chunk.members]
            table.insert(0, "run", runs)
            table.insert(1, "activation", chunk.architecture.activation or "own")
            tables.append(table)
        everything = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        frame = pd.concat(tables, ignore_index=True)
        if "dropout" in frame:  # chunks without any do not name it
            frame = frame.fillna({"dropout": 0.0})
        keep = finite(everything)
        order = keep[np.lexsort((frame["epochs"].to_numpy()[keep], frame["run"].to_numpy()[keep]))]
        index = torch.from_numpy(order)
        stacked = {name: tensor[index] for name, tensor in everything.items()}
        stacked |= {f"mask/{name}": mask for name, mask in masks.items()}
        state = {"dropped": len(frame) - len(keep), "about": about(plan, data)}
        return stacked, {"networks": frame.iloc[order].reset_index(drop=True)}, state

    return cached(store, ZOO, plan.config(device), build)


def zoo_of(run: Run) -> NetworkZoo:
    """The zoo that `assemble` keeps."""
    tensors, state = run.tensors(), run.state()
    masks = {name.removeprefix("mask/"): t for name, t in tensors.items() if name.startswith("mask/")}
    weights = {name: t for name, t in tensors.items() if not name.startswith("mask/")}
    return NetworkZoo(weights, run.table("networks"), masks, state["about"] | {"dropped": state["dropped"]})


def about(plan: ZooPlan, data: Data) -> dict[str, Any]:
    """What a zoo is of."""
    a = plan.architecture
    return {
        "zoo": plan.zoo,
        "arch": a.arch,
        "variant": a.variant.name,
        "width": a.width,
        "input_shape": list(a.input_shape),
        "classes": a.classes,
        **({} if a.depth is None else {"depth": a.depth}),
        "dataset": data.name,
        "test_images": len(data.test.labels),
    }


def effective(chunk: Population, theta: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights that the networks of a chunk compute with, name → `n *shape`, and masks of what was trained."""
    first = chunk.members[0]
    network = chunk.architecture.build(first.seed, first.mask_seed)
    tensors = {name: view.clone() for name, view in Layout.trainable(network).views(theta).items()}
    buffers, masks = dict(network.named_buffers()), {}
    for name, mask in buffers.items():
        layer, _, kind = name.rpartition(".")
        if kind == "mask" and f"{layer}.fixed" in buffers:
            weight = f"{layer}.weight"
            tensors[weight] = torch.where(mask, tensors[weight], buffers[f"{layer}.fixed"])
            masks[weight] = mask.clone()
    return tensors, masks


__all__ = ["HYPER", "ZooPlan", "about", "assemble", "effective", "label_chunk", "labels_config", "zoo_of"]
