"""How good are SAFFU models, from which start, against which other models, and what does it cost?

Every trained arm gets the same number of learning rates, one further network each, and is then trained anew from
several seeds at the rate with the lowest validation loss. What is not trained by gradients (n-grams, the explicit
single layer, the explicit start as it is) has its few numbers chosen on the same validation text. The test loss of an
arm is that of all predicted tokens of the test split.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from asym.data.text import Stream, TextData
from asym.explicit.start import Solution, search
from asym.models.saffu import SaffuLM
from asym.populations import tick
from asym.populations.runs import cached
from asym.store import Store
from studies.saffu_begin import Clock, at_places, begin, counted, label_codes
from studies.saffu_counts import counted_models
from studies.saffu_nets import Net, Start, TextArgs
from studies.saffu_train import examples, restore, trained

KIND = "language-model-quality"
MEASURE_VERSION = 1
HELD_OUT = 2000
"""Validation contexts by which priming numbers are chosen, and training contexts that are counted for it."""
PRIMING = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
OUTPUT_SHARES = (0.5, 0.75, 1.0, 1.5)
"""Candidates for K_O, times the norm of O's input."""


@dataclass(frozen=True)
class Trial:
    """One network of one arm; picklable."""

    arm: str
    net: Net
    evaluate: int
    args: TextArgs
    runs: str
    device: str
    columns: tuple[tuple[str, Any], ...]


def validate(trial: Trial) -> dict[str, Any]:
    """Train a network of the tuning; its validation loss at the end (infinite if it diverged)."""
    run = trained(Store(trial.runs), trial.net, trial.args, trial.device, trial.evaluate)
    lost = run.state()["diverged"]
    loss = math.inf if lost else float(run.table("curve")["val_loss"].iloc[-1])
    found = {"lr": trial.net.lr, "val_loss": loss, "diverged": lost, "wall_s": run.state()["wall_s"]}
    return dict(trial.columns) | found


def measure(trial: Trial) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Train a network and measure it on the whole test split; its row, and its losses on the way."""
    store, data = Store(trial.runs), trial.args.load()
    run = trained(store, trial.net, trial.args, trial.device, trial.evaluate)
    state = run.state()
    facts = {key: state[key] for key in ("params", "solve_s", "train_s", "diverged", "wall_s")}
    head = dict(trial.columns) | {"lr": trial.net.lr, "steps": trial.net.steps} | facts
    if state["diverged"]:
        return [head], []

    def compute() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        model = restore(run, trial.net, data, trial.device)
        found = {f"{split}_loss": whole(trial, model, data, split) for split in ("val", "test")}
        return {}, {"rows": pd.DataFrame([found])}, {}

    config = trial.net.config(data.fingerprint, trial.evaluate) | {"measure": MEASURE_VERSION}
    found = cached(store, KIND, config, compute).table("rows").to_dict("records")[0]
    losses = {str(k): float(v) for k, v in found.items()}
    curve = [{str(k): v for k, v in p.items()} for p in run.table("curve").to_dict("records")]
    row = head | losses | measures(losses["test_loss"], data) | {"start_loss": curve[0]["test_loss"]}
    return [row], [dict(trial.columns) | point for point in curve]


def measure_design(trial: Trial) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A design of the grid: its row alone, the losses on the way are not kept."""
    return measure(trial)[0], []


def whole(trial: Trial, model: torch.nn.Module, data: TextData, split: str) -> float:
    """Loss of all predicted tokens of a split, of shuffled text if the network was trained on such."""
    stream: Stream = getattr(data, split)
    return examples(trial.net.part.held_out(stream), trial.net.sizes, None, trial.device).loss(model)


def measures(loss: float, data: TextData) -> dict[str, float]:
    """Perplexity and bits per character of the test split from its loss in nats a token."""
    bits = loss * len(data.test.targets) / math.log(2) / data.test.characters
    return {"perplexity": math.exp(min(loss, 700.0)), "bits_per_character": bits}


def choose_explicit(trial: Trial) -> dict[str, Any]:
    """Priming numbers of the explicit start alone, by validation text; kept in the store."""
    store, data = Store(trial.runs), trial.args.load()

    def compute() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        clock = Clock(trial.device)
        few = dataclasses.replace(trial.net.start, contexts=HELD_OUT, explicit=())
        small = dataclasses.replace(trial.net, start=few)
        model, _ = begin(small, data, trial.device)
        assert isinstance(model, SaffuLM)
        labels = label_codes(trial.net.sizes.hidden, data.counts.astype(np.int64).tobytes()).to(trial.device)
        stream, val = trial.net.part.of(data.train), trial.net.part.held_out(data.val)
        places = val.targets[:: max(1, len(val.targets) // HELD_OUT)]
        held_out = at_places(val, places, trial.net.sizes.reach, trial.device)
        shares = tuple(model.parts * share for share in OUTPUT_SHARES)
        found, first, _ = search(
            model, counted(small, stream, trial.device), held_out, labels, Solution(),
            priming=PRIMING, output_priming=shares,
        )  # fmt: skip
        facts = {"priming": found.priming, "output_priming": found.output_priming, "search_s": clock.seconds()}
        return {}, {"scan": pd.DataFrame([{"k": k, "loss": v} for k, v in first.losses.items()])}, facts

    net = dataclasses.replace(trial.net, lr=0.0, steps=0)
    config = net.config(data.fingerprint, 0) | {"measure": MEASURE_VERSION}
    return cached(store, KIND + "-priming", config, compute).state()


def measure_explicit(trial: Trial) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The explicit start as it is, with priming numbers chosen on validation text."""
    found = choose_explicit(trial)
    start = dataclasses.replace(trial.net.start, priming=found["priming"], output_priming=found["output_priming"])
    chosen = dataclasses.replace(trial, net=dataclasses.replace(trial.net, start=start, steps=0, lr=0.0))
    rows, curve = measure(chosen)
    extra = {"priming": found["priming"], "output_priming": found["output_priming"], "search_s": found["search_s"]}
    return [row | extra for row in rows], curve


def measure_counts(trial: Trial) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of all models that are counts alone: unigram, n-grams, the explicit single layer."""
    store, data = Store(trial.runs), trial.args.load()
    part = trial.net.part

    def compute() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        return {}, {"rows": pd.DataFrame(list(counted_models(data, part)))}, {}

    config = {"text": data.fingerprint, "part": dataclasses.asdict(part), "measure": MEASURE_VERSION}
    found = cached(store, KIND + "-counts", config, compute).table("rows")
    tick(50)
    rows = []
    for row in found.to_dict("records"):
        row = {str(k): v for k, v in row.items()}
        rows.append(dict(trial.columns) | row | measures(float(row["test_loss"]), data) | {"diverged": 0})
    return rows, []


def reached(curves: pd.DataFrame, targets: dict[str, float]) -> dict[str, float]:
    """Steps and seconds at the first evaluation whose validation loss is at most each target; NaN if none is."""
    out: dict[str, float] = {}
    for name, target in targets.items():
        there = curves[curves["val_loss"] <= target]
        for unit, column in (("steps", "step"), ("seconds", "seconds")):
            out[f"{unit}_to_{name}"] = float(there[column].iloc[0]) if len(there) else math.nan
    return out


def arms(base: Net, primings: tuple[float, ...]) -> dict[str, Net]:
    """The trained arms by name, at a rate and seeds to be put in; SAFFU models first."""
    start = base.start

    def saffu(**options: Any) -> Net:
        return dataclasses.replace(base, start=dataclasses.replace(start, **options))

    everything = ("attention", "hidden", "output")
    found = {f"warm K={k:g}": saffu(explicit=everything, priming=k) for k in primings}
    found |= {
        "warm W=0": saffu(explicit=everything, priming=primings[0], attention="uniform"),
        "explicit output": saffu(explicit=("output",)),
        "random + unigram": saffu(bias=True),
        "random": saffu(),
    }
    for model in ("decoder", "decoder-flops", "lstm", "feed-forward"):
        found[model] = dataclasses.replace(base, model=model, start=Start(seed=start.seed))
    return found
