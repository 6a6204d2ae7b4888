"""Running the planned SAFFU study part by part, keeping its tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pandas as pd

from asym.populations import run_tasks
from asym.populations.workers import prepare_process
from asym.store import read_table, update_table
from studies.launching import launcher_of
from studies.progress import Progress
from studies.saffu import TABLES, Config
from studies.saffu_cost import timed
from studies.saffu_grid import effects
from studies.saffu_nets import Net
from studies.saffu_pairs import POINT_STEPS, Pair, measure_average, measure_pair
from studies.saffu_quality import Trial, measure, measure_counts, measure_design, measure_explicit, reached, validate
from studies.saffu_setup import Prepared
from studies.saffu_tables import SUMMARIES, summary
from studies.saffu_train import train
from studies.setup import default_jobs, stamp
from studies.tables import VOLATILE

IGNORED = (*VOLATILE, "train_s", "solve_s", "search_s", "seconds", "tuned_over")
"""Columns in which two runs may differ."""
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def execute(config: Config, prepared: Prepared) -> dict[str, pd.DataFrame]:
    """Do every part that was asked for; returns its rows by part."""
    work = _Work(config, prepared)
    done: dict[str, pd.DataFrame] = {}
    for part, tasks, function in (
        ("connectivity", prepared.pairs, measure_pair),
        ("architecture", prepared.architecture, measure_pair),
    ):
        if tasks:
            work.run(part, function, tasks, sum(_pair_steps(pair) for pair in tasks), curves=f"saffu_{part}_curves")
            done[part] = work.finish(part)
    if prepared.arms:
        work.quality()
        done["quality"] = work.finish("quality")
    if prepared.averages:
        total = sum(sum(net.steps for net in pair.nets) for pair in prepared.averages)
        work.run("merging", measure_average, prepared.averages, total)
        done["merging"] = work.finish("merging")
    if prepared.cost:
        work.cost()
        done["cost"] = work.finish("cost")
    if prepared.grid:
        work.run("grid", measure_design, prepared.grid, sum(t.net.steps for t in prepared.grid))
        done["grid"] = work.finish("grid")
        work.effects(done["grid"])
    return {part: done[part] for part in config.parts if part in done}


class _Work:
    """One run of the study."""

    def __init__(self, config: Config, prepared: Prepared) -> None:
        self.config, self.prepared = config, prepared
        self.where = stamp(prepared.device)
        self.asked: dict[str, list[dict[str, Any]]] = {}

    def keep(self, part: str, rows: list[dict[str, Any]], curves: str | None, points: list[dict[str, Any]]) -> None:
        """Put rows and points of curves into the tables."""
        name = f"saffu_{part}"
        if rows:
            table = pd.DataFrame([row | self.where for row in rows])
            update_table(self.config.out / f"{name}.csv", table, list(TABLES[name]), IGNORED)
            self.asked.setdefault(part, []).extend({k: row[k] for k in TABLES[name]} for row in rows)
        if curves and points:
            measured = [c for c in points[0] if c in (*TABLES[curves], *CURVES)]
            update_table(
                self.config.out / f"{curves}.csv", pd.DataFrame(points)[measured], list(TABLES[curves]), IGNORED
            )

    def run(
        self,
        part: str,
        function: Callable[..., Rows],
        tasks: Sequence[Pair | Trial],
        total: float,
        *,
        curves: str | None = None,
        label: str | None = None,
        more: Callable[[list[dict[str, Any]], list[dict[str, Any]]], None] = lambda rows, points: None,
    ) -> None:
        """Do tasks in workers; `more` may add to their rows."""
        with Progress(total, label or f"{part}: {len(tasks)} tasks", quiet=self.config.quiet) as progress:

            def keep(result: Rows) -> None:
                more(*result)
                self.keep(part, result[0], curves, result[1])

            run_tasks(
                function,
                [(task,) for task in tasks],
                jobs=default_jobs(self.config, self.prepared.device, len(tasks)),
                launcher=launcher_of(self.config),
                on_tick=progress.add,
                on_result=keep,
            )

    def finish(self, part: str) -> pd.DataFrame:
        """Write the summary of a part; returns its rows in the table's order."""
        name = f"saffu_{part}"
        table = read_table(self.config.out / f"{name}.csv")
        asked = pd.DataFrame(self.asked[part]).drop_duplicates()
        rows = asked.merge(table, on=list(TABLES[name]))[table.columns].reset_index(drop=True)
        group = [column for column in TABLES[name] if column != "repeat"]
        of_group = asked[group].drop_duplicates().merge(table, on=group)  # earlier repeats of the same cells count
        found = summary(of_group, TABLES[f"{name}_summary"], SUMMARIES[part])
        update_table(self.config.out / f"{name}_summary.csv", found, list(TABLES[f"{name}_summary"]))
        return rows

    def effects(self, rows: pd.DataFrame) -> None:
        """The effects of the grid's factors, from all rows of its designs that the table has."""
        table = read_table(self.config.out / "saffu_grid.csv")
        rows = table[table["config"].isin(rows["config"]) & table["design"].isin(rows["design"])]
        found = effects(rows)
        if len(found):
            head = {key: rows[key].iloc[0] for key in ("preset", "config", "dataset")}
            name = "saffu_grid_effects"
            update_table(self.config.out / f"{name}.csv", found.assign(**head), list(TABLES[name]))

    def quality(self) -> None:
        """Tune, train at the tuned rates, measure."""
        prepared = self.prepared
        reference: dict[tuple[Any, ...], dict[str, float]] = {}

        def note(rows: list[dict[str, Any]], points: list[dict[str, Any]]) -> None:
            for row in rows:
                targets = reference.setdefault((row["fraction"], row["control"]), {})
                for name, arm in (("unigram", "unigram"), ("bigram", "kneser-ney 2"), ("trigram", "kneser-ney 3")):
                    if row["arm"] == arm:
                        targets[name] = float(row["val_loss"])

        self.run("quality", measure_counts, prepared.counts, 50 * len(prepared.counts), more=note, label="counts")
        lrs = self._tuned()

        def add(rows: list[dict[str, Any]], points: list[dict[str, Any]]) -> None:
            for row in rows:
                if points:
                    row |= reached(pd.DataFrame(points), reference[row["fraction"], row["control"]])
                row["tuned_over"] = " ".join(f"{lr:g}" for lr in lrs.get((row["arm"], row["fraction"]), {}))

        kwargs: dict[str, Any] = {"curves": "saffu_quality_curves", "more": add}
        self.run("quality", measure_explicit, prepared.explicit, len(prepared.explicit), label="explicit", **kwargs)
        trials = []
        for trial in prepared.arms:
            rates = lrs[trial.arm, dict(trial.columns)["fraction"]]
            best = min(rates, key=lambda lr: rates[lr])
            trials.append(dataclasses.replace(trial, net=dataclasses.replace(trial.net, lr=best)))
        self.run("quality", measure, trials, sum(t.net.steps for t in trials), **kwargs)

    def _tuned(self) -> dict[tuple[str, float], dict[float, float]]:
        """Validation loss of each rate for each arm and fraction, in the order of the rates."""
        trials = self.prepared.tuning
        with Progress(
            sum(t.net.steps for t in trials), f"tuning: {len(trials)} networks", quiet=self.config.quiet
        ) as bar:
            jobs = default_jobs(self.config, self.prepared.device, len(trials))
            launcher = launcher_of(self.config)
            rows = run_tasks(validate, [(trial,) for trial in trials], jobs=jobs, launcher=launcher, on_tick=bar.add)
        found: dict[tuple[str, float], dict[float, float]] = {}
        for row in rows:
            found.setdefault((row["arm"], row["fraction"]), {})[row["lr"]] = row["val_loss"]
        for row in rows:
            rates = found[row["arm"], row["fraction"]]
            row["chosen"] = row["lr"] == min(rates, key=lambda lr: rates[lr])
            row["val_loss"] = row["val_loss"] if math.isfinite(row["val_loss"]) else math.nan
        table = pd.DataFrame([row | self.where for row in rows])
        update_table(self.config.out / "saffu_tuning.csv", table, list(TABLES["saffu_tuning"]), VOLATILE)
        return found

    def cost(self) -> None:
        """Time each model, in a process of its own so that its peak memory is its own; in smoke in this one."""
        tasks = self.prepared.cost
        own = self.config.preset != "smoke" and self.prepared.device == "cpu"
        with Progress(len(tasks), f"cost: {len(tasks)} models", quiet=self.config.quiet) as progress:
            for trial in tasks:
                if own:
                    context = get_context("spawn")
                    with ProcessPoolExecutor(1, context, initializer=prepare_process) as pool:
                        rows, _ = pool.submit(timed, trial).result()
                else:
                    rows, _ = run_tasks(timed, [(trial,)], launcher=launcher_of(self.config))[0]
                    rows = [row | {"peak_mb": math.nan} for row in rows]
                self.keep("cost", rows, None, [])
                progress.add(1)


CURVES = ("tokens", "seconds", "val_loss", "test_loss", "train_loss", "preset", "dataset")
"""Columns of tables of curves beside their keys."""


def _pair_steps(pair: Pair) -> float:
    return sum(net.steps for net in pair.nets) + len(pair.alignments) * pair.points * POINT_STEPS


def plan_text(config: Config, prepared: Prepared) -> str:
    """What a run would do, with an estimate of its time from a few steps of the smallest kind of network."""
    data = prepared.args.load()
    nets: set[Net] = set()
    for pair in [*prepared.pairs, *prepared.architecture, *prepared.averages]:
        nets |= {*pair.nets, *([pair.union] if pair.union else [])}
    trials = [trial.net for trial in [*prepared.tuning, *prepared.arms]] + list({t.net for t in prepared.grid})
    steps = sum(net.steps for net in nets) + sum(net.steps for net in trials)
    lines = sum(len(pair.alignments) * pair.points for pair in [*prepared.pairs, *prepared.architecture])
    sample = dataclasses.replace(prepared.base, steps=20)
    _, _, facts = train(sample, data, prepared.device, 64)
    step = facts["train_s"] / 20
    seconds = (steps + lines * POINT_STEPS) * step + 5 * len(prepared.cost)
    jobs = default_jobs(config, prepared.device, max(len(nets) + len(trials), 1))
    disk = sum(facts["params"] * 4 for _ in range(len(nets) + len(trials))) / 2**20
    return (
        f"{', '.join(config.parts)}: {len(nets) + len(trials)} networks, {steps} steps of {1e3 * step:.1f} ms, {lines} "
        f"points on lines, {len(prepared.cost)} timings: about {seconds / jobs / 60:.0f} min in {jobs} processes and "
        f"{disk:.0f} MB in {config.runs}"
    )
