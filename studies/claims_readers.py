"""Claims about networks that read weights: the asymmetric networks' paper on readers, ScaleGMN.

τ is Kendall's τ-b on test networks. Differences and their intervals are those of the studies' own tables: bootstrap
over test networks, paired where both readers saw the same ones.
"""

from __future__ import annotations

from typing import Any

from asym.intervals import Interval
from studies.claims_rules import (
    OWN,
    PAPER,
    Check,
    Claim,
    NoRows,
    Setting,
    Tables,
    above,
    apart,
    below,
    exactly,
    given,
    independent,
    inside,
    of_zoo,
)

SCALE = "Scale Equivariant Graph Metanetworks"
CLOSE = 0.02
"""τ within this of each other are about equal."""
UNMOVED = 0.001
"""A τ that changes by less has not changed."""
ZOO = "small CNNs, digits"
LESS = " --readers stats stats-boost hyper-boost flat deepsets gmn scale-gmn --skip curve cost"
"""Flags of the runs beside the main one."""
SMALL: dict[str, Any] = {"arch": "small-cnn", "dataset": "digits", "activations": "relu", "networks": 2000,
    "one_seed": False, "shapes": "published"}  # fmt: skip
"""What the summary says of the networks of `ZOO`."""


def _between(tables: Tables, reader: str, part: str, variant: str = "w", other: str = "standard") -> Interval:
    where: dict[str, Any] = {"part": part, "reader": reader, "other_reader": reader, "measure": "tau"}
    return given(of_zoo(tables, "metanet", "metanet_differences", SMALL, variant=variant, other_variant=other, **where))


BLIND = ("flat", "dmc", "deepsets", "stats")
"""Readers for which a gain was published."""


def _a18(tables: Tables, part: str) -> list[Check]:
    checks = []
    for reader in BLIND:
        try:
            checks.append(above(f"τ on W minus τ on standard networks, {reader}", _between(tables, reader, part)))
        except NoRows:
            continue
    if not checks:
        raise NoRows(f"metanet_differences.csv has none of {', '.join(BLIND)}")
    return checks


def _a18_strata(tables: Tables) -> list[Check]:
    rows = tables("metanet_summary", part="matched", reader=BLIND, **SMALL)
    checks = []
    for reader in (name for name in BLIND if name in set(rows["reader"])):
        both = [
            given(rows[(rows["reader"] == reader) & (rows["variant"] == variant)], "tau_strata", "tau_strata_low",
                  "tau_strata_high", "test_networks")
            for variant in ("w", "standard")
        ]  # fmt: skip
        checks.append(above(f"τ on W minus τ on standard networks, {reader}", apart(*both)))
    return checks


def _against(tables: Tables, reader: str, other: str) -> Interval:
    """τ of one reader minus that of another on the whole standard zoo, whichever way round the table has it."""
    where: dict[str, Any] = {"part": "whole", "measure": "tau", "variant": "standard", "other_variant": "standard"}
    try:
        return given(
            of_zoo(tables, "metanet", "metanet_differences", SMALL, reader=reader, other_reader=other, **where)
        )
    except NoRows:
        rows = of_zoo(tables, "metanet", "metanet_differences", SMALL, reader=other, other_reader=reader, **where)
        mean, low, high, n = given(rows)
        return Interval(-mean, -high, -low, n)


def _moved(tables: Tables, reader: str, move: str) -> tuple[float, float]:
    rows = tables("metanet_summary", reader=reader, variant="standard", part="whole", **SMALL)
    if len(rows) != 1:
        raise NoRows(f"metanet_summary.csv has {len(rows)} whole zoos of standard networks")
    return float(rows.iloc[0]["tau"]), float(rows.iloc[0][f"tau_{move}"])


def _b01(tables: Tables) -> list[Check]:
    checks = []
    for move in ("permuted", "rescaled"):
        before, after = _moved(tables, "scale-gmn", move)
        close = abs(before - after) < UNMOVED
        checks.append(exactly(f"τ of ScaleGMN unchanged by {UNMOVED:g} on {move} networks", [close], [True]))
    before, after = _moved(tables, "gmn", "rescaled")
    checks.append(exactly("τ of the permutation-only reader changed", [abs(before - after) > UNMOVED], [True]))
    return checks


def _b02(tables: Tables) -> list[Check]:
    return [above("τ of ScaleGMN minus permutation-only", _against(tables, "scale-gmn", "gmn"), -CLOSE)]


def _b04(tables: Tables) -> list[Check]:
    return [
        above("τ of ScaleGMN minus permutation-only with augmentation", _against(tables, "scale-gmn", "gmn+augment"))
    ]


def _n03(tables: Tables) -> list[Check]:
    return [
        inside(
            "τ of ScaleGMN minus permutation-only on fixed gauges", _against(tables, "scale-gmn", "gmn+gauge"), CLOSE
        )
    ]


def _a19(tables: Tables) -> list[Check]:
    where: dict[str, Any] = {"part": "whole", "measure": "tau", "other_variant": "standard", "variant": "smaller"}
    rows = of_zoo(tables, "metanet", "metanet_differences", SMALL, **where)
    rows = rows[rows["reader"] == rows["other_reader"]]
    return [inside(f"τ on smaller minus standard, {r['reader']}", _interval(r), CLOSE) for r in rows.to_dict("records")]


def _flat(tables: Tables, variant: str, one_seed: bool = False) -> Interval:
    """τ of the flat reader on a whole zoo."""
    where: dict[str, Any] = SMALL | {"one_seed": one_seed, "reader": "flat", "part": "whole", "variant": variant}
    return given(tables("metanet_summary", **where), "tau", "tau_low", "tau_high", "test_networks")


def _n08_start(tables: Tables) -> list[Check]:
    gain = _between(tables, "flat", "matched", "w-init")
    return [
        above("τ of flat on networks started at W's values minus standard, accuracies matched", gain),
        below("τ of flat on W minus started at W's values", apart(_flat(tables, "w"), _flat(tables, "w-init")), CLOSE),
    ]


def _n08_seed(tables: Tables) -> list[Check]:
    gain = apart(_flat(tables, "standard", one_seed=True), _flat(tables, "standard"))
    return [above("τ of flat on standard networks of one seed minus a seed each", gain)]


def _interval(row: dict[Any, Any]) -> Interval:
    return Interval(float(row["difference"]), float(row["low"]), float(row["high"]), int(row["n"]))


def _inr(tables: Tables, task: str, reader: str, other: str, measure: str) -> Interval:
    """Difference over test networks, averaged over trainings."""
    return given(tables("inr_differences", task=task, reader=reader, other=other, measure=measure))


def _trainings(tables: Tables, task: str, reader: str, other: str, measure: str) -> Interval:
    """The same over trainings, whose spread is larger."""
    a, b = (tables("inr", task=task, reader=name) for name in (reader, other))
    return independent(a, b, measure)


def _b03(tables: Tables) -> list[Check]:
    others = {"NFN": "nfn-np+matched", "permutation-only": "gmn+matched", "flat": "flat+matched"}
    found = {name: _trainings(tables, "classify", "scale-gmn", other, "accuracy") for name, other in others.items()}
    return [above(f"accuracy of ScaleGMN minus {name}", gain, 0.05) for name, gain in found.items()]


def _b05(tables: Tables) -> list[Check]:
    worse = _trainings(tables, "classify", "scale-gmn-b+matched", "scale-gmn", "accuracy")
    better = _trainings(tables, "edit", "scale-gmn-b+matched", "scale-gmn", "mse")
    return [
        below("accuracy, bidirectional minus forward", worse),
        below("error of editing, bidirectional minus forward", better),
    ]


def _b06(tables: Tables) -> list[Check]:
    return [
        below(f"error of ScaleGMN minus {name}", _inr(tables, "edit", "scale-gmn", other, "mse"))
        for name, other in (("no edit", "no-edit"), ("the mean image", "mean-image"), ("flat", "flat+matched"))
    ]


def _b07(tables: Tables) -> list[Check]:
    rows = tables("metanet_summary", reader=("scale-gmn", "scale-gmn-b"), part="whole")
    rows = rows[rows["activations"].str.contains("relu-tanh")]
    if rows.empty:
        raise NoRows("metanet_summary.csv has no zoo with both activations in one network")
    return [
        exactly(
            f"τ of {r['reader']} unchanged on rescaled networks", [abs(r["tau"] - r["tau_rescaled"]) < UNMOVED], [1]
        )
        for r in rows.to_dict("records")
    ]


CLAIMS = (
    Claim("A18", PAPER, "Accuracy is easier to read off the weights of W networks",
          "MLP .389 → .864, DMC .787 → .911, DeepSets .617 → .858, StatNN .866 → .935", "second-hand",
          (Setting(ZOO, "metanet", lambda t: _a18(t, "whole")),
           Setting(f"{ZOO}, accuracies of both zoos matched", "metanet", lambda t: _a18(t, "matched")),
           Setting(f"{ZOO}, accuracies matched, pairs of like hyper-parameters", "metanet", _a18_strata)),
          headline=True),
    Claim("A19", PAPER, "Parameter count does not explain it", "“little to no change”", "verified",
          (Setting(ZOO, "metanet --variants standard smaller", _a19),)),
    Claim("B01", SCALE, "ScaleGMN does not change when networks are permuted or rescaled", "theorem", "verified",
          (Setting(ZOO, "metanet", _b01),)),
    Claim("B02", SCALE, "ScaleGMN reads accuracy at least as well as permutation-only readers", "≈ .93 against ≈ .927",
          "second-hand", (Setting(ZOO, "metanet", _b02),), headline=True),
    Claim("B03", SCALE, "ScaleGMN tells classes of implicit networks far better", "MNIST 96.6 against 91.4 %",
          "second-hand", (Setting("sine networks of digits", "inr", _b03),), headline=True),
    Claim("B04", SCALE, "Respecting scalings beats augmenting a permutation-only reader with them", "–", "verified",
          (Setting(ZOO, "metanet", _b04),)),
    Claim("B05", SCALE, "The bidirectional form can be much worse or better", "–", "verified",
          (Setting("sine networks of digits", "inr", _b05),)),
    Claim("B06", SCALE, "Networks can be edited through their weights", "mean squared errors", "second-hand",
          (Setting("sine networks of digits", "inr", _b06),)),
    Claim("B07", SCALE, "Several activations inside one network can be read", "–", "verified",
          (Setting(ZOO, "metanet --activations relu-tanh", _b07),),
          elsewhere="invariance with mixed activations: tests/metanets/test_metanets_scale_gmn.py"),
    Claim("N03", OWN, "Fixing the gauge and reading permutation-only is as good as ScaleGMN", "open question", "–",
          (Setting(ZOO, "metanet", _n03),), headline=True),
    Claim("N08", OWN, "Flat readers need a start that networks share, not constants", "–", "–",
          (Setting(ZOO, f"metanet --variants standard w w-init{LESS}", _n08_start),
           Setting(f"{ZOO}, one seed for all", f"metanet --variants standard --one-seed{LESS}", _n08_seed)),
          headline=True),
)  # fmt: skip
