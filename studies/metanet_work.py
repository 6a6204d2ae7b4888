"""Running the accuracy-prediction study: zoos, rates, readers, tables."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from asym.populations import run_tasks
from asym.store import read_table, update_table
from studies import metanet_files
from studies.launching import launcher_of
from studies.metanet import KEY, TABLES, Config
from studies.metanet_cost import measure_cost
from studies.metanet_differences import differences
from studies.metanet_read import Read, Reading, open_zoo, read, splits_of
from studies.metanet_setup import TUNING, Item, Prepared, item_config, items, rates, reading
from studies.metanet_tables import Group, cost_row, row_of, summary_row, zoo_rows
from studies.progress import Progress
from studies.setup import default_jobs, stamp
from studies.tables import VOLATILE
from studies.zoo_work import train_zoos

SPEED = {"stats": 0.2, "stats-boost": 0.2, "hyper-boost": 0.1, "flat": 0.1}
"""Rough cost of an epoch beside a graph reader's: long tasks start first, so that none is alone at the end."""


def execute(config: Config, prepared: Prepared) -> pd.DataFrame:
    """Train the zoos, tune, train the readers, measure; returns the study's rows."""
    if not config.quiet:
        for family in prepared.families:
            for line in dict.fromkeys(line for plan in family.plans for line in plan.architecture.describe()):
                print(line, file=sys.stderr)
    train_zoos(config, prepared.families, prepared.data, prepared.device, "networks")
    if config.files is not None:
        metanet_files.keep(str(config.runs), config.files)
    where = stamp(prepared.device)
    opened = {family.zoo: open_zoo(str(config.runs), family.zoo) for family in prepared.families}
    _update(config, "metanet_zoos", zoo_rows(config, prepared, opened))
    chosen = tune(config, prepared)
    kept = [item for item in items(config, prepared) if usable(config, prepared, item)]
    wanted = [(item, repeat) for item in kept for repeat in range(prepared.defaults.repeats)]
    found: dict[tuple[str, str, int | None, str], list[Read]] = {}
    places = {r: (item, repeat) for r, (item, repeat) in zip(_final(config, prepared, chosen, wanted), wanted)}

    def keep(result: Read) -> None:
        item, repeat = places[result.reading]
        found.setdefault(_key(item), []).append(result)
        row = row_of(item, item_config(config, prepared, item), repeat, result, opened[item.family.zoo]) | where
        update_table(config.out / "metanet.csv", pd.DataFrame([row]), list(KEY), VOLATILE)

    _read_all(config, prepared, list(places), "readers", keep)
    groups = []
    for item in kept:
        results = sorted(found[_key(item)], key=lambda r: places[r.reading][1])
        test = splits_of(results[0].reading)["test"]
        groups.append(Group(item, item_config(config, prepared, item), results, opened[item.family.zoo], test))
    _update(config, "metanet_summary", [summary_row(group) for group in groups])
    _update(config, "metanet_differences", differences(groups))
    if "cost" not in config.skip:
        _costs(config, prepared, groups, where)
    table = read_table(config.out / "metanet.csv")
    return table[table["config"].isin({group.config for group in groups})].reset_index(drop=True)


def usable(config: Config, prepared: Prepared, item: Item) -> bool:
    """Whether a cut zoo leaves networks for every split; it may not where zoos are tiny."""
    if item.matched is None:
        return True
    sizes = [len(places) for places in splits_of(reading(config, prepared, item, 1.0, 0)).values()]
    if min(sizes) < 2 and not config.quiet:
        print(f"{item.reader}, {item.part}: only {sizes} networks are left, not read", file=sys.stderr)
    return min(sizes) >= 2


def tune(config: Config, prepared: Prepared) -> dict[tuple[str, str], float]:
    """(zoo, reader) → the rate with the best τ on validation networks, of one training a rate with an extra seed."""
    wanted = [item for item in items(config, prepared) if item.part == "whole"]
    chosen = {(item.family.zoo, item.reader): rates(prepared, item.reader)[0] for item in wanted}
    trials = {
        reading(config, prepared, item, lr, TUNING): item
        for item in wanted
        for lr in rates(prepared, item.reader)
        if len(rates(prepared, item.reader)) > 1
    }
    scores: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def keep(result: Read) -> None:
        item, lr = trials[result.reading], result.reading.protocol.lr
        tau = float(result.state["val_tau"])
        scores.setdefault((item.family.zoo, item.reader), []).append((-math.inf if math.isnan(tau) else tau, -lr))
        cells = {name: item.family.columns[name] for name in ("preset", "dataset", "variant")}
        row = {"config": item_config(config, prepared, item), **cells, "reader": item.reader, "lr": lr, "val_tau": tau}
        row |= {"reader_epochs": result.reading.protocol.epochs, "epoch": result.state["epoch"]}
        _update(config, "metanet_tuning", [row])

    if trials:
        _read_all(config, prepared, list(trials), "rates", keep)
    return chosen | {key: -max(found)[1] for key, found in scores.items()}


def _final(
    config: Config, prepared: Prepared, chosen: dict[tuple[str, str], float], wanted: Sequence[tuple[Item, int]]
) -> list[Reading]:
    return [reading(config, prepared, item, chosen[item.family.zoo, item.reader], repeat) for item, repeat in wanted]


def _read_all(
    config: Config, prepared: Prepared, readings: list[Reading], label: str, keep: Callable[[Read], None]
) -> None:
    readings = sorted(readings, key=_cost, reverse=True)
    total = sum(r.protocol.epochs if "boost" not in r.reader else 1 for r in readings)
    with Progress(total, f"{label}: {len(readings)} trainings", quiet=config.quiet) as progress:
        run_tasks(
            read, [(r,) for r in readings], jobs=default_jobs(config, prepared.device, len(readings)),
            launcher=launcher_of(config), on_tick=progress.add, on_result=keep,
        )  # fmt: skip


def _cost(r: Reading) -> float:
    return SPEED.get(r.name, 1.0) * r.protocol.epochs * (r.train or 10**6) ** 0.5


def _key(item: Item) -> tuple[str, str, int | None, str]:
    return item.family.zoo, item.reader, item.train, item.part


def _costs(config: Config, prepared: Prepared, groups: Sequence[Group], where: dict[str, str]) -> None:
    """Seconds and memory of each reader, on its training of all networks."""
    whole = [group for group in groups if group.item.part == "whole"]
    unknown: dict[str, float] = {"peak_mb": float("nan")}
    tasks = [(group.results[0].reading,) for group in whole]
    measured = [unknown] * len(tasks)
    if prepared.defaults.memory:
        measured = run_tasks(measure_cost, tasks, launcher=launcher_of(config))
    rows = [cost_row(group, found) | where for group, found in zip(whole, measured)]
    update_table(config.out / "metanet_cost.csv", pd.DataFrame(rows), list(TABLES["metanet_cost"]), VOLATILE)


def _update(config: Config, name: str, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        update_table(config.out / f"{name}.csv", pd.DataFrame(rows), list(TABLES[name]))


__all__ = ["execute", "tune"]
