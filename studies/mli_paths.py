"""The work of the interpolation study: train a chunk of networks, walk each one's line from its start to its end.

Functions here run in worker processes; what they compute is kept in the store and found there the next time. The
initial weights are not stored: a network is built again from its seed.

With p the predicted probabilities, y the label, s the label smoothing and C the number of classes,

    loss with smoothing = (1 − s) · mean(−log p_y) + s · mean(Σ_c −log p_c / C),

so that one pass over the images gives the losses with and without it. Logits are float32, what follows is float64: on a
plateau of the loss a rise of one rounding error must not decide whether a path is monotone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from asym.data import Data
from asym.metrics import monotonicity
from asym.populations import (
    Evaluator,
    Layout,
    Plan,
    Population,
    Trained,
    cached,
    run_config,
    subset,
    tick,
    train_or_load,
)
from asym.store import Store, config_hash
from studies.setup import DataArgs

MEASURE_VERSION = 1
"""Raised by hand whenever the same networks would give other measurements than before."""

KIND = "mli"
LOSSES = ("smooth", "train", "test")
"""Training loss with the run's label smoothing (the published one), without it, test loss without it."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """How a network is measured."""

    points: int
    images: int | None
    """Images of each split that losses are computed on; None for all."""

    @property
    def lambdas(self) -> list[float]:
        """Equally spaced from 0, the initial weights, to 1, the final ones."""
        return [i / (self.points - 1) for i in range(self.points)]


@dataclasses.dataclass(frozen=True)
class Task:
    """A chunk of networks to train and measure."""

    population: Population
    networks: tuple[int, ...]
    """Numbers of the chunk's networks within their family."""
    plan: Plan
    data: DataArgs
    measure: Measure
    runs: str
    device: str
    columns: dict[str, Any]
    """Cells that all rows of the family share."""


def path_epochs(task: Task) -> float:
    """How many epochs of its training measuring a network costs: a forward pass is a third of a step."""
    data = task.data.load()
    images = sum(min(len(split.labels), task.measure.images or len(split.labels)) for split in (data.train, data.test))
    return task.measure.points * images / (3 * len(data.train.labels))


def path_config(task: Task) -> dict[str, Any]:
    """What determines the measurement of a trained chunk, as the store names it."""
    trained = config_hash(run_config(task.population, task.plan))
    return {"version": MEASURE_VERSION, "population": trained, **dataclasses.asdict(task.measure)}


def measure_chunk(task: Task) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `mli.csv` and of `mli_curves.csv` of a chunk's networks."""
    store, data = Store(task.runs), task.data.load()
    trained = train_or_load(store, task.population, data, task.plan, device=task.device, on_epoch=tick)
    run = cached(store, KIND, path_config(task), functools.partial(_measure, task, data, trained))
    state, curves = run.state(), run.table("curves")
    wall_s = (trained.wall_s + float(state["wall_s"])) / len(task.networks)
    rows, points = [], []
    for i, (number, member) in enumerate(zip(task.networks, task.population.members)):
        recipe, diverged = member.recipe, int(trained.diverged[i])
        curve = curves[curves["network"] == i].drop(columns="network")
        own = {"network": number, "seed": member.seed, "mask_seed": member.mask_seed}
        drawn = {f: getattr(recipe, f) for f in ("lr", "weight_decay", "smoothing", "epochs", "warmup", "batch_size")}
        row = task.columns | own | drawn | {"diverged": diverged} | shape_of(curve, diverged > 0)
        rows.append(row | {"wall_s": round(wall_s, 3)})
        key = {name: row[name] for name in ("config", "variant", "network")}
        points += [{**key, **point} for point in curve.to_dict("records")]
        tick(path_epochs(task))
    return rows, points


def shape_of(curve: pd.DataFrame, diverged: bool) -> dict[str, Any]:
    """End points of a curve, and the measures of monotonicity of each loss; missing if the network diverged.

    Args:
        curve: one row a point, in the order of `lam`, with `<loss>_loss` for each of `LOSSES`, `train_acc`, `test_acc`.
        diverged: whether the network's training did.
    """
    row: dict[str, Any] = {}
    for column in (*(f"{loss}_loss" for loss in LOSSES), "train_acc", "test_acc"):
        values = curve[column].to_numpy(dtype=float)
        row |= {f"{column}_start": float(values[0]), column: float(values[-1])}
    for loss in LOSSES:
        shape = monotonicity(curve[f"{loss}_loss"].to_numpy(dtype=float))
        row |= {
            f"{loss}_delta": shape.max_rise,
            f"{loss}_monotone": None if diverged else shape.monotone,
            f"{loss}_local_convexity": shape.local_convexity,
            f"{loss}_global_convexity": shape.below_chord,
            f"{loss}_global_convexity_second": shape.below_second_point_chord,
        }
    return row


def losses(logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"], smoothing: float) -> tuple[float, float, float]:
    """Mean loss with smoothing, mean loss without (both in nats), accuracy as a fraction."""
    log_p = torch.log_softmax(logits.double(), dim=1)
    plain = -log_p.gather(1, labels[:, None]).mean().item()
    accuracy = (logits.argmax(dim=1) == labels).double().mean().item()
    return (1 - smoothing) * plain - smoothing * log_p.mean().item(), plain, accuracy


def _measure(
    task: Task, data: Data, trained: Trained
) -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
    start = time.perf_counter()
    members, architecture = task.population.members, task.population.architecture
    network = architecture.build(members[0].seed, members[0].mask_seed)
    layout = Layout.trainable(network)
    splits = {name: subset(getattr(data, name), task.measure.images, name) for name in ("train", "test")}
    evaluate = Evaluator(network, layout, data, splits, device=task.device, reestimate=True)
    points: list[dict[str, Any]] = []
    for i, member in enumerate(members):
        first = layout.flatten(dict(architecture.build(member.seed, member.mask_seed).named_parameters()))
        last = trained.theta[i]
        for lam in task.measure.lambdas:
            point: dict[str, Any] = {"network": i, "lam": lam}
            if trained.diverged[i]:
                names = (*(f"{loss}_loss" for loss in LOSSES), "train_acc", "test_acc")
                points.append(point | dict.fromkeys(names, math.nan))
                continue
            outputs = evaluate.logits(first if lam == 0 else last if lam == 1 else torch.lerp(first, last, lam))
            smooth, train, train_acc = losses(*outputs["train"], member.recipe.smoothing)
            _, test, test_acc = losses(*outputs["test"], 0.0)
            point |= {"smooth_loss": smooth, "train_loss": train, "test_loss": test}
            points.append(point | {"train_acc": train_acc, "test_acc": test_acc})
    return {}, {"curves": pd.DataFrame(points)}, {"wall_s": time.perf_counter() - start}
