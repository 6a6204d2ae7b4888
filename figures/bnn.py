"""Figures of the Bayesian study, from its tables alone: training curves, reliability, R̂, a posterior on a plane.

    python -m figures.bnn --results results

Reads `bnn.csv`, `bnn_curves.csv` and `bnn_reliability.csv` and writes, for each architecture and data set, training
curves with 95 % bands over networks and reliability diagrams; reads `bnn_nuts.csv` and writes R̂ of weights against R̂
of predictions; reads `bnn_plane.csv` and writes posteriors over two weights. What has no table is not drawn.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.command import Config, run_figures
from figures.style import COLOURS, COLUMN_IN, NAMES, pyplot, save
from figures.tables import read

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "python -m studies.bnn"
FIGURE = ("arch", "norm", "dataset", "preset", "epochs", "train_images")
"""Rows that agree in these go into one figure."""
KEY = ["config", "variant", "method", "instance"]
CURVES_A_ROW, DIAGRAMS_A_ROW = 3, 4
"""Panels beside each other, at most: a figure is as wide as a page."""
MARKERS = {"tanh": "o", "relu": "s", "figlu": "D"}
TABLES = {
    "bnn": (*FIGURE, *KEY, "kl_weight"),
    "bnn_curves": (*KEY, "epoch", "train_nll", "test_acc"),
    "bnn_reliability": (*KEY, "bins", "count", "confidence", "accuracy"),
}
"""What the variational part needs."""
ALONE = {
    "bnn_nuts": ("variant", "activation", "rhat_weights_median"),
    "bnn_plane": ("config", "variant", "a", "b", "log_density"),
}
"""Tables with a figure each."""


def draw(results: Path) -> list[Path]:
    """Draw all figures that a results folder has tables for; returns the files written.

    Raises:
        FileNotFoundError: if it has none of the study's tables.
    """
    files: list[Path] = []
    tables = _tables(results)
    if "bnn" in tables:
        for key, group in tables["bnn"].groupby(list(FIGURE), sort=False, dropna=False):
            name = _file_name(dict(zip(FIGURE, key)))
            files += _curves(results / "figures", f"bnn_{name}_curves", group, tables["bnn_curves"])
            files += _reliability(results / "figures", f"bnn_{name}_reliability", group, tables["bnn_reliability"])
    if "bnn_nuts" in tables:
        files += _rhat(results / "figures", tables["bnn_nuts"])
    if "bnn_plane" in tables:
        plane = tables["bnn_plane"]
        files += _plane(results / "figures", plane[plane["config"] == plane["config"].iloc[-1]])
    return files


def _tables(results: Path) -> dict[str, pd.DataFrame]:
    """The tables that are there, those of the variational part together."""
    found = {name: columns for name, columns in ALONE.items() if (results / f"{name}.csv").is_file()}
    if (results / "bnn.csv").is_file() or "bnn_nuts" not in found:
        found = TABLES | found
    return {name: read(results, f"{name}.csv", columns, MADE_BY) for name, columns in found.items()}


def _curves(folder: Path, name: str, rows: pd.DataFrame, curves: pd.DataFrame) -> list[Path]:
    from asym.intervals import mean_interval

    plt = pyplot()
    kinds = _kinds(rows[rows["method"] == "vi"])
    if not kinds:
        return []
    columns = min(CURVES_A_ROW, len(kinds))
    lines = math.ceil(len(kinds) / columns)
    figure, axes = plt.subplots(
        2 * lines, columns, figsize=(2.05 * COLUMN_IN / CURVES_A_ROW * max(columns, 2), 0.4 + 2.9 * lines),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for place in range(lines * columns):
        line, column = divmod(place, columns)
        pair = axes[2 * line : 2 * line + 2, column]
        if place >= len(kinds):
            for axis in pair:
                axis.remove()
            continue
        title, part = kinds[place]
        for variant in sorted(part["variant"].unique(), key=list(NAMES).index):
            own = curves.merge(part.loc[part["variant"] == variant, KEY], on=KEY)
            for axis, value in zip(pair, ("train_nll", "test_acc")):
                points = [(e, *mean_interval(g[value].to_numpy())[:3]) for e, g in own.groupby("epoch")]
                if not points:
                    continue
                epochs, means, lows, highs = zip(*points)
                axis.plot(epochs, means, color=COLOURS[variant], label=NAMES[variant], linewidth=1.3)
                axis.fill_between(epochs, lows, highs, color=COLOURS[variant], alpha=0.15, linewidth=0)
        pair[0].set_title(_wrapped(title))
        pair[0].tick_params(labelbottom=False)
        pair[1].set(xlabel="epoch", ylim=(0, 1))
        if column == 0:
            pair[0].set_ylabel("training loss\n(nats, one sample)")
            pair[1].set_ylabel("test accuracy")
    head = rows.iloc[0]
    figure.legend(*_legend(axes.flat), loc="outside lower center", ncols=4)
    figure.suptitle(f"{head['arch']}, {head['norm']} norm, on {head['dataset']}: means and 95 % intervals", fontsize=8)
    return save(figure, folder, name)


def _kinds(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Variational rows by KL weight and family, with a title that says in what they differ from each other."""
    columns = [c for c in ("kl_weight", "log_variance", "guide", "rank", "prior", "lr", "width") if c in rows]
    settings = rows[columns].astype(object).where(rows[columns].notna(), "")
    equal = rows["variant"] == "standard-equal"
    if "width" in settings and not equal.all():  # a width found by equal size is the variant's, not the panel's
        settings.loc[equal, "width"] = settings.loc[~equal, "width"].iloc[0]
    differ = [c for c in columns[1:] if settings[c].map(str).nunique() > 1]
    out = []
    for key, part in rows.groupby([settings[c] for c in ["kl_weight", *differ]], sort=True):
        named = zip(differ, key[1:])
        values = [f"{c.replace('_', '-')} {v:g}" if c != "guide" and v != "" else f"{v}" for c, v in named]
        out.append((", ".join([f"KL × {key[0]:g}", *values]), part))
    return out


def _wrapped(title: str) -> str:
    """The title in lines of a panel's width, broken after commas."""
    whole = title.replace(" ", "\xa0").replace(",\xa0", ", ")
    return textwrap.fill(whole, 24, break_on_hyphens=False).replace("\xa0", " ")


def _legend(axes: Iterable[Any]) -> tuple[list[Any], list[str]]:
    """Every line of all panels once."""
    found = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    return list(found.values()), list(found)


def _reliability(folder: Path, name: str, rows: pd.DataFrame, bins: pd.DataFrame) -> list[Path]:
    plt = pyplot()
    methods = [(str(m), part) for m, part in rows[rows["method"] != "vi"].groupby("method")]
    methods += _kinds(rows[rows["method"] == "vi"])
    columns = min(DIAGRAMS_A_ROW, len(methods))
    lines = math.ceil(len(methods) / columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(2.05 * COLUMN_IN / DIAGRAMS_A_ROW * max(columns, 2), 0.4 + 2.25 * lines), sharey=True,
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for axis in axes.flat[len(methods) :]:
        axis.remove()
    for axis, (title, part) in zip(axes.flat, methods):
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        for variant in sorted(part["variant"].unique(), key=list(NAMES).index):
            own = bins[bins["bins"] == "width"].merge(part.loc[part["variant"] == variant, KEY], on=KEY)
            own = own[own["count"] > 0]
            # Bins of all networks together, each weighted with its predictions.
            own = own.assign(c=own["confidence"] * own["count"], a=own["accuracy"] * own["count"])
            whole = own.groupby("bin")[["c", "a", "count"]].sum()
            x, y, colour = whole["c"] / whole["count"], whole["a"] / whole["count"], COLOURS[variant]
            axis.plot(x, y, linewidth=0.8, alpha=0.6, color=colour, label=NAMES[variant])
            axis.scatter(
                x, y, 2 + 40 * whole["count"] / whole["count"].sum(), color=colour, linewidths=0, clip_on=False
            )
        axis.set(xlabel="confidence", xlim=(0, 1), ylim=(0, 1))
        axis.set_title(_wrapped(f"VI, {title}" if title.startswith("KL") else title))
    for axis in axes[:, 0]:
        axis.set_ylabel("accuracy")
    figure.legend(*_legend(axes.flat[: len(methods)]), loc="outside lower center", ncols=4)
    figure.suptitle("area of a point: its share of the predictions", fontsize=8)
    return save(figure, folder, name)


def _rhat(folder: Path, rows: pd.DataFrame) -> list[Path]:
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(1.15 * COLUMN_IN, 2.7), layout="constrained")
    for row in rows.to_dict("records"):
        colour, marker = COLOURS[row["variant"]], MARKERS[row["activation"]]
        label = f"{NAMES[row['variant']]}, {row['activation']}"
        axis.plot(row["rhat_weights_median"] - 1, row["rhat_predictions_median"] - 1, marker, color=colour,
                  label=label, markersize=5)  # fmt: skip
    axis.set(xscale="log", yscale="log", xlabel="R̂ − 1 of weights (median)", ylabel="R̂ − 1 of predictions (median)")
    for line in (axis.axhline, axis.axvline):
        line(0.01, color="0.7", linewidth=0.8, zorder=0)
    handles, labels = axis.get_legend_handles_labels()
    once = dict(zip(labels, handles))
    figure.legend(once.values(), once.keys(), loc="outside right upper")
    return save(figure, folder, "bnn_nuts_rhat")


def _plane(folder: Path, plane: pd.DataFrame) -> list[Path]:
    import numpy as np

    plt = pyplot()
    variants = list(dict.fromkeys(plane["variant"]))
    figure, axes = plt.subplots(
        1, len(variants), figsize=(0.9 * COLUMN_IN * len(variants), 2.6), sharey=True, layout="constrained"
    )
    for axis, variant in zip(np.atleast_1d(axes), variants):
        grid = plane[plane["variant"] == variant].pivot(index="b", columns="a", values="log_density")
        axis.pcolormesh(grid.columns, grid.index, np.exp(grid.to_numpy()), cmap="viridis", shading="nearest",
                        rasterized=True)  # fmt: skip
        modes = plane.loc[plane["variant"] == variant, "modes"].iloc[0]
        axis.set(xlabel="weight of unit 1", aspect="equal")
        axis.set_title(f"{NAMES[variant]}: {modes} mode{'s' if modes != 1 else ''}")
    np.atleast_1d(axes)[0].set_ylabel("weight of unit 2")
    return save(figure, folder, "bnn_plane")


def _file_name(key: dict[str, Any]) -> str:
    parts = [key["arch"], key["norm"], key["dataset"], f"{key['epochs']}-epochs", f"{key['train_images']}-images"]
    parts += [key["preset"]] if key["preset"] != "laptop" else []
    return re.sub(r"[^\w.+-]+", "-", "_".join(map(str, parts)))


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_figures(
        "bnn", __doc__, lambda config: _tables(config.results), lambda config: draw(config.results), args
    )


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
