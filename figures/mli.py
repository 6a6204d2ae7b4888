"""Figures of the interpolation study, from its tables alone: the loss on the way, and who is monotone at which rate.

    python -m figures.mli --results results

Reads `mli.csv`, `mli_curves.csv` and `mli_by_lr.csv`, writes `figures/mli_<arch>_<data set>_….png` and `.pdf` in the
same folder, one figure for each architecture, data set and setting. A fan for each family: the training loss (with the
run's label smoothing) of each network along its line, with the median; networks whose loss rises somewhere are dashed
black. Last panel: share of monotone networks against the peak learning rate, with Wilson's 95 % intervals.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.command import Config, run_figures
from figures.style import COLOURS, COLUMN_IN, NAMES, pyplot, save
from figures.tables import read

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "python -m studies.mli"
FIGURE = ("arch", "dataset", "preset", "width", "norm", "epochs_scale", "fixed", "batch_size", "train_images")
"""Rows that agree in these go into one figure."""
SETTINGS = ("kappa", "n_fix_scale", "config")
"""What may tell two series of one variant apart."""
KEY = ["config", "variant", "network"]
SHARE = ("smooth_monotone", "smooth_monotone_low", "smooth_monotone_high", "smooth_monotone_n")
TABLES = {
    "mli.csv": (*FIGURE, *KEY, "diverged", "smooth_monotone"),
    "mli_curves.csv": (*KEY, "lam", "smooth_loss"),
    "mli_by_lr.csv": ("config", "variant", "lr_low", "lr_high", *SHARE),
}


def draw(results: Path) -> list[Path]:
    """Draw all figures of a results folder; returns the files written."""
    import pandas as pd

    rows, curves, by_lr = _tables(results)
    curves = curves.assign(smooth_loss=pd.to_numeric(curves["smooth_loss"]))  # a column without values is text
    files: list[Path] = []
    for key, group in rows.groupby(list(FIGURE), sort=False, dropna=False):
        own = curves.merge(group[KEY].drop_duplicates(), on=KEY)
        files += _figure(results / "figures", dict(zip(FIGURE, key)), group, own, by_lr)
    return files


def _tables(results: Path) -> list[pd.DataFrame]:
    return [read(results, name, columns, MADE_BY) for name, columns in TABLES.items()]


def _figure(
    folder: Path, key: dict[str, Any], rows: pd.DataFrame, curves: pd.DataFrame, by_lr: pd.DataFrame
) -> list[Path]:
    plt = pyplot()
    series = _series(rows)
    count = len(series)
    figure, axes = plt.subplots(
        1,
        count + 1,
        figsize=(0.52 * COLUMN_IN * (count + 1.4), 2.4),
        width_ratios=[1] * count + [1.4],
        layout="constrained",
    )
    top = _top(curves)
    for axis, (label, variant, config) in zip(axes, series):
        mine = rows[(rows["variant"] == variant) & (rows["config"] == config)]
        _fan(axis, mine, curves.merge(mine[KEY], on=KEY), COLOURS.get(variant, "black"))
        axis.set(title=label, xlabel="position on the line", ylim=(0, top), xlim=(0, 1), xticks=(0, 0.5, 1))
        axis.set_xticklabels(["initial", "½", "final"])
        if axis is axes[0]:
            axis.set_ylabel("training loss (nats)")
        else:
            axis.set_yticklabels([])
    _against_rate(axes[-1], series, by_lr)
    width = f", width ×{key['width']:g}" if key["width"] != 1 else ""
    figure.suptitle(
        f"{key['arch']}{width} on {key['dataset']}: from initial to final weights; dashed black where the loss rises "
        "somewhere; bars are 95 % intervals",
        fontsize=8,
    )
    return save(figure, folder, _file_name(key))


def _fan(axis: Any, rows: pd.DataFrame, curves: pd.DataFrame, colour: str) -> None:
    """Each network's curve, those that rise on top, and the median."""
    rises = {row["network"] for row in rows.to_dict("records") if row["smooth_monotone"] == False}  # noqa: E712
    table = curves.pivot_table(index="lam", columns="network", values="smooth_loss")
    for network in table.columns:
        look: dict[str, Any] = {"color": colour, "alpha": 0.35}
        if network in rises:
            look = {"color": "black", "alpha": 0.6, "linestyle": (0, (3, 1.5)), "zorder": 3}
        axis.plot(table.index, table[network], linewidth=0.5, **look)
    if table.shape[1]:
        axis.plot(table.index, table.median(axis=1), color=colour, linewidth=2.2, zorder=4)
    lost = int((rows["diverged"] > 0).sum())
    text = f"{table.shape[1] - len(rises)} of {table.shape[1]} monotone" + (f"\n{lost} diverged" if lost else "")
    axis.annotate(text, (0.97, 0.97), xycoords="axes fraction", fontsize=6.5, va="top", ha="right")


def _against_rate(axis: Any, series: list[tuple[str, str, str]], by_lr: pd.DataFrame) -> None:
    """Share of monotone networks in each bin of the rate; families side by side within a bin."""
    edges: set[float] = set()
    for place, (label, variant, config) in enumerate(series):
        own = by_lr[(by_lr["variant"] == variant) & (by_lr["config"] == config) & (by_lr["smooth_monotone_n"] > 0)]
        own = own.sort_values("lr_low")
        edges |= {*own["lr_low"], *own["lr_high"]}
        share, low, high = (own[name].to_numpy(dtype=float) for name in SHARE[:3])
        shift = 1 + 0.12 * (place - (len(series) - 1) / 2)
        rates = (own["lr_low"] * own["lr_high"]).to_numpy(dtype=float) ** 0.5 * shift
        colour = COLOURS.get(variant, "black")
        axis.errorbar(
            rates, share, yerr=[share - low, high - share], color=colour, marker="o", markersize=3.5, linewidth=1.1,
            elinewidth=1.1, capsize=2, label=label,
        )  # fmt: skip
    ticks = sorted(edges)
    axis.set(xscale="log", xlabel="peak learning rate", ylim=(-0.03, 1.03), title="share of monotone networks")
    axis.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks], minor=False)
    axis.minorticks_off()
    if len(ticks) > 1:
        axis.set_xlim(ticks[0], ticks[-1])
    if ticks:
        axis.legend(loc="lower left")


def _top(curves: pd.DataFrame) -> float:
    """A height that shows nearly all of all curves, whatever a few of them do."""
    values = curves["smooth_loss"].dropna()
    values = values[values.abs() < float("inf")]
    if values.empty:
        return 1.0
    return float(min(1.05 * values.max(), 1.5 * values.quantile(0.98)))


def _series(rows: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Label, variant and config of each family, in the variants' own order."""
    order = {variant: i for i, variant in enumerate(NAMES)}
    found = rows[["variant", "config"]].drop_duplicates()
    found = found.sort_values("variant", key=lambda c: c.map(order).fillna(len(order)), kind="stable")
    out = []
    for variant, config in found.itertuples(index=False):
        label, same = str(NAMES.get(variant, variant)), rows[rows["variant"] == variant]
        if same["config"].nunique() > 1:
            own = same[same["config"] == config]
            differing = [s for s in SETTINGS if s in rows and same[s].astype(str).nunique() > 1]
            label = f"{label}\n" + ", ".join(f"{s} {own[s].iloc[0]}" for s in differing[:2])
        out.append((label, variant, config))
    return out


def _file_name(key: dict[str, Any]) -> str:
    """`mli_<arch>_<dataset>_<images>-images`, with what else is out of the ordinary; of the figure alone."""
    parts = ["mli", key["arch"], key["dataset"], f"{key['train_images']}-images"]
    parts += [f"batch-{key['batch_size']}"] if key["batch_size"] != 64 else []
    parts += [f"epochs-x{key['epochs_scale']:g}"] if key["epochs_scale"] != 1 else []
    parts += [f"fixed-{key['fixed']}"] if isinstance(key["fixed"], str) and key["fixed"] else []
    parts += [f"width-{key['width']:g}"] if key["width"] != 1 else []
    parts += [f"{key['norm']}-norm"] if key["norm"] != "default" else []
    parts += [key["preset"]] if key["preset"] != "laptop" else []
    return re.sub(r"[^\w.+-]+", "-", "_".join(map(str, parts)))


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_figures(
        "mli", __doc__, lambda config: _tables(config.results), lambda config: draw(config.results), args
    )


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
