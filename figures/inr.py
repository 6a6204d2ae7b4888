"""Figures of the study of implicit networks, from its tables alone: how well readers read, and what editors drew.

    python -m figures.inr --results results

Reads `inr_summary.csv`, `inr_fits.csv` and `inr_images.csv`, writes `figures/inr_<data set>_….png` and `.pdf` in the
same folder, one figure for each data set and setting. Bars, with 95 % intervals over trainings: accuracy, and the error
of edits as a share of the error without one (pale: on the same networks with reordered and flipped units; dashed: the
mean of all dilated images). Below, test images, dilated as they should be and as each editor drew them.
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

MADE_BY = "python -m studies.inr"
TABLES = {
    "inr_summary.csv": ("config", "preset", "dataset", "task", "reader"),
    "inr_fits.csv": ("config", "dataset", "siren", "split", "psnr"),
}
IMAGES = ("config", "reader", "image", "channels", "height", "width", "pixels")
PANELS = {"classify": ("accuracy", "accuracy"), "edit": ("mse_relative", "squared error, of no edit")}
"""Task to the measure of its bars and their label."""
NAMES = {
    "no-edit": "as it was",
    "target": "wanted",
    "mean-image": "mean image",
    "flat": "flat MLP",
    "stats": "statistics",
    "deepsets": "DeepSets",
    "nfn-np": "NFN",
    "nfn-hnp": "NFN, hidden",
    "gmn": "graph, perm. only",
    "gmn-b": "graph, perm. only, both ways",
    "scale-gmn": "ScaleGMN",
    "scale-gmn-b": "ScaleGMN, both ways",
}
COLOURS = {
    "flat": "#D55E00",
    "stats": "#E69F00",
    "deepsets": "#CC79A7",
    "nfn-np": "#56B4E9",
    "nfn-hnp": "#882255",
    "gmn": "#6B6B6B",
    "gmn-b": "#000000",
    "scale-gmn": "#0072B2",
    "scale-gmn-b": "#009E73",
}
ADDED = {"gauge": "gauge", "augment": "augmented", "shuffle": "shuffled"}
UNTRAINED = ("no-edit", "mean-image")


def draw(results: Path) -> list[Path]:
    """Draw all figures of a results folder; returns the files written."""
    table, fits, images = _tables(results)
    files: list[Path] = []
    for config, rows in table.groupby("config", sort=False):
        own = None if images is None else images[images["config"] == config]
        files += _figure(results / "figures", str(config), rows, fits[fits["config"] == config], own, table)
    return files


def _tables(results: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame | None]:
    table, fits = (read(results, name, columns, MADE_BY) for name, columns in TABLES.items())
    edited = (table["task"] == "edit").any()
    return table, fits, read(results, "inr_images.csv", IMAGES, MADE_BY) if edited else None


def _figure(
    folder: Path, config: str, rows: pd.DataFrame, fits: pd.DataFrame, images: pd.DataFrame | None, table: pd.DataFrame
) -> list[Path]:
    plt = pyplot()
    tasks = [task for task in PANELS if (rows["task"] == task).any()]
    drawn = _order(dict.fromkeys(images["reader"])) if images is not None else []
    width = 2.1 * COLUMN_IN
    count = max((int((rows["task"] == task).sum()) for task in tasks), default=1)
    tall = 0.17 * 2 * count + 0.6
    shown = 0.55 * images["image"].nunique() + 0.7 if images is not None and drawn else 0.0
    figure = plt.figure(figsize=(width, tall + shown), layout="constrained")
    parts = figure.subfigures(2, 1, height_ratios=[tall, shown]) if drawn else [figure]
    axes = parts[0].subplots(1, len(tasks), squeeze=False)[0]
    for axis, task in zip(axes, tasks):
        _bars(axis, rows[rows["task"] == task], *PANELS[task])
    if images is not None and drawn:
        _pictures(parts[1], images, drawn)
    first, train = rows.iloc[0], fits[fits["split"] == "train"].iloc[0]
    equal = "; =: as many parameters as ScaleGMN" if rows["reader"].str.contains("matched").any() else ""
    figure.suptitle(
        f"{first['dataset']}: {train['networks']:,} implicit networks {train['siren']} to learn from, "
        f"PSNR {train['psnr']:.1f} dB; bars: 95 % intervals over trainings{equal}",
        fontsize=8,
    )
    same = table[(table["dataset"] == first["dataset"]) & (table["preset"] == first["preset"])]
    name = f"inr_{first['dataset']}" + (f"_{first['preset']}" if first["preset"] != "laptop" else "")
    name += f"_{config}" if same["config"].nunique() > 1 else ""
    return save(figure, folder, re.sub(r"[^\w.+-]+", "-", name))


def _bars(axis: Any, rows: pd.DataFrame, measure: str, label: str) -> None:
    """One bar a reader, paler its measure on moved networks; the first reader on top."""
    by = {row["reader"]: row for row in rows.to_dict("records")}
    readers = [name for name in _order(by) if name not in UNTRAINED][::-1]
    for place, reader in enumerate(readers):
        row, colour = by[reader], COLOURS.get(reader.split("+")[0], "#444444")
        for shift, ending, alpha in ((0.2, "", 1.0), (-0.2, "_moved", 0.45)):
            value, low, high = (float(row.get(f"{measure}{ending}{e}", float("nan"))) for e in ("", "_low", "_high"))
            axis.barh(place + shift, value, height=0.36, color=colour, alpha=alpha, linewidth=0)
            if low == low and value == value:  # an interval needs two trainings
                axis.plot([low, high], [place + shift] * 2, color="black", linewidth=0.9)
    axis.set_yticks(range(len(readers)), [label_of(reader) for reader in readers])
    axis.set(xlabel=label)
    if measure == "mse_relative":
        axis.axvline(1.0, color="black", linewidth=0.7)
        if "mean-image" in by:
            axis.axvline(float(by["mean-image"][measure]), color="black", linewidth=0.9, linestyle=(0, (4, 2)))
        axis.set_xlim(0, 1.12)
    else:
        axis.axvline(0.1, color="black", linewidth=0.7, linestyle=(0, (1, 1.5)))
        axis.set_xlim(0, 1)


def _pictures(part: Any, images: pd.DataFrame, readers: list[str]) -> None:
    """A grid: one row a test image, one column a reader."""
    shown = list(dict.fromkeys(images["image"]))
    axes = part.subplots(len(shown), len(readers), squeeze=False)
    rows: list[dict[Any, Any]] = images.to_dict("records")
    by = {(row["reader"], row["image"]): row for row in rows}
    for line, image in zip(axes, shown):
        for axis, reader in zip(line, readers):
            axis.axis("off")
            if (reader, image) in by:
                axis.imshow(pixels_of(by[reader, image]), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            if image == shown[0]:
                axis.set_title(label_of(reader).replace(" ", "\n", 1), fontsize=6)


def pixels_of(row: dict[str, Any]) -> Any:
    """A row of `inr_images.csv` as an array `height width` or, of three channels, `height width 3`.

    Raises:
        ValueError: if the text does not hold as many values as the row says.
    """
    import numpy as np

    shape = (int(row["channels"]), int(row["height"]), int(row["width"]))
    try:
        values = np.frombuffer(bytes.fromhex(str(row["pixels"]).removeprefix("#")), dtype=np.uint8).reshape(shape)
    except ValueError:
        raise ValueError(f"--results: inr_images.csv: pixels of image {row['image']} are not {shape}") from None
    return values[0] if shape[0] != 3 else np.moveaxis(values, 0, -1)


def label_of(reader: str) -> str:
    """A reader's name and add-ons for people; equal numbers of parameters are marked by =."""
    name, *add_ons = reader.split("+")
    rest = [ADDED[add_on] for add_on in add_ons if add_on in ADDED]
    return ", ".join([NAMES.get(name, name) + (" =" if "matched" in add_ons else ""), *rest])


def _order(readers: Any) -> list[str]:
    """Readers as in `NAMES`, add-ons behind the plain one."""
    places = {name: i for i, name in enumerate(NAMES)}
    return sorted(readers, key=lambda reader: (places.get(reader.split("+")[0], len(places)), reader))


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_figures(
        "inr", __doc__, lambda config: _tables(config.results), lambda config: draw(config.results), args
    )


__all__ = ["Config", "draw", "main"]

if __name__ == "__main__":
    sys.exit(main())
