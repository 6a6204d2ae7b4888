"""What is measured of a group of networks: the line of a pair, calibrated or not, a merge, a plane.

Functions here run in worker processes; what they compute is kept in the store and found there the next time. Losses
are in nats, accuracies fractions; a barrier is the loss at a point minus the mean of the networks' own, weighted as the
point is mixed, and the other way round for accuracies: positive is worse.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from asym.calibration import cross_entropy_at, fit_temperature
from asym.data import Data
from asym.metrics import accuracy_barrier_curve, barrier_curve
from asym.nn import to_plain
from asym.populations import Evaluator, Layout, Population, Trained, cached, run_config, subset, tick, train_population
from asym.store import Store, config_hash
from studies.ablate_factors import Measure
from studies.lmc_pairs import PATH_EPOCHS, Task, measure_pair, networks_of, placed

ABLATE_VERSION = 1
"""Raised by hand whenever the same networks would give other measurements than before."""
MARGIN = 0.25
"""How far the plane's grid reaches beyond the three networks, in units of the distance of the first two."""
NAN = float("nan")


@dataclasses.dataclass(frozen=True)
class Group:
    """Networks to train and measure together."""

    measure: Measure
    task: Task
    """The pair that the group starts with, as the connectivity study plans it."""
    extra: tuple[Population, ...]
    """Further pairs with the same masks, for merge and plane."""
    ks: tuple[int, ...]
    """Sizes of the merges."""
    grid: int
    """Points along each side of the plane's grid; 0 for no grid."""
    columns: dict[str, Any]
    """Cells of the rows that are known beforehand."""

    @property
    def populations(self) -> list[Population]:
        """All pairs of the group."""
        return [self.task.population, *self.extra]

    @property
    def work(self) -> float:
        """Its share of the progress, in epochs of one network."""
        epochs = sum(m.recipe.epochs for population in self.populations for m in population.members)
        return epochs + PATH_EPOCHS * len(self.task.alignments)


Rows = list[dict[str, Any]]


def measured_config(group: Group, alignment: str) -> dict[str, Any]:
    """What determines a measurement other than `pair`, as the store names it."""
    task = group.task
    measure = dataclasses.asdict(task.measure)
    if alignment == "none":
        del measure["restarts"]
    if group.measure != "calibrated":
        del measure["points"]
    hashes = [config_hash(run_config(population, task.plan)) for population in group.populations]
    return {
        "version": ABLATE_VERSION,
        "populations": hashes,
        "alignment": alignment,
        "ks": list(group.ks),
        "grid": group.grid,
        **measure,
    }


def measure_group(group: Group) -> tuple[Rows, Rows]:
    """Rows of the factor's table and of its grid."""
    if group.measure == "pair":
        return _pair(group), []
    task, store, data = group.task, Store(group.task.runs), group.task.data.load()
    trained = [
        train_population(store, population, data, task.plan, device=task.device, on_epoch=tick)
        for population in group.populations
    ]
    diverged = [epoch for part in trained for epoch in part.diverged]
    rows, grid = [], []
    for alignment in task.alignments:
        compute = functools.partial(_measure, group, trained, data, alignment, any(diverged))
        run = cached(store, group.measure, measured_config(group, alignment), compute)
        wall = round(sum(part.wall_s for part in trained) + float(run.state()["wall_s"]), 3)
        key = {**group.columns, "alignment": alignment}
        ends = {"diverged_a": diverged[0], "diverged_b": max(diverged[1:]), "wall_s": wall}
        target = _epochs_to_target(trained, group.columns["target_accuracy"])
        for row in run.state()["rows"]:
            row = {name: NAN if value is None else value for name, value in row.items()}
            level = {"level": f"k = {row['k']}", "value": float(row["k"])} if group.measure == "merge" else {}
            rows.append(key | level | row | target | ends)
        if group.grid and not any(diverged):
            grid += [key | point for point in run.table("grid").to_dict("records")]
        tick(PATH_EPOCHS)
    return rows, grid


def _pair(group: Group) -> Rows:
    rows, _ = measure_pair(group.task)
    task = group.task
    trained = train_population(Store(task.runs), task.population, task.data.load(), task.plan, device=task.device)
    target = _epochs_to_target([trained], group.columns["target_accuracy"])
    own = ("alignment", *(name for name in rows[0] if name not in task.columns))
    return [{**group.columns, **{name: row[name] for name in own}, **target} for row in rows]


def _epochs_to_target(trained: list[Trained], target: float) -> dict[str, float]:
    """Mean over networks of the first epoch whose training accuracy is at least `target`; NaN if one has none."""
    firsts = []
    for part in trained:
        history = pd.DataFrame(part.history)
        accuracy = history["train_acc"] if "train_acc" in history else pd.Series(NAN, index=history.index)
        reached = history[accuracy >= target].groupby("network")["epoch"].min()
        firsts += [float(reached.get(i, NAN)) for i in range(len(part.diverged))]
    return {"epochs_to_target": float(np.mean(firsts))}


def _measure(
    group: Group, trained: list[Trained], data: Data, alignment: str, diverged: bool
) -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
    start = time.perf_counter()
    task = group.task
    count = max(group.ks, default=2 + len(group.extra))
    tables: dict[str, pd.DataFrame] = {}
    evaluate: Evaluator | _Nowhere = _Nowhere()
    points = [torch.zeros(1)] * count
    if not diverged:
        parts = zip(group.populations, trained)
        networks = [to_plain(n) for population, part in parts for n in networks_of(population, part)][:count]
        first, layout = networks[0], Layout.full(networks[0])
        restarts = task.measure.restarts
        points = [layout.flatten(first.state_dict())]
        points += [placed(first, n, data, alignment, restarts, task.device)[0] for n in networks[1:]]
        names = ("test", "train", "val") if group.measure == "calibrated" else ("test", "train")
        splits = {name: subset(getattr(data, name), task.measure.images, name) for name in names}
        evaluate = Evaluator(first, layout, data, splits, device=task.device, reestimate=True)
    if group.measure == "calibrated":
        rows = [calibrated(evaluate, points[0], points[1], task.measure.lambdas)]
    elif group.measure == "merge":
        rows = merges(evaluate, points, group.ks)
    else:
        rows = [plane(evaluate, points)]
        if group.grid and not diverged:
            tables["grid"] = plane_grid(evaluate, points, group.grid)
    return {}, tables, {"rows": rows, "wall_s": time.perf_counter() - start}


class _Nowhere:
    """Stands for networks that diverged: every measure of them is missing."""

    def __call__(self, row: Tensor) -> dict[str, tuple[float, float]]:
        return dict.fromkeys(("test", "train"), (NAN, NAN))

    def logits(self, row: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        return {split: (torch.full((1, 1), NAN), torch.zeros(1, dtype=torch.int64)) for split in ("test", "val")}


def calibrated(evaluate: Evaluator | _Nowhere, a: Tensor, b: Tensor, lambdas: list[float]) -> dict[str, float]:
    """Barriers along the line between two networks, as they are and with each point's own temperature.

    The temperature is the one that fits the split `val` best; losses are those of `test`.
    """
    loss, calm, accuracy, temperatures = [], [], [], []
    for lam in lambdas:
        logits = evaluate.logits(a if lam == 0 else b if lam == 1 else torch.lerp(a, b, lam))
        temperatures.append(fit_temperature(*logits["val"]))
        z, y = (part.numpy() for part in logits["test"])
        finite = bool(np.isfinite(z).all()) and temperatures[-1] == temperatures[-1]
        loss.append(cross_entropy_at(z, y) if finite else NAN)
        calm.append(cross_entropy_at(z, y, temperatures[-1]) if finite else NAN)
        accuracy.append(float(np.mean(z.argmax(axis=1) == y)) if finite else NAN)
    middle = len(lambdas) // 2
    row = {"loss_a": loss[0], "loss_b": loss[-1], "acc_a": accuracy[0], "acc_b": accuracy[-1]}
    row |= {"calibrated_loss_a": calm[0], "calibrated_loss_b": calm[-1]}
    row |= {
        "temperature_a": temperatures[0],
        "temperature_b": temperatures[-1],
        "temperature_mid": temperatures[middle],
    }
    for name, excess in (
        ("barrier_loss", barrier_curve(loss, lambdas)),
        ("barrier_calibrated", barrier_curve(calm, lambdas)),
        ("barrier_acc", accuracy_barrier_curve(accuracy, lambdas)),
    ):
        row |= {f"{name}_mid": excess.mid, f"{name}_max": excess.max}
    return row


def merges(evaluate: Evaluator | _Nowhere, points: list[Tensor], ks: tuple[int, ...]) -> list[dict[str, float]]:
    """For each k, the average of the first k networks against the mean of what they are worth alone."""
    alone = [evaluate(point) for point in points[: max(ks)]]
    rows = []
    for k in ks:
        merged = evaluate(torch.stack(points[:k]).mean(dim=0))
        rows.append({"k": k} | _against(merged, alone[:k]))
    return rows


def plane(evaluate: Evaluator | _Nowhere, points: list[Tensor]) -> dict[str, float]:
    """The centre of three networks against the networks, and the middles of the edges between them."""
    alone = [evaluate(point) for point in points]
    row = _against(evaluate(torch.stack(points).mean(dim=0)), alone)
    edges = [evaluate((points[i] + points[j]) / 2)["test"] for i, j in ((0, 1), (0, 2), (1, 2))]
    ends = [alone[i]["test"][0] + alone[j]["test"][0] for i, j in ((0, 1), (0, 2), (1, 2))]
    row["barrier_loss_edges"] = float(np.mean([edge[0] - end / 2 for edge, end in zip(edges, ends)]))
    return row


def _against(point: dict[str, tuple[float, float]], alone: list[dict[str, tuple[float, float]]]) -> dict[str, float]:
    row: dict[str, float] = {}
    for split, prefix in (("test", ""), ("train", "train_")):
        losses, accuracies = ([each[split][i] for each in alone] for i in range(2))
        loss, accuracy = float(np.mean(losses)), float(np.mean(accuracies))
        row |= {f"{prefix}loss": loss, f"{prefix}acc": accuracy}
        row |= {f"{prefix}loss_worst": max(losses), f"{prefix}acc_worst": min(accuracies)}
        row |= {f"{prefix}loss_mid": point[split][0], f"{prefix}acc_mid": point[split][1]}
        row |= {
            f"{prefix}barrier_loss_mid": point[split][0] - loss,
            f"{prefix}barrier_acc_mid": accuracy - point[split][1],
        }
    return row


def plane_frame(points: list[Tensor]) -> tuple[Tensor, Tensor, list[tuple[float, float]]]:
    """Two directions that span the plane, of the length of the first edge, and the networks' coordinates in them.

    u = b − a;  v = the part of c − a across u, at |u|'s length (Garipov et al., "Loss Surfaces, Mode Connectivity, and
    Fast Ensembling of DNNs", 2018). Networks are at (0, 0), (1, 0) and (x, y): distances are those of weight space in
    units of |b − a|.

    Raises:
        ValueError: if the three lie on a line.
    """
    a, b, c = (point.double() for point in points)
    u, w = b - a, c - a
    size = u.norm()
    x = (w @ u / size**2).item()
    across = w - x * u
    if not across.norm() > 1e-6 * max(size.item(), w.norm().item()):
        raise ValueError("points: the three networks lie on a line and span no plane")
    v = across * (size / across.norm())
    return u, v, [(0.0, 0.0), (1.0, 0.0), (x, (across.norm() / size).item())]


def plane_grid(evaluate: Evaluator | _Nowhere, points: list[Tensor], count: int) -> pd.DataFrame:
    """Test loss and accuracy on a grid of `count` × `count` points that holds the three networks with a margin."""
    u, v, corners = plane_frame(points)
    sides = [np.linspace(min(s) - MARGIN, max(s) + MARGIN, count) for s in zip(*corners)]
    rows = []
    for i, x in enumerate(sides[0]):
        for j, y in enumerate(sides[1]):
            loss, accuracy = evaluate((points[0].double() + x * u + y * v).float())["test"]
            rows.append({"column": i, "row": j, "x": x, "y": y, "loss": loss, "acc": accuracy})
    # The networks themselves, with a row number of their own: what the figure marks.
    for i, (x, y) in enumerate(corners):
        loss, accuracy = evaluate(points[i])["test"]
        rows.append({"column": i, "row": -1, "x": x, "y": y, "loss": loss, "acc": accuracy})
    return pd.DataFrame(rows)
