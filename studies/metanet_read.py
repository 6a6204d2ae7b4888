"""One training of one reader on one zoo: what determines it, doing it, what is kept of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from asym.data.zoos import NetworkZoo, split_runs
from asym.metanets import (
    READERS,
    Bag,
    Protocol,
    Residual,
    Scale,
    Stack,
    build,
    count,
    fit,
    matched_width,
    options_of,
    predict,
    take,
)
from asym.metanets.scale_gmn import ScaleGMN
from asym.metanets.zoo_stack import by_activation, stacks_of, trained_entries, with_hyper
from asym.populations import cached, tick
from asym.populations.zoo_nets import HYPER, ZOO, zoo_of
from asym.rank_metrics import match_spread
from asym.seeds import derived_seed, torch_generator
from asym.store import Run, Store
from asym.symmetry.scaling import permute_units, random_factors, random_orders, scale_units
from studies.metanet import BACKWARD
from studies.readings import kept, rank_score

KIND = "metanet"
READING_VERSION = 1
"""Raised by hand whenever the same reading would give other predictions than before."""
GAUGE_VERSION = 2
"""The same for readers of networks in their gauge; 2: units of norm 1e-40 get there without an overflow."""
BACKWARD_VERSION = 3
"""The same for the repaired backward messages; 2: edges over the norm of what their reader reads, not of its state; 3:
to rounding."""
HYPER_VERSION = 2
"""The same for the control; 2: several activations in a zoo are hyper-parameters too."""
VAL_SHARE, TEST_SHARE = 0.15, 0.25
MOVED_RATIO = 4.0
"""Test networks are rescaled, and networks of `+augment` in training, by factors in [1/4, 4], as many as are large."""
MOVES = ("permuted", "rescaled")
FORM_OPTIONS: dict[str, dict[str, Any]] = {
    "canonicalise": {"sign": "canonicalise"},
    "receiver": {"receiver": True},
    "no-edges": {"edge_updates": False},
    "no-skips": {"skip": False},
    **{form: {"backward": form} for form in ("reciprocal", "pinv", "shipped")},
}
"""What forms of graph readers are to their class."""
SHAPE: dict[str, Any] = {"width": 1.0, "depth": 3}
"""What small CNNs of several architectures differ in, and what is published."""
RESIDUAL_GRAPH = {"rounds": 3, "readout": "full"}
"""How graph readers read residual networks: as many rounds as layers would cost three times that."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """One reader, trained once."""

    zoo: str
    """Hash of the zoo's run; several joined by + for networks of several architectures."""
    reader: str
    """Name with add-ons."""
    width: int
    """Channels of scale-gmn, whose parameters other graph readers match."""
    small: bool
    """Whether DeepSets has 16 channels, not the published 64."""
    protocol: Protocol
    """Its rate is that of the optimiser, or of each tree."""
    train: int | None
    """Training networks; None is all."""
    matched: tuple[str, str] | None
    """Hashes of two zoos that are cut to one histogram of accuracies."""
    target: str
    split_seed: int
    seed: int
    runs: str
    device: str

    @property
    def config(self) -> dict[str, Any]:
        """What determines the predictions."""
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k not in ("runs", "device")}
        changed = {"gauge": GAUGE_VERSION} if "+gauge" in self.reader else {}
        if self.name == "scale-gmn-b" and not set(self.reader.split("+")) & set(BACKWARD):
            changed["backward"] = BACKWARD_VERSION
        if self.name == "hyper-boost":
            changed["hyper"] = HYPER_VERSION
        return {"version": READING_VERSION, **changed, **fields}

    @property
    def name(self) -> str:
        """The reader's name without add-ons."""
        return self.reader.split("+")[0]


@dataclasses.dataclass(frozen=True)
class Read:
    """What came of a reading."""

    reading: Reading
    state: dict[str, Any]
    predictions: dict[str, np.ndarray]
    """`test`, and where networks have symmetries `permuted` and `rescaled`: predicted accuracies of test networks."""
    wall_s: float


def read(reading: Reading) -> Read:
    """Train the reader, or find it in the store."""
    run: Run = cached(Store(reading.runs), KIND, reading.config, lambda: _train(reading))
    state = run.state()
    return Read(reading, state, {name: t.double().numpy() for name, t in run.tensors().items()}, state["wall_s"])


@dataclasses.dataclass(frozen=True)
class Zoo:
    """A zoo as readers see it."""

    parts: tuple[NetworkZoo, ...]
    """One for each architecture."""
    stacks: list[Stack]
    table: pd.DataFrame
    """The networks in the order of the stacks."""

    @classmethod
    def of(cls, zoos: Sequence[NetworkZoo]) -> Zoo:
        """Zoos of several architectures as one; `width` and `depth` are hyper-parameters of its networks."""
        parts = tuple(by_activation(zoo) for zoo in zoos)
        shapes = [{name: part.about.get(name, usual) for name, usual in SHAPE.items()} for part in parts]
        tables = [part.table.assign(**shape) if len(parts) > 1 else part.table for part, shape in zip(parts, shapes)]
        table = pd.concat(tables, ignore_index=True)
        several = ["activation"] if "activation" in table and table["activation"].nunique() > 1 else []
        known = [name for name in (*HYPER, *SHAPE) if name in table] + several
        return cls(parts, with_hyper([stack for part in parts for stack in stacks_of(part)], table, known), table)

    @functools.cached_property
    def accuracies(self) -> np.ndarray:
        """Measured on test images."""
        return self.table["test_acc"].to_numpy(dtype=float).copy()

    @property
    def about(self) -> Mapping[str, Any]:
        """What all of its networks have in common."""
        return self.parts[0].about

    @property
    def dropped(self) -> int:
        """Networks whose weights are not finite."""
        return sum(part.about["dropped"] for part in self.parts)

    @property
    def masked(self) -> bool:
        """Whether some entries were not trained."""
        return any(part.masks for part in self.parts)

    @property
    def images(self) -> int:
        """Images that accuracies are measured on."""
        return int(self.about["test_images"])


@functools.lru_cache(maxsize=3)
def open_zoo(runs: str, name: str) -> Zoo:
    """A zoo of the store, its networks in the order of its stacks."""
    return Zoo.of([zoo_of(Store(runs).open(ZOO, part)) for part in name.split("+")])


def splits_of(reading: Reading) -> dict[str, np.ndarray]:
    """Places of training, validation and test networks."""
    zoo = open_zoo(reading.runs, reading.zoo)
    runs = zoo.table["run"].to_numpy()
    splits = split_runs(runs, val=VAL_SHARE, test=TEST_SHARE, seed=reading.split_seed)
    if reading.matched is not None:
        a, b = (open_zoo(reading.runs, name) for name in reading.matched)
        kept = match_spread(a.accuracies, b.accuracies, seed=reading.split_seed)[reading.matched.index(reading.zoo)]
        splits = {name: places[np.isin(places, kept)] for name, places in splits.items()}
    if reading.train is not None:
        splits["train"] = splits["train"][: reading.train]
    return splits


def make_reader(reading: Reading, zoo: Zoo) -> Any:
    """The reader at its start."""
    name, *addons = reading.reader.split("+")
    allowed = options_of(name)
    options: dict[str, Any] = {}
    for addon in addons:
        options |= FORM_OPTIONS.get(addon, {addon: MOVED_RATIO if addon == "augment" else True})
    chains = [stack.chain for stack in zoo.stacks]
    if "trained" in allowed and len(zoo.parts) == 1:
        options["trained"] = trained_entries(zoo.parts[0])
    if issubclass(_class(name), ScaleGMN):
        both = name.endswith("-b")
        direction: dict[str, Any] = {"direction": "bidirectional"} if both else {}
        if any(isinstance(chain, Residual) for chain in chains):
            direction |= RESIDUAL_GRAPH
        options |= {name: value for name, value in direction.items() if name != "direction"}
        options["width"] = reading.width
        if name.startswith("gmn"):
            options["width"] = matched_width(
                chains, _size(chains, reading.width, direction), law="permutation", **direction
            )
    if name == "deepsets" and reading.small:
        options["width"] = 16
    if "boost" in name:
        options["learning_rate"] = reading.protocol.lr
    return build(name, chains, seed=reading.seed, **options)


def mixes(reader: str) -> bool:
    """Whether a reader, named with its add-ons, reads networks of several architectures together."""
    return _class(reader.split("+")[0]).mixes


def _class(name: str) -> Any:
    make = READERS[name]
    return getattr(make, "func", make)


def _size(chains: list[Any], width: int, options: dict[str, Any]) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in ScaleGMN(chains, width=width, **options).parameters())


def _train(reading: Reading) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    import time

    start = time.perf_counter()
    zoo, places = open_zoo(reading.runs, reading.zoo), splits_of(reading)
    index = {name: torch.from_numpy(p) for name, p in places.items()}
    stacks = [stack.to(reading.device) for stack in zoo.stacks]
    accuracies = torch.from_numpy(zoo.accuracies).float()
    scale = Scale.of(accuracies[index["train"]], kind=reading.target, images=zoo.images)
    targets = scale.to_units(accuracies)[:, None].to(reading.device)
    reader = make_reader(reading, zoo).to(reading.device)

    found = fit(
        reader, stacks, targets, index["train"], index["val"], reading.protocol, seed=reading.seed, score=rank_score,
        on_epoch=lambda: tick(1),
    )  # fmt: skip
    test, order = take(stacks, index["test"])
    back = torch.argsort(order)
    sets = {"test": test}
    if not zoo.masked and not any(isinstance(stack.chain, Bag) for stack in zoo.stacks):
        sets |= moved(test, reading.split_seed)
    piece = min(256, 16 * reading.protocol.piece)
    with torch.no_grad():
        predictions = {
            name: scale.to_accuracies(predict(reader, part, piece=piece)[:, 0].cpu().double())[back]
            for name, part in sets.items()
        }
    state = {"val_tau": found.score, **kept(found, reader, places, start)}
    return predictions, {}, state


def moved(stacks: list[Stack], seed: int) -> dict[str, list[Stack]]:
    """Test networks after random permutations of their units, and after random rescalings, alike for every reader."""
    permuted, rescaled = [], []
    for i, stack in enumerate(stacks):
        chain, lead = stack.chain, (len(stack),)
        orders = random_orders(chain, lead, torch_generator(seed, "metanet", "permuted", i))
        permuted.append(stack.replace(permute_units(chain, [o.to(stack.like.device) for o in orders], stack.tensors)))
        generator = torch_generator(seed, "metanet", "rescaled", i)
        factors = random_factors(chain, lead, generator, ratio=MOVED_RATIO, like=stack.like)
        rescaled.append(stack.replace(scale_units(chain, factors, stack.tensors)))
    return {"permuted": permuted, "rescaled": rescaled}


def reader_seed(seed: int, repeat: int | str) -> int:
    """The seed of a repeat; the same for all readers and zoos."""
    return derived_seed(seed, "metanet", "reader", repeat)


def networks_in(reading: Reading) -> int:
    """Training networks of a reading."""
    return len(splits_of(reading)["train"])


__all__ = ["KIND", "MOVES", "Read", "Reading", "Zoo", "count", "make_reader", "moved", "open_zoo", "read", "splits_of"]
