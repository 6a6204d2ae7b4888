"""The work of the variational part: infer or train a network, predict, measure.

Functions here run in worker processes; what they compute is kept in the store and found there the next time. All
measures are of the predictive distribution in float32: the Monte-Carlo average over samples for a posterior, the
softmax for a deterministic network, the average of probabilities for an ensemble.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from asym.bayes import Inference, Inferred, Posterior, infer_chunk, predict
from asym.data import Data
from asym.populations import (
    RECIPE_VERSION,
    Architecture,
    Layout,
    Member,
    Plan,
    Population,
    cached,
    run_config,
    subset,
    tick,
    train_population,
)
from asym.populations.population import compact
from asym.reliability import BINS, adaptive_ece, brier, ece, nll, reliability
from asym.store import Store, config_hash
from studies.setup import DataArgs

MEASURE_VERSION = 1
"""Raised by hand whenever the same posteriors would give other measurements than before."""
CURVE_IMAGES = 250


@dataclasses.dataclass(frozen=True)
class Measure:
    """How predictions are measured."""

    samples: int
    """Samples of the predictive distribution."""
    images: int
    """At most so many images of each split."""
    curve_samples: int
    """Samples for the points of a training curve."""


@dataclasses.dataclass(frozen=True)
class Variational:
    """Posteriors of networks that take steps together."""

    architecture: Architecture
    members: tuple[Member, ...]
    first: int
    """Number of the first instance."""
    inference: Inference
    plan: Plan
    data: DataArgs
    fingerprint: str
    measure: Measure
    runs: str
    device: str
    columns: dict[str, Any]
    """Cells of the rows that are known beforehand."""


@dataclasses.dataclass(frozen=True)
class Plain:
    """A network to train without a posterior."""

    population: Population
    plan: Plan
    data: DataArgs
    measure: Measure
    runs: str
    device: str
    columns: dict[str, Any]


@dataclasses.dataclass
class Measured:
    """What a task gives."""

    rows: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    bins: list[dict[str, Any]]
    log_p: list[Tensor | None]
    """Test log-probabilities of each row's network, None if it diverged."""


def posterior_config(task: Variational) -> dict[str, Any]:
    """What determines a chunk of posteriors, and the points of their curves, as the store names it."""
    return {
        "version": RECIPE_VERSION,
        "data": task.fingerprint,
        "architecture": compact(task.architecture),
        "layers": task.architecture.layers,
        "members": [compact(member) for member in task.members],
        "inference": dataclasses.asdict(task.inference),
        "plan": dataclasses.asdict(task.plan),
        "curve": [task.measure.curve_samples, task.measure.samples, task.measure.images],
    }


def measure_config(own: dict[str, Any], measure: Measure) -> dict[str, Any]:
    """What determines the measurement of posteriors or of a network, as the store names it."""
    return {"version": MEASURE_VERSION, "of": config_hash(own), **dataclasses.asdict(measure)}


def measure_posterior(task: Variational) -> Measured:
    """Rows, curves and reliability diagrams of a chunk of posteriors."""
    store, data = Store(task.runs), task.data.load()
    inferred = _infer(store, task, data)
    config = measure_config(posterior_config(task), task.measure)

    def compute() -> tuple[dict, dict, dict]:
        start = time.perf_counter()
        networks = [task.architecture.build(m.seed, m.mask_seed) for m in task.members]
        family = Posterior(networks, task.inference.prior, task.inference.guide, device=task.device)
        alive = [i for i, epoch in enumerate(inferred.diverged) if not epoch]
        seeds = [task.members[i].seed for i in alive]
        tensors, states = {}, []
        for split in ("test", "train") if alive else ():
            part = subset(getattr(data, split), task.measure.images, split)
            x = data.inputs(part.to(task.device))
            log_p = predict(family.rows(alive), inferred.theta[alive], x, task.measure.samples, seeds, split,
                            running=inferred.running[alive])  # fmt: skip
            tensors |= {f"{split}/{i}": value.cpu().contiguous() for i, value in zip(alive, log_p)}
        for i in range(len(task.members)):
            states.append(_scores(tensors, i, data, task.measure) if i in alive else {})
        return tensors, {}, {"rows": states, "wall_s": time.perf_counter() - start}

    run = cached(store, "bnn-measure", config, compute)
    state, tensors = run.state(), run.tensors()
    half = -(-task.members[0].recipe.epochs // 2)
    share = (inferred.wall_s + float(state["wall_s"])) / len(task.members)
    out = Measured([], [], [], [])
    for i, member in enumerate(task.members):
        key = {**task.columns, "instance": task.first + i, "seed": member.seed, "mask_seed": member.mask_seed}
        history = [h for h in inferred.history if h["network"] == i]
        at_half = next((h.get("full_acc") for h in history if h["epoch"] == half), None)
        last = history[-1]["kl"] if history and not inferred.diverged[i] else None
        measured = {"half_acc": at_half, "kl": last, **state["rows"][i]}
        out.rows.append(key | _complete(measured) | {"diverged": inferred.diverged[i], "wall_s": round(share, 3)})
        for h in history:
            point = {name: h.get(name, float("nan")) for name in ("train_nll", "kl", "test_nll", "test_acc")}
            out.curves.append(key | {"epoch": h["epoch"]} | point)
        log_p = tensors.get(f"test/{i}")
        out.log_p.append(log_p)
        if log_p is not None:
            out.bins += [key | row for row in _bins(log_p, data, task.measure)]
    return out


def measure_plain(task: Plain) -> Measured:
    """Row and reliability diagram of a deterministic network."""
    store, data = Store(task.runs), task.data.load()
    trained = train_population(store, task.population, data, task.plan, device=task.device, on_epoch=tick)
    member = task.population.members[0]

    def compute() -> tuple[dict, dict, dict]:
        start = time.perf_counter()
        if trained.diverged[0]:
            return {}, {}, {"row": {}, "wall_s": 0.0}
        network = task.population.architecture.build(member.seed, member.mask_seed)
        Layout.trainable(network).load_(network, trained.theta[0])
        if trained.running.shape[1]:
            Layout.running(network).load_(network, trained.running[0])
        network = network.to(task.device).eval()
        tensors = {}
        with torch.no_grad():
            for split in ("test", "train"):
                part = subset(getattr(data, split), task.measure.images, split).to(task.device)
                logits = [network(data.inputs(piece)) for piece in part.parts(250)]
                tensors[f"{split}/0"] = F.log_softmax(torch.cat(logits), dim=1).cpu()
        return tensors, {}, {"row": _scores(tensors, 0, data, task.measure), "wall_s": time.perf_counter() - start}

    run = cached(store, "bnn-measure", measure_config(run_config(task.population, task.plan), task.measure), compute)
    state, log_p = run.state(), run.tensors().get("test/0")
    row = {**task.columns, **_complete(state["row"])}
    row |= {"diverged": trained.diverged[0], "wall_s": round(trained.wall_s + float(state["wall_s"]), 3)}
    curves = [{**task.columns, "epoch": int(h["epoch"]), "train_nll": float(h["train_loss"])} for h in trained.history]
    bins = [task.columns | b for b in _bins(log_p, data, task.measure)] if log_p is not None else []
    return Measured([row], curves, bins, [log_p])


def measure_ensemble(log_p: list[Tensor], data: Data, measure: Measure) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measures and reliability diagram of the average of networks' probabilities on the test split."""
    mean = torch.logsumexp(torch.stack(log_p), dim=0) - float(np.log(len(log_p)))
    return _complete(_scores({"test/0": mean}, 0, data, measure)), _bins(mean, data, measure)


def time_predictions(task: Variational) -> float:
    """Seconds that all predictions of one network take, from one sample of a few images."""
    data, measure = task.data.load(), task.measure
    family = Posterior(
        [task.architecture.build(m.seed, m.mask_seed) for m in task.members], task.inference.prior,
        task.inference.guide, device=task.device,
    )  # fmt: skip
    seeds = [member.seed for member in task.members]
    theta = family.initial([task.architecture.build(m.seed, m.mask_seed) for m in task.members], seeds)
    few = subset(data.test, CURVE_IMAGES, "curve").to(task.device)
    test, train = (min(measure.images, len(split.labels)) for split in (data.test, data.train))
    start = time.perf_counter()
    predict(family, theta, data.inputs(few), 1, seeds, "timing")
    each = (time.perf_counter() - start) / len(seeds) / len(few.labels)
    curve = task.members[0].recipe.epochs * measure.curve_samples * min(CURVE_IMAGES, test)
    return each * (measure.samples * (2 * test + train) + curve)


def _infer(store: Store, task: Variational, data: Data) -> Inferred:
    run = store.run("posterior", posterior_config(task))
    epochs, half = task.members[0].recipe.epochs, -(-task.members[0].recipe.epochs // 2)
    test = subset(data.test, task.measure.images, "test")
    few = subset(test, CURVE_IMAGES, "curve").to(task.device)
    images, labels = data.inputs(few), few.labels

    def watch(family: Posterior, theta: Tensor, running: Tensor, places: list[int], epoch: int) -> list[dict[str, Any]]:
        seeds = [task.members[i].seed for i in places]
        log_p = predict(family, theta, images, task.measure.curve_samples, seeds, f"curve {epoch}", running=running)
        right = (log_p.argmax(dim=2) == labels).float().mean(dim=1)
        loss = -log_p.gather(2, labels.expand(len(places), -1)[..., None])[..., 0].mean(dim=1)
        out = [{"test_nll": a, "test_acc": b} for a, b in zip(loss.tolist(), right.tolist())]
        if epoch == half:
            every = test.to(task.device)
            full = predict(family, theta, data.inputs(every), task.measure.samples, seeds, "test", running=running)
            for entry, value in zip(out, (full.argmax(dim=2) == every.labels).double().mean(dim=1).tolist()):
                entry["full_acc"] = value
        return out

    with run.lock():
        if run.finished:
            run.verify()
            tensors, state = run.tensors(), run.state()
            tick(epochs * len(task.members))
            history = [
                {str(k): v for k, v in row.items() if v == v}
                | {"network": int(row["network"]), "epoch": int(row["epoch"])}
                for row in run.table("history").to_dict("records")
            ]
            return Inferred(tensors["theta"], tensors["running"], history, state["diverged"], state["wall_s"])
        found = infer_chunk(
            task.architecture, task.members, data, task.inference, task.plan,
            device=task.device, watch=watch, checkpoint=run, checkpoint_every_s=60.0, on_epoch=tick,
        )  # fmt: skip
        run.finish(
            {"theta": found.theta, "running": found.running},
            {"history": pd.DataFrame(found.history)},
            {"diverged": found.diverged, "wall_s": found.wall_s},
        )
    return found


SCORES = ("train_nll", "train_acc", "test_nll", "test_acc", "test_ece", "test_ace", "test_brier")


def _scores(tensors: dict[str, Tensor], i: int, data: Data, measure: Measure) -> dict[str, float]:
    out: dict[str, float] = {}
    for split in ("train", "test"):
        if (log_p := tensors.get(f"{split}/{i}")) is None:
            continue
        y = subset(getattr(data, split), measure.images, split).labels.cpu().numpy()
        values = log_p.double().numpy()
        p = np.exp(values)
        out |= {f"{split}_nll": nll(values, y), f"{split}_acc": float((p.argmax(axis=1) == y).mean())}
        if split == "test":
            out |= {"test_ece": ece(p, y), "test_ace": adaptive_ece(p, y), "test_brier": brier(p, y)}
    return out


def _complete(measured: dict[str, Any]) -> dict[str, float]:
    names = ("half_acc", *SCORES, "kl")
    return {n: float("nan") if measured.get(n) is None else float(measured[n]) for n in names}


def _bins(log_p: Tensor, data: Data, measure: Measure) -> list[dict[str, Any]]:
    y, p = subset(data.test, measure.images, "test").labels.cpu().numpy(), log_p.double().exp().numpy()
    out = []
    for kind in ("width", "size"):
        found = reliability(p, y, BINS, adaptive=kind == "size")
        out += [
            {"bins": kind, "bin": b, "count": int(n), "confidence": float(c), "accuracy": float(a)}
            for b, (n, c, a) in enumerate(zip(*found))
        ]
    return out
