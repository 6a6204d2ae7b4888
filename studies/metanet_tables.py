"""Rows, summaries and differences of the accuracy-prediction study."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from asym.intervals import Interval
from asym.rank_metrics import (
    RESAMPLES,
    Ranks,
    kendall,
    label_noise_ceiling,
    match_spread,
    mean_absolute_error,
    r_squared,
    recalibrated_r_squared,
    strata_of,
)
from studies.metanet import Config
from studies.metanet_read import MOVES, Read, Zoo, splits_of
from studies.metanet_setup import Item, Prepared
from studies.tables import interval_text, render

STRATA = ("optimizer", "lr", "train_fraction", "weight_decay", "epochs")
"""The first three of these that vary in a zoo make its strata, numbers in thirds."""
CHANCE = 1.5
"""A network below this multiple of chance counts as untrained."""


@dataclasses.dataclass(frozen=True)
class Group:
    """All trainings of one reader on one set of networks."""

    item: Item
    config: str
    results: Sequence[Read]
    zoo: Zoo
    test: np.ndarray
    """Places of the test networks."""

    @functools.cached_property
    def truth(self) -> np.ndarray:
        """Measured accuracies of the test networks."""
        return self.zoo.accuracies[self.test]

    @functools.cached_property
    def alive(self) -> list[Read]:
        """Trainings with usable predictions."""
        return [result for result in self.results if np.isfinite(result.predictions["test"]).all()]

    def predictions(self, name: str) -> np.ndarray:
        """`[s, n]`, one row a training."""
        return np.stack([result.predictions[name] for result in self.alive])

    @property
    def moves(self) -> list[str]:
        """Sets of moved test networks that were read."""
        return [name for name in MOVES if name in self.results[0].predictions]


def row_of(item: Item, config: str, repeat: int, result: Read, zoo: Zoo) -> dict[str, Any]:
    """One row of `metanet.csv`."""
    places = splits_of(result.reading)
    truth = zoo.accuracies[places["test"]]
    state = result.state
    row = item.family.columns | {
        "reader": item.reader,
        "part": item.part,
        "repeat": repeat,
        "reader_seed": result.reading.seed,
        "lr": result.reading.protocol.lr,
        "reader_epochs": result.reading.protocol.epochs,
        "reader_params": state["params"] if "boost" not in item.reader else pd.NA,
        **{f"{name}_networks": len(places[name]) for name in ("train", "val", "test")},
        "diverged": state["diverged"],
        "epoch": state["epoch"],
        "val_tau": state["val_tau"],
    }
    row |= dict.fromkeys(("tau", "tau_strata", "r2", "r2_recalibrated", "mae", "tau_permuted", "tau_rescaled",
                          "r2_permuted", "r2_rescaled"), float("nan"))  # fmt: skip
    predicted = result.predictions["test"]
    if np.isfinite(predicted).all():
        row |= {
            "tau": kendall(truth, predicted),
            "tau_strata": kendall(truth, predicted, _strata(zoo, places["test"])),
            "r2": r_squared(truth, predicted),
            "r2_recalibrated": recalibrated_r_squared(truth, predicted),
            "mae": mean_absolute_error(truth, predicted),
        }
        for name in MOVES:
            if name in result.predictions and np.isfinite(result.predictions[name]).all():
                row[f"tau_{name}"] = kendall(truth, result.predictions[name])
                row[f"r2_{name}"] = r_squared(truth, result.predictions[name])
    return row | {"wall_s": round(result.wall_s, 3), "config": config}


def summary_row(group: Group) -> dict[str, Any]:
    """Means over trainings, with bootstrap intervals over test networks for rank correlations."""
    item, columns = group.item, group.item.family.columns
    names = (
        "preset",
        "arch",
        "dataset",
        "variant",
        "activations",
        "shapes",
        "networks",
        "network_epochs",
        "one_seed",
        "train_images",
        "seed",
        "kappa",
        "checkpoints",
    )
    row: dict[str, Any] = {"config": group.config, **{name: columns[name] for name in names}}
    places = splits_of(group.results[0].reading)
    row |= {"reader": item.reader, "part": item.part, "train_networks": len(places["train"])}
    row |= {"test_networks": len(group.test), "trainings": len(group.results), "diverged": 0}
    row["diverged"] = sum(result.state["diverged"] > 0 for result in group.results)
    nothing = Interval(float("nan"), float("nan"), float("nan"), len(group.test))
    ranks = ranks_of(group)
    by_tau = {"tau": ranks.interval(group.predictions("test")) if group.alive else nothing}
    strata = Ranks(group.truth, _strata(group.zoo, group.test), resamples=RESAMPLES)
    by_tau["tau_strata"] = strata.interval(group.predictions("test")) if group.alive else nothing
    for name in MOVES:
        there = group.alive and name in group.moves
        by_tau[f"tau_{name}"] = ranks.interval(group.predictions(name)) if there else nothing
    for name, (mean, low, high, _) in by_tau.items():
        row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    taus = [kendall(group.truth, result.predictions["test"]) for result in group.alive]
    row["tau_sd"] = float(np.std(taus, ddof=1)) if len(taus) > 1 else float("nan")
    for name, measure in (("r2", r_squared), ("r2_recalibrated", recalibrated_r_squared), ("mae", mean_absolute_error)):
        values = [measure(group.truth, result.predictions["test"]) for result in group.alive]
        row[name] = float(np.mean(values)) if values else float("nan")
    sizes = [result.state["params"] for result in group.results]
    return row | {"reader_params": sizes[0] if "boost" not in item.reader else pd.NA}


def cost_row(group: Group, measured: Mapping[str, float]) -> dict[str, Any]:
    """Parameters, seconds and memory of a reader, on its trainings of all networks."""
    columns, reading = group.item.family.columns, group.results[0].reading
    seconds = [result.state["epoch_s"] for result in group.results]
    return {
        "config": group.config,
        **{name: columns[name] for name in ("preset", "arch", "dataset", "variant")},
        "reader": group.item.reader,
        "reader_params": group.results[0].state["params"] if "boost" not in group.item.reader else pd.NA,
        "train_networks": len(splits_of(reading)["train"]),
        "batch": reading.protocol.batch,
        "piece": reading.protocol.piece,
        "epoch_s": float(np.median(seconds)),
        "peak_mb": measured["peak_mb"],
    }


def zoo_rows(config: Config, prepared: Prepared, opened: Mapping[str, Zoo]) -> list[dict[str, Any]]:
    """One row a zoo, and one for each zoo cut to the histogram of another."""
    rows = []
    first = prepared.families[0]
    for family in prepared.families:
        zoo = opened[family.zoo]
        rows.append(_zoo_row(family.columns, family.zoo, "", zoo, np.arange(len(zoo.accuracies))))
        if family is not first and "matched" not in config.skip:
            a, b = match_spread(opened[first.zoo].accuracies, zoo.accuracies, seed=config.seed)
            rows.append(_zoo_row(first.columns, first.zoo, family.zoo, opened[first.zoo], a))
            rows.append(_zoo_row(family.columns, family.zoo, first.zoo, zoo, b))
    return rows


def _zoo_row(columns: dict[str, Any], name: str, other: str, zoo: Zoo, places: np.ndarray) -> dict[str, Any]:
    accuracies, table = zoo.accuracies[places], zoo.table
    ceiling = label_noise_ceiling(accuracies, zoo.images)
    quantiles = np.quantile(accuracies, (0.1, 0.5, 0.9))
    return {
        "zoo": name,
        "other_zoo": other,
        **{key: value for key, value in columns.items() if key not in ("study", "train_images")},
        "kept": len(accuracies),
        "dropped": zoo.dropped,
        "acc_mean": float(accuracies.mean()),
        "acc_sd": float(accuracies.std(ddof=1)),
        **{f"acc_q{q}": float(v) for q, v in zip((10, 50, 90), quantiles)},
        "untrained": float((accuracies < CHANCE / zoo.about["classes"]).mean()),
        "train_acc_mean": float(table["train_acc"].to_numpy()[places].mean()) if "train_acc" in table else float("nan"),
        "tau_repeat": ceiling.repeat,
        "tau_perfect": ceiling.perfect,
    }


def summary_text(config: Config, prepared: Prepared, rows: pd.DataFrame) -> str:
    """The terminal's table."""
    from asym.store import read_table

    table = read_table(config.out / "metanet_summary.csv")
    table = table[table["config"].isin(set(rows["config"]))]
    columns = ("reader", "zoo", "part", "networks", "parameters", "τ", "τ in strata", "τ permuted", "τ rescaled", "R²",
               "MAE")  # fmt: skip
    lines = []
    for row in table.to_dict("records"):
        size = "–" if pd.isna(row["reader_params"]) else f"{row['reader_params']:,}"
        cells = [interval_text(row[n], row[f"{n}_low"], row[f"{n}_high"]) for n in ("tau", "tau_strata")]
        moved = ["–" if np.isnan(row[f"tau_{n}"]) else f"{row[f'tau_{n}']:.3f}" for n in MOVES]
        lines.append([
            row["reader"], row["variant"], row["part"], str(row["train_networks"]), size,
            *cells, *moved, f"{row['r2']:.3f}", f"{row['mae']:.4f}",
        ])  # fmt: skip
    title = (
        f"accuracies of {config.arch} networks on {rows['dataset'].iloc[0]} read off their weights: Kendall's τ, mean "
        f"over {rows['repeat'].nunique()} training(s) [95 % interval over test networks]"
    )
    zoos = read_table(config.out / "metanet_zoos.csv")
    own = {family.zoo for family in prepared.families}
    zoos = zoos[zoos["zoo"].isin(own) & (zoos["other_zoo"].isin(own) | zoos["other_zoo"].isna())]
    notes = []
    for row in zoos.to_dict("records"):
        name = row["variant"] if pd.isna(row["other_zoo"]) else f"{row['variant']} matched"
        spread = f"accuracy {row['acc_mean']:.3f} ± {row['acc_sd']:.3f}"
        notes.append(f"{name}: {row['kept']} networks, {spread}; measured again, τ would be {row['tau_repeat']:.3f}")
    return "\n".join([title, render(columns, lines), *notes])


@functools.lru_cache(maxsize=64)
def _cachedranks_of(truth: bytes) -> Ranks:
    return Ranks(np.frombuffer(truth), resamples=RESAMPLES)


def ranks_of(group: Group) -> Ranks:
    """Rank correlations of a group's test networks, with their bootstrap draws."""
    return _cachedranks_of(np.ascontiguousarray(group.truth).tobytes())


def _strata(zoo: Zoo, places: np.ndarray) -> np.ndarray:
    table = zoo.table
    varying = [name for name in STRATA if name in table and table[name].nunique() > 1][:3]
    if not varying:
        return np.zeros(len(places), dtype=int)  # files may tell nothing of how networks were trained
    return strata_of([table[name].to_numpy()[places] for name in varying])


__all__ = ["Group", "cost_row", "ranks_of", "row_of", "summary_row", "summary_text", "zoo_rows"]
