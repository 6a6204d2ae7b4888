"""Tables of the interpolation study: families as they are, by learning rate, and against each other.

Intervals are of 95 %: Student's t for means, Wilson's for shares, and for differences Student's t over pairs of
networks, or Newcombe's where the difference is one of two shares. Two families are compared three ways:

- `hyperparameters`: network k of one with network k of the other, which was trained with the same hyper-parameters;
- `test_acc`: networks of the same final test accuracy, up to 0.01;
- `train_loss`: networks of the same final training loss (without smoothing), up to a factor of 1.25.

The last two answer whether a smoother path comes with a weaker network. Each network is in at most one pair; among all
such pairings the one with the most pairs is taken, and among these the one with the smallest total distance. Networks
without a counterpart, and those that diverged, are left out, and n says how many pairs are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from asym.intervals import Interval, mean_interval, paired_interval, paired_share_interval, share_interval
from studies.mli import GROUP
from studies.mli_paths import LOSSES
from studies.tables import summarise

SHARES = tuple(f"{loss}_monotone" for loss in LOSSES)
SHAPES = ("delta", "local_convexity", "global_convexity", "global_convexity_second")
MEANS = (
    *(f"{loss}_{shape}" for loss in LOSSES for shape in SHAPES),
    *(f"{loss}_loss" for loss in LOSSES),
    "train_acc",
    "test_acc",
)
MATCHED: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "test_acc": (np.asarray, 0.01),
    "train_loss": (np.log, math.log(1.25)),
}
"""What networks are matched on → how distances in it are measured, and the largest allowed."""


def numbers(column: pd.Series) -> np.ndarray:
    """Numbers and truth values as float64, missing cells as NaN."""
    return np.array([math.nan if pd.isna(value) else float(value) for value in column], dtype=np.float64)


def numeric(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `mli.csv` with all measures as numbers, and `lost`: 1 for a network that diverged."""
    measures = {name: numbers(rows[name]) for name in (*MEANS, *SHARES, "lr")}
    return rows.assign(**measures, lost=(numbers(rows["diverged"]) > 0).astype(float))


def summary(rows: pd.DataFrame, by: Sequence[str] = GROUP) -> pd.DataFrame:
    """Means and shares of each group with intervals and the n behind each.

    `networks` counts all; a network that diverged counts in no measure but `diverged_share`.
    """
    rows = numeric(rows)
    table = summarise(rows, by, MEANS).rename(columns={"pairs": "networks"})
    groups = [group for _, group in rows.groupby(list(by), sort=False, dropna=False)]
    table["diverged"] = [int(group["lost"].sum()) for group in groups]
    for name, column in (("diverged_share", "lost"), *((share, share) for share in SHARES)):
        found = [_share(group[column].to_numpy()) for group in groups]
        table[name] = [interval.mean for interval in found]
        table[f"{name}_low"] = [interval.low for interval in found]
        table[f"{name}_high"] = [interval.high for interval in found]
        table[f"{name}_n"] = [interval.n for interval in found]
    return table


def by_lr(rows: pd.DataFrame, edges: Sequence[float]) -> pd.DataFrame:
    """The summary within bins of the peak learning rate, given by their edges."""
    rates = numbers(rows["lr"])
    place = np.clip(np.searchsorted(edges, rates, side="right") - 1, 0, len(edges) - 2)
    low, high = np.asarray(edges[:-1])[place], np.asarray(edges[1:])[place]
    rows = rows.assign(lr_low=low, lr_high=high).sort_values(["lr_low"], kind="stable")
    return summary(rows, (*GROUP, "lr_low", "lr_high"))


def differences(rows: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Later variants minus earlier ones over networks of the same hyper-parameters."""
    out = []
    for a, b in _pairs(rows, variants):
        common = sorted({*a["network"]} & {*b["network"]})
        first, second = (x.set_index("network").loc[common] for x in (a, b))
        out += [_head(a, b) | row for row in _compare(first, second, "hyperparameters", ("lost", *SHARES), MEANS)]
    return pd.DataFrame(out)


def matched(rows: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Later variants minus earlier ones over networks of the same final accuracy or loss."""
    out = []
    for a, b in _pairs(rows, variants):
        for name, (scale, most) in MATCHED.items():
            with np.errstate(divide="ignore"):
                values = [scale(x[name].to_numpy()) for x in (a, b)]
            there = [np.flatnonzero(np.isfinite(v)) for v in values]
            chosen = match(values[0][there[0]], values[1][there[1]], most)
            first, second = (x.iloc[places[picked]] for x, places, picked in zip((a, b), there, chosen))
            out += [_head(a, b) | row for row in _compare(first, second, name, SHARES, (*MEANS, "lr"))]
    return pd.DataFrame(out)


def match(a: np.ndarray, b: np.ndarray, most: float) -> tuple[list[int], list[int]]:
    """One-to-one pairs of places of two lists of numbers that differ by at most `most`.

    As many pairs as possible, and among these the smallest total difference.
    """
    distance = np.abs(a[:, None] - b[None, :])
    far = (len(a) + len(b) + 1) * max(most, 1e-12)  # one pair more is worth any distance within the others
    rows, columns = linear_sum_assignment(np.where(distance <= most, distance, far))
    near = distance[rows, columns] <= most
    return rows[near].tolist(), columns[near].tolist()


def _pairs(rows: pd.DataFrame, variants: Sequence[str]) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    rows = numeric(rows)
    families = [rows[rows["variant"] == variant].sort_values("network") for variant in variants]
    return [(b, a) for j, b in enumerate(families) for a in families[:j] if len(a) and len(b)]


def _head(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, object]:
    shared = {name: a[name].iloc[0] for name in ("preset", "arch", "dataset")}
    names = {"variant": a["variant"].iloc[0], "other": b["variant"].iloc[0]}
    return {"config": a["config"].iloc[0], "other_config": b["config"].iloc[0], **shared, **names}


def _compare(
    a: pd.DataFrame, b: pd.DataFrame, matched_on: str, shares: Sequence[str], means: Sequence[str]
) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    for measure in (*shares, *means):
        x, y = a[measure].to_numpy(), b[measure].to_numpy()
        there = ~(np.isnan(x) | np.isnan(y))
        share = measure in shares
        found = paired_share_interval(x, y) if share else paired_interval(x, y)
        out.append(
            {
                "matched_on": matched_on,
                "measure": "diverged_share" if measure == "lost" else measure,
                "n": found.n,
                "mean": mean_interval(x[there]).mean,
                "other_mean": mean_interval(y[there]).mean,
                "difference": found.mean,
                "low": found.low,
                "high": found.high,
                "interval": "newcombe" if share else "student",
            }
        )
    return out


def _share(values: np.ndarray) -> Interval:
    present = values[~np.isnan(values)]
    return share_interval(int(present.sum()), len(present))
