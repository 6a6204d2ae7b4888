"""Running the variational part of the Bayesian study, keeping its tables, printing its summary."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from asym.bayes import infer_chunk
from asym.intervals import paired_interval, welch_interval
from asym.populations import run_tasks, train_chunk
from asym.store import config_hash, read_table, update_table
from studies.bnn import KEY, TABLES, Config
from studies.bnn_setup import Job
from studies.bnn_vi import (
    SCORES,
    Measured,
    Plain,
    Variational,
    measure_ensemble,
    measure_plain,
    measure_posterior,
    time_predictions,
)
from studies.launching import launcher_of
from studies.progress import Progress
from studies.setup import default_jobs, stamp
from studies.tables import VOLATILE, interval_text, render, summarise

MEASURES = ("half_acc", *SCORES, "kl")
GROUP = ("config", "preset", "arch", "norm", "dataset", "variant", "method", "kl_weight")
REFERENCES = ("standard", "standard-equal")
"""Variants that the others are compared with."""
SAMPLE_STEPS = 3


def work(task: Variational | Plain) -> Measured:
    """Do one task."""
    return measure_plain(task) if isinstance(task, Plain) else measure_posterior(task)


def execute(config: Config, jobs: list[Job]) -> pd.DataFrame:
    """Infer, train, measure; returns the study's rows."""
    if not config.quiet:
        for line in dict.fromkeys(line for job in jobs for line in _architecture(job).describe()):
            print(line, file=sys.stderr)
    tasks = sorted((task for job in jobs for task in job.tasks), key=_cost, reverse=True)
    device = tasks[0].device
    where = stamp(device)
    keys: set[tuple[str, str]] = set()
    found: dict[int, Measured] = {}
    with Progress(sum(_epochs(task) for task in tasks), f"{len(tasks)} tasks", quiet=config.quiet) as progress:

        def keep(result: Measured) -> None:
            _write(config, result, where)

        results = run_tasks(
            work, [(t,) for t in tasks], jobs=default_jobs(config, device, len(tasks)),
            launcher=launcher_of(config), on_tick=progress.add, on_result=keep,
        )  # fmt: skip
    for task, result in zip(tasks, results):
        found[id(task)] = result
        keys |= {(row["config"], row["method"]) for row in result.rows}
    for job in jobs:
        if job.ensemble:
            result = _ensemble(job, [found[id(task)] for task in job.tasks])
            keys |= {(row["config"], row["method"]) for row in result.rows}
            _write(config, result, where)
    table = read_table(config.out / "bnn.csv")
    wanted = [pair in keys for pair in zip(table["config"], table["method"])]
    rows = table[pd.Series(wanted, index=table.index) & table["variant"].isin([job.variant for job in jobs])]
    update_table(config.out / "bnn_summary.csv", summary(rows), list(TABLES["bnn_summary"]))
    if len(different := differences(rows)):
        update_table(config.out / "bnn_differences.csv", different, list(TABLES["bnn_differences"]))
    return rows.reset_index(drop=True)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, 95 % interval over instances and n of each measure, for each config, variant and method."""
    out = summarise(rows, GROUP, MEASURES).rename(columns={"pairs": "instances"})
    diverged = rows.assign(d=rows["diverged"] > 0).groupby(list(GROUP), sort=False, dropna=False)["d"].sum()
    return out.merge(diverged.rename("diverged").reset_index(), on=list(GROUP))


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Each variant minus each reference: mean, 95 % interval, n and p of a t-test, for each measure.

    Networks of equal width share seeds: initial weights where both have them, and the order of images. They are
    compared pair by pair (Student); networks of different width, which share the order alone, as independent samples
    of unequal variance (Welch).
    """
    out = []
    setting = [c for c in ("arch", "norm", "dataset", "preset", "method", "kl_weight", "epochs", "lr") if c in rows]
    for _, group in rows[rows["method"] != "ensemble"].groupby(setting, sort=False, dropna=False):
        for reference in REFERENCES:
            base = group[group["variant"] == reference]
            for variant in dict.fromkeys(group["variant"]):
                other = group[group["variant"] == variant]
                if variant in REFERENCES[: REFERENCES.index(reference) + 1] or base.empty:
                    continue
                paired = {reference, variant}.isdisjoint({"standard-equal"})
                cells = other.iloc[0][["config", "preset", "arch", "norm", "dataset", "method", "kl_weight"]].to_dict()
                out += [
                    cells
                    | {"reference": reference, "variant": variant, "measure": m}
                    | _compare(base, other, m, paired)
                    for m in MEASURES[:-1]  # the KL counts entries, of which variants have differently many
                    if base[m].notna().any() and other[m].notna().any()
                ]
    return pd.DataFrame(out)


def summary_text(config: Config, jobs: list[Job], rows: pd.DataFrame) -> str:
    """The terminal's table."""
    table = summary(rows)
    columns = ("network", "variant", "method", "n", "test NLL", "test acc", "acc at half", "ECE", "adaptive ECE",
               "Brier", "train NLL")  # fmt: skip
    names = ("test_nll", "test_acc", "half_acc", "test_ece", "test_ace", "test_brier", "train_nll")
    lines = []
    for row in table.to_dict("records"):
        n = f"{row['test_nll_n']}" + (f" (+{row['diverged']} diverged)" if row["diverged"] else "")
        method = f"VI, KL × {row['kl_weight']:g}" if row["method"] == "vi" else str(row["method"])
        network = f"{row['arch']} {row['norm']}"
        lines.append([network, row["variant"], method, n, *(_cell(row, v) for v in names)])
    lines.sort(key=lambda line: (line[0], line[2]))
    title = f"{table['dataset'].iloc[0]}: mean [95 % interval] over n networks; losses in nats, accuracies as fractions"
    text = [title, render(columns, lines)]
    different = differences(rows)
    if len(different):
        lines = []
        for (arch, method, kl, variant, reference), group in different.groupby(
            ["arch", "method", "kl_weight", "variant", "reference"], sort=False, dropna=False
        ):
            cells = []
            for m in ("test_nll", "test_acc", "half_acc", "test_ece"):
                one = group[group["measure"] == m]
                cells.append(_difference(one.iloc[0]) if len(one) else "–")
            name = f"VI, KL × {kl:g}" if method == "vi" else str(method)
            lines.append([f"{arch}: {variant} − {reference}", name, str(group["test"].iloc[0]), *cells])
        head = ("difference", "method", "test", "test NLL", "test acc", "acc at half", "ECE")
        text += ["", render(head, lines)]
    return "\n".join(text)


def plan_text(config: Config, jobs: list[Job]) -> str:
    """What a run would do, with estimates of time and disk from a few timed steps."""
    lines, total_s, total_bytes = [], 0.0, 0
    for job in jobs:
        task = job.tasks[0]
        networks = sum(1 if isinstance(t, Plain) else len(t.members) for t in job.tasks)
        per_epoch = run_tasks(_time_epoch, [(task,)])[0]
        epochs = _recipe(task).epochs
        size = task.columns["params"] if isinstance(task, Plain) else task.columns["params_posterior"]
        method = job.method if job.kl_weight is None else f"VI with KL × {job.kl_weight:g}"
        lines.append(
            f"{job.arch} {job.variant}, {method}: {networks} networks, {epochs} epochs of {per_epoch:.2g} s, "
            f"{size:,} learned numbers each"
        )
        predictions = networks * run_tasks(time_predictions, [(task,)])[0] if isinstance(task, Variational) else 0.0
        total_s += networks * epochs * per_epoch + predictions
        total_bytes += networks * size * 4
    count = sum(len(job.tasks) for job in jobs)
    processes = default_jobs(config, jobs[0].tasks[0].device, count)
    lines.append(
        f"together: about {total_s / processes / 60:.2g} min in {processes} process(es), "
        f"about {total_bytes / 1e6:.2g} MB in {config.runs}; nothing was written"
    )
    return "\n".join(lines)


def _write(config: Config, result: Measured, where: dict[str, str]) -> None:
    names = ("config", "arch", "variant", "method", "instance")
    for table, points in (("bnn_curves", result.curves), ("bnn_reliability", result.bins)):
        if points:
            more = ("epoch", "train_nll", "kl", "test_nll", "test_acc") if table == "bnn_curves" else (
                "bins", "bin", "count", "confidence", "accuracy")  # fmt: skip
            kept = [{name: point.get(name, float("nan")) for name in (*names, *more)} for point in points]
            update_table(config.out / f"{table}.csv", pd.DataFrame(kept), list(TABLES[table]))
    if result.rows:
        update_table(config.out / "bnn.csv", pd.DataFrame([r | where for r in result.rows]), list(KEY), VOLATILE)


def _ensemble(job: Job, parts: list[Measured]) -> Measured:
    """The row of a deep ensemble of the first networks that did not diverge."""
    alive = [(part.rows[0], part.log_p[0]) for part in parts if part.log_p[0] is not None][: job.ensemble]
    task = job.tasks[0]
    row = {**task.columns, "method": "ensemble", "seed": task.columns["seed"]}
    row["config"] = config_hash({"members": task.columns["config"], "size": job.ensemble})
    row["ensemble"] = len(alive)
    wall = sum(float(member["wall_s"]) for member, _ in alive)
    if len(alive) < 2:
        row |= dict.fromkeys(MEASURES, float("nan")) | {"diverged": 1, "wall_s": round(wall, 3)}
        return Measured([row], [], [], [None])
    scores, bins = measure_ensemble([log_p for _, log_p in alive if log_p is not None], task.data.load(), task.measure)
    row |= scores | {"diverged": 0, "wall_s": round(wall, 3)}
    return Measured([row], [], [row | b for b in bins], [None])


def _compare(base: pd.DataFrame, other: pd.DataFrame, measure: str, paired: bool) -> dict[str, Any]:
    a, b = (part.set_index("instance")[measure].astype(float).dropna() for part in (other, base))
    if paired:
        both = a.index.intersection(b.index)
        a, b = a.loc[both], b.loc[both]
    x, y = a.to_numpy(), b.to_numpy()
    mean, low, high, n = paired_interval(x, y) if paired else welch_interval(x, y)
    return {
        "test": "paired" if paired else "welch",
        "difference": mean,
        "low": low,
        "high": high,
        "n": n,
        "p": _p_value(x, y, paired) if n > 1 else float("nan"),
    }


def _p_value(x: np.ndarray, y: np.ndarray, paired: bool) -> float:
    """Two-sided p of the t-test that belongs to the interval; NaN where nothing varies."""
    if paired:
        error, freedom = float((x - y).var(ddof=1)) / len(x), len(x) - 1.0
    else:
        a, b = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
        error = a + b
        freedom = error**2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1)) if error > 0 else 1.0
    if error == 0:
        return float("nan")
    return float(2 * stats.t.sf(abs(x.mean() - y.mean()) / error**0.5, freedom))


def _cell(row: dict[Any, Any], value: str) -> str:
    return interval_text(row[value], row[f"{value}_low"], row[f"{value}_high"])


def _difference(row: pd.Series) -> str:
    if np.isnan(row["low"]):
        return "–" if np.isnan(row["difference"]) else f"{row['difference']:+.3f}"
    return f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"


def _architecture(job: Job) -> Any:
    task = job.tasks[0]
    return task.population.architecture if isinstance(task, Plain) else task.architecture


def _recipe(task: Variational | Plain) -> Any:
    return (task.population.members if isinstance(task, Plain) else task.members)[0].recipe


def _epochs(task: Variational | Plain) -> float:
    return _recipe(task).epochs * (1 if isinstance(task, Plain) else len(task.members))


def _cost(task: Variational | Plain) -> float:
    """Roughly: long tasks start first, so that none is alone at the end."""
    factor = 1.0 if isinstance(task, Plain) else 3.0
    return _epochs(task) * factor * task.columns["params"] ** 0.5


def _time_epoch(task: Variational | Plain) -> float:
    """Seconds of an epoch of one network, from a few timed batches."""
    data, recipe = task.data.load(), _recipe(task)
    part = data.with_train(data.train.parts(SAMPLE_STEPS * recipe.batch_size)[0])
    once = dataclasses.replace(recipe, epochs=1)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        if isinstance(task, Plain):
            member = dataclasses.replace(task.population.members[0], recipe=once)
            train_chunk(task.population.architecture, [member], part, task.plan, device=task.device)
            count = 1
        else:
            members = [dataclasses.replace(member, recipe=once) for member in task.members]
            infer_chunk(task.architecture, members, part, task.inference, task.plan, device=task.device)
            count = len(members)
        times.append((time.perf_counter() - start) / count)
    return times[-1] * len(data.train.labels) / len(part.train.labels)


__all__ = ["execute", "plan_text", "summary_text"]
