"""One network at one point: its continuous and discrete symmetries, or the cost of exchanging its units, as rows."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any

import numpy as np
import pandas as pd
import torch

from asym.nn import MaskedLayer, Variant
from asym.nn.variants import count_trainable
from asym.populations import tick
from asym.populations.runs import cached
from asym.store import Store
from asym.symmetry.audit import Continuous, continuous_symmetries
from asym.symmetry.audit_discrete import Exchanger, automorphisms, exchanges, sign_flips
from studies.audit_nets import Net
from studies.cli import one_line

KIND = "audit"
VERSION = 2
"""Raised by hand when what is measured changes."""
TINY = (4, 2)
"""Units and hidden layers of the perceptrons whose automorphisms are counted."""
SWAP_PAIRS = 100
"""Pairs of units of a group that are exchanged."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A network to be audited at one point, or (with `n_fix_scale`) whose units are exchanged."""

    net: Net
    variant: str
    kappa: float | None
    batch_statistics: bool
    point: int
    runs: str
    columns: dict[str, Any]
    n_fix_scale: float | None = None


def stored_config(task: Task) -> dict[str, Any]:
    """What determines a task's result, for the store."""
    return {
        "net": dataclasses.asdict(task.net),
        "variant": task.variant,
        "kappa": task.kappa if Variant(task.variant).plans else None,
        "batch_statistics": task.batch_statistics,
        "point": task.point,
        "seeds": [task.columns["seed"], task.columns["mask_seed"]],
        "n_fix_scale": task.n_fix_scale,
        "version": VERSION,
    }


def measure(task: Task) -> list[dict[str, Any]]:
    """Rows of `audit.csv`, or one of `audit_swaps.csv`; a network that cannot be audited is a row that says so."""
    try:
        compute = functools.partial(_swap_rows if task.n_fix_scale is not None else _rows, task)
        run = cached(Store(task.runs), KIND, stored_config(task), compute)
        state = run.state()
        rows = state["rows"]
        wall = float(state["wall_s"])
    except Exception as error:  # what others wrote may fail in any way; the table has the others
        rows, wall = [_failed(task, error)], math.nan
    tick(1)
    return [{**task.columns, **row, "wall_s": round(wall, 3)} for row in rows]


def _failed(task: Task, error: Exception) -> dict[str, Any]:
    text = one_line(error)
    blank = {"params": task.columns.get("standard_params", 0), "note": f"{type(error).__name__}: {text[:300]}"}
    if task.n_fix_scale is not None:
        return blank | {"cost_min": math.nan, "cost_median": math.nan}
    nothing = {"predicted": math.nan, "found": math.nan, "unexplained": math.nan}
    return blank | {"kind": "failed", "family": "all"} | nothing


def _rows(task: Task) -> tuple[dict[str, Any], dict[str, pd.DataFrame], dict[str, Any]]:
    start = time.monotonic()
    seed, mask_seed = task.columns["seed"], task.columns["mask_seed"]
    model = task.net.build(task.net.variant(task.variant, task.kappa, mask_seed), seed)
    params = count_trainable(model)
    draw = task.net.draw()
    audit = continuous_symmetries(model, draw if _joint(task.net) else task.net.input_shape, seed=seed,
                                  batch_statistics=task.batch_statistics)  # fmt: skip
    rows = continuous_rows(audit)
    if task.point == 0:
        rows += _discrete_rows(task, model, seed)
    return {}, {}, {"rows": [row | {"params": params} for row in rows], "wall_s": time.monotonic() - start}


def _joint(net: Net) -> bool:
    return net.entry.domain != "images"


def continuous_rows(audit: Continuous) -> list[dict[str, Any]]:
    """One row for each family, and one for all together, which has what no family explains."""
    rows: list[dict[str, Any]] = [
        _row("continuous", family.name, family.predicted, family.confirmed) for family in audit.families
    ]
    rank = audit.rank
    note = f"no rule for {', '.join(audit.untraced)}" if audit.unexplained and audit.untraced else ""
    total = _row("continuous", "all", audit.predicted, audit.found, note)
    return [
        *rows,
        total
        | {
            "unexplained": audit.unexplained,
            "confirmed": audit.confirmed,
            "gap": rank.gap,
            "sigma_kept": rank.kept,
            "sigma_dropped": rank.dropped,
            "jacobian_rows": rank.rows,
            "saturated": rank.saturated,
            "dead_units": audit.dead,
            "linear_units": audit.linear,
        },
    ]


def _row(kind: str, family: str, predicted: float, found: float, note: str = "") -> dict[str, Any]:
    cells = {"predicted": predicted, "found": found, "unexplained": found - predicted}
    return {"kind": kind, "family": family, **cells, "note": note}


def _discrete_rows(task: Task, model: torch.nn.Module, seed: int) -> list[dict[str, Any]]:
    draw = task.net.draw() if _joint(task.net) else task.net.input_shape
    rows = []
    try:
        reference = task.net.build(Variant(), seed)
        found = exchanges(model, draw, reference=reference, seed=seed)
        order = sum(e.predicted_log10 for e in found)
        text = f"{sum(e.tried for e in found)} tried in {len(found)} groups"
        predicted, kept = sum(e.predicted for e in found), sum(e.found for e in found)
        row = _row("permutations", "exchanges of two", predicted, kept)
        rows.append(row | {"note": text, "order_log10": order})
    except ValueError as error:
        rows.append(_row("permutations", "exchanges of two", math.nan, math.nan, one_line(error)[:200]))
    rows.append(_row("signs", "sign flips", *sign_flips(model, draw, seed=seed)))
    if task.net.arch.startswith("mlp") and task.variant in ("standard", "w", "w-zero"):
        rows.append(_automorphisms(task))
    return rows


def _automorphisms(task: Task) -> dict[str, Any]:
    """All automorphisms of the masks of a tiny perceptron, as missing edges."""
    units, depth = TINY
    tiny = dataclasses.replace(task.net, width=units / 512, depth=None, norm=None, activation=None)
    tiny = dataclasses.replace(tiny, arch="mlp", depth=depth, input_shape=(1, 3, 3))
    model = tiny.build(tiny.variant(task.variant, None, task.columns["mask_seed"]), 0)
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    masks = [m.mask if isinstance(m, MaskedLayer) else torch.ones_like(m.weight, dtype=torch.bool) for m in layers]
    found = sum(1 for _ in automorphisms(masks))
    predicted = 1 if task.variant != "standard" else math.factorial(units) ** depth
    return _row("automorphisms", f"{depth} hidden layers of {units}", predicted, found)


def _swap_rows(task: Task) -> tuple[dict[str, Any], dict[str, pd.DataFrame], dict[str, Any]]:
    start = time.monotonic()
    seed, mask_seed = task.columns["seed"], task.columns["mask_seed"]
    variant = task.net.variant("w", task.kappa, mask_seed, task.n_fix_scale or 1.0)
    model = task.net.build(variant, seed)
    named = [*model.named_parameters(), *model.named_buffers()]
    state = {name: t.detach().double() if t.is_floating_point() else t for name, t in named}
    trial = Exchanger(model, task.net.input_shape, seed=seed, state=state)
    costs = np.array(
        [trial.cost(group, i, j)[0] for group in trial.spec.groups for i, j in trial.pairs(group, seed, SWAP_PAIRS)]
    )
    masked = [m for m in model.modules() if isinstance(m, MaskedLayer)]
    share = 1 - sum(m.n_trainable for m in masked) / sum(m.weight.numel() for m in masked)
    row = {
        "params": count_trainable(model),
        "fixed_share": share,
        "pairs": len(costs),
        "cost_min": float(costs.min()),
        "cost_p10": float(np.quantile(costs, 0.1)),
        "cost_median": float(np.median(costs)),
        "note": "",
    }
    return {}, {}, {"rows": [row], "wall_s": time.monotonic() - start}
