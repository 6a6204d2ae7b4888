"""One training of one reader on one zoo of transformers: what determines it, doing it, what is kept of it."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from asym.data.zoos import NetworkZoo, split_runs
from asym.files import sha256_files, stamps
from asym.metanets import Protocol, Scale, Stack, build, fit, predict
from asym.metanets.transformer_nfn.baselines import TRANSFORMER_READERS
from asym.metanets.transformer_nfn.files import load_files
from asym.metanets.zoo_stack import hyper_numbers
from asym.models import build as build_network
from asym.populations import cached, tick
from asym.populations.zoo_nets import HYPER, ZOO, zoo_of
from asym.seeds import numpy_generator, torch_generator
from asym.store import Run, Store, config_hash
from asym.symmetry.attention import FACTORS, RESIDUAL_FACTORS, act, random_element
from asym.symmetry.attention_canonical import canonical
from asym.symmetry.attention_more import EXTRA, sizes_of, transform
from asym.symmetry.encoder import Encoder, encoder_of, join, split
from asym.symmetry.encoder_fold import folded
from studies.readings import kept, rank_score

KIND = "transformer-metanet"
READING_VERSION = 1
"""Raised by hand whenever the same reading would give other predictions than before."""
VAL_SHARE, TEST_SHARE = 0.15, 0.25
RANGES = (1.0, 10.0, 100.0)
"""Published ranges of M and N."""
GROUP = tuple(f"group-{spread:g}" for spread in RANGES)
MOVES = (*FACTORS, *EXTRA, *GROUP)
ORDINARY_MOVES = (*RESIDUAL_FACTORS, "norm-shift", "null-row", "next-shift", *GROUP)
"""Symmetries of transformers with residual connections and GELU."""
FEWEST = 10
"""Networks that can be split."""
HELD_OUT = 2
"""Learning rates whose networks are all for testing, in the held-out split."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """One reader, trained once."""

    zoo: str
    files: str | None
    heads: int
    """Of the transformers in files; ours have two."""
    reader: str
    protocol: Protocol
    threshold: float
    part: str
    spread: float | None
    moves: bool
    """Whether test networks are read again after each symmetry."""
    split_seed: int
    seed: int
    runs: str
    device: str

    @property
    def config(self) -> dict[str, Any]:
        """What determines the predictions."""
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k not in ("runs", "device", "files")}
        return {"version": READING_VERSION, **fields}


@dataclasses.dataclass(frozen=True)
class Read:
    """What came of a reading."""

    reading: Reading
    state: dict[str, Any]
    predictions: dict[str, np.ndarray]
    """`test` and each of `MOVES` or `ORDINARY_MOVES`: predicted accuracies of test networks; `truth`, the measured."""


@dataclasses.dataclass(frozen=True)
class Zoo:
    """A zoo as readers see it."""

    zoo: NetworkZoo
    encoder: Encoder
    stack: Stack

    @property
    def accuracies(self) -> np.ndarray:
        """Measured accuracies."""
        return self.zoo.table["test_acc"].to_numpy(dtype=float).copy()


def read(reading: Reading) -> Read:
    """Train the reader, or find it in the store."""
    run: Run = cached(Store(reading.runs), KIND, reading.config, lambda: _train(reading))
    return Read(reading, run.state(), {name: t.double().numpy() for name, t in run.tensors().items()})


def open_zoo(reading: Reading) -> Zoo:
    """The zoo of a reading."""
    if reading.files is not None:
        return open_files(reading.files, reading.heads)
    return open_stored(reading.runs, reading.zoo)


@functools.lru_cache(maxsize=2)
def open_stored(runs: str, name: str) -> Zoo:
    """A zoo of the store."""
    zoo = zoo_of(Store(runs).open(ZOO, name))
    about = zoo.about
    network = build_network(
        about["arch"], input_shape=tuple(about["input_shape"]), classes=about["classes"], width=about["width"]
    )
    encoder = encoder_of(dict(network.named_parameters()), 2)
    known = [name for name in HYPER if name in zoo.table]
    return Zoo(zoo, encoder, Stack(encoder, folded(zoo.tensors), hyper=hyper_numbers(zoo.table, known)))


def open_files(folder: str, heads: int) -> Zoo:
    """A zoo of published files, read again if one of them has changed."""
    return _zoo_of(folder, heads, stamps(Path(folder), "*.pt"))


@functools.lru_cache(maxsize=1)
def _zoo_of(folder: str, heads: int, files: tuple[tuple[Path, int, int], ...]) -> Zoo:
    encoder, zoo = load_files(folder, heads)
    return Zoo(zoo, encoder, Stack(encoder, zoo.tensors))


def files_fingerprint(folder: str, heads: int) -> str:
    """What names a folder of files: their names and contents, and the number of heads."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"--files: {folder} is not a folder")
    files = [list(pair) for pair in sha256_files(Path(folder).glob("*.pt"))]
    return config_hash({"files": files, "heads": heads})


def splits_of(reading: Reading, zoo: Zoo) -> dict[str, np.ndarray]:
    """Places of training, validation and test networks; those below the threshold are in none.

    Raises:
        ValueError: if too few networks are left.
    """
    places = np.flatnonzero(zoo.accuracies >= reading.threshold)
    if len(places) < FEWEST:
        n = len(zoo.zoo)
        if n < FEWEST:
            where = reading.files or "the zoo"
            raise ValueError(f"--{'networks' if reading.files is None else 'files'}: {where} has {n} networks that can "
                             f"be read, {FEWEST} are needed")  # fmt: skip
        most = math.floor(1_000 * np.sort(zoo.accuracies)[-FEWEST]) / 1_000
        raise ValueError(
            f"--thresholds: {reading.threshold:g} leaves {len(places)} networks of {n}, {FEWEST} are needed; valid: "
            f"up to {most:g}"
        )
    if reading.part == "held-out":
        rates = zoo.zoo.table["lr"].to_numpy()
        known = np.unique(rates[places])
        out = numpy_generator(reading.split_seed, "held out").permutation(known)[: min(HELD_OUT, len(known) - 1)]
        apart = np.isin(rates[places], out)
        if apart.sum() < 2 or (~apart).sum() < 11:
            raise ValueError(
                f"--skip: the part held-out has {apart.sum()} networks of the learning rates that are held out and "
                f"{(~apart).sum()} others, 2 and 11 are needed; leave it out, or read more networks"
            )
        inner = split_runs(np.arange((~apart).sum()), val=VAL_SHARE, test=0.05, seed=reading.split_seed)
        mine = places[~apart]
        return {
            "train": mine[np.concatenate([inner["train"], inner["test"]])],
            "val": mine[inner["val"]],
            "test": places[apart],
        }
    runs = zoo.zoo.table["run"].to_numpy()[places]
    splits = split_runs(runs, val=VAL_SHARE, test=TEST_SHARE, seed=reading.split_seed)
    return {name: places[part] for name, part in splits.items()}


def moved(zoo: Zoo, stack: Stack, move: str, seed: int) -> Stack:
    """Networks after a random element of one symmetry, or of the published group at a range, worked out in float64."""
    blocks = split(zoo.encoder, {name: tensor.double() for name, tensor in stack.tensors.items()})
    generator = torch_generator(seed, "transformer metanet", move)
    if move.startswith("group-"):
        spread = float(move.removeprefix("group-"))
        size = sizes_of(blocks[0])
        factors = RESIDUAL_FACTORS if size.ordinary else FACTORS
        lead = (len(stack),)
        image = [act(random_element(size, lead, generator, factors=factors, spread=spread), b) for b in blocks]
    else:
        image = transform(move, blocks, generator)
    return stack.replace({**stack.tensors, **{n: t.to(stack.like) for n, t in join(zoo.encoder, image).items()}})


def exchanged(zoo: Zoo, stack: Stack) -> Stack:
    """Each head's values and outputs handed to the next: the same sums over heads, another function."""
    blocks = split(zoo.encoder, stack.tensors)
    image = [{**block, **{s: block[s].roll(1, -3) for s in "VO"}} for block in blocks]
    return stack.replace({**stack.tensors, **join(zoo.encoder, image)})


def joined(*stacks: Stack) -> Stack:
    """Networks of several stacks of one architecture as one."""
    tensors = {name: torch.cat([stack.tensors[name] for stack in stacks]) for name in stacks[0].tensors}
    hyper = None if stacks[0].hyper is None else torch.cat([s.hyper for s in stacks if s.hyper is not None])
    return dataclasses.replace(stacks[0], tensors=tensors, hyper=hyper)


def _train(reading: Reading) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    start = time.perf_counter()
    zoo = open_zoo(reading)
    places = {name: torch.from_numpy(part) for name, part in splits_of(reading, zoo).items()}
    name, _, addon = reading.reader.partition("+")
    stack, accuracies, n = zoo.stack, torch.from_numpy(zoo.accuracies).float(), len(zoo.zoo)

    def seen(networks: Stack) -> Stack:
        if not addon:
            return networks.to(reading.device)
        blocks = split(zoo.encoder, {key: tensor.double() for key, tensor in networks.tensors.items()})
        image = {key: t.to(networks.like) for key, t in join(zoo.encoder, canonical(blocks)).items()}
        return networks.replace({**networks.tensors, **image}).to(reading.device)

    second = None
    if reading.part == "augmented":
        second = moved(zoo, stack, f"group-{reading.spread:g}", reading.split_seed)
    elif reading.part == "heads":
        second = exchanged(zoo, stack)
    both = stack if second is None else joined(stack, second)
    index = {key: part if second is None else torch.cat([part, part + n]) for key, part in places.items()}
    labels = accuracies if second is None else accuracies.repeat(2)
    options = {"learning_rate": 0.05} if name in ("stats-boost", "hyper-boost") else {}
    reader = build(name, zoo.encoder, seed=reading.seed, among=TRANSFORMER_READERS, **options).to(reading.device)
    scale = Scale.of(labels[index["train"]], images=int(zoo.zoo.about["test_images"]))
    pairing = reading.part == "heads"
    targets = (torch.arange(2 * n) < n).float() if pairing else scale.to_units(labels)

    def pairing_score(outputs: Tensor, truth: Tensor) -> float:
        finite = bool(torch.isfinite(outputs).all())
        return -float(F.binary_cross_entropy_with_logits(outputs, truth)) if finite else math.nan

    score, loss = (pairing_score, F.binary_cross_entropy_with_logits) if pairing else (rank_score, None)
    found = fit(
        reader, seen(both), targets[:, None].to(reading.device), index["train"], index["val"], reading.protocol,
        seed=reading.seed, score=score, loss=loss,
        on_epoch=lambda: tick(1),
    )  # fmt: skip
    test = both.rows(index["test"])

    def answers(networks: Stack) -> Tensor:
        numbers = predict(reader, seen(networks))[:, 0].detach().cpu().double()
        return numbers if pairing else scale.to_accuracies(numbers)

    predictions = {"test": answers(test), "truth": (targets if pairing else labels)[index["test"]].double()}
    if reading.moves:
        moves = ORDINARY_MOVES if zoo.encoder.size.ordinary else MOVES
        predictions |= {move: answers(moved(zoo, test, move, reading.split_seed)) for move in moves}
    state = {"val_score": found.score, **kept(found, reader, places, start)}
    return predictions, {}, state
