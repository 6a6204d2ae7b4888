"""Running the planned connectivity study, keeping its tables, printing its summary."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from asym.populations import run_tasks
from asym.store import read_table, update_table
from studies.cli import CommonConfig
from studies.launching import launcher_of
from studies.lmc import GROUP, KEY, TABLES, VALUES, Config, Job
from studies.lmc_pairs import PATH_EPOCHS, CheckpointTask, Task, Trial, measure_checkpoints, measure_pair, tune
from studies.progress import Progress
from studies.setup import default_jobs, stamp
from studies.tables import VOLATILE, interval_text, render, summarise


def execute(config: Config, jobs: list[Job]) -> pd.DataFrame:
    """Tune, train, measure; returns the study's rows."""
    if not config.quiet:
        for job in jobs:
            print("\n".join(job.layers), file=sys.stderr) if job.layers else None
    device = next(iter(jobs[0].tasks.values()))[0].device
    where = stamp(device)
    chosen = choose_rates(config, {job.variant: job for job in jobs}, config.out / "lmc_tuning.csv", device, where)
    tasks = [task for job in jobs for task in job.tasks[chosen[job.variant]]]
    tasks.sort(key=lambda task: task.columns["pair"])  # all variants get their first pair before any its second
    keys = {task.columns["config"] for task in tasks}

    total = sum(_epochs(task) + PATH_EPOCHS * len(task.alignments) for task in tasks)
    with Progress(total, f"{len(tasks)} pairs", quiet=config.quiet) as progress:

        def keep(result: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
            rows, curves = result
            names = ("config", "variant", "alignment", "pair", "split", "lam", "loss", "acc")
            points = [{name: point[name] for name in names} for point in curves]
            update_table(config.out / "lmc_curves.csv", pd.DataFrame(points), list(TABLES["lmc_curves"]))
            update_table(
                config.out / "lmc.csv",
                pd.DataFrame([row | where for row in rows]),
                list(KEY),
                (*VOLATILE, "tuned_over"),
            )

        run_tasks(
            measure_checkpoints if config.checkpoints else measure_pair,
            [(task,) for task in tasks],
            jobs=default_jobs(config, device, len(tasks)),
            launcher=launcher_of(config),
            on_tick=progress.add,
            on_result=keep,
        )
    table = read_table(config.out / "lmc.csv")
    rows = table[table["config"].isin(keys) & table["variant"].isin(config.variants)]
    update_table(config.out / "lmc_summary.csv", summary(rows), list(TABLES["lmc_summary"]))
    return rows[rows["alignment"].isin(config.alignments)].reset_index(drop=True)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, 95 % interval over pairs and n of each measure, for each config, variant and alignment."""
    ends = {m: rows[[f"{m}_a", f"{m}_b"]].mean(axis=1) for m in ("loss", "acc", "train_loss", "train_acc")}
    out = summarise(rows.assign(**ends), GROUP, VALUES)
    diverged = rows.assign(d=(rows["diverged_a"] > 0) | (rows["diverged_b"] > 0)).groupby(
        list(GROUP), sort=False, dropna=False
    )
    return out.merge(diverged["d"].sum().rename("diverged").reset_index(), on=list(GROUP))


def summary_text(config: Config, jobs: list[Job], rows: pd.DataFrame) -> str:
    """The terminal's table."""
    keys = {task.columns["config"] for job in jobs for tasks in job.tasks.values() for task in tasks}
    table = read_table(config.out / "lmc_summary.csv")
    asked = table["variant"].isin(config.variants) & table["alignment"].isin(config.alignments)
    rows = table[table["config"].isin(keys) & asked]
    order = {variant: i for i, variant in enumerate(config.variants)}
    rows = rows.sort_values("variant", key=lambda column: column.map(order), kind="stable")
    columns = ("variant", "alignment", "n", "test loss", "test acc", "barrier ½", "barrier max", "acc. barrier ½",
               "train barrier ½")  # fmt: skip
    names = (
        "loss",
        "acc",
        "barrier_loss_mid",
        "barrier_loss_max",
        "barrier_acc_mid",
        "train_barrier_loss_mid",
    )
    lines = []
    for row in rows.to_dict("records"):
        n = f"{row['loss_n']}" + (f" (+{row['diverged']} diverged)" if row["diverged"] else "")
        cells = [interval_text(row[v], row[f"{v}_low"], row[f"{v}_high"]) for v in names]
        lines.append([row["variant"], row["alignment"], n, *cells])
    head = rows.iloc[0]
    units = "mean [95 % interval] over n pairs; losses in nats, accuracies as fractions"
    title = f"{head['arch']} on {head['dataset']}: {units}"
    legend = (
        "barrier: loss on the line above that of its end points (accuracy below it), at its middle ½ or at most (max); "
        "positive is worse, 0 is connected"
    )
    return f"{title}\n{render(columns, lines)}\n{legend}"


def choose_rates(
    config: CommonConfig, jobs: Mapping[str, Job], file: Path, device: str, where: dict[str, str]
) -> dict[str, float]:
    """The learning rate of each job, by the job's name in `jobs`; tuning results go to the table `file`."""
    trials: list[tuple[str, float, Trial]] = [
        (name, lr, trial) for name, job in jobs.items() for lr, trial in job.trials.items()
    ]
    chosen = {name: next(iter(job.tasks)) for name, job in jobs.items()}
    if not trials:
        return chosen
    total = sum(trial.population.members[0].recipe.epochs for _, _, trial in trials)
    with Progress(total, f"{len(trials)} networks to choose learning rates", quiet=config.quiet) as progress:
        results = run_tasks(
            tune,
            [(trial,) for _, _, trial in trials],
            jobs=default_jobs(config, device, len(trials)),
            launcher=launcher_of(config),
            on_tick=progress.add,
        )
    rows, names = [], [name for name, _, _ in trials]
    for (name, lr, trial), result in zip(trials, results):
        task = jobs[name].tasks[lr][0]
        cells = {k: task.columns[k] for k in ("preset", "arch", "dataset", "variant", "lr", "epochs", "config")}
        rows.append(cells | {"seed": trial.population.members[0].seed} | result | where)
    table = pd.DataFrame(rows)
    for name, tried in table.groupby(names, sort=False):
        if not (tried["val_loss"] < float("inf")).any():
            rates = " ".join(map(str, tried["lr"]))
            raise RuntimeError(f"every learning rate diverged for {name}: {rates}; give smaller ones with --lrs")
        chosen[str(name)] = float(tried["lr"].to_numpy()[tried["val_loss"].fillna(float("inf")).to_numpy().argmin()])
    table["chosen"] = table["lr"].to_numpy() == [chosen[name] for name in names]
    update_table(file, table, list(TABLES["lmc_tuning"]), VOLATILE)
    return chosen


def _epochs(task: Task | CheckpointTask) -> int:
    if isinstance(task, CheckpointTask):
        return 0
    return sum(member.recipe.epochs for member in task.population.members)
