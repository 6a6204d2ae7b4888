"""Figures of the symmetry audit, from its tables alone: what is left in each network, and what an exchange costs.

    python -m figures.audit --results results

Reads `audit.csv` and, where it is there, `audit_swaps.csv`; writes `figures/audit_<preset>.png` and
`audit_swaps_<preset>.png` (and `.pdf`) in the same folder. First figure: for each architecture and variant the share of
parameter directions along which the function stays the same, stacked by family, predicted (left, hatched) and found
(right). Second: cost of the cheapest exchange of two units (and of the median one) against κ, for each n_fix.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from figures.command import Config, run_figures
from figures.style import COLOURS, COLUMN_IN, NAMES, pyplot, save
from figures.tables import read

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "python -m studies.audit"
NEEDED = ("preset", "arch", "variant", "kind", "family", "predicted", "found", "unexplained", "params", "config")
SWAPS = ("preset", "arch", "kappa", "n_fix_scale", "cost_min")


def draw(results: Path) -> list[Path]:
    """Draw all figures of a results folder; returns the files written."""
    rows, costs = _tables(results)
    files: list[Path] = []
    for preset, group in rows.groupby("preset", sort=False):
        whole = group[(group["kind"] == "continuous") & (group["family"] == "all")]
        if len(whole):
            files += _bars(results / "figures", str(preset), whole)
    if costs is not None:
        for preset, group in costs.groupby("preset", sort=False):
            files += _swaps(results / "figures", str(preset), group)
    return files


def _tables(results: Path) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The audit, and the costs of swaps where they are there."""
    rows, swaps = read(results, "audit.csv", NEEDED, MADE_BY), "audit_swaps.csv"
    return rows, read(results, swaps, SWAPS, MADE_BY) if (results / swaps).is_file() else None


def _bars(folder: Path, preset: str, rows: pd.DataFrame) -> list[Path]:
    plt = pyplot()
    means = (
        rows.groupby(["arch", "variant", "config"], sort=False)[["predicted", "found", "params"]].mean().reset_index()
    )
    archs = list(dict.fromkeys(means["arch"]))
    variants = [v for v in NAMES if v in set(means["variant"])] + [
        v for v in means["variant"].unique() if v not in NAMES
    ]
    height = 0.9 + 0.32 * len(archs) * max(1, len(variants)) * 0.6
    figure, axis = plt.subplots(figsize=(2.05 * COLUMN_IN, height), layout="constrained")
    ticks, names, place = [], [], 0.0
    for arch in archs:
        for variant in variants:
            part = means[(means["arch"] == arch) & (means["variant"] == variant)]
            for row in part.to_dict("records"):
                colour = COLOURS.get(variant, "black")
                share = {k: row[k] / row["params"] for k in ("predicted", "found")}
                axis.barh(
                    place - 0.18, share["predicted"], 0.34, color="white", edgecolor=colour, hatch="////", linewidth=0.8
                )
                axis.barh(place + 0.18, share["found"], 0.34, color=colour)
                text = f"{round(row['found'], 1):g} of {row['params']:,.0f}"
                text += "" if row["found"] == row["predicted"] else f", predicted {round(row['predicted'], 1):g}"
                place_text = {"xytext": (3, 0), "textcoords": "offset points", "fontsize": 6.5, "va": "center"}
                axis.annotate(text, (max(share.values()), place), **place_text)
                ticks.append(place)
                names.append(f"{arch}, {NAMES.get(variant, variant)}")
                place += 1
        place += 0.6
    axis.set(yticks=ticks, xlabel="share of parameter directions that do not change the function")
    axis.set_yticklabels(names)
    axis.invert_yaxis()
    axis.margins(x=0.25)
    axis.set_title("predicted (hatched) and found (solid); narrow copies", fontsize=8)
    return save(figure, folder, f"audit_{preset}")


def _swaps(folder: Path, preset: str, rows: pd.DataFrame) -> list[Path]:
    from asym.intervals import mean_interval

    plt = pyplot()
    archs = list(dict.fromkeys(rows["arch"]))
    figure, axes = plt.subplots(
        1, len(archs), figsize=(COLUMN_IN * max(1.2, len(archs)), 2.4), layout="constrained", squeeze=False, sharey=True
    )
    shades = plt.get_cmap("viridis")
    for axis, arch in zip(axes[0], archs):
        own = rows[rows["arch"] == arch]
        scales = sorted(own["n_fix_scale"].unique())
        for place, scale in enumerate(scales):
            part = own[own["n_fix_scale"] == scale]
            for name, dash in (("cost_min", "solid"), ("cost_median", (0, (4, 1.5)))):
                points = [(k, *mean_interval(g[name].to_numpy(dtype=float))) for k, g in part.groupby("kappa")]
                x, mean, low, high = (list(column) for column in zip(*(p[:4] for p in points)))
                colour = shades(0.15 + 0.7 * place / max(1, len(scales) - 1))
                label = f"n_fix × {scale:g}" if name == "cost_min" else None
                axis.plot(x, mean, color=colour, linestyle=dash, label=label, marker="o", markersize=2.5, linewidth=1.2)
                axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.set_xscale("symlog", linthresh=0.125)
        axis.set(xlabel="κ", title=arch)
        axis.legend()
    axes[0][0].set_ylabel("change of the function\nby an exchange / its spread")
    figure.suptitle("cheapest exchange of two units (solid) and the median one (dashed)", fontsize=8)
    return save(figure, folder, f"audit_swaps_{preset}")


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_figures(
        "audit",
        __doc__,
        lambda config: _tables(config.results),
        lambda config: draw(config.results),
        args,
    )


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
