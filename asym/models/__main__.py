"""Lists the architectures with their parameters in each variant, at their published input shapes.

    python -m asym.models [PATTERN] [--csv]

Columns of the CSV: arch, variant, width, input_shape (channels x height x width, or a node's features), classes,
params_trainable, params_total (with the constants of masked layers). One row for every published width.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from asym.names import ARCHS, VARIANTS

COLUMNS = ("arch", "variant", "width", "input_shape", "classes", "params_trainable", "params_total")


def rows(pattern: str = "*") -> list[dict[str, str | int | float]]:
    """One row for each architecture that matches, published width and variant; impossible variants are left out."""
    from asym.models.registry import count, get_arch, list_archs
    from asym.nn.variants import Variant

    table = []
    for name in list_archs(pattern):
        arch = get_arch(name)
        for width in arch.widths:
            for variant in VARIANTS:
                if variant == "bias" and arch.norms == ("none",):
                    continue  # no norm whose shift could be fixed
                if Variant(variant).gated and not arch.gateable:
                    continue  # no activation that a gate could replace
                options = {"input_shape": arch.input_shape, "classes": arch.classes, "width": width}
                trainable, total = count(name, variant=Variant(variant), **options)
                shape = "x".join(map(str, arch.input_shape))
                values = (name, variant, width, shape, arch.classes, trainable, total)
                table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, print, and return the exit code."""
    parser = _Parser(prog="python -m asym.models", description="Architectures and their parameters in each variant.")
    parser.add_argument(
        "pattern",
        nargs="?",
        default="*",
        help=f"architectures to list, such as 'resnet*' (known: {', '.join(ARCHS)}; timm/<name> is not listed)",
    )
    parser.add_argument("--csv", action="store_true", help="comma-separated values in place of a table")
    options = parser.parse_args(arguments)
    table = rows(options.pattern)
    if not table:
        print(f"pattern: {options.pattern!r} matches none of {', '.join(ARCHS)}", file=sys.stderr)
        return 2
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row.values() for row in table)
        return 0
    text = [[f"{v:,}" if c.startswith("params") else str(v) for c, v in row.items()] for row in table]
    text.insert(0, list(COLUMNS))
    widths = [max(len(line[i]) for line in text) for i in range(len(COLUMNS))]
    for line in text:
        cells = (v.ljust(w) if i < 2 else v.rjust(w) for i, (v, w) in enumerate(zip(line, widths, strict=True)))
        print("  ".join(cells).rstrip())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
