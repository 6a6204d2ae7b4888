"""Straight lines between two language models, and averages of several: what their weights have in common.

Before two SAFFU models are compared, what a soft-max ignores is taken off: row means of W, U and O, and the part of O
that its contexts could pass to each other (`gauge_fixed`). Straight lines do not leave such an orbit, so that barriers
are the same without; distances and matchings are not. Alignments of the second network's hidden units, each context
for itself: `weight` (inner product of [U; Oᵀ]), `activation` (correlation of h), `known` (the inverse of the
permutation that was applied at the start).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from asym.metrics import barrier_curve
from asym.models.saffu import SaffuLM
from asym.populations import tick
from asym.populations.runs import cached
from asym.store import Run, Store
from asym.symmetry import PermutationSpec, permute, weight_matching
from asym.symmetry.layout import Axis, Concat, Fixed, Permuted
from studies.saffu_begin import permutation
from studies.saffu_nets import Net, TextArgs
from studies.saffu_train import Examples, examples, load, restore, trained

KIND = "language-model-line"
MEASURE_VERSION = 1
POINT_STEPS = 20
"""A point of a line is counted as so many training steps in progress."""


@dataclass(frozen=True)
class Pair:
    """Two networks and how they are compared; picklable.

    Attributes:
        nets: a and b; for an average two or more.
        union: the network trained on all their texts together, for an average.
        alignments: see the module.
        columns: cells that every row has.
    """

    nets: tuple[Net, ...]
    union: Net | None
    alignments: tuple[str, ...]
    points: int
    evaluate: int
    args: TextArgs
    runs: str
    device: str
    columns: tuple[tuple[str, Any], ...]


def line_config(pair: Pair, fingerprint: str) -> dict[str, Any]:
    """What determines the measurement of a pair."""
    return {
        "version": MEASURE_VERSION,
        "nets": [net.config(fingerprint, pair.evaluate) for net in pair.nets],
        "union": pair.union and pair.union.config(fingerprint, pair.evaluate),
        "alignments": list(pair.alignments),
        "points": pair.points,
        "known": [net.start.permute for net in pair.nets],
    }


def measure_pair(pair: Pair) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Train what is not trained yet, and measure; rows of one pair, and points of its lines."""
    store, data = Store(pair.runs), pair.args.load()
    runs = [trained(store, net, pair.args, pair.device, pair.evaluate) for net in pair.nets]
    facts = [run.state() for run in runs]
    head = dict(pair.columns) | {
        "params": facts[0]["params"],
        "diverged_a": facts[0]["diverged"],
        "diverged_b": facts[1]["diverged"],
    }
    if any(fact["diverged"] for fact in facts):
        return [head | {"alignment": a, "wall_s": sum(f["wall_s"] for f in facts)} for a in pair.alignments], []

    def compute() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        models = [restore(run, net, data, pair.device) for run, net in zip(runs, pair.nets)]
        tests = examples(data.test, pair.nets[0].sizes, pair.evaluate, pair.device)
        trains = examples(data.train, pair.nets[0].sizes, max(256, pair.evaluate // 2), pair.device)
        rows, curves = [], []
        for alignment in pair.alignments:
            row, curve = compare(models[0], models[1], alignment, pair, tests, trains)
            rows.append({"alignment": alignment} | row)
            curves.append(curve.assign(alignment=alignment))
        return {}, {"rows": pd.DataFrame(rows), "curves": pd.concat(curves)}, {}

    run = cached(store, KIND, line_config(pair, data.fingerprint), compute)
    tick(len(pair.alignments) * pair.points * POINT_STEPS)
    wall = sum(fact["wall_s"] for fact in facts)
    rows = [
        head | {str(k): v for k, v in row.items()} | {"wall_s": wall} for row in run.table("rows").to_dict("records")
    ]
    points = [head | {str(k): v for k, v in p.items()} for p in run.table("curves").to_dict("records")]
    return rows, points


def measure_average(pair: Pair) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One row: the average of k networks against its parts and against one network of all their texts."""
    store, data = Store(pair.runs), pair.args.load()
    nets = pair.nets if pair.union is None else (*pair.nets, pair.union)
    runs = [trained(store, net, pair.args, pair.device, pair.evaluate) for net in nets]
    facts = [run.state() for run in runs]
    head = dict(pair.columns) | {"params": facts[0]["params"], "diverged": max(f["diverged"] for f in facts)}
    wall = {"wall_s": sum(f["wall_s"] for f in facts)}
    if head["diverged"]:
        return [head | wall], []

    def compute() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        test = examples(data.test, pair.nets[0].sizes, pair.evaluate, pair.device)
        models = [gauge_fixed(restore(run, net, data, pair.device)) for run, net in zip(runs, nets)]
        losses = [test.loss(model) for model in models]
        parts, states = losses[: len(pair.nets)], [_state(model) for model in models[: len(pair.nets)]]
        row = {
            "loss_parts": float(np.mean(parts)),
            "loss_best_part": min(parts),
            "loss_average": _averaged(models[0], states, test),
        }
        if isinstance(models[0], SaffuLM) and models[0].output_mask is None:
            spec = permutations_of(models[0])
            moved = [permute(spec, weight_matching(spec, states[0], s, restarts=1).perms, s) for s in states[1:]]
            row["loss_average_matched"] = _averaged(models[0], [states[0], *moved], test)
        if pair.union is not None:
            row["loss_union"] = losses[-1]
        return {}, {"rows": pd.DataFrame([row])}, {}

    run = cached(store, KIND + "-average", line_config(pair, data.fingerprint), compute)
    return [head | _records(run, "rows")[0] | wall], []


def _records(run: Run, table: str) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in run.table(table).to_dict("records")]


def _averaged(like: nn.Module, states: list[dict[str, Tensor]], test: Examples) -> float:
    model = copy.deepcopy(like)
    load(model, {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    return test.loss(model)


@torch.no_grad()
def compare(
    a: nn.Module, b: nn.Module, alignment: str, pair: Pair, test: Examples, train: Examples
) -> tuple[dict[str, float], pd.DataFrame]:
    """Barriers of the line from a to b, and how alike the two are."""
    a, b = gauge_fixed(a), gauge_fixed(b)
    row: dict[str, float] = {}
    first, second = _state(a), _state(b)
    if isinstance(a, SaffuLM) and isinstance(b, SaffuLM):
        contexts = test.rows[0]
        h_a, h_b = a.read(contexts), b.read(contexts)
        row["cka"] = linear_cka(h_a, h_b)
        spec = permutations_of(a)
        found = weight_matching(spec, first, second, restarts=1).perms
        stay = [float((p.cpu() == torch.arange(len(p))).float().mean()) for p in found.values()]
        row["identity_share"] = float(np.mean(stay))
        if alignment == "activation":
            found = _by_activation(a, h_a, h_b)
        elif alignment == "known":
            found = _known(a, pair)
        if alignment != "none":
            second = permute(spec, {name: p.to(h_a.device) for name, p in found.items()}, second)
    row["distance"] = _distance(first, second)
    line, lambdas = copy.deepcopy(a), np.linspace(0, 1, pair.points)
    curve = []
    for lam in lambdas:
        load(line, {name: torch.lerp(first[name], second[name], float(lam)) for name in first})
        curve.append({"lam": float(lam), "test_loss": test.loss(line), "train_loss": train.loss(line)})
    table = pd.DataFrame(curve)
    for split, prefix in (("test", ""), ("train", "train_")):
        losses = table[f"{split}_loss"].to_numpy()
        barrier = barrier_curve(losses, lambdas)
        row |= {
            f"{prefix}loss_a": losses[0],
            f"{prefix}loss_b": losses[-1],
            f"{prefix}loss_mid": losses[pair.points // 2],
        }
        row |= {f"{prefix}barrier_loss_mid": barrier.mid, f"{prefix}barrier_loss_max": barrier.max}
    return row, table


@torch.no_grad()
def gauge_fixed(model: nn.Module) -> nn.Module:
    """A copy with the same function whose free shifts are fixed: row means zero, O's contexts with one mean row."""
    model = copy.deepcopy(model)
    if not isinstance(model, SaffuLM):
        return model
    if model.output_mask is not None:  # constants cannot be shifted
        for layer in model.layers.values():
            for matrix in layer.parameters():
                matrix -= matrix.mean(1, keepdim=True)
        return model
    model.fix_gauge()
    if model.parts > 1:
        blocks = model.output.view(model.parts, model.width, -1)
        means = blocks.mean(1, keepdim=True)
        blocks += means.mean(0, keepdim=True) - means
    return model


def permutations_of(model: SaffuLM) -> PermutationSpec:
    """The permutations of a model of one layer a context: columns of U_c with rows of O."""
    vocabulary, dim = model.embedding.shape
    units = {name: Permuted(name, model.width) for name in model.layers}
    tensors: dict[str, tuple[Axis, ...]] = {f"layers.{name}.hidden": (Fixed(dim), unit) for name, unit in units.items()}
    tensors["output"] = (Concat(tuple(units.values())), Fixed(vocabulary))
    return PermutationSpec(tensors, dict.fromkeys(units))


def linear_cka(a: Tensor, b: Tensor) -> float:
    """‖AᵀB‖² / (‖AᵀA‖ ‖BᵀB‖) of centred activations (Kornblith et al. 2019)."""
    a, b = a - a.mean(0), b - b.mean(0)
    return float((a.T @ b).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm()))


def _by_activation(model: SaffuLM, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    found = {}
    for i, name in enumerate(model.layers):
        units = slice(i * model.width, (i + 1) * model.width)
        x, y = ((h[:, units] - h[:, units].mean(0)) / (h[:, units].std(0) + 1e-12) for h in (a, b))
        found[name] = torch.from_numpy(linear_sum_assignment((x.T @ y).cpu().numpy(), maximize=True)[1])
    return found


def _known(model: SaffuLM, pair: Pair) -> dict[str, Tensor]:
    found = {}
    for i, name in enumerate(model.layers):
        orders = [
            permutation(net.start.seed, i, model.width) if net.start.permute else torch.arange(model.width)
            for net in pair.nets[:2]
        ]
        found[name] = orders[1].argsort()[orders[0]]  # back to the codes' order, then into a's
    return found


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def _distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """‖a − b‖ / √(‖a‖ ‖b‖)."""
    norm = [torch.cat([t.flatten() for t in state.values()]) for state in (a, b)]
    return float((norm[0] - norm[1]).norm() / (norm[0].norm() * norm[1].norm()).sqrt())
