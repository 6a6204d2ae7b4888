"""Running the planned audit, keeping its tables, printing its summary."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from asym.populations import run_tasks
from asym.store import read_table, update_table
from studies.audit import GROUP, KEY, SWAP_KEY, TABLES, Config
from studies.audit_work import Task, measure
from studies.launching import launcher_of
from studies.progress import Progress
from studies.setup import default_jobs, stamp
from studies.tables import VOLATILE, render, summarise


def execute(config: Config, tasks: list[Task]) -> pd.DataFrame:
    """Audit; returns the study's rows."""
    where = stamp("cpu")
    keys = {task.columns["config"] for task in tasks}

    def keep(rows: list[dict[str, Any]]) -> None:
        swaps = "cost_min" in rows[0]
        name, key = ("audit_swaps", SWAP_KEY) if swaps else ("audit", KEY)
        update_table(config.out / f"{name}.csv", pd.DataFrame([row | where for row in rows]), list(key), VOLATILE)

    with Progress(len(tasks), f"{len(tasks)} networks", quiet=config.quiet) as progress:
        run_tasks(
            measure,
            [(task,) for task in tasks],
            jobs=default_jobs(config, "cpu", len(tasks)),
            launcher=launcher_of(config),
            on_tick=progress.add,
            on_result=keep,
        )
    table = read_table(config.out / "audit.csv")
    rows = table[table["config"].isin(keys)].reset_index(drop=True)
    values = ("predicted", "found", "unexplained")
    update_table(config.out / "audit_summary.csv", summarise(rows, GROUP, values), list(TABLES["audit_summary"]))
    if any(task.n_fix_scale is not None for task in tasks):
        costs = read_table(config.out / "audit_swaps.csv")
        costs = costs[costs["config"].isin(keys)]
        by = ("preset", "arch", "variant", "kappa", "n_fix_scale", "fixed_share", "config")
        summary = summarise(costs, by, ("cost_min", "cost_p10", "cost_median"))
        update_table(config.out / "audit_swaps_summary.csv", summary, list(TABLES["audit_swaps_summary"]))
    return rows


def summary_text(config: Config, tasks: list[Task], rows: pd.DataFrame) -> str:
    """The terminal's table: one line for each architecture and variant."""
    columns = ("network", "variant", "params", "predicted", "found", "unexplained", "exchanges", "signs", "families")
    lines: list[list[str]] = []
    failed: list[str] = []
    for (arch, variant, _), part in rows.groupby(["arch", "variant", "config"], sort=False):
        bad = part[part["kind"] == "failed"]
        if len(bad):
            failed.append(f"{arch} {variant}: not audited ({bad['note'].iloc[0]})")
        whole = part[(part["kind"] == "continuous") & (part["family"] == "all")]
        if whole.empty:
            lines.append([str(arch), str(variant), *["–"] * (len(columns) - 2)])
            continue
        families = part[(part["kind"] == "continuous") & (part["family"] != "all")]
        named = families.groupby("family", sort=False)["found"].mean()
        text = ", ".join(f"{name} {_number(mean)}" for name, mean in named.items())
        cells = [_range(whole[c]) for c in ("predicted", "found", "unexplained")]
        tried = [_pair(part[part["kind"] == kind]) for kind in ("permutations", "signs")]
        lines.append([str(arch), str(variant), f"{int(whole['params'].iloc[0]):,}", *cells, *tried, text])
    legend = (
        "dimensions of the null space of the Jacobian, over random points; exchanges of two units and sign flips: "
        "kept by the network / predicted"
    )
    return "\n".join([render(columns, lines), legend, *failed])


def plan_text(config: Config, tasks: list[Task]) -> str:
    """What a run would do."""
    nets = {(t.net.arch, t.columns.get("standard_params")) for t in tasks if t.n_fix_scale is None}
    lines = [f"{arch}: a copy of {params:,} parameters" for arch, params in sorted(nets)]
    swaps = sum(t.n_fix_scale is not None for t in tasks)
    audits = [t for t in tasks if t.n_fix_scale is None]
    seconds = sum(4 + 20 * (t.columns["standard_params"] / 1000) ** 2 for t in audits) + 1.5 * swaps
    lines.append(
        f"{len(audits)} networks to audit, {swaps} whose units are exchanged; about {math.ceil(seconds / 60)} min of "
        "one processor, under 1 MB of disk"
    )
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.1f}"


def _range(values: pd.Series) -> str:
    low, high = values.min(), values.max()
    return _number(low) if low == high else f"{_number(low)}–{_number(high)}"


def _pair(rows: pd.DataFrame) -> str:
    if rows.empty or math.isnan(rows["found"].iloc[0]):
        return "–"
    return f"{rows['found'].iloc[0]:.0f}/{rows['predicted'].iloc[0]:.0f}"
