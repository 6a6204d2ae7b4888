"""The ablation grid of the explicit start: one factor at a time, and a random design over all of them.

A design sets every factor. `base` has the preset's sizes and the published solution; `factor=value` differs from it in
one factor; designs `random i` draw every factor, uniformly over its levels, from the study's seed. Each design is
trained from two starts, the explicit one (`warm`) and a random one (`random`), at one rate, in every repeat with the
same seeds: differences are paired by repeat, and an effect of the solution alone cannot come from the architecture.

Effects, each with a 95 % interval:

- `one at a time`: level minus base, Student's t over repeats;
- `random design`: least squares of a measure (mean over repeats) on all factors at once, each a number (place among its
  levels, from 0 to 1), Student's t with designs − factors − 1 degrees of freedom: lowest to highest level, the others
  held. Factors without an order (vectors, attention) take as their numbers whether they are at their first level.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from asym.explicit.cipher import capacity
from asym.explicit.softmax import SMOOTHING
from asym.seeds import numpy_generator
from studies.saffu_nets import EXPLICIT, Net, Sizes, Start

LEVELS: dict[str, tuple[Any, ...]] = {
    "bits": (32, 64, 128, 256),
    "hidden": (32, 64, 128),
    "radius": (2, 4, 8, 16),
    "block": (0, 16, 32, 64),
    "document": (0, 64),
    "vectors": ("cipher", "sum", "cat"),
    "priming": (1.0, 4.0, 16.0),
    "sharpness": (1.0, 4.0),
    "smoothing": (1e-3, 1e-2, 1e-1),
    "attention": ("hidden-targets", "one-gradient", "uniform"),
}
"""Factors and their levels: sizes of the model, vectors of tokens, K_U, β, ε and how W is found."""
SIZES = ("bits", "hidden", "radius", "block", "document")
UNORDERED = ("vectors", "attention")
ARMS = ("warm", "random")
MEASURES = ("start_loss", "test_loss")
ONE, RANDOM = "one at a time", "random design"


@dataclass(frozen=True)
class Design:
    """One setting of all factors."""

    name: str
    factor: str
    """The factor in which it differs from the base; empty for the base and random designs."""
    values: tuple[tuple[str, Any], ...]

    @property
    def columns(self) -> dict[str, Any]:
        """Its cells in the table."""
        return {"design": self.name, "factor": self.factor, **dict(self.values)}

    def net(self, like: Net, arm: str) -> Net:
        """A network of this design, with the seeds, text and training of `like`."""
        values = dict(self.values)
        sizes = Sizes(**{name: values[name] for name in SIZES})
        start = Start(seed=like.start.seed, contexts=like.start.contexts)
        if arm == "warm":
            solution = {name: values[name] for name in ("priming", "sharpness", "smoothing", "attention")}
            start = dataclasses.replace(start, explicit=EXPLICIT.explicit, **solution)
        return dataclasses.replace(like, sizes=sizes, start=start, vectors=values["vectors"])


def levels(base: Sizes, vocabulary: int) -> dict[str, tuple[Any, ...]]:
    """Levels of each factor, the base's own among them; without codes that are too short for the vocabulary."""
    out = {}
    for name, values in LEVELS.items():
        if name in SIZES:
            values = tuple(sorted({*values, getattr(base, name)}))
        if name in ("bits", "hidden"):
            values = tuple(bits for bits in values if capacity(bits) >= vocabulary)
        out[name] = values
    return out


def designs(base: Sizes, vocabulary: int, randomly: int, seed: int) -> Iterator[Design]:
    """The base, one factor at a time, then `randomly` random designs."""
    choices = levels(base, vocabulary)
    usual = {name: getattr(base, name) if name in SIZES else values[0] for name, values in choices.items()}
    usual |= {"priming": EXPLICIT.priming, "smoothing": SMOOTHING}
    yield Design("base", "", tuple(usual.items()))
    for name, values in choices.items():
        for value in values:
            changed = usual | {name: value}
            if value != usual[name] and changed["radius"] + changed["block"] > 0:
                yield Design(f"{name}={value:g}" if isinstance(value, float | int) else f"{name}={value}", name,
                             tuple(changed.items()))  # fmt: skip
    for number in range(randomly):
        generator = numpy_generator(seed, "saffu", "design", number)
        drawn: dict[str, Any] = {"radius": 0, "block": 0}
        while drawn["radius"] + drawn["block"] == 0:  # a model needs one of them
            drawn = {name: values[int(generator.integers(len(values)))] for name, values in choices.items()}
        yield Design(f"random {number}", "", tuple(drawn.items()))


def effects(rows: pd.DataFrame) -> pd.DataFrame:
    """Effects of every factor on every measure and arm; `rows` of one config as in `saffu_grid.csv`."""
    from asym.intervals import paired_interval

    out: list[dict[str, Any]] = []
    base = rows[rows["design"] == "base"]
    single = rows[rows["factor"].fillna("") != ""]
    for (design, factor, arm), own in single.groupby(["design", "factor", "arm"], sort=False):
        both = own.merge(base[base["arm"] == arm], on="repeat", suffixes=("", "_base"))
        for measure in MEASURES:
            a, b = (both[f"{measure}{end}"].to_numpy(float) for end in ("", "_base"))
            difference, low, high, n = paired_interval(a, b)
            out.append(
                {"kind": ONE, "factor": factor, "level": str(design).partition("=")[2], "arm": arm, "measure": measure,
                 "difference": difference, "low": low, "high": high, "n": n}
            )  # fmt: skip
    drawn = rows[rows["design"].str.startswith("random ")]
    for arm, own in drawn.groupby("arm", sort=False):
        means = own.groupby(["design", *LEVELS], sort=False)[list(MEASURES)].mean().reset_index()
        for measure in MEASURES:
            for factor, found in slopes(means, measure).items():
                level = "others" if factor in UNORDERED else "lowest to highest"
                out.append({"kind": RANDOM, "factor": factor, "level": level, "arm": arm, "measure": measure, **found})
    return pd.DataFrame(out)


def slopes(means: pd.DataFrame, measure: str) -> dict[str, dict[str, float]]:
    """Least squares of a measure on the factors that vary; empty if there are too few finite designs."""
    from scipy import stats

    means = means[np.isfinite(means[measure])]
    scores = {name: _scores(name, means[name]) for name in LEVELS}
    scores = {name: score for name, score in scores.items() if len(score) and np.ptp(score) > 0}
    x = np.column_stack([np.ones(len(means)), *scores.values()])
    freedom = len(means) - x.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(x) < x.shape[1]:
        return {}
    y = means[measure].to_numpy(float)
    found = np.linalg.lstsq(x, y, rcond=None)[0]
    variance = float(((y - x @ found) ** 2).sum()) / freedom
    half = stats.t.ppf(0.975, freedom) * np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))
    return {
        name: {"difference": found[i], "low": found[i] - half[i], "high": found[i] + half[i], "n": len(means)}
        for i, name in enumerate(scores, start=1)
    }


def _scores(name: str, values: pd.Series) -> np.ndarray:
    """A factor as a number from 0 (lowest level, or the first of those without an order) to 1."""
    if name in UNORDERED:
        return (values != LEVELS[name][0]).to_numpy(float)
    found = sorted(values.unique())
    return values.map({value: i / max(1, len(found) - 1) for i, value in enumerate(found)}).to_numpy(float)
