"""Speed ratios, all or those named: `python -m benchmarks [epoch population layers matching metanets bayes …]`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

NAMES = {
    "epoch": ("epoch", "run"),
    "population": ("population", "run"),
    "layers": ("layers", "run"),
    "matching": ("matching", "run"),
    "metanets": ("metanets", "run"),
    "transformer-nfn": ("transformer_nfn", "run"),
    "transformer-nfn-curve": ("transformer_nfn", "curve"),
    "bayes": ("bayes", "run"),
    "counting": ("counting", "run"),
    "accuracy": ("epoch", "accuracy"),
}


def main(args: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {' '.join(NAMES)}; all if none is given")
    parser.add_argument("--out", type=Path, help="folder to keep the rows in, as benchmarks.csv")
    options = parser.parse_args(args)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        print(f"python -m benchmarks: unknown {unknown[0]!r}; valid: {' '.join(NAMES)}", file=sys.stderr)
        return 2
    import torch

    rows = []
    for name in options.names or NAMES:
        module, function = NAMES[name]
        for row in getattr(importlib.import_module(f"benchmarks.{module}"), function)():
            rows.append({"benchmark": name, **row, "torch": torch.__version__})
            print(_line(row), flush=True)
    if options.out:
        import pandas as pd

        from asym.store import update_table

        update_table(options.out / "benchmarks.csv", pd.DataFrame(rows), ["benchmark", "name"])
    return 0


def _line(row: dict) -> str:
    if "difference" in row:
        return f"{row['name']}: {row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]  ({row['note']})"
    mark = (
        ""
        if not row["target"]
        else f", target {row['target']:g} {'met' if row['ratio'] >= row['target'] else 'MISSED'}"
    )
    if "ours_mb" in row:
        times = f"{row['ours_mb']:.0f} MB against {row['reference_mb']:.0f} MB"
    else:
        times = f"{row['ours_s']:.2f} s against {row['reference_s']:.2f} s"
    return f"{row['name']}: {row['ratio']:.2f} times{mark}; {times}  ({row['note']})"


if __name__ == "__main__":
    sys.exit(main())
