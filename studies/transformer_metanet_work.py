"""Running the study of readers of transformers: zoos, readers, tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from asym.populations import run_tasks
from asym.rank_metrics import Ranks, label_noise_ceiling, mean_absolute_error, r_squared
from asym.store import read_table, update_table
from studies.launching import launcher_of
from studies.progress import Progress
from studies.readings import by_gradient
from studies.setup import default_jobs, stamp, time_epoch
from studies.tables import VOLATILE, interval_text, render
from studies.transformer_metanet import TABLES, Config
from studies.transformer_metanet_read import MOVES, Read, open_zoo, read
from studies.transformer_metanet_setup import Family, Item, Prepared, check_splits, item_config, items, reading
from studies.zoo_work import train_zoos

REFERENCE = "nfn"
"""The reader that others are compared with."""


def execute(config: Config, prepared: Prepared) -> pd.DataFrame:
    """Train the zoos, train the readers, measure; returns the study's rows."""
    train_zoos(config, prepared.families, prepared.data, prepared.device, "transformers")
    check_splits(config, prepared)
    where = stamp(prepared.device)
    wanted = [(item, repeat) for item in items(config, prepared) for repeat in range(prepared.defaults.repeats)]
    zoo_rows = [_zoo_row(family, open_zoo(_some(config, prepared, family)).zoo) for family in prepared.families]
    _update(config, "transformer_metanet_zoos", zoo_rows)
    places = {reading(config, prepared, item, repeat): (item, repeat) for item, repeat in wanted}
    found: dict[Any, list[Read]] = {}

    def keep(result: Read) -> None:
        item, repeat = places[result.reading]
        found.setdefault(item_key(item), []).append(result)
        table = "transformer_metanet_heads" if item.part == "heads" else "transformer_metanet"
        row = _row(item, item_config(config, prepared, item), repeat, result) | where
        update_table(config.out / f"{table}.csv", pd.DataFrame([row]), list(TABLES[table]), VOLATILE)

    total = sum(r.protocol.epochs if by_gradient(r.reader) else 1 for r in places)
    tasks = sorted(places, key=lambda r: -_cost(r))
    with Progress(total, f"readers: {len(tasks)} trainings", quiet=config.quiet) as progress:
        jobs = default_jobs(config, prepared.device, len(tasks))
        launcher = launcher_of(config)
        run_tasks(read, [(r,) for r in tasks], jobs=jobs, launcher=launcher, on_tick=progress.add, on_result=keep)
    groups = []
    for item in items(config, prepared):
        results = sorted(found[item_key(item)], key=lambda r: places[r.reading][1])
        groups.append((item, item_config(config, prepared, item), results))
    whole = [group for group in groups if group[0].part != "heads"]
    _update(config, "transformer_metanet_summary", [_summary(*group) for group in whole])
    _update(config, "transformer_metanet_moves", [row for group in whole for row in _moves(*group)])
    _update(config, "transformer_metanet_differences", _differences(whole))
    table = read_table(config.out / "transformer_metanet.csv")
    return table[table["config"].isin({name for _, name, _ in whole})].reset_index(drop=True)


def item_key(item: Item) -> Any:
    """What tells groups apart."""
    return (item.family.zoo, item.reader, item.threshold, item.part, item.spread)


def _some(config: Config, prepared: Prepared, family: Family) -> Any:
    return reading(config, prepared, Item(family, REFERENCE, 0.0, "random"), 0)


def _zoo_row(family: Family, zoo: Any) -> dict[str, Any]:
    accuracies = zoo.table["test_acc"].to_numpy(dtype=float)
    ceiling = label_noise_ceiling(accuracies, int(zoo.about["test_images"]))
    quantiles = {f"acc_{q:g}": float(np.quantile(accuracies, q / 100)) for q in (0, 10, 25, 50, 75, 90, 100)}
    skipped = zoo.about.get("skipped", [])
    for line in skipped:
        print(f"left out: {line}", file=sys.stderr)
    return {
        "zoo": family.zoo, **family.columns, "kept": len(zoo), "left_out": len(skipped) or zoo.about.get("dropped", 0),
        "mean_acc": float(accuracies.mean()), **quantiles, "ceiling_repeat": ceiling.repeat,
        "ceiling_perfect": ceiling.perfect,
    }  # fmt: skip


def _row(item: Item, name: str, repeat: int, result: Read) -> dict[str, Any]:
    state, truth, test = result.state, result.predictions["truth"], result.predictions["test"]
    cells = {"config": name, "zoo": item.family.zoo, **item.family.columns, "reader": item.reader}
    cells |= {"threshold": item.threshold, "split": item.part, "spread": "" if item.spread is None else item.spread}
    cells |= {"repeat": repeat, "reader_seed": result.reading.seed}
    cells |= {f"{key}_networks": count for key, count in state["networks"].items()}
    if item.part == "heads":
        n = len(truth) // 2
        cells["right"] = float(np.mean((test > 0) == (truth > 0.5)))
        cells["largest_difference"] = float(np.abs(test[:n] - test[n:]).max())
    else:
        cells |= {"tau": Ranks(truth).tau(test), "r2": r_squared(truth, test), "mae": mean_absolute_error(truth, test)}
    rest = {key: state[key] for key in ("val_score", "epoch", "diverged", "params", "epoch_s")}
    return cells | rest | {"wall_s": round(state["wall_s"], 3)}


def _stacked(results: Sequence[Read], name: str) -> np.ndarray:
    return np.stack([result.predictions[name] for result in results])


def _ranks(item: Item, truth: np.ndarray) -> Ranks:
    return Ranks(truth, seed=int(item.family.columns["seed"]))


def _summary(item: Item, name: str, results: Sequence[Read]) -> dict[str, Any]:
    truth, test = results[0].predictions["truth"], _stacked(results, "test")
    tau, low, high, n = _ranks(item, truth).interval(test)
    row = {"config": name, "zoo": item.family.zoo, **item.family.columns, "reader": item.reader}
    row |= {"threshold": item.threshold, "split": item.part, "spread": "" if item.spread is None else item.spread}
    row |= {"repeats": len(results), "tau": tau, "tau_low": low, "tau_high": high, "test_networks": n}
    row |= {"r2": float(np.mean([r_squared(truth, p) for p in test]))}
    row |= {"mae": float(np.mean([mean_absolute_error(truth, p) for p in test]))}
    return row | {"params": results[0].state["params"], "diverged": sum(r.state["diverged"] > 0 for r in results)}


def _moves(item: Item, name: str, results: Sequence[Read]) -> list[dict[str, Any]]:
    """τ after each symmetry, and what it lost, over the same draws of test networks."""
    if not results[0].reading.moves:
        return []
    ranks, test = _ranks(item, results[0].predictions["truth"]), _stacked(results, "test")
    rows = []
    for move in (move for move in MOVES if move in results[0].predictions):
        other = _stacked(results, move)
        lost, low, high, _ = ranks.difference(other, test)
        cells = {"config": name, "move": move, "zoo": item.family.zoo, "kind": item.family.kind, "reader": item.reader}
        cells |= {"threshold": item.threshold, "tau": ranks.tau(other), "tau_unmoved": ranks.tau(test)}
        largest = float(np.abs(other - test).max())
        rows.append(cells | {"change": lost, "change_low": low, "change_high": high, "largest_difference": largest})
    return rows


def _differences(groups: Sequence[tuple[Item, str, Sequence[Read]]]) -> list[dict[str, Any]]:
    """τ of each reader minus that of the published one, paired over test networks."""
    rows = []
    for item, name, results in groups:
        for other, other_name, reference in groups:
            same = item_key(item)[2:] == item_key(other)[2:] and item.family.zoo == other.family.zoo
            if not same or other.reader != REFERENCE or item.reader == REFERENCE:
                continue
            ranks = _ranks(item, results[0].predictions["truth"])
            value, low, high, n = ranks.difference(_stacked(results, "test"), _stacked(reference, "test"))
            cells = {"config": name, "other_config": other_name, "kind": item.family.kind, "reader": item.reader}
            cells |= {"other_reader": REFERENCE, "threshold": item.threshold, "split": item.part}
            cells |= {"spread": "" if item.spread is None else item.spread}
            rows.append(cells | {"difference": value, "low": low, "high": high, "test_networks": n})
    return rows


def _update(config: Config, name: str, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        update_table(config.out / f"{name}.csv", pd.DataFrame(rows), list(TABLES[name]))


def _cost(r: Any) -> float:
    return r.protocol.epochs * (0.1 if not r.reader.startswith("nfn") else 1.0) * (2.0 if r.part == "augmented" else 1)


def summary_text(config: Config, prepared: Prepared, rows: pd.DataFrame) -> str:
    """A line for each zoo and reader: τ at each threshold, under a held-out split, augmented."""
    table = read_table(config.out / "transformer_metanet_summary.csv")
    table = table[table["config"].isin(set(rows["config"]))]
    columns, lines = ["zoo, reader", "split", "above", "tau-b", "R²", "MAE", "weights"], []
    for row in table.to_dict("records"):
        split = row["split"] if row["spread"] in ("", None) or pd.isna(row["spread"]) else f"group, {row['spread']:g}"
        tau = interval_text(row["tau"], row["tau_low"], row["tau_high"])
        cells = [f"{row['threshold']:.0%}", tau, f"{row['r2']:.2f}", f"{row['mae']:.3f}", f"{row['params']:,}"]
        lines.append([f"{row['kind']}, {row['reader']}", split, *cells])
    return render(columns, lines)


def plan_text(config: Config, prepared: Prepared) -> str:
    """What a run would cost, from one timed step of a transformer; writes nothing."""
    lines, seconds = [], 0.0
    for family in prepared.families:
        if not family.chunks:
            lines.append(f"{family.kind}: {family.columns['networks']} transformers from files")
            continue
        chunk, plan = family.chunks[0]
        per_epoch = run_tasks(time_epoch, [(chunk, plan, prepared.data, prepared.device)])[0]
        members = [member for part, _ in family.chunks for member in part.members]
        seconds += per_epoch * sum(member.recipe.epochs for member in members) / (3 if plan.chunk > 1 else 1)
        lines.append(f"{family.kind}: {len(members)} transformers of {family.columns['network_params']:,} weights")
    count = len(items(config, prepared)) * prepared.defaults.repeats
    lines.append(f"{count} trainings of readers, {prepared.defaults.epochs} epochs each")
    jobs = default_jobs(config, prepared.device, 99)
    lines.append(f"transformers: about {seconds / jobs / 60:.2g} min in {jobs} process(es); nothing was written")
    return "\n".join(lines)


__all__ = ["execute", "plan_text", "summary_text"]
