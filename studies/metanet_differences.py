"""What sets two groups of readings apart in the accuracy-prediction study: τ of one minus τ of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asym.intervals import Interval
from asym.rank_metrics import Ranks, percentile_interval
from studies.metanet_read import splits_of
from studies.metanet_tables import Group, ranks_of

BEFORE = ("gmn", "gmn+gauge", "gmn+augment", "stats", "stats-boost", "hyper-boost")
"""Readers that every other reader is compared with."""


def differences(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """τ of one group minus that of another: readers on the same test networks (paired), and zoos read alike.

    Readers are compared with those of `BEFORE` and with what they are forms of.

    Two zoos have different test networks: their draws are independent.
    """
    rows = []
    for b in groups:
        for a in groups:
            same = (a.item.family.zoo, a.item.part, a.item.train) == (b.item.family.zoo, b.item.part, b.item.train)
            before = b.item.reader in BEFORE or b.item.reader in bases_of(a.item.reader)
            ordered = a.item.reader != b.item.reader and before
            if ordered and a.item.reader in BEFORE:
                ordered = BEFORE.index(a.item.reader) < BEFORE.index(b.item.reader)
            if same and ordered and a.alive and b.alive:
                rows += [_difference(a, b, name) for name in ("test", *a.moves) if name == "test" or name in b.moves]
            alike = (a.item.reader, a.item.part, a.item.train) == (b.item.reader, b.item.part, b.item.train)
            if alike and _rank(a, groups) > _rank(b, groups) == 0 and a.alive and b.alive:
                rows.append(_between(a, b))
    return rows


def bases_of(reader: str) -> set[str]:
    """What a reader is a form of: itself without add-ons, forward for bidirectional, gmn-b for scale-gmn-b."""
    name, *addons = reader.split("+")
    found = {name} if addons else {name.removesuffix("-b")}
    return found | ({"gmn-b"} if reader == "scale-gmn-b" else set())


def _difference(a: Group, b: Group, name: str) -> dict[str, Any]:
    found = ranks_of(a).difference(a.predictions(name), b.predictions(name))
    measure = "tau" if name == "test" else f"tau_{name}"
    return _cells(a, b) | _interval(measure, found) | {"paired": True}


def _between(a: Group, b: Group) -> dict[str, Any]:
    of_a, of_b = Ranks(a.truth, seed=1), Ranks(b.truth, seed=2)
    x, y = a.predictions("test"), b.predictions("test")
    draws = of_a.draws(x) - of_b.draws(y)
    found = percentile_interval(of_a.tau(x) - of_b.tau(y), draws, min(of_a.n, of_b.n))
    return _cells(a, b) | _interval("tau", found) | {"paired": False}


def _cells(a: Group, b: Group) -> dict[str, Any]:
    columns = a.item.family.columns
    row = {"config": a.config, "other_config": b.config, "preset": columns["preset"], "dataset": columns["dataset"]}
    row |= {"part": a.item.part, "train_networks": len(splits_of(a.results[0].reading)["train"])}
    row |= {"variant": columns["variant"], "reader": a.item.reader}
    return row | {"other_variant": b.item.family.columns["variant"], "other_reader": b.item.reader}


def _interval(measure: str, found: Interval) -> dict[str, Any]:
    mean, low, high, n = found
    return {"measure": measure, "difference": mean, "low": low, "high": high, "n": n}


def _rank(group: Group, groups: Sequence[Group]) -> int:
    zoos = list(dict.fromkeys(g.item.family.zoo for g in groups))
    return zoos.index(group.item.family.zoo)


__all__ = ["bases_of", "differences"]
