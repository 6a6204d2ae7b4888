"""One look for all figures: colour-blind-safe, one colour a variant everywhere, legible at column width.

Colours are those of Okabe and Ito (2008), filled up from Tol's muted scheme (2021). Figures are saved as PNG and as PDF
with embedded fonts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {
    "standard": "#D55E00",
    "w": "#0072B2",
    "sigma": "#CC79A7",
    "w-zero": "#56B4E9",
    "w-init": "#009E73",
    "w-scale": "#E69F00",
    "bias": "#6B6B6B",
    "w-sigma": "#882255",
    "syre": "#000000",
    "standard-equal": "#999933",
    "smaller": "#999933",
    "fixed-scale": "#332288",
}
"""One colour a variant; two names of one thing (a standard network with as many parameters as a W network) share it."""
NAMES = {
    "standard": "Standard",
    "w": "W-Asymmetric",
    "sigma": "σ-Asymmetric",
    "w-zero": "W, κ = 0",
    "w-init": "started at W",
    "w-scale": "W's initial scale",
    "bias": "fixed biases",
    "w-sigma": "W and σ",
    "syre": "SyRe",
    "standard-equal": "Standard, equal size",
    "smaller": "Standard, equal size",
    "fixed-scale": "ReLU scale fixed",
}
ALIGNED = {"none": "", "weight": " (weight matching)", "activation": " (activation matching)"}
DASHES = {"none": "solid", "weight": (0, (4, 1.5)), "activation": (0, (1, 1.2))}
MARKERS = {"none": "o", "weight": "s", "activation": "D"}
COLUMN_IN = 3.4
"""Width of a text column in inches."""


def pyplot() -> Any:
    """Matplotlib's pyplot with the house style and no window."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(context="paper", style="ticks")
    plt.rcParams.update(
        {
            "font.size": 8,
            "axes.labelsize": 8,
            "axes.titlesize": 8,
            "legend.fontsize": 7,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.dpi": 100,
            "savefig.dpi": 200,
            "pdf.fonttype": 42,
            "ps.fonttype": 42,
        }
    )
    return plt


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write PNG and PDF without time stamps, so that the same table gives the same file; closes the figure."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    figure.savefig(paths[0], bbox_inches="tight", metadata={"Software": None})
    figure.savefig(paths[1], bbox_inches="tight", metadata={"CreationDate": None, "Producer": None, "Creator": None})
    plt.close(figure)
    return paths
