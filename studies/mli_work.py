"""Running the planned interpolation study, keeping its tables, printing its summary."""

from __future__ import annotations

import sys
from typing import Any

import pandas as pd

from asym.populations import run_tasks
from asym.store import read_table, update_table
from studies.launching import launcher_of
from studies.mli import KEY, TABLES, Config, Family
from studies.mli_paths import measure_chunk, path_epochs
from studies.mli_setup import lr_edges
from studies.mli_tables import by_lr, differences, matched, summary
from studies.progress import Progress
from studies.setup import default_jobs, stamp, time_epoch
from studies.tables import VOLATILE, interval_text, render

BYTES_PER_ENTRY = 4


def execute(config: Config, families: list[Family]) -> pd.DataFrame:
    """Train and measure; returns the study's rows."""
    if not config.quiet:
        for family in families:
            print("\n".join(family.layers), file=sys.stderr) if family.layers else None
    tasks = [task for family in families for task in family.tasks]
    tasks.sort(key=lambda task: task.networks[0])  # all families get their first networks before any its last
    device = tasks[0].device
    where = stamp(device)
    total = sum(member.recipe.epochs + path_epochs(task) for task in tasks for member in task.population.members)
    label = f"{sum(len(task.networks) for task in tasks)} networks"
    with Progress(total, label, quiet=config.quiet) as progress:

        def keep(result: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
            rows, points = result
            update_table(config.out / "mli_curves.csv", pd.DataFrame(points), list(TABLES["mli_curves"]))
            update_table(config.out / "mli.csv", pd.DataFrame([row | where for row in rows]), list(KEY), VOLATILE)

        run_tasks(
            measure_chunk,
            [(task,) for task in tasks],
            jobs=default_jobs(config, device, len(tasks)),
            launcher=launcher_of(config),
            on_tick=progress.add,
            on_result=keep,
        )
    table = read_table(config.out / "mli.csv")
    rows = table[table["config"].isin({family.config for family in families})].reset_index(drop=True)
    for name, found in (
        ("mli_summary", summary(rows)),
        ("mli_by_lr", by_lr(rows, lr_edges(config))),
        ("mli_differences", differences(rows, config.variants)),
        ("mli_matched", matched(rows, config.variants)),
    ):
        if len(found):
            update_table(config.out / f"{name}.csv", found, list(TABLES[name]))
    return rows


def summary_text(config: Config, families: list[Family], rows: pd.DataFrame) -> str:
    """The terminal's tables."""
    order = {variant: i for i, variant in enumerate(config.variants)}
    table = summary(rows.sort_values("variant", key=lambda column: column.map(order), kind="stable"))
    names = ("smooth_delta", "smooth_local_convexity", "smooth_global_convexity", "test_acc")
    shares = ("smooth_monotone", "train_monotone", "test_monotone")
    columns = ("variant", "n", "monotone", "without smoothing", "on test", "Δ", "local convexity", "global convexity",
               "test acc")  # fmt: skip
    lines = []
    for row in table.to_dict("records"):
        n = f"{row['smooth_monotone_n']}" + (f" (+{row['diverged']} diverged)" if row["diverged"] else "")
        cells = [interval_text(row[v], row[f"{v}_low"], row[f"{v}_high"]) for v in (*shares, *names)]
        lines.append([row["variant"], n, *cells])
    title = (
        f"{config.arch} on {rows['dataset'].iloc[0]}: from initial to final weights, mean [95 % interval] over n "
        "networks, loss on training images with the run's label smoothing"
    )
    legend = (
        "monotone: share of networks whose loss never rises (Wilson's interval); Δ: largest rise between neighbouring "
        "points, in nats;\nlocal convexity: share of second differences ≥ 0; global convexity: share of points on or "
        "below the chord"
    )
    text = f"{title}\n{render(columns, lines)}\n{legend}"
    compared = [t for t in (differences(rows, config.variants), matched(rows, config.variants)) if len(t)]
    return f"{text}\n\n{_comparison(pd.concat(compared))}" if compared else text


def _comparison(table: pd.DataFrame) -> str:
    names = ("smooth_monotone", "smooth_delta", "smooth_local_convexity", "smooth_global_convexity", "test_acc")
    columns = ("difference", "matched on", "pairs", "monotone", "Δ", "local convexity", "global convexity", "test acc")
    lines = []
    for (variant, other, matched_on), group in table.groupby(["variant", "other", "matched_on"], sort=False):
        by = {row["measure"]: row for row in group.to_dict("records")}
        cells = [interval_text(*(by[name][c] for c in ("difference", "low", "high"))) for name in names]
        lines.append([f"{variant} − {other}", matched_on, str(by["smooth_monotone"]["n"]), *cells])
    return render(columns, lines)


def plan_text(config: Config, families: list[Family]) -> str:
    """What a run would cost, from one timed step of each family; writes nothing."""
    lines, seconds, size, count = [], 0.0, 0.0, 0
    for family in families:
        task = family.tasks[0]
        per_epoch = run_tasks(time_epoch, [(task.population, task.plan, task.data, task.device)])[0]
        recipes = [member.recipe for part in family.tasks for member in part.population.members]
        epochs = sum(recipe.epochs for recipe in recipes)
        lrs = sorted(recipe.lr for recipe in recipes)
        seconds += per_epoch * (epochs + len(recipes) * path_epochs(task))
        size += len(recipes) * task.columns["params"] * BYTES_PER_ENTRY
        count += len(recipes)
        lines.append(
            f"{family.variant}: {len(recipes)} networks, {epochs} epochs of {per_epoch:.2g} s, "
            f"{task.columns['params']:,} trainable parameters, {task.plan.chunk} together in {task.plan.dtype}; "
            f"rates {lrs[0]:.3g} to {lrs[-1]:.3g}, batches of {recipes[0].batch_size}"
        )
    processes = default_jobs(config, families[0].tasks[0].device, sum(len(f.tasks) for f in families))
    lines.append(
        f"together: {count} networks, about {seconds / processes / 60:.2g} min of training and measuring in "
        f"{processes} process(es), about {size / 1e6:.2g} MB in {config.runs}; nothing was written"
    )
    return "\n".join(lines)
