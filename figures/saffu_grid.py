"""Effects of the SAFFU study's ablation grid: what each factor does to the loss at the start and after training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from figures.style import COLUMN_IN, pyplot, save

if TYPE_CHECKING:
    import pandas as pd

ARMS = {"warm": "#D55E00", "random": "#0072B2"}
MEASURES = {"start_loss": "before training", "test_loss": "after training"}
KINDS = ("one at a time", "random design")


def draw_grid(folder: Path, name: str, rows: pd.DataFrame, title: str) -> list[Path]:
    """Differences in test loss, a row of panels for each kind of effect, a column for each time."""
    plt = pyplot()
    kinds = [kind for kind in KINDS if (rows["kind"] == kind).any()]
    labels = {kind: list(dict.fromkeys(map(_label, rows[rows["kind"] == kind].to_dict("records")))) for kind in kinds}
    heights = [0.5 + 0.15 * len(labels[kind]) for kind in kinds]
    figure, axes = plt.subplots(
        len(kinds), 2, figsize=(2.0 * COLUMN_IN, 0.9 + sum(heights)), height_ratios=heights, squeeze=False,
        sharey="row", layout="constrained",
    )  # fmt: skip
    for kind, line in zip(kinds, axes):
        for axis, (measure, when) in zip(line, MEASURES.items()):
            for number, (arm, colour) in enumerate(ARMS.items()):
                own = rows[(rows["kind"] == kind) & (rows["measure"] == measure) & (rows["arm"] == arm)]
                if own.empty:
                    continue
                at = [labels[kind].index(_label(row)) + 0.2 * (2 * number - 1) for row in own.to_dict("records")]
                mean, low, high = (own[column].to_numpy(float) for column in ("difference", "low", "high"))
                axis.errorbar(
                    mean, at, xerr=[(mean - low).clip(0), (high - mean).clip(0)], fmt="o", markersize=2.8,
                    color=colour, linewidth=1.0, capsize=1.5, label=f"{arm} start",
                )  # fmt: skip
            axis.axvline(0, color="0.7", linewidth=0.8, zorder=0)
            axis.set(title=f"{kind}, {when}", xlabel="change of test loss (nats a token)")
        line[0].set_yticks(range(len(labels[kind])), labels[kind], fontsize=6)
        line[0].invert_yaxis()
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(f"What the factors do, 95 % intervals ({title})", fontsize=8)
    return save(figure, folder, name)


def _label(row: dict) -> str:
    return f"{row['factor']} {row['level']}" if row["kind"] == KINDS[0] else f"{row['factor']}: {row['level']}"
