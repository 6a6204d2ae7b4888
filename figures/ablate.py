"""Figures of the ablations, from their tables alone: barriers beside end points, with intervals.

    python -m figures.ablate --results results
    python -m figures.ablate --factor plane

Reads `ablate_<factor>.csv` of every factor that is there and writes `figures/ablate_<factor>_<arch>_<data set>.png` and
`.pdf` in the same folder. Left the barrier, right what it costs: test accuracy of the networks themselves. Bars are
95 % intervals over pairs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import command
from figures.ablate_maps import MADE_BY, heat_maps, label_of, measured, plane_grid, planes
from figures.style import ALIGNED, COLOURS, COLUMN_IN, DASHES, MARKERS, NAMES, pyplot, save
from figures.tables import read
from studies.checks import check_choice

if TYPE_CHECKING:
    import pandas as pd

FIGURE = ("arch", "dataset", "preset")
"""Rows that agree in these go into one figure."""
NEEDED = (*FIGURE, "config", "level", "value", "variant", "alignment", "pair", "barrier_loss_mid")
BARRIER, ACCURACY = "test loss barrier at λ = ½ (nats)", "test accuracy of the networks"


@dataclass(frozen=True)
class Axis:
    """How a factor is drawn."""

    title: str
    label: str = ""
    """Of the axis of values; empty: levels are drawn one below the other."""
    log: bool = False
    barrier: str = BARRIER
    second: tuple[str, str] = ("acc", ACCURACY)
    """Measure on the right and its label."""
    series: tuple[str, ...] = ()
    """Columns that tell curves of one variant apart."""


AXES = {
    "kappa-nfix": Axis("constants of W networks"),
    "warmup": Axis("length of the warm-up", "epochs of warm-up", log=True),
    "lr": Axis("learning rate", "peak learning rate", log=True),
    "width": Axis("width", "width multiplier", log=True),
    "temperature": Axis(
        "loss barriers of calibrated networks",
        "width multiplier",
        log=True,
        barrier="test loss barrier as trained (nats)",
        second=("barrier_calibrated_mid", "barrier of calibrated losses (nats)"),
    ),
    "bias": Axis("fixed biases", "fixed shifts are uniform in ± k", log=True),
    "gate": Axis("gate of σ networks"),
    "zero": Axis("constants of zero"),
    "init": Axis("where training starts"),
    "equal-params": Axis("number of parameters"),
    "time": Axis("barrier over training", "epochs", log=True),
    "merge": Axis("averaging k networks", "networks averaged",
                  barrier="test loss of the average above its parts' (nats)",
                  second=("acc_mid", "test accuracy of the average")),
    "syre": Axis("SyRe", "weight decay", log=True, series=("syre_scale",)),
    "plane": Axis("plane through three networks"),
}  # fmt: skip


@dataclass(frozen=True)
class Config(command.Config):
    """Settings of the figures."""

    factor: str | None = None
    """One factor; by default all whose tables are there."""

    def __post_init__(self) -> None:
        if self.factor is not None:
            check_choice("factor", self.factor, tuple(AXES))


def draw(results: Path, factors: Sequence[str]) -> list[Path]:
    """Draw the figures of some factors; returns the files written."""
    files: list[Path] = []
    for factor in factors:
        name = f"ablate_{factor.replace('-', '_')}"
        rows = read(results, f"{name}.csv", NEEDED, MADE_BY)
        for key, group in rows.groupby(list(FIGURE), sort=False, dropna=False):
            arch, dataset, preset = (str(part) for part in key)
            file = "_".join([name, arch, dataset, *([preset] if preset != "laptop" else [])])
            file = re.sub(r"[^\w.+-]+", "-", file)
            title = f"{AXES[factor].title}: {arch} on {dataset}; bars are 95 % intervals over n = {_n(group)}"
            if factor == "plane":
                files += planes(results, file, name, group, arch, dataset)
            elif factor == "kappa-nfix":
                files += heat_maps(results / "figures", file, group, title)
            elif AXES[factor].label:
                files += _curves(results / "figures", file, group, AXES[factor], title)
            else:
                files += _dots(results / "figures", file, group, AXES[factor], title)
    return files


def _n(rows: pd.DataFrame) -> str:
    counts = rows.groupby(["config", "level", "variant", "alignment"])["pair"].nunique()
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def _series(rows: pd.DataFrame, axis: Axis) -> list[tuple[str, pd.DataFrame]]:
    """Label and rows of each curve, in the variants' own order."""
    order = {variant: i for i, variant in enumerate(NAMES)}
    rows = rows.sort_values("variant", key=lambda c: c.map(order).fillna(len(order)), kind="stable")
    out = []
    for key, part in rows.groupby(["variant", "alignment", *axis.series], sort=False, dropna=False):
        further = [str(value).replace("sqrt(d)", "√d") for value in key[2:] if isinstance(value, str) and value]
        out.append((", ".join([label_of(str(key[0]), str(key[1])), *further]), part))
    return out


def _curves(folder: Path, name: str, rows: pd.DataFrame, axis: Axis, title: str) -> list[Path]:
    from asym.intervals import mean_interval

    plt = pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(2.05 * COLUMN_IN, 2.6), layout="constrained")
    rows = measured(rows)
    ticks = sorted(rows["value"].dropna().unique())
    dashes = iter(("solid", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1))))
    styles: dict[str, Any] = {}
    for label, part in _series(rows, axis):
        variant, alignment = part["variant"].iloc[0], part["alignment"].iloc[0]
        colour = COLOURS.get(variant, "black")
        dash = DASHES[alignment]
        if axis.series and variant == "syre":
            dash = styles.setdefault(label, next(dashes, "solid"))
        for panel, measure in zip(panels, ("barrier_loss_mid", axis.second[0])):
            reference = part[part["value"].isna()]
            if len(reference):
                mean, low, high, _ = mean_interval(reference[measure].to_numpy(dtype=float))
                panel.axhline(mean, color=colour, linestyle=dash, linewidth=1.1, label=label)
                panel.axhspan(low, high, color=colour, alpha=0.12, linewidth=0)
                continue
            points = [(v, *mean_interval(g[measure].to_numpy(dtype=float))) for v, g in part.groupby("value")]
            x, mean, low, high, _ = (list(column) for column in zip(*points))
            below, above = ([abs(a - b) for a, b in zip(mean, side)] for side in (low, high))
            panel.errorbar(
                x, mean, [below, above], color=colour, linestyle=dash, marker=MARKERS[alignment], markersize=4,
                markerfacecolor=colour if alignment == "none" else "white", linewidth=1.3, elinewidth=0.9, capsize=2,
                label=label,
            )  # fmt: skip
    for panel, text in zip(panels, (axis.barrier, axis.second[1])):
        panel.set(xlabel=axis.label, ylabel=text)
        if axis.log:
            panel.set_xscale("log")
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
    _reach(panels[0], rows["barrier_loss_mid"])
    _reach(panels[1], rows[axis.second[0]], through_zero=False)
    panels[0].axhline(0, color="0.6", linewidth=0.8, zorder=0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    figure.suptitle(title, fontsize=8)
    return save(figure, folder, name)


def _reach(panel: Any, values: pd.Series, side: str = "y", *, through_zero: bool = True) -> None:
    """Keep the measured values in sight where a wide interval of few pairs would squeeze them."""
    finite = values[values.abs() < float("inf")].dropna()
    if finite.empty:
        return
    low, high = float(finite.min()), float(finite.max())
    if through_zero:
        low, high = min(0.0, low), max(0.0, high)
    room = max(0.25 * (high - low), 1e-3)
    getattr(panel, f"set_{side}lim")(low - room, high + room)


def _dots(folder: Path, name: str, rows: pd.DataFrame, axis: Axis, title: str) -> list[Path]:
    from asym.intervals import mean_interval

    plt = pyplot()
    rows = measured(rows)
    groups = list(rows.groupby(["level", "variant", "alignment", "config"], sort=False, dropna=False))
    height = 1.0 + 0.27 * len(groups)
    figure, panels = plt.subplots(1, 2, figsize=(2.05 * COLUMN_IN, height), sharey=True, layout="constrained")
    labels = []
    for place, (key, part) in enumerate(groups):
        level, variant, alignment = (str(item) for item in key[:3])
        colour = COLOURS.get(variant, "black")
        labels.append(level + ALIGNED.get(alignment, f" ({alignment})"))
        for panel, measure in zip(panels, ("barrier_loss_mid", axis.second[0])):
            values = part[measure].to_numpy(dtype=float)
            mean, low, high, _ = mean_interval(values)
            panel.plot(values, [place] * len(values), MARKERS[alignment], color=colour, alpha=0.35, markersize=3.5)
            panel.plot([low, high], [place, place], color=colour, linewidth=1.6)
            face = colour if alignment == "none" else "white"
            panel.plot([mean], [place], MARKERS[alignment], color=colour, markerfacecolor=face, markersize=6)
    panels[0].set(xlabel=axis.barrier, yticks=range(len(labels)))
    panels[0].set_yticklabels(labels)
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    _reach(panels[0], rows["barrier_loss_mid"], "x")
    panels[0].axvline(0, color="0.6", linewidth=0.8, zorder=0)
    panels[1].set(xlabel=axis.second[1])
    _reach(panels[1], rows[axis.second[0]], "x", through_zero=False)
    figure.suptitle(title, fontsize=8)
    return save(figure, folder, name)


def main(args: list[str] | None = None) -> int:
    """The command."""

    def factors(config: Config) -> list[str]:
        there = [f for f in AXES if (config.results / f"ablate_{f.replace('-', '_')}.csv").is_file()]
        return [config.factor] if config.factor else there or list(AXES)[:1]

    def check(config: Config) -> None:
        for factor in factors(config):
            read(config.results, f"ablate_{factor.replace('-', '_')}.csv", NEEDED, MADE_BY)
            if factor == "plane":
                plane_grid(config.results, "ablate_plane")

    return command.run_figures(
        "ablate", __doc__, check, lambda config: draw(config.results, factors(config)), args, Config
    )


if __name__ == "__main__":
    sys.exit(main())
