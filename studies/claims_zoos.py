"""The zoos of the accuracy-prediction study that claims are confronted on, and their numbers in its tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from asym.intervals import Interval
from studies.claims_rules import NoRows, Tables, given, of_zoo


@dataclasses.dataclass(frozen=True)
class Zoo:
    """Networks that one command reads."""

    name: str
    command: str
    """`python -m studies.` is put before it."""
    where: Mapping[str, Any]
    """What the summary says of them."""


def _where(**differs: Any) -> dict[str, Any]:
    return {"arch": "small-cnn", "dataset": "digits", "activations": "relu", "networks": 2000, "one_seed": False,
            "shapes": "published", "seed": 0} | differs  # fmt: skip


LESS = " --readers stats stats-boost hyper-boost flat deepsets gmn scale-gmn --skip curve cost"
"""Flags of the runs beside the main one."""
RESNET_FLAGS = (
    "metanet --arch resnet8 --train-size 300 --networks 400 --zoo-epochs 10 --lrs 0.002 0.01 --reader-width 8"
)

SMALL = Zoo("small CNNs, digits", "metanet", _where())
ONE_SEED = Zoo(
    "small CNNs, digits, one seed for all", f"metanet --variants standard --one-seed{LESS}", _where(one_seed=True)
)
ACTIVATIONS = Zoo(
    "small CNNs of ReLU and tanh, digits",
    "metanet --variants standard --activations relu-tanh --readers stats flat gmn scale-gmn --skip curve cost",
    _where(activations="relu-tanh"),
)
SHAPES = Zoo(
    "small CNNs of nine shapes, digits",
    "metanet --variants standard --networks 900 --widths 0.5 1 1.5 --depths 2 3 4 --readers stats stats-boost "
    "hyper-boost deepsets gmn scale-gmn --skip curve cost",
    _where(shapes="width 0.5 1 1.5, depth 2 3 4", networks=900),
)
IMAGES = Zoo(
    "small CNNs, Fashion-MNIST, 3,000 images",
    f"metanet --dataset fashion_mnist --train-size 3000 --networks 500 --zoo-epochs 8{LESS}",
    _where(dataset="fashion_mnist", networks=500),
)
RESNET = Zoo(
    "ResNet-8, 300 digits",
    f"{RESNET_FLAGS} --variants standard{LESS} matched",
    _where(arch="resnet8", networks=400, train_images=300),
)


def between(
    tables: Tables, reader: str, part: str, zoo: Zoo = SMALL, variant: str = "w", other: str = "standard"
) -> Interval:
    """τ of one reader on the networks of one variant minus that on those of another."""
    where: dict[str, Any] = {"part": part, "reader": reader, "other_reader": reader, "measure": "tau"}
    names = {"variant": variant, "other_variant": other}
    return given(of_zoo(tables, "metanet", "metanet_differences", dict(zoo.where), **names, **where))


def against(tables: Tables, reader: str, other: str, zoo: Zoo = SMALL) -> Interval:
    """τ of one reader minus that of another on the whole standard zoo, whichever way round the table has it."""
    where: dict[str, Any] = {"part": "whole", "measure": "tau", "variant": "standard", "other_variant": "standard"}
    known = dict(zoo.where)
    try:
        rows = of_zoo(tables, "metanet", "metanet_differences", known, reader=reader, other_reader=other, **where)
        return given(rows)
    except NoRows:
        rows = of_zoo(tables, "metanet", "metanet_differences", known, reader=other, other_reader=reader, **where)
        mean, low, high, n = given(rows)
        return Interval(-mean, -high, -low, n)


def tau_of(tables: Tables, reader: str, zoo: Zoo = SMALL, variant: str = "standard") -> Interval:
    """τ of a reader on a whole zoo."""
    rows = tables("metanet_summary", reader=reader, variant=variant, part="whole", **zoo.where)
    return given(rows, "tau", "tau_low", "tau_high", "test_networks")


def moved(tables: Tables, reader: str, move: str, zoo: Zoo = SMALL) -> tuple[float, float]:
    """τ of a reader on the standard test networks, and after they were permuted or rescaled."""
    rows = tables("metanet_summary", reader=reader, variant="standard", part="whole", **zoo.where)
    if len(rows) != 1:
        raise NoRows(f"metanet_summary.csv has {len(rows)} whole zoos of standard networks")
    return float(rows.iloc[0]["tau"]), float(rows.iloc[0][f"tau_{move}"])


__all__ = ["Zoo", "against", "between", "moved", "tau_of"]
