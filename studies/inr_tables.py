"""Tables of the study of implicit networks: summaries, paired differences, fits, images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from asym.intervals import bootstrap_interval, mean_interval
from studies.tables import interval_text, render, summarise

MEASURES = ("accuracy", "accuracy_moved", "nll", "nll_moved", "mse", "mse_moved", "mse_relative", "mse_relative_moved")
GROUP = ("config", "preset", "dataset", "task", "reader", "params")
OF_TASK = {"classify": "accuracy", "edit": "mse"}
"""The measure that readers of a task are compared by."""
NO_EDIT, MEAN_IMAGE = "no-edit", "mean-image"
"""Rows of `inr.csv` that no network is behind: the network as it was, and the mean of all dilated training images."""
Values = Mapping[tuple[str, str], Sequence[np.ndarray]]
"""(task, reader) → for each instance one number a test network."""


def relative(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with errors of edits also as shares of the error without an edit; missing in other tasks."""
    base = rows.loc[rows["reader"] == NO_EDIT, "mse"]
    rows = rows.copy()
    for ending in ("", "_moved"):
        share = rows[f"mse{ending}"] / float(base.iloc[0]) if len(base) else np.nan
        rows[f"mse_relative{ending}"] = share
    return rows


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, 95 % interval over instances and n of each measure, for each config, task and reader."""
    present = [name for name in MEASURES if name in rows and rows[name].notna().any()]
    out = summarise(rows, GROUP, present).rename(columns={"pairs": "instances"})
    lost = rows.assign(d=rows["diverged"] > 0).groupby(list(GROUP), sort=False, dropna=False)["d"].sum()
    return out.merge(lost.rename("diverged").reset_index(), on=list(GROUP))


def differences(values: Values, columns: Mapping[str, Any], seed: int) -> pd.DataFrame:
    """Each reader minus each that comes before it: mean over test networks, and a paired bootstrap over them.

    Values of a reader are first averaged over its instances; the interval is of the draw of test networks alone.
    """
    out = []
    for task, measure in OF_TASK.items():
        means = {reader: np.mean(found, axis=0) for (t, reader), found in values.items() if t == task and len(found)}
        readers = list(means)
        for i, reader in enumerate(readers):
            for other in readers[:i]:
                found = bootstrap_interval(means[reader] - means[other], np.mean, seed=seed)
                row = {name: columns[name] for name in ("config", "preset", "dataset")} | {"task": task}
                row |= {"reader": reader, "other": other, "measure": measure}
                out.append(row | {"difference": found.mean, "low": found.low, "high": found.high, "n": found.n})
    return pd.DataFrame(out)


def fits(labels: pd.DataFrame, wall_s: Mapping[str, float], columns: Mapping[str, Any]) -> pd.DataFrame:
    """How well the implicit networks of each split show their images; networks that diverged are counted alone."""
    out = []
    for split, group in labels.groupby("split", sort=False):
        finite = group["psnr"].to_numpy()[np.isfinite(group["psnr"].to_numpy())]
        found = mean_interval(finite)
        row = {k: columns[k] for k in ("config", "preset", "dataset", "siren", "omega", "start", "fit_steps", "fit_lr")}
        row |= {"split": split, "networks": len(group), "diverged": len(group) - len(finite)}
        row |= {"psnr": found.mean, "psnr_low": found.low, "psnr_high": found.high}
        row |= {"psnr_least": float(finite.min()) if len(finite) else np.nan, "wall_s": round(wall_s[str(split)], 3)}
        out.append(row)
    return pd.DataFrame(out)


def picture(image: Float[Tensor, "c p"]) -> str:
    """`#` and two hexadecimal digits a value, channel by channel and row by row; values are cut to [0, 1]."""
    return "#" + bytes((image.clamp(0, 1) * 255).round().int().flatten().tolist()).hex()


def summary_text(config: Any, plan: Any, rows: pd.DataFrame) -> str:
    """The terminal's tables."""
    parts = []
    for task, group in rows.groupby("task", sort=False):
        table = summary(group)
        names = ("accuracy", "accuracy_moved") if task == "classify" else ("mse", "mse_relative", "mse_relative_moved")
        head = {
            "accuracy": "accuracy", "accuracy_moved": "… moved", "mse": "MSE", "mse_relative": "of no edit",
            "mse_relative_moved": "… moved",
        }  # fmt: skip
        lines = []
        for row in table.to_dict("records"):
            n = f"{row['instances']}" + (f" ({row['diverged']} diverged)" if row["diverged"] else "")
            cells = [interval_text(*(row[f"{name}{e}"] for e in ("", "_low", "_high"))) for name in names]
            lines.append([row["reader"], f"{row['params']:,}", n, *cells])
        what = {"classify": "class of the image", "edit": "dilating the image"}[str(task)]
        title = f"{what}, {rows['dataset'].iloc[0]}: mean [95 % interval] over n trainings"
        parts.append(f"{title}\n{render(('reader', 'parameters', 'n', *(head[name] for name in names)), lines)}")
    parts.append("moved: hidden units of the networks read were reordered and flipped at random, no image changed")
    return "\n\n".join(parts)
