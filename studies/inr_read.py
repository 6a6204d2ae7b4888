"""One reader or editor of implicit networks: build it, train it, judge it on test networks and on their moved copies.

Functions here run in worker processes; what they compute is kept in the store and found there the next time.

    classify   cross-entropy of the image's class; accuracy on test networks
    edit       mean squared error between the image that the edited network gives and the dilated image

A dilated pixel is the largest of itself and its neighbours, 4 (`cross`) or 8 (`square`, the published footprint, which
on images of 8 × 8 pixels leaves little to tell apart). `moved` networks have their hidden units reordered and flipped
at random, each in its own way: the same images in other weights.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from asym.metanets import Protocol, Stack, chain_of, fit, predict
from asym.models.siren import Siren, grid
from asym.populations import Layout, cached, tick
from asym.populations.sirens import SPLITS, Piece, SirenRecipe, fit_or_load, start_rows, unit_images
from asym.seeds import derived_seed, torch_generator
from asym.store import Store, config_hash
from asym.symmetry.chain import Chain
from asym.symmetry.scaling import permute_units, random_factors, random_orders, scale_units
from studies.inr_build import build_reader
from studies.setup import DataArgs

READ_VERSION = 1
"""Raised by hand whenever the same settings would give other numbers than before."""
KIND = "inr"
SHOWN = 6
"""Test images whose edited versions are kept."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A reader to train."""

    task: str
    reader: str
    """Name and add-ons."""
    instance: int
    seed: int
    """The study's."""
    pieces: tuple[Piece, ...]
    data: DataArgs
    protocol: Protocol
    reader_width: int
    sign: str
    footprint: str
    runs: str
    device: str
    columns: dict[str, Any]
    """Cells that all rows of the study share."""

    @property
    def own_seed(self) -> int:
        """Of start values and of the order of networks; the same for all readers of an instance."""
        return derived_seed(self.seed, "inr", self.instance)

    def build(self) -> Any:
        """The reader, untrained.

        Raises:
            ValueError: if it has no use for one of its add-ons.
        """
        data = self.data.load()
        frame = chain_for(self.pieces[0].recipe, data.input_shape[0])
        return build_reader(self.task, self.reader, frame, data.classes, self.reader_width, self.sign, self.own_seed)


@dataclasses.dataclass
class Sets:
    """The implicit networks of a study, training networks first, then those of validation and test images."""

    stack: Stack
    labels: pd.DataFrame
    """One row a network: `split, image, label, fit, seed, mse, psnr`; networks that diverged are not among them."""
    images: Float[Tensor, "n c p"]
    """The images that they were fitted to."""
    network: Siren
    x: Float[Tensor, "p 2"]
    side: tuple[int, int]

    def places(self, split: str) -> Tensor:
        """Places of the networks of a split."""
        return torch.tensor((self.labels["split"] == split).to_numpy().nonzero()[0])

    def rendered(self, stack: Stack) -> Float[Tensor, "n c p"]:
        """The images that networks give."""
        return self.network.stacked(stack.tensors, self.x)


@functools.lru_cache(maxsize=8)
def chain_for(recipe: SirenRecipe, channels: int) -> Chain:
    """The chain of the networks of a recipe."""
    return chain_of(recipe.network(channels), torch.zeros(2, 2))


@functools.lru_cache(maxsize=2)
def load_sets(pieces: tuple[Piece, ...], data_args: DataArgs, runs: str, device: str) -> Sets:
    """All networks of the pieces, fitted now where they are not in the store.

    Raises:
        ValueError: if no network of a split is left.
    """
    store, data = Store(runs), data_args.load()
    rows, frames, images = [], [], []
    unit = {split: unit_images(data, split).flatten(2) for split in SPLITS}
    for piece in pieces:
        run = fit_or_load(store, piece, data)
        theta, labels = run.tensors()["theta"], run.table("labels")
        good = theta.isfinite().all(1) & torch.tensor(labels["mse"].to_numpy()).isfinite()
        rows.append(theta[good])
        frames.append(labels[good.numpy()])
        images.append(unit[piece.split][torch.tensor(labels["image"].to_numpy())[good]])
    network = pieces[0].recipe.network(data.input_shape[0])
    frame = chain_for(pieces[0].recipe, data.input_shape[0])
    stack = Stack.from_rows(frame, Layout.trainable(network), torch.cat(rows)).to(device)
    labels = pd.concat(frames, ignore_index=True)
    missing = [split for split in SPLITS if not (labels["split"] == split).any()]
    if missing:
        raise ValueError(f"sirens: every network of split {missing[0]} diverged; lower --fit-lr")
    side = data.input_shape[1:]
    return Sets(stack, labels, torch.cat(images).to(device), network, grid(*side).to(device), side)


def dilate(images: Float[Tensor, "n c p"], side: tuple[int, int], footprint: str) -> Float[Tensor, "n c p"]:
    """The largest value among each pixel and its 4 (`cross`) or 8 (`square`) neighbours inside the image."""
    square = images.unflatten(-1, side)
    if footprint == "square":
        return F.max_pool2d(square, 3, 1, 1).flatten(2)
    tall, wide = F.max_pool2d(square, (3, 1), 1, (1, 0)), F.max_pool2d(square, (1, 3), 1, (0, 1))
    return torch.maximum(tall, wide).flatten(2)


def moved(stack: Stack, seed: int) -> Stack:
    """The same functions in other weights: hidden units of each network reordered and flipped at random."""
    lead, generator = (len(stack),), torch_generator(seed, "inr", "moved")
    tensors = scale_units(stack.chain, random_factors(stack.chain, lead, generator, like=stack.like), stack.tensors)
    orders = [order.to(stack.like.device) for order in random_orders(stack.chain, lead, generator)]
    return stack.replace(permute_units(stack.chain, orders, tensors))


def read_config(task: Task) -> dict[str, Any]:
    """What determines a trained reader and its measures, as the store names it."""
    return {
        "version": READ_VERSION,
        "pieces": config_hash({"pieces": [piece.config for piece in task.pieces]}),
        "protocol": dataclasses.asdict(task.protocol),
        **{f: getattr(task, f) for f in ("task", "reader", "instance", "seed", "reader_width", "sign", "footprint")},
    }


def read(task: Task) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Tensor]]:
    """The row of `inr.csv` of a reader, those of `inr_history.csv`, and its values on each test network."""
    run = cached(Store(task.runs), KIND, read_config(task), functools.partial(_train, task))
    state, tensors = run.state(), run.tensors()
    key = {"task": task.task, "reader": task.reader, "instance": task.instance}
    row = task.columns | key | {"seed": task.own_seed} | state
    columns = {"config": task.columns["config"]} | key
    points: list[dict[Any, Any]] = run.table("history").to_dict("records")
    history: list[dict[str, Any]] = [columns | point for point in points]
    return row, history, tensors


def _train(task: Task) -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
    start = time.perf_counter()
    sets = load_sets(task.pieces, task.data, task.runs, task.device)
    reader = task.build().to(task.device)
    train, val, test = (sets.places(split) for split in SPLITS)
    job = _edit(task, sets) if task.task == "edit" else _classify(sets)
    found = fit(
        reader, sets.stack, job.targets, train, val, task.protocol,
        seed=task.own_seed, loss=job.loss, score=job.score, call=job.call, on_epoch=lambda: tick(1.0),
    )  # fmt: skip
    stack, targets = sets.stack.rows(test), job.targets[test]
    tensors: dict[str, Tensor] = {}
    for ending, networks in (("", stack), ("_moved", moved(stack, task.seed))):
        outputs = predict(reader, networks, piece=4 * task.protocol.piece, call=job.call)
        tensors |= {f"{name}{ending}": v.cpu().double() for name, v in job.values(outputs, targets).items()}
        if task.task == "edit" and not ending:
            tensors["images"] = outputs[:SHOWN].cpu()
    lost = found.diverged > 0 and found.epoch == 0
    state: dict[str, Any] = {"params": sum(p.numel() for p in reader.parameters())}
    state |= {name: float("nan") if lost else float(v.mean()) for name, v in tensors.items() if name != "images"}
    state |= {"val_score": found.score, "best_epoch": found.epoch, "diverged": found.diverged}
    state |= {"epoch_s": round(found.epoch_s, 3), "wall_s": round(time.perf_counter() - start, 3)}
    return tensors, {"history": pd.DataFrame(found.history, columns=["epoch", "train_loss", "val_score"])}, state


def time_step(task: Task) -> tuple[float, int]:
    """Seconds of a reader's step, on networks that are not fitted, and its parameters."""
    data = task.data.load()
    network, side = task.pieces[0].recipe.network(data.input_shape[0]), data.input_shape[1:]
    rows = start_rows(network, range(task.protocol.batch))
    frame = chain_for(task.pieces[0].recipe, data.input_shape[0])
    stack = Stack.from_rows(frame, Layout.trainable(network), rows).to(task.device)
    reader, x = task.build().to(task.device), grid(*side).to(task.device)
    reader.observe(stack)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        for first in range(0, len(stack), task.protocol.piece):
            part = stack.rows(slice(first, first + task.protocol.piece))
            found = reader(part) if task.task == "classify" else network.stacked(reader.edit(part).tensors, x)
            found.square().sum().backward()
        times.append(time.perf_counter() - start)
    return min(times), sum(p.numel() for p in reader.parameters())


@dataclasses.dataclass(frozen=True)
class _Job:
    """What is learnt, and how it is judged."""

    targets: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float] | None
    call: Callable[[Any, Stack], Tensor]
    values: Callable[[Tensor, Tensor], dict[str, Tensor]]
    """(outputs, targets) → name → one number a network."""


def _classify(sets: Sets) -> _Job:
    labels = torch.tensor(sets.labels["label"].to_numpy()).long().to(sets.x.device)

    def hits(logits: Tensor, targets: Tensor) -> Tensor:
        return (logits.argmax(1) == targets).double()

    def score(logits: Tensor, targets: Tensor) -> float:
        return float(hits(logits, targets).mean()) if bool(logits.isfinite().all()) else float("nan")

    return _Job(
        labels,
        F.cross_entropy,
        score,
        lambda reader, stack: reader(stack),
        lambda logits, targets: {
            "accuracy": hits(logits, targets),
            "nll": F.cross_entropy(logits, targets, reduction="none"),
        },
    )


def _edit(task: Task, sets: Sets) -> _Job:
    return _Job(
        dilate(sets.images, sets.side, task.footprint),
        F.mse_loss,
        None,
        lambda editor, stack: sets.rendered(editor.edit(stack)),
        lambda images, targets: {"mse": squares(images, targets)},
    )


def squares(images: Float[Tensor, "n c p"], targets: Float[Tensor, "n c p"]) -> Float[Tensor, " n"]:
    """Mean squared error of each image."""
    return (images - targets).square().mean((1, 2))
