"""Figures of the accuracy-prediction study, from its tables alone: which reader ranks networks how well, and when.

    python -m figures.metanet --results results

Reads `metanet_summary.csv`, writes `figures/metanet_<arch>_<data set>_….png` and `.pdf` in the same folder, one figure
for each architecture, data set and zoo size. Left: Kendall's τ on test networks by reader and zoo, hollow where the
zoos were cut to one histogram of accuracies. Middle: τ against the number of training networks. Right: τ on the same
test networks after their units were permuted and rescaled at random. Bars are 95 % intervals over test networks. Where
graph readers were tried in other forms, `…_forms` has what each changes (`metanet_differences.csv`).
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

MADE_BY = "python -m studies.metanet"
FIGURE = (
    "arch",
    "dataset",
    "preset",
    "activations",
    "shapes",
    "networks",
    "network_epochs",
    "one_seed",
    "train_images",
    "seed",
    "checkpoints",
)
"""Rows that agree in these go into one figure."""
DIFFERENCES = ("config", "variant", "reader", "other_reader", "part", "measure", "difference", "low", "high", "paired")
ADDONS = ("gauge", "augment", "shuffle")
"""What is done to networks before a reader reads them; whatever else follows a + is another form of the reader."""
FORWARD = {"gmn-b": "gmn", "scale-gmn-b": "scale-gmn"}
TAUS = ("tau", "tau_permuted", "tau_rescaled")
TABLE = (*FIGURE, "config", "variant", "reader", "part", "train_networks", "tau_low", "tau_high", *TAUS)
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#882255", "#6B6B6B")
ROW_IN = 0.23
"""Height of a reader's row in inches."""
MOVED = {"tau": ("as trained", "o"), "tau_permuted": ("permuted", "s"), "tau_rescaled": ("rescaled", "D")}


def draw(results: Path) -> list[Path]:
    """Draw all figures of a results folder; returns the files written."""
    files: list[Path] = []
    folder, table = results / "figures", _table(results)
    changes = _changes(results, table)
    stems: set[str] = set()
    for values, group in table.groupby(list(FIGURE), sort=False, dropna=False):
        key: dict[str, Any] = dict(zip(FIGURE, values))
        stem = _file_name(key)
        if stem in stems:
            stem += f"_{key['train_images']}-images"
        stems.add(stem)
        title = _title(key)
        own = changes[changes["config"].isin(set(group["config"]))]
        apart = group["reader"].map(is_form) & (group["config"].isin(set(own["config"])) | group["tau"].isna())
        if not apart.all():
            files += _figure(folder, stem, f"{title}: predicting test accuracy from weights", group[~apart])
        if len(own):
            files += _forms(folder, f"{stem}_forms", f"{title}: forms of graph readers", own, group)
    return files


def is_form(reader: str) -> bool:
    """Whether a name says that a reader has another form, and not only that its networks were moved or in a gauge."""
    return bool(set(reader.split("+")[1:]) - set(ADDONS))


def _table(results: Path) -> pd.DataFrame:
    import pandas as pd

    table = read(results, "metanet_summary.csv", TABLE, MADE_BY)
    for name in (*TAUS, *(f"{tau}_{end}" for tau in TAUS for end in ("low", "high"))):
        table[name] = pd.to_numeric(table[name])  # a column without values is text
    table = table.fillna({"shapes": "published", "seed": 0})  # rows of earlier versions
    table["checkpoints"] = table["checkpoints"].astype(object).where(table["checkpoints"].notna(), "")
    return table


def _changes(results: Path, summary: pd.DataFrame) -> pd.DataFrame:
    """What each form changes: τ minus that of the reader that it is a form of, and of bidirectional minus forward."""
    wanted = any(is_form(reader) or reader in FORWARD for reader in set(summary["reader"]))
    if not wanted or not (results / "metanet_differences.csv").is_file():  # one reader differs from none
        return summary.iloc[:0]
    table = read(results, "metanet_differences.csv", DIFFERENCES, MADE_BY)
    name = table["reader"].str.split("+").str[0]
    own = table["reader"].map(is_form) & (table["other_reader"] == name)
    own |= table["other_reader"] == table["reader"].map(FORWARD)
    alike = table["paired"].astype(bool) & (table["measure"] == "tau") & (table["part"] == "whole")
    return table[own & alike]


def _title(key: dict[str, Any]) -> str:
    what = ", ".join([key["arch"], key["activations"], *(["one seed"] if key["one_seed"] else [])])
    what += "" if key["shapes"] == "published" else f", {key['shapes']}"
    what += f", seed {key['seed']}" if key["seed"] else ""
    what += f", also after {key['checkpoints']} epochs" if _kept(key) else ""
    return f"{key['networks']} networks ({what}) a zoo on {key['dataset']}"


def _forms(folder: Path, stem: str, title: str, changes: pd.DataFrame, summary: pd.DataFrame) -> list[Path]:
    """Left: τ of each form minus its base's, paired. Right: τ of bases and forms on moved test networks."""
    plt = pyplot()
    zoos = list(dict.fromkeys(changes["variant"]))
    broken = [name for name in dict.fromkeys(summary["reader"]) if is_form(name) and name not in set(changes["reader"])]
    names = [*dict.fromkeys(changes["reader"]), *broken]
    labels = {name: f"{name}\n− {name.split('+')[0] if is_form(name) else FORWARD[name]}" for name in names}
    labels |= {name: f"{name}\n(diverged)" for name in broken}
    readers = [r for r in dict.fromkeys(summary["reader"]) if r in {*names, *changes["other_reader"]}]
    height = 1.2 + 1.5 * ROW_IN * max(len(names), 4)
    figure, axes = plt.subplots(1, 2, figsize=(2.1 * COLUMN_IN, height), layout="constrained")
    for i, zoo in enumerate(zoos):
        own = changes[changes["variant"] == zoo]
        y = [names.index(name) + 0.3 * (i - (len(zoos) - 1) / 2) for name in own["reader"]]
        mean, low, high = (own[column].to_numpy(dtype=float) for column in ("difference", "low", "high"))
        axes[0].errorbar(
            mean, y, xerr=[mean - low, high - mean], color=COLOURS.get(zoo, "black"), marker="o", markersize=3.5,
            linestyle="none", elinewidth=1, capsize=1.5, label=NAMES.get(zoo, zoo),
        )  # fmt: skip
    axes[0].axvline(0, color="black", linewidth=0.6)
    _names(axes[0], [labels[name] for name in names])
    axes[0].set(xlabel="change of Kendall's τ")
    if len(zoos) == 1:
        axes[0].set(title=f"{NAMES.get(zoos[0], zoos[0])}, same test networks")
    else:
        _legend(axes[0], names, ncols=len(zoos))
    _moved(axes[1], summary[(summary["part"] == "whole") & summary["reader"].isin(readers)], readers)
    figure.suptitle(title, fontsize=8)
    return save(figure, folder, stem)


def _figure(folder: Path, stem: str, title: str, rows: pd.DataFrame) -> list[Path]:
    plt = pyplot()
    readers = list(dict.fromkeys(rows["reader"]))
    curves = rows["part"].eq("curve").any()
    widths = [1.3, 1.1, 1.0] if curves else [1.3, 1.0]
    height = 1.6 + ROW_IN * max(len(readers), 5)
    figure, axes = plt.subplots(
        1, len(widths), figsize=(0.75 * COLUMN_IN * sum(widths), height), width_ratios=widths, layout="constrained"
    )
    _by_reader(axes[0], rows, readers)
    if curves:
        _curves(axes[1], rows, readers)
    _moved(axes[-1], rows[rows["part"] == "whole"], readers)
    figure.suptitle(title, fontsize=8)
    return save(figure, folder, stem)


def _by_reader(axis: Any, rows: pd.DataFrame, readers: list[str]) -> None:
    """Readers from top to bottom, zoos side by side within one, the matched ones hollow below."""
    zoos = list(dict.fromkeys(rows["variant"]))
    parts = [part for part in ("whole", "matched") if part in set(rows["part"])]
    places = [(zoo, part) for part in parts for zoo in zoos]
    for i, (zoo, part) in enumerate(places):
        own = rows[(rows["variant"] == zoo) & (rows["part"] == part)]
        shift = 0.6 * (i - (len(places) - 1) / 2) / len(places)
        label = f"{NAMES.get(zoo, zoo)}, matched" if part == "matched" else NAMES.get(zoo, zoo)
        _bars(axis, own, "tau", readers, shift, COLOURS.get(zoo, "black"), "o", str(label), hollow=part == "matched")
    _names(axis, readers)
    axis.set(xlabel="Kendall's τ")
    _legend(axis, readers, ncols=2)


def _curves(axis: Any, rows: pd.DataFrame, readers: list[str]) -> None:
    """τ against training networks, in the zoo that was read with fewer of them."""
    zoo = rows[rows["part"] == "curve"]["variant"].iloc[0]
    own = rows[(rows["variant"] == zoo) & rows["part"].isin(["curve", "whole"])]
    drawn = set(rows[rows["part"] == "curve"]["reader"])
    for i, reader in enumerate(reader for reader in readers if reader in drawn):
        line = own[own["reader"] == reader].sort_values("train_networks")
        colour = SERIES[i % len(SERIES)]
        axis.plot(
            line["train_networks"], line["tau"], color=colour, marker="o", markersize=3, linewidth=1, label=reader
        )
        axis.fill_between(
            line["train_networks"], line["tau_low"], line["tau_high"], color=colour, alpha=0.08, linewidth=0
        )
    sizes = sorted(set(own["train_networks"]))
    axis.set(xscale="log", xlabel="training networks", ylabel="Kendall's τ", title=NAMES.get(zoo, zoo))
    axis.set_xticks(sizes, [str(size) for size in sizes], minor=False)
    axis.minorticks_off()
    _legend(axis, readers, ncols=2, fontsize=5.5)


def _moved(axis: Any, rows: pd.DataFrame, readers: list[str]) -> None:
    """The zoo whose networks can be moved without a change of their function."""
    own = rows[rows["tau_rescaled"].notna()]
    if own.empty:
        axis.set_axis_off()
        return
    zoo = own["variant"].iloc[0]
    own = own[own["variant"] == zoo]
    for i, (name, (label, marker)) in enumerate(MOVED.items()):
        _bars(axis, own, name, readers, 0.2 * (i - 1), SERIES[i], marker, label)
    _names(axis, readers)
    axis.set(xlabel="Kendall's τ", title=f"{NAMES.get(zoo, zoo)}, test networks moved")
    _legend(axis, readers, ncols=3, columnspacing=0.8, handletextpad=0.3)


def _bars(
    axis: Any, rows: pd.DataFrame, name: str, readers: list[str], shift: float, colour: str, marker: str, label: str,
    *, hollow: bool = False,
) -> None:  # fmt: skip
    rows = rows[rows[name].notna()]
    if rows.empty:
        return
    y = [readers.index(reader) + shift for reader in rows["reader"]]
    tau, low, high = (rows[column].to_numpy(dtype=float) for column in (name, f"{name}_low", f"{name}_high"))
    axis.errorbar(
        tau, y, xerr=[abs(tau - low), abs(high - tau)], color=colour, marker=marker, markersize=3.5, linestyle="none",
        elinewidth=1, capsize=1.5, label=label, markerfacecolor="white" if hollow else colour,
    )  # fmt: skip


def _legend(axis: Any, readers: list[str], **options: Any) -> None:
    """Below the axis' label, whatever the height of the panel."""
    below = -0.45 / (ROW_IN * max(len(readers), 5))
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, below), **options)


def _names(axis: Any, readers: list[str]) -> None:
    axis.set_yticks(range(len(readers)), readers)
    axis.set_ylim(len(readers) - 0.5, -0.5)
    axis.grid(axis="y", color="#dddddd", linewidth=0.4)


def _file_name(key: dict[str, Any]) -> str:
    """`metanet_<arch>_<dataset>_<networks>`, with what else is out of the ordinary; of the figure alone."""
    parts = ["metanet", key["arch"], key["dataset"], f"{key['networks']}-networks"]
    parts += [key["activations"].replace(" ", "+")] if key["activations"] != "relu" else []
    parts += [key["shapes"]] if key["shapes"] != "published" else []
    parts += [f"{key['network_epochs']}-epochs"] if str(key["network_epochs"]) not in ("20", "drawn") else []
    parts += ["one-seed"] if key["one_seed"] else []
    parts += [f"seed-{key['seed']}"] if key["seed"] else []
    parts += [f"checkpoints-{key['checkpoints']}"] if _kept(key) else []
    parts += [key["preset"]] if key["preset"] != "laptop" else []
    return re.sub(r"[^\w.+-]+", "-", "_".join(map(str, parts)))


def _kept(key: dict[str, Any]) -> bool:
    """Whether networks were kept before the end of their training too."""
    return str(key["checkpoints"]) != ""


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_figures(
        "metanet", __doc__, lambda config: _table(config.results), lambda config: draw(config.results), args
    )


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
