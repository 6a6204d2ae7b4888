"""Running the planned ablations, keeping their tables, printing their summaries."""

from __future__ import annotations

import sys
from typing import Any

import pandas as pd

from asym.populations import run_tasks
from asym.store import read_table, update_table
from studies.ablate import GROUP, Config, table_name, tables
from studies.ablate_measure import Group, measure_group
from studies.ablate_setup import Prepared
from studies.launching import launcher_of
from studies.lmc import VALUES
from studies.lmc_work import choose_rates
from studies.progress import Progress
from studies.setup import default_jobs, stamp, time_epoch
from studies.tables import VOLATILE, interval_text, render, summarise

ENDS = ("loss", "acc", "train_loss", "train_acc", "calibrated_loss")
"""Measures of which a table of pairs has one column a network."""
FURTHER = ("loss_mid", "acc_mid", "train_loss_mid", "train_acc_mid", "barrier_calibrated_mid", "barrier_calibrated_max",
           "calibrated_loss", "temperature_mid", "barrier_loss_edges", "epochs_to_target")  # fmt: skip
SHOWN = {
    "loss": "test loss",
    "acc": "test acc",
    "barrier_loss_mid": "barrier",
    "barrier_acc_mid": "acc. barrier",
    "barrier_calibrated_mid": "calibrated barrier",
    "barrier_loss_edges": "edges' barrier",
    "epochs_to_target": "epochs to target",
}
"""Measures on the terminal and their headings."""


def execute(config: Config, prepared: list[Prepared]) -> pd.DataFrame:
    """Tune, train, measure, factor by factor; returns the rows."""
    device = _groups(prepared[0])[0].task.device
    where = stamp(device)
    parts = [_execute(config, part, device, where) for part in prepared]
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _execute(config: Config, prepared: Prepared, device: str, where: dict[str, str]) -> pd.DataFrame:
    name = table_name(prepared.name)
    keys = tables(prepared.name)
    if not config.quiet:
        announce(prepared)
    chosen = choose_rates(config, prepared.tuning, config.out / "ablate_tuning.csv", device, where)
    groups = []
    for level in prepared.levels:
        lr = chosen[level.tuned_as] if level.tuned_as else next(iter(level.groups))
        groups += level.groups[lr]
    # All levels get their first pair before any its second, the dear ones first, so that none is left alone at the end.
    dear = [-group.columns["params"] * group.work for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (groups[i].columns["pair"], dear[i]))
    label = (
        f"{prepared.name}: {len(groups)} {'pairs' if prepared.factor.measure in ('pair', 'calibrated') else 'groups'}"
    )
    with Progress(sum(group.work for group in groups), label, quiet=config.quiet) as progress:

        def keep(result: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
            rows, grid = result
            if grid:
                table = pd.DataFrame(
                    [{n: p[n] for n in (*keys[f"{name}_grid"], "x", "y", "loss", "acc")} for p in grid]
                )
                update_table(config.out / f"{name}_grid.csv", table, list(keys[f"{name}_grid"]))
            table = pd.DataFrame([row | where for row in rows])
            update_table(config.out / f"{name}.csv", table, list(keys[name]), (*VOLATILE, "tuned_over"))

        results = run_tasks(
            measure_group,
            [(groups[i],) for i in order],
            jobs=default_jobs(config, device, len(groups)),
            launcher=launcher_of(config),
            on_tick=progress.add,
            on_result=keep,
        )
    table = read_table(config.out / f"{name}.csv")
    measured = [row for _, (rows, _) in sorted(zip(order, results), key=lambda each: each[0]) for row in rows]
    asked = pd.DataFrame([{k: row[k] for k in ("config", "level", "variant")} for row in measured])
    rows = asked.drop_duplicates().merge(table, on=["config", "level", "variant"])[table.columns]
    update_table(config.out / f"{name}_summary.csv", summary(rows), list(keys[f"{name}_summary"]))
    return rows.reset_index(drop=True)


def _groups(prepared: Prepared) -> list[Group]:
    return [group for level in prepared.levels for groups in level.groups.values() for group in groups]


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, 95 % interval over pairs and n of each measure, for each level, variant and alignment.

    `diverged` counts the pairs of which a network diverged, `not_reached` those of which one did not reach the target.
    """
    ends = {m: rows[[f"{m}_a", f"{m}_b"]].mean(axis=1, skipna=False) for m in ENDS if f"{m}_a" in rows}
    rows = rows.assign(**ends)
    values = [v for v in (*VALUES, *FURTHER) if v in rows]
    out = summarise(rows, GROUP, values)
    flags = {
        "diverged": (rows["diverged_a"] > 0) | (rows["diverged_b"] > 0),
        "not_reached": rows["epochs_to_target"].isna(),
    }
    counted = rows.assign(**flags).groupby(list(GROUP), sort=False, dropna=False)[list(flags)].sum().reset_index()
    settings = ("width", "kappa", "n_fix_scale", "epochs", "warmup", "lr", "weight_decay", "gate", "bias_range",
                "syre_scale", "params", "target_accuracy")  # fmt: skip
    fixed = rows.groupby(list(GROUP), sort=False, dropna=False)[list(settings)].first().reset_index()
    return out.merge(counted, on=list(GROUP)).merge(fixed, on=list(GROUP))


def summary_text(config: Config, prepared: list[Prepared], rows: pd.DataFrame) -> str:
    """The tables of the terminal, one a factor."""
    return "\n\n".join(_factor_text(config, part) for part in prepared)


def _factor_text(config: Config, prepared: Prepared) -> str:
    """The terminal's table of one factor."""
    name = table_name(prepared.name)
    table = read_table(config.out / f"{name}_summary.csv")
    asked = pd.DataFrame([{k: g.columns[k] for k in ("config", "variant")} for g in _groups(prepared)])
    rows = asked.drop_duplicates().merge(table, on=["config", "variant"])
    shown = {value: head for value, head in SHOWN.items() if value in rows}
    lines = []
    for row in rows.to_dict("records"):
        n = f"{row['pairs']}" + (f" (+{row['diverged']} diverged)" if row["diverged"] else "")
        cells = [interval_text(row[v], row[f"{v}_low"], row[f"{v}_high"]) for v in shown]
        lines.append([str(row["level"]), row["variant"], row["alignment"], n, f"{row['lr']:g}", *cells])
    head = rows.iloc[0]
    place = {"merge": "of the average of k networks", "plane": "at the centre of three networks"}
    what = place.get(prepared.factor.measure, "at the middle of the line")
    return (
        f"{prepared.name}: {prepared.factor.question}\n"
        f"{head['arch']} on {head['dataset']}: mean [95 % interval] over n pairs or groups; losses in nats, accuracies "
        f"as fractions, barriers {what}\n"
        f"{render(('level', 'variant', 'alignment', 'n', 'lr', *shown.values()), lines)}\n"
    )


def plan_text(config: Config, prepared: list[Prepared]) -> str:
    """What a run would do: networks, epochs, estimates of time and disk; networks that factors share count once."""
    lines, timed, seen = [], {}, set()
    total_s = total_bytes = networks = 0
    for part in prepared:
        count, seconds = 0, 0.0
        populations = [(t.population, t.plan, t) for job in part.tuning.values() for t in job.trials.values()]
        for level in part.levels:
            groups = next(iter(level.groups.values()))
            populations += [(p, g.task.plan, g.task) for g in groups for p in g.populations]
        for population, plan, task in populations:
            if population in seen:
                continue
            seen.add(population)
            architecture, recipe = population.architecture, population.members[0].recipe
            cost = (architecture.width, architecture.variant.name, recipe.batch_size)
            if cost not in timed:
                timed[cost] = run_tasks(time_epoch, [(population, plan, task.data, task.device)])[0]
            epochs = sum(member.recipe.epochs for member in population.members)
            count, seconds = count + len(population.members), seconds + epochs * timed[cost]
            total_bytes += 4 * architecture.trainable * len(population.members)
        text = f"{count} networks to train, about {seconds / 60:.2g} min in one process"
        lines.append(f"{part.name}: {len(part.levels)} levels, {text}")
        networks, total_s = networks + count, total_s + seconds
    jobs = default_jobs(config, _groups(prepared[0])[0].task.device, networks)
    lines.append(
        f"together: {networks} networks, about {total_s / jobs / 60:.2g} min of training in {jobs} process(es), about "
        f"{total_bytes / 1e6:.2g} MB in {config.runs}; measuring not counted; nothing was written"
    )
    return "\n".join(lines)


def announce(prepared: Prepared) -> None:
    """Say on stderr how the masked layers of each level resolved."""
    for line in dict.fromkeys(line for level in prepared.levels for line in level.job.layers):
        print(line, file=sys.stderr)
