"""Figures of the SAFFU study, from its tables alone: barriers, learning curves, averages, cost.

    python -m figures.saffu --results results

Reads whichever of `saffu_connectivity_summary.csv`, `saffu_architecture_summary.csv`, `saffu_quality_curves.csv`,
`saffu_merging_summary.csv`, `saffu_cost_summary.csv` and `saffu_grid_effects.csv` are there, writes
`figures/saffu_<part>_<data set>_….png` and `.pdf` in the same folder, one figure for each part, data set, preset and
config. Bars are 95 % intervals.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.command import Config, run_figures
from figures.saffu_grid import draw_grid
from figures.style import COLUMN_IN, pyplot, save
from figures.tables import read

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "python -m studies.saffu"
GROUP = ("dataset", "preset", "config")
LINE = (*GROUP, "model", "start", "data", "embedding", "fixed_share", "steps", "lr", "alignment", "barrier_loss_max",
        "barrier_loss_max_low", "barrier_loss_max_high", "loss")  # fmt: skip
MERGED = ("loss_average", "loss_average_matched", "loss_best_part", "loss_union")
TABLES = {
    "connectivity": ("saffu_connectivity_summary.csv", LINE),
    "architecture": ("saffu_architecture_summary.csv", LINE),
    "quality": ("saffu_quality_curves.csv", (*GROUP, "arm", "fraction", "control", "repeat", "step", "seconds",
                                             "test_loss")),
    "merging": ("saffu_merging_summary.csv", (*GROUP, "start", "k", *MERGED)),
    "cost": ("saffu_cost_summary.csv", (*GROUP, "arm", "step_ms", "inference_us")),
    "grid": ("saffu_grid_effects.csv", (*GROUP, "kind", "factor", "level", "arm", "measure", "difference")),
}  # fmt: skip
REFERENCES, REFERRED = "saffu_quality_summary.csv", (*GROUP, "arm", "fraction", "control", "test_loss")
"""Where losses of the unigram and the trigram are, if it is there."""
ALIGNMENTS = {"none": "#D55E00", "weight": "#0072B2", "activation": "#009E73", "known": "#6B6B6B"}
PALETTE = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#882255", "#6B6B6B", "#000000", "#999933",
           "#44AA99", "#332288")  # fmt: skip
SHAPES = {"random": "o", "random-same": "^", "explicit": "s"}


def draw(results: Path) -> list[Path]:
    """Draw all figures of a results folder; returns the files written."""
    files: list[Path] = []
    for part, table in _tables(results).items():
        for key, rows in table.groupby(list(GROUP), sort=False, dropna=False):
            dataset, preset, config = key
            name = re.sub(r"[^\w.+-]+", "-", f"saffu_{part}_{dataset}_{preset}_{config}")
            files += DRAWN[part](results / "figures", name, rows, f"{dataset}, {preset}")
    return files


def _tables(results: Path) -> dict[str, pd.DataFrame]:
    """The tables that are there; that of references, which `_references` opens, is looked at too.

    Raises:
        FileNotFoundError: if none is.
    """
    if (results / REFERENCES).is_file():
        read(results, REFERENCES, REFERRED, MADE_BY)
    there = {part: entry for part, entry in TABLES.items() if (results / entry[0]).is_file()} or TABLES
    return {part: read(results, name, columns, MADE_BY) for part, (name, columns) in there.items()}


def _lines(folder: Path, name: str, rows: pd.DataFrame, title: str) -> list[Path]:
    """Barriers of each start, a panel for each length of training, rate, text and kind of embedding."""
    plt = pyplot()
    panels = list(rows.groupby(["steps", "lr", "data", "embedding"], sort=True))
    starts = [_label(row) for row in rows[["model", "start", "fixed_share"]].drop_duplicates().to_dict("records")]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(1.5 + 0.62 * COLUMN_IN * len(panels), 1.2 + 0.22 * len(starts)), sharey=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for axis, ((steps, lr, data, embedding), panel) in zip(axes[0], panels):
        for number, (alignment, colour) in enumerate(ALIGNMENTS.items()):
            own = panel[panel["alignment"] == alignment]
            if own.empty:
                continue
            at = [starts.index(_label(row)) + 0.16 * (number - 1) for row in own.to_dict("records")]
            mean, low, high = (own[f"barrier_loss_max{end}"].to_numpy(float) for end in ("", "_low", "_high"))
            axis.errorbar(
                mean, at, xerr=[(mean - low).clip(0), (high - mean).clip(0)], fmt="o", markersize=3.5, color=colour,
                linewidth=1.1, capsize=2, label="as they are" if alignment == "none" else f"matched: {alignment}",
            )  # fmt: skip
        when = f"{steps:g} steps at {lr:g}" if steps else "before training"
        axis.set(title=f"{when}\n{data} text, {embedding} vectors", xlabel="loss barrier (nats)")
        axis.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    axes[0][0].set_yticks(range(len(starts)), starts)
    axes[0][0].invert_yaxis()
    handles: dict[str, Any] = {}
    for axis in axes[0]:
        found, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, found))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    figure.suptitle(f"Two networks on a straight line ({title})", fontsize=8)
    return save(figure, folder, name)


def _label(row: dict[Any, Any]) -> str:
    model = "" if row["model"] == "saffu" else f"{row['model']}, "
    return f"{model}{row['start']}"


def _quality(folder: Path, name: str, rows: pd.DataFrame, title: str) -> list[Path]:
    """Test loss against steps and against seconds, of all of the training text."""
    plt = pyplot()
    rows = rows[(rows["control"] == "none") & (rows["fraction"] == rows["fraction"].max())]
    figure, axes = plt.subplots(1, 2, figsize=(2.4 * COLUMN_IN, 3.0), sharey=True, layout="constrained")
    first = {"step": 1.0, "seconds": float(rows.loc[rows["step"] > 0, "seconds"].min())}
    for colour, (arm, own) in zip(PALETTE * 2, rows.groupby("arm", sort=False)):
        mean = own.groupby("step")[["seconds", "test_loss"]].mean().reset_index()
        for axis, x in zip(axes, ("step", "seconds")):
            if len(mean) == 1:
                axis.axhline(mean["test_loss"].iloc[0], color=colour, linestyle=":", linewidth=1.1, label=arm)
            else:
                axis.plot(mean[x].clip(lower=first[x]), mean["test_loss"], color=colour, label=arm,
                          linewidth=1.2, marker="o", markersize=2)  # fmt: skip
    for arm, loss in _references(folder.parent / REFERENCES, rows["config"].iloc[0]).items():
        for axis in axes:
            axis.axhline(loss, color="0.5", linestyle="--", linewidth=0.9)
            axis.annotate(arm, (0.99, loss), xycoords=("axes fraction", "data"), fontsize=6, ha="right", va="bottom")
    axes[0].set(xscale="log", xlabel="steps (0 drawn at 1)", ylabel="test loss (nats a token)")
    axes[1].set(xscale="log", xlabel="seconds, explicit solve included")
    axes[0].set_ylim(top=float(rows["test_loss"].quantile(0.9)))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    figure.suptitle(f"Each arm at its tuned rate ({title})", fontsize=8)
    return save(figure, folder, name)


def _references(file: Path, config: str) -> dict[str, float]:
    """Test losses of the unigram and the trigram."""
    if not file.is_file():
        return {}
    table = read(file.parent, file.name, REFERRED, MADE_BY)
    table = table[(table["config"] == config) & (table["control"] == "none")]
    table = table[(table["fraction"] == table["fraction"].max()) & table["arm"].isin(["unigram", "kneser-ney 3"])]
    return dict(zip(table["arm"], table["test_loss"]))


def _merging(folder: Path, name: str, rows: pd.DataFrame, title: str) -> list[Path]:
    """Test loss of averages against the number of networks, beside the best part and the union."""
    plt = pyplot()
    starts = list(rows["start"].unique())
    figure, axes = plt.subplots(
        1, len(starts), figsize=(0.75 * COLUMN_IN * len(starts), 2.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, start in zip(axes[0], starts):
        own = rows[rows["start"] == start].sort_values("k")
        for colour, value in zip(PALETTE[::2], MERGED):
            error = [(own[value] - own[f"{value}_low"]), (own[f"{value}_high"] - own[value])]
            axis.errorbar(own["k"], own[value], yerr=error, color=colour, marker="o", markersize=3, capsize=2,
                          linewidth=1.1, label=value.removeprefix("loss_").replace("_", " "))  # fmt: skip
        axis.set(title=start, xlabel="networks averaged", xticks=sorted(own["k"].unique()))
    axes[0][0].set_ylabel("test loss (nats a token)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(MERGED))
    figure.suptitle(f"Averages of networks of disjoint texts ({title})", fontsize=8)
    return save(figure, folder, name)


def _cost(folder: Path, name: str, rows: pd.DataFrame, title: str) -> list[Path]:
    """Milliseconds of a step and microseconds of a prediction."""
    plt = pyplot()
    figure, axes = plt.subplots(
        1, 2, figsize=(1.9 * COLUMN_IN, 1.0 + 0.22 * len(rows)), sharey=True, layout="constrained"
    )
    axes[0].barh(rows["arm"], rows["step_ms"], color=PALETTE[0])
    axes[1].barh(rows["arm"], rows["inference_us"], color=PALETTE[0], label="comparisons looked up")
    if "inference_uncached_us" in rows:
        axes[1].plot(rows["inference_uncached_us"], rows["arm"], "|", color=PALETTE[4], markersize=9, label="computed")
        axes[1].legend()
    axes[0].set(xlabel="milliseconds a training step")
    axes[1].set(xlabel="microseconds a prediction")
    axes[0].invert_yaxis()
    figure.suptitle(f"Cost ({title})", fontsize=8)
    return save(figure, folder, name)


DRAWN: dict[str, Callable[[Path, str, Any, str], list[Path]]] = {
    "connectivity": _lines,
    "architecture": _lines,
    "quality": _quality,
    "merging": _merging,
    "cost": _cost,
    "grid": draw_grid,
}


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_figures(
        "saffu", __doc__, lambda config: _tables(config.results), lambda config: draw(config.results), args
    )


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
