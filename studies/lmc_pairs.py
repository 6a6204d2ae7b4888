"""The work of the connectivity study: train a pair, align it, walk the line between its networks.

Functions here run in worker processes; what they compute is kept in the store and found there the next time.

The loss barrier at λ is L(λ) − [(1 − λ) L_a + λ L_b] with L(λ) the loss of the network with weights (1 − λ) θ_a + λ θ_b
(Frankle et al., "Linear mode connectivity", 2020; mid-point as in the asymmetric-networks paper, section 5). The
accuracy barrier has the opposite sign, so that positive means worse.

Networks are compared in plain form: a masked layer's effective weight is linear in its weight, so the line between two
W networks is the line between their plain forms, and matching applies to any of them.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from asym.data import Data
from asym.metrics import accuracy_barrier_curve, barrier_curve
from asym.models.checkpoints import load_checkpoint
from asym.nn import to_plain
from asym.populations import (
    Architecture,
    Evaluator,
    Layout,
    Plan,
    Population,
    Trained,
    cached,
    path,
    run_config,
    subset,
    tick,
    train_population,
)
from asym.store import Store, config_hash
from asym.symmetry import permutation_spec, permute
from studies.setup import DataArgs

if TYPE_CHECKING:
    from asym.symmetry import Matching

MEASURE_VERSION = 1
"""Raised by hand whenever the same networks would give other measurements than before."""

MATCHING_IMAGES = 1000
PATH_EPOCHS = 2.0
"""Progress: a path counts as much as this many epochs of the pair."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """How a pair is measured."""

    points: int
    images: int | None
    """Images of each split that losses are computed on; None for all."""
    restarts: int

    @property
    def lambdas(self) -> list[float]:
        """Equally spaced from 0 to 1; the middle one is exactly ½."""
        return [i / (self.points - 1) for i in range(self.points)]


@dataclasses.dataclass(frozen=True)
class CheckpointTask:
    """Two networks from files to measure."""

    architecture: Architecture
    files: tuple[str, str]
    data: DataArgs
    measure: Measure
    alignments: tuple[str, ...]
    device: str
    columns: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Task:
    """A pair to train and measure."""

    population: Population
    plan: Plan
    data: DataArgs
    measure: Measure
    alignments: tuple[str, ...]
    runs: str
    device: str
    columns: dict[str, Any]
    """Cells of the row that are known beforehand."""


def validation_config(population_hash: str) -> dict[str, Any]:
    """What determines the validation loss of a trained network, as the store names it."""
    return {"version": MEASURE_VERSION, "population": population_hash}


@dataclasses.dataclass(frozen=True)
class Trial:
    """A network to train in order to choose a learning rate."""

    population: Population
    plan: Plan
    data: DataArgs
    runs: str
    device: str


def path_configs(task: Task, population_hash: str) -> dict[str, dict[str, Any]]:
    """Alignment → what determines the measurement of a trained pair, as the store names it."""
    out = {}
    for alignment in task.alignments:
        measure = dataclasses.asdict(task.measure)
        if alignment == "none":
            del measure["restarts"]
        out[alignment] = {
            "version": MEASURE_VERSION,
            "population": population_hash,
            "alignment": alignment,
            **measure,
        }
    return out


def tune(trial: Trial) -> dict[str, float]:
    """Validation loss and accuracy of the trial's network after training; an infinite loss if it diverged."""
    store, data, population, plan = Store(trial.runs), trial.data.load(), trial.population, trial.plan
    device = trial.device

    def compute() -> tuple[dict, dict, dict]:
        trained = train_population(store, population, data, plan, device=device, on_epoch=tick)
        loss, accuracy = float("inf"), float("nan")
        if not trained.diverged[0]:
            network = networks_of(population, trained)[0]
            layout = Layout.full(network)
            evaluate = Evaluator(network, layout, data, {"val": data.val}, device=device)
            loss, accuracy = evaluate(layout.flatten(network.state_dict()))["val"]
        return {}, {}, {"val_loss": loss, "val_acc": accuracy, "wall_s": trained.wall_s}

    config = validation_config(config_hash(run_config(population, plan)))
    state = cached(store, "validation", config, compute).state()
    return {key: float(state[key]) for key in ("val_loss", "val_acc", "wall_s")}


def measure_pair(task: Task) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `lmc.csv` and of `lmc_curves.csv` of one pair, one row an alignment."""
    store, data = Store(task.runs), task.data.load()
    trained = train_population(store, task.population, data, task.plan, device=task.device, on_epoch=tick)
    networks = [to_plain(network) for network in networks_of(task.population, trained)]
    configs = path_configs(task, config_hash(run_config(task.population, task.plan)))
    rows, curves = [], []
    for alignment in task.alignments:
        compute = functools.partial(_measure, networks, data, task, alignment, any(trained.diverged))
        run = cached(store, "path", configs[alignment], compute)
        state, curve = run.state(), run.table("curve")
        wall = trained.wall_s + float(state["wall_s"])
        key = {**task.columns, "alignment": alignment}
        diverged = {"diverged_a": trained.diverged[0], "diverged_b": trained.diverged[-1]}
        apart = distances(networks, permutations_of(run.tensors()), data)
        rows.append({**key, **state["row"], **apart, **diverged, "wall_s": round(wall, 3)})
        curves += [{**key, **point} for point in curve.to_dict("records")]
        tick(PATH_EPOCHS)
    return rows, curves


def measure_checkpoints(task: CheckpointTask) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows and curves of two networks from files; nothing is kept in the store."""
    data = task.data.load()
    networks = [to_plain(load_checkpoint(task.architecture.build(0), file)).eval() for file in task.files]
    rows, curves = [], []
    for alignment in task.alignments:
        tensors, tables, state = _measure(networks, data, task, alignment, diverged=False)
        key = {**task.columns, "alignment": alignment}
        row = state["row"] | distances(networks, permutations_of(tensors), data)
        rows.append({**key, **row, "diverged_a": 0, "diverged_b": 0, "wall_s": round(state["wall_s"], 3)})
        curves += [{**key, **point} for point in tables["curve"].to_dict("records")]
        tick(PATH_EPOCHS)
    return rows, curves


def networks_of(population: Population, trained: Trained) -> list[nn.Module]:
    """The trained networks of a population, in evaluation mode."""
    out = []
    for i, member in enumerate(population.members):
        network = population.architecture.build(member.seed, member.mask_seed)
        Layout.trainable(network).load_(network, trained.theta[i])
        if trained.running.shape[1]:
            Layout.running(network).load_(network, trained.running[i])
        out.append(network.eval())
    return out


def _measure(
    networks: list[nn.Module], data: Data, task: Task | CheckpointTask, alignment: str, diverged: bool
) -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
    start = time.perf_counter()
    measure, prefix = task.measure, {"test": "", "train": "train_"}
    permutations: dict[str, Tensor] = {}
    row: dict[str, Any] = {"objective": float("nan")}
    if diverged:
        nowhere = [float("nan")] * measure.points
        curves = dict.fromkeys(prefix, (nowhere, nowhere))
    else:
        a, b = networks
        layout = Layout.full(a)
        row_a = layout.flatten(a.state_dict())
        row_b, match = placed(a, b, data, alignment, measure.restarts, task.device)
        if match is not None:
            permutations, row["objective"] = dict(match.perms), float(match.objective)
        splits = {name: subset(getattr(data, name), measure.images, name) for name in prefix}
        evaluate = Evaluator(a, layout, data, splits, device=task.device, reestimate=True)
        curves = path(evaluate, row_a, row_b, measure.lambdas)
    for split, name in prefix.items():
        loss, accuracy = (np.asarray(values) for values in curves[split])
        row |= {f"{name}loss_a": loss[0], f"{name}loss_b": loss[-1]}
        row |= {f"{name}acc_a": accuracy[0], f"{name}acc_b": accuracy[-1]}
        for what, excess in (
            ("loss", barrier_curve(loss, measure.lambdas)),
            ("acc", accuracy_barrier_curve(accuracy, measure.lambdas)),
        ):
            row |= {f"{name}barrier_{what}_mid": excess.mid, f"{name}barrier_{what}_max": excess.max}
    curve = pd.DataFrame(
        [
            {"split": split, "lam": lam, "loss": loss, "acc": accuracy}
            for split, (losses, accuracies) in curves.items()
            for lam, loss, accuracy in zip(measure.lambdas, losses, accuracies)
        ]
    )
    row = {key: float(value) for key, value in row.items()}
    tensors = {f"permutation/{name}": perm.contiguous() for name, perm in permutations.items()}
    return tensors, {"curve": curve}, {"row": row, "wall_s": time.perf_counter() - start}


def permutations_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The permutations among the tensors of a measured line, by group; none for lines that were not aligned."""
    prefix = "permutation/"
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def distances(networks: Sequence[nn.Module], permutations: Mapping[str, Tensor], data: Data) -> dict[str, float]:
    """L2 distance between the parameters of two plain networks, the second permuted first, and their RMS norm.

    Constants of masked networks are the same in both: they add nothing to the distance, but they do to the norm.
    """
    a, b = networks
    layout = Layout.of(a.named_parameters())
    first, second = (layout.flatten(dict(network.named_parameters())) for network in (a, b))
    if permutations:
        whole = Layout.full(a)
        moved = permute(permutation_spec(a, data.example()), permutations, whole.views(whole.flatten(b.state_dict())))
        second = layout.flatten(moved)
    first, second = first.double(), second.double()
    norm = ((first.square().sum() + second.square().sum()) / 2).sqrt()
    return {"distance": float((first - second).norm()), "weight_norm": float(norm)}


def placed(
    a: nn.Module, b: nn.Module, data: Data, alignment: str, restarts: int, device: str
) -> tuple[Tensor, Matching | None]:
    """Plain network `b` as a row of `Layout.full(a)`, permuted towards `a` unless the alignment is `none`."""
    layout = Layout.full(a)
    row = layout.flatten(b.state_dict())
    if alignment == "none":
        return row, None
    match = align(a, b, data, alignment, restarts, device)
    return layout.flatten(permute(permutation_spec(a, data.example()), match.perms, layout.views(row))), match


def align(a: nn.Module, b: nn.Module, data: Data, alignment: str, restarts: int, device: str) -> Matching:
    """Permutations that bring plain network `b` close to `a`, by weights or by activations on training images."""
    from asym.symmetry import activation_matching, weight_matching

    spec = permutation_spec(a, data.example())
    spec.prove(a, data.example())
    layout = Layout.full(a)
    first, second = (layout.views(layout.flatten(n.state_dict())) for n in (a, b))
    if alignment == "weight":
        return weight_matching(spec, first, second, restarts=restarts, seed=0)
    batches = [data.inputs(part) for part in subset(data.train, MATCHING_IMAGES, "matching").parts(250)]
    return activation_matching(a, spec, first, second, batches)
