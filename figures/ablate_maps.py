"""The maps among the figures of the ablations: κ × n_fix, and the plane through three networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from figures.style import ALIGNED, COLUMN_IN, NAMES, pyplot, save
from figures.tables import read

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "python -m studies.ablate"
KEY = ["config", "level", "variant", "alignment", "pair"]


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the mean loss and accuracy of their networks."""
    ends = {m: rows[[f"{m}_a", f"{m}_b"]].mean(axis=1, skipna=False) for m in ("acc", "loss") if f"{m}_a" in rows}
    return rows.assign(**ends)


def label_of(variant: str, alignment: str) -> str:
    """How a variant and its alignment are called in figures."""
    return str(NAMES.get(variant, variant)) + ALIGNED.get(alignment, f" ({alignment})")


def heat_maps(folder: Path, name: str, rows: pd.DataFrame, title: str) -> list[Path]:
    """Three maps over κ and n_fix: barrier, accuracy, epochs to an accuracy."""
    from asym.intervals import mean_interval

    plt = pyplot()
    rows = measured(rows)
    grid, reference = rows[rows["variant"] == "w"], rows[rows["variant"] != "w"]
    target = rows["target_accuracy"].iloc[0] if "target_accuracy" in rows else float("nan")
    panels = (
        ("barrier_loss_mid", "loss barrier at ½ (nats)"),
        ("acc", "test accuracy"),
        ("epochs_to_target", f"epochs to {target:.0%} training accuracy"),
    )
    kappas, scales = sorted(grid["value"].unique()), sorted(grid["n_fix_scale"].unique())
    figure, axes = plt.subplots(1, 3, figsize=(2.05 * COLUMN_IN, 1.35 + 0.42 * len(scales)), layout="constrained")
    for panel, (measure, label) in zip(axes, panels):
        cells = [
            [
                mean_interval(grid[(grid["value"] == k) & (grid["n_fix_scale"] == s)][measure].to_numpy(dtype=float))
                for k in kappas
            ]
            for s in scales
        ]
        means = [[cell.mean for cell in line] for line in cells]
        image = panel.imshow(means, cmap="cividis", aspect="auto", origin="lower")
        for i, line in enumerate(cells):
            for j, cell in enumerate(line):
                bright = image.norm(cell.mean) > 0.55 if cell.mean == cell.mean else True
                text = "–" if cell.mean != cell.mean else _short(cell.mean)
                if cell.low == cell.low:
                    text += f"\n± {_short(cell.high - cell.mean)}"
                panel.text(j, i, text, ha="center", va="center", fontsize=5.8, color="black" if bright else "white")
        panel.set_xticks(range(len(kappas)), [f"{k:g}" for k in kappas])
        panel.set_yticks(range(len(scales)), [f"×{s:g}" for s in scales])
        mean, low, high, n = mean_interval(reference[measure].to_numpy(dtype=float))
        text = f"standard: {_short(mean)}" + (f" ± {_short(high - mean)}" if low == low else "") if n else "standard: –"
        panel.set_title(f"{label}\n{text}", fontsize=6.5)
        panel.set_xlabel("κ")
    axes[0].set_ylabel("n_fix, times the table's")
    figure.suptitle(title, fontsize=8)
    return save(figure, folder, name)


def plane_grid(results: Path, name: str) -> pd.DataFrame:
    """The table of losses in planes."""
    return read(results, f"{name}_grid.csv", (*KEY, "column", "row", "x", "y", "loss"), MADE_BY)


def planes(results: Path, file: str, name: str, rows: pd.DataFrame, arch: str, dataset: str) -> list[Path]:
    """Test loss in the plane through three networks, a panel a variant and alignment."""
    import numpy as np

    grid = plane_grid(results, name).merge(rows[KEY], on=KEY)
    if grid.empty:
        return []
    plt = pyplot()
    order = {variant: i for i, variant in enumerate(NAMES)}
    grid = grid.sort_values("variant", key=lambda c: c.map(order).fillna(len(order)), kind="stable")
    parts = list(grid.groupby(["variant", "alignment", "config"], sort=False))
    figure, axes = plt.subplots(1, len(parts), figsize=(2.05 * COLUMN_IN, 2.55), layout="constrained", squeeze=False)
    inside = grid[grid["row"] >= 0]["loss"]
    floor = max(float(inside.min()), 1e-3)
    levels = np.geomspace(floor, max(min(float(inside.max()), 10.0), 2 * floor), 13)
    filled = None
    for panel, (shown_as, part) in zip(axes[0], parts):
        field, corners = part[part["row"] >= 0], part[part["row"] < 0].sort_values("column")
        table = field.pivot(index="row", columns="column", values="loss").to_numpy()
        x = field.groupby("column")["x"].first().to_numpy()
        y = field.groupby("row")["y"].first().to_numpy()
        shown = np.clip(table, levels[0], levels[-1])
        filled = panel.contourf(x, y, np.log10(shown), levels=np.log10(levels), cmap="cividis")
        panel.contour(x, y, np.log10(shown), levels=np.log10(levels), colors="white", linewidths=0.3, alpha=0.6)
        panel.plot(corners["x"], corners["y"], "o", color="white", markeredgecolor="black", markersize=5)
        panel.plot(corners["x"].mean(), corners["y"].mean(), "x", color="white", markersize=5)
        panel.set_title(label_of(str(shown_as[0]), str(shown_as[1])).replace(" (", "\n("), fontsize=7)
        panel.set_aspect("equal")
        panel.set_xlabel("distance / |b − a|")
    bar = figure.colorbar(filled, ax=list(axes[0]), shrink=0.8)
    ticks = [levels[i] for i in range(0, len(levels), 3)]
    bar.set_ticks([float(np.log10(t)) for t in ticks], labels=[f"{t:.2g}" for t in ticks])
    bar.set_label("test loss (nats)")
    figure.suptitle(
        f"plane through three networks (circles), their average (cross): {arch} on {dataset}, one group", fontsize=8
    )
    return save(figure, results / "figures", file)


def _short(value: float) -> str:
    """Three decimals below 10, else one."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
