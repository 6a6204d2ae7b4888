"""Figures of the connectivity study, from its tables alone: losses along the line, and barriers.

    python -m figures.lmc --results results

Reads `lmc.csv` and `lmc_curves.csv`, writes `figures/lmc_<arch>_<data set>_….png` and `.pdf` in the same folder, one
figure for each architecture, data set and training length. Left: mean test loss along the line, with the band of the
95 % interval over pairs. Right: mid-point barrier of each pair, with mean and 95 % interval.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.command import Config, run_figures
from figures.style import ALIGNED, COLOURS, COLUMN_IN, DASHES, MARKERS, NAMES, pyplot, save
from figures.tables import read

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "python -m studies.lmc"
FIGURE = ("arch", "dataset", "preset", "width", "norm", "epochs", "train_images")
"""Rows that agree in these go into one figure."""
SETTINGS = ("kappa", "n_fix_scale", "lr", "config")
"""What may tell two series of one variant apart."""
KEY = ["config", "variant", "alignment", "pair"]


def draw(results: Path) -> list[Path]:
    """Draw all figures of a results folder; returns the files written."""
    rows = read(results, "lmc.csv", (*FIGURE, *KEY, "barrier_loss_mid"), MADE_BY)
    rows = rows[rows["arch"].notna()]
    curves = read(results, "lmc_curves.csv", (*KEY, "split", "lam", "loss"), MADE_BY)
    files: list[Path] = []
    for key, group in rows.groupby(list(FIGURE), sort=False, dropna=False):
        name = _file_name(dict(zip(FIGURE, key)))
        own = curves.merge(group[KEY].drop_duplicates(), on=KEY)
        files += _figure(results / "figures", name, dict(zip(FIGURE, key)), group, own[own["split"] == "test"])
    return files


def _figure(folder: Path, name: str, key: dict[str, Any], rows: pd.DataFrame, curves: pd.DataFrame) -> list[Path]:
    from asym.intervals import mean_interval

    plt = pyplot()
    series, highest = _series(rows), [1e-9]
    height = 2.3 + 0.1 * len(series)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(2.05 * COLUMN_IN, height), width_ratios=[1.15, 1], layout="constrained"
    )
    for place, (label, mask) in enumerate(series):
        part = rows[mask]
        variant, alignment = part["variant"].iloc[0], part["alignment"].iloc[0]
        colour = COLOURS.get(variant, "black")
        own = curves.merge(part[KEY], on=KEY)
        band = [(lam, *mean_interval(g["loss"].to_numpy())) for lam, g in own.groupby("lam")]
        lams, means, lows, highs = (list(column) for column in zip(*(point[:4] for point in band)))
        highest.append(max((mean for mean in means if mean == mean), default=0.0))
        left.plot(lams, means, color=colour, linestyle=DASHES[alignment], label=label, linewidth=1.4)
        left.fill_between(lams, lows, highs, color=colour, alpha=0.15, linewidth=0)
        values = part["barrier_loss_mid"].to_numpy(dtype=float)
        mean, low, high, n = mean_interval(values)
        face = colour if alignment == "none" else "white"
        right.plot(values, [place] * len(values), MARKERS[alignment], color=colour, alpha=0.35, markersize=3.5)
        right.plot([low, high], [place, place], color=colour, linewidth=1.6)
        right.plot([mean], [place], MARKERS[alignment], color=colour, markerfacecolor=face, markersize=6)
        right.annotate(
            f"n = {n}", (1.0, place), xycoords=("axes fraction", "data"), fontsize=6.5, va="center", ha="left",
            xytext=(2, 0), textcoords="offset points",
        )  # fmt: skip
    left.set(xlabel="position λ between the two networks", ylabel="test loss (nats)")
    left.set_ylim(0, 1.35 * max(highest))  # a wide interval of few pairs must not flatten the curves
    figure.legend(loc="outside lower center", ncols=min(4, len(series)))
    right.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    right.set(xlabel="test loss barrier at λ = ½ (nats)", yticks=range(len(series)))
    right.set_yticklabels([label.replace(" (", "\n(") for label, _ in series])
    right.set_ylim(len(series) - 0.4, -0.6)
    width = f", width ×{key['width']:g}" if key["width"] != 1 else ""
    figure.suptitle(
        f"{key['arch']}{width} on {key['dataset']}: {key['epochs']} epochs, {key['train_images']:,} {_items(key)}; "
        "bands and bars are 95 % intervals over pairs",
        fontsize=8,
    )
    return save(figure, folder, name)


def _series(rows: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    """Label and row mask of each (config, variant, alignment), in the variants' own order."""
    order = {variant: i for i, variant in enumerate(NAMES)}
    found = rows[["variant", "alignment", "config"]].drop_duplicates()
    found = found.sort_values("variant", key=lambda c: c.map(order).fillna(len(order)), kind="stable")
    out = []
    for variant, alignment, config in found.itertuples(index=False):
        mask = (rows["variant"] == variant) & (rows["alignment"] == alignment) & (rows["config"] == config)
        label = str(NAMES.get(variant, variant)) + ALIGNED.get(alignment, f" ({alignment})")
        same = rows[(rows["variant"] == variant) & (rows["alignment"] == alignment)]
        if same["config"].nunique() > 1:
            differing = [s for s in SETTINGS if s in rows and same[s].astype(str).nunique() > 1]
            label = f"{label}, " + ", ".join(f"{s} {rows.loc[mask, s].iloc[0]}" for s in differing[:2])
        out.append((label, mask))
    return out


def _file_name(key: dict[str, Any]) -> str:
    """`lmc_<arch>_<dataset>_<epochs>-epochs_<n>-images` (`<n>-nodes` for graphs), with what else is unusual.

    The name depends on the figure alone, not on what other figures there are.
    """
    parts = ["lmc", key["arch"], key["dataset"], f"{key['epochs']}-epochs", f"{key['train_images']}-{_items(key)}"]
    parts += [f"width-{key['width']:g}"] if key["width"] != 1 else []
    parts += [f"{key['norm']}-norm"] if key["norm"] != "default" else []
    parts += [key["preset"]] if key["preset"] != "laptop" else []
    return re.sub(r"[^\w.+-]+", "-", "_".join(map(str, parts)))


def _items(key: dict[str, Any]) -> str:
    """What `train_images` counts."""
    return "nodes" if str(key["arch"]).startswith("gnn") else "images"


def main(args: list[str] | None = None) -> int:
    """The command."""

    def check(config: Config) -> None:
        read(config.results, "lmc.csv", (*FIGURE, *KEY), MADE_BY)
        read(config.results, "lmc_curves.csv", (*KEY, "split", "lam", "loss"), MADE_BY)

    return run_figures("lmc", __doc__, check, lambda config: draw(config.results), args)


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
