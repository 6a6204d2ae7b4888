"""Figures of the study of readers of transformers, from its tables alone.

    python -m figures.transformer_metanet --results results

Reads `transformer_metanet_summary.csv`, `transformer_metanet_moves.csv` and `transformer_metanet_heads.csv` (the last
two where they are there), writes `figures/transformer_metanet_<data set>_<D>….png` and `.pdf`, one figure for each data
set, architecture, size and preset. Above: τ-b of each reader with its 95 % interval over test networks, one panel a
zoo, one colour a threshold, open where the networks were augmented and crosses where rates were held out. Below: what τ
loses when test networks are moved by one symmetry, and, where it was asked, how many networks are told from the same
ones with their heads re-paired.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.command import Config, run_figures
from figures.style import COLUMN_IN, pyplot, save
from figures.tables import read

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "python -m studies.transformer_metanet"
FIGURE = ("dataset", "dim", "preset", "arch", "networks")
"""Rows that agree in these go into one figure."""
PUBLISHED = ("transformer-plain", "published files")
COLUMNS = (*FIGURE, "kind", "reader", "threshold", "split", "spread", "tau", "tau_low", "tau_high", "config", "zoo")
FURTHER = {
    "transformer_metanet_moves.csv": (
        "config", "kind", "reader", "threshold", "move", "change", "change_low", "change_high",
    ),
    "transformer_metanet_heads.csv": ("zoo", "reader", "right"),
}  # fmt: skip
"""Tables that may be missing."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
SPLITS = {"random": ("o", "full"), "augmented": ("o", "none"), "held-out": ("x", "full")}


def draw(results: Path) -> list[Path]:
    """Draw all figures of a results folder; returns the files written."""
    summary, moves, heads = _tables(results)
    files: list[Path] = []
    for key, group in summary.groupby(list(FIGURE), sort=False):
        files += _figure(results / "figures", dict(zip(FIGURE, key)), group, moves, heads)
    return files


def _tables(results: Path) -> tuple[pd.DataFrame, pd.DataFrame | None, pd.DataFrame | None]:
    """The summary, and the tables of moves and of pairs of heads where they are there."""
    summary = read(results, "transformer_metanet_summary.csv", COLUMNS, MADE_BY)
    moves, heads = (
        read(results, name, columns, MADE_BY) if (results / name).is_file() else None
        for name, columns in FURTHER.items()
    )
    return summary, moves, heads


def _figure(
    folder: Path, key: dict[str, Any], rows: pd.DataFrame, moves: pd.DataFrame | None, heads: pd.DataFrame | None
) -> list[Path]:
    plt = pyplot()
    kinds = list(dict.fromkeys(rows["kind"]))
    readers = list(dict.fromkeys(rows["reader"]))[::-1]
    own = None if moves is None else moves[moves["config"].isin(set(rows["config"]))]
    figure, axes = plt.subplots(
        2, len(kinds), figsize=(1.1 * COLUMN_IN * max(len(kinds), 1), 0.22 * len(readers) + 4.2), squeeze=False,
        height_ratios=[0.22 * len(readers) + 1, 3], layout="constrained",
    )  # fmt: skip
    for column, kind in enumerate(kinds):
        _taus(axes[0, column], rows[rows["kind"] == kind], readers)
        if column == len(kinds) - 1:
            axes[0, column].legend(fontsize=5.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes[0, column].set_title({"one-seed": "one seed for all", "many-seeds": "a seed for each"}.get(kind, kind))
        zoo = set(rows[rows["kind"] == kind]["zoo"])
        _changes(axes[1, column], None if own is None else own[own["kind"] == kind], readers)
        if heads is not None:
            _pairs(axes[1, column], heads[heads["zoo"].isin(zoo)])
    what = "transformers" if key["arch"] in PUBLISHED else key["arch"]
    what = f"{key['networks']:,} {what} of D = {key['dim']} on {key['dataset']}"
    figure.suptitle(f"{what}; bars are 95 % intervals", fontsize=8)
    parts = ["transformer_metanet", key["dataset"], key["dim"], f"{key['networks']}-networks"]
    parts += [] if key["arch"] in PUBLISHED else [key["arch"]]
    name = "_".join(map(str, parts + ([] if key["preset"] == "laptop" else [key["preset"]])))
    return save(figure, folder, re.sub(r"[^\w.+-]+", "-", name))


def _taus(axis: Any, rows: pd.DataFrame, readers: list[str]) -> None:
    thresholds = sorted(set(rows["threshold"]))
    series = [(t, s) for t in thresholds for s in SPLITS if ((rows["threshold"] == t) & (rows["split"] == s)).any()]
    for place, (threshold, split) in enumerate(series):
        part = rows[(rows["threshold"] == threshold) & (rows["split"] == split)].drop_duplicates("reader")
        heights = [readers.index(reader) + 0.5 * (0.5 - (place + 0.5) / len(series)) for reader in part["reader"]]
        marker, fill = SPLITS[split]
        tau, low, high = (part[name].to_numpy(dtype=float) for name in ("tau", "tau_low", "tau_high"))
        axis.errorbar(
            tau, heights, xerr=[tau - low, high - tau], fmt=marker, fillstyle=fill, markersize=3.5, elinewidth=0.8,
            color=PALETTE[thresholds.index(threshold) % len(PALETTE)], label=f"above {threshold:.0%}, {split}",
        )  # fmt: skip
    axis.set_yticks(range(len(readers)), readers)
    axis.set_xlabel("Kendall's τ-b")


def _changes(axis: Any, rows: Any, readers: list[str]) -> None:
    if rows is None or rows.empty:
        axis.set_axis_off()
        return
    rows = rows[rows["threshold"] == rows["threshold"].min()]
    moves = list(dict.fromkeys(rows["move"]))
    shown = [reader for reader in readers[::-1] if reader in set(rows["reader"]) and "hyper" not in reader][:6]
    for place, reader in enumerate(shown):
        part = rows[rows["reader"] == reader].set_index("move").reindex(moves)
        change, low, high = (part[name].to_numpy(dtype=float) for name in ("change", "change_low", "change_high"))
        at = [k + 0.7 * ((place + 0.5) / len(shown) - 0.5) for k in range(len(moves))]
        axis.errorbar(
            at, change, yerr=[change - low, high - change], fmt="o", markersize=2, elinewidth=0.6,
            color=(*PALETTE, "#6B6B6B")[place], label=reader,
        )  # fmt: skip
    axis.axhline(0, color="black", linewidth=0.5)
    axis.set_xticks(range(len(moves)), moves, rotation=60, ha="right", fontsize=5.5)
    axis.set_ylabel("change of τ, test networks moved")
    axis.legend(fontsize=5.5)


def _pairs(axis: Any, rows: pd.DataFrame) -> None:
    if rows.empty:
        return
    means = rows.groupby("reader")["right"].mean()
    text = ", ".join(f"{name} {value:.0%}" for name, value in means.items())
    axis.set_title(f"paired or re-paired heads told apart: {text}", fontsize=6)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_figures(
        "transformer_metanet",
        __doc__,
        lambda config: _tables(config.results),
        lambda config: draw(config.results),
        args,
    )


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
