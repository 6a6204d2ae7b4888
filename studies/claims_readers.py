"""Claims about networks that read weights: the asymmetric networks' paper on readers, ScaleGMN.

τ is Kendall's τ-b on test networks. Differences and their intervals are those of the studies' own tables: bootstrap
over test networks, paired where both readers saw the same ones.
"""

from __future__ import annotations

from functools import partial
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
from studies.claims_zoos import (
    ACTIVATIONS,
    IMAGES,
    LESS,
    ONE_SEED,
    RESNET,
    SHAPES,
    SMALL,
    Zoo,
    against,
    between,
    moved,
    tau_of,
)

SCALE = "Scale Equivariant Graph Metanetworks"
CLOSE = 0.02
"""τ within this of each other are about equal."""
UNMOVED = 0.001
"""A τ that changes by less has not changed."""
ZOO = SMALL.name
FORMS = ("--variants standard --readers scale-gmn scale-gmn+receiver scale-gmn+no-edges scale-gmn+no-skips gmn "
         "gmn+no-edges gmn+no-skips --repeats 5 --skip curve cost")  # fmt: skip
BACKWARD = ("--variants standard --readers gmn scale-gmn scale-gmn-b scale-gmn-b+reciprocal scale-gmn-b+pinv "
            "scale-gmn-b+shipped --skip curve cost")  # fmt: skip
BLIND = ("flat", "dmc", "deepsets", "stats")
"""Readers for which a gain was published."""


def _a18(tables: Tables, part: str, zoo: Zoo = SMALL) -> list[Check]:
    checks = []
    for reader in BLIND:
        try:
            gain = between(tables, reader, part, zoo)
        except NoRows:
            continue
        checks.append(above(f"τ on W minus τ on standard networks, {reader}", gain))
    if not checks:
        raise NoRows(f"metanet_differences.csv has none of {', '.join(BLIND)}")
    return checks


def _a18_strata(tables: Tables) -> list[Check]:
    rows = tables("metanet_summary", part="matched", reader=BLIND, **SMALL.where)
    checks = []
    for reader in (name for name in BLIND if name in set(rows["reader"])):
        both = [
            given(rows[(rows["reader"] == reader) & (rows["variant"] == variant)], "tau_strata", "tau_strata_low",
                  "tau_strata_high", "test_networks")
            for variant in ("w", "standard")
        ]  # fmt: skip
        checks.append(above(f"τ on W minus τ on standard networks, {reader}", apart(*both)))
    return checks


def _b01(tables: Tables) -> list[Check]:
    checks = []
    for move in ("permuted", "rescaled"):
        before, after = moved(tables, "scale-gmn", move)
        close = abs(before - after) < UNMOVED
        checks.append(exactly(f"τ of ScaleGMN unchanged by {UNMOVED:g} on {move} networks", [close], [True]))
    before, after = moved(tables, "gmn", "rescaled")
    checks.append(exactly("τ of the permutation-only reader changed", [abs(before - after) > UNMOVED], [True]))
    return checks


def _b01_both(tables: Tables) -> list[Check]:
    before, after = moved(tables, "scale-gmn-b", "rescaled")
    checks = [exactly("τ of the repaired form unchanged", [abs(before - after) < UNMOVED], [True])]
    before, after = moved(tables, "scale-gmn-b+shipped", "rescaled")
    return [*checks, exactly("τ of the form as released changed", [abs(before - after) > UNMOVED], [True])]


def _b02(tables: Tables, zoo: Zoo = SMALL) -> list[Check]:
    return [above("τ of ScaleGMN minus permutation-only", against(tables, "scale-gmn", "gmn", zoo), -CLOSE)]


def _b02_controls(tables: Tables, zoo: Zoo) -> list[Check]:
    """Networks of several shapes: is anything read that their hyper-parameters, shapes included, do not tell?"""
    over = against(tables, "scale-gmn", "hyper-boost", zoo)
    return [*_b02(tables, zoo), above("τ of ScaleGMN minus trees on hyper-parameters and shapes", over)]


def _b04(tables: Tables) -> list[Check]:
    gain = against(tables, "scale-gmn", "gmn+augment")
    return [above("τ of ScaleGMN minus permutation-only with augmentation", gain)]


def _b05_zoo(tables: Tables) -> list[Check]:
    change = against(tables, "scale-gmn-b", "scale-gmn")
    return [
        below("τ of bidirectional minus forward ScaleGMN", change, -CLOSE),
        above("τ of bidirectional minus forward ScaleGMN", change, CLOSE),
    ]


def _n03(tables: Tables) -> list[Check]:
    gain = against(tables, "scale-gmn", "gmn+gauge")
    return [inside("τ of ScaleGMN minus permutation-only on fixed gauges", gain, CLOSE)]


def _n09(tables: Tables) -> list[Check]:
    receiver = against(tables, "scale-gmn+receiver", "scale-gmn")
    return [
        below("τ of messages that see their receiver minus ScaleGMN", receiver, CLOSE),
        inside("τ without edge updates minus ScaleGMN", against(tables, "scale-gmn+no-edges", "scale-gmn"), CLOSE),
        inside("τ without skips minus ScaleGMN", against(tables, "scale-gmn+no-skips", "scale-gmn"), CLOSE),
    ]


def _n10(tables: Tables) -> list[Check]:
    def diverged(form: str) -> list[float]:
        rows = tables("metanet_summary", reader=f"scale-gmn-b{form}", variant="standard", part="whole", **SMALL.where)
        return (rows["diverged"] / rows["trainings"]).tolist()

    gain = against(tables, "scale-gmn-b", "scale-gmn-b+shipped")
    return [
        above("τ of the repaired backward message minus the released one", gain, -CLOSE),
        exactly("no training of the repaired form diverged", diverged(""), [0.0]),
        exactly("every training of the reciprocal form diverged", diverged("+reciprocal"), [1.0]),
        exactly("every training of the pseudo-inverse form diverged", diverged("+pinv"), [1.0]),
    ]


def _a19(tables: Tables) -> list[Check]:
    where: dict[str, Any] = {"part": "whole", "measure": "tau", "other_variant": "standard", "variant": "smaller"}
    rows = of_zoo(tables, "metanet", "metanet_differences", dict(SMALL.where), **where)
    rows = rows[rows["reader"] == rows["other_reader"]]
    return [inside(f"τ on smaller minus standard, {r['reader']}", _interval(r), CLOSE) for r in rows.to_dict("records")]


def _n08_start(tables: Tables) -> list[Check]:
    gain = between(tables, "flat", "matched", SMALL, "w-init")
    return [
        above("τ of flat on networks started at W's values minus standard, accuracies matched", gain),
        below(
            "τ of flat on W minus started at W's values",
            apart(tau_of(tables, "flat", SMALL, "w"), tau_of(tables, "flat", SMALL, "w-init")),
            CLOSE,
        ),
    ]


def _n08_seed(tables: Tables) -> list[Check]:
    gain = apart(tau_of(tables, "flat", ONE_SEED), tau_of(tables, "flat", SMALL))
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
    before, after = moved(tables, "scale-gmn", "rescaled", ACTIVATIONS)
    return [
        exactly("τ of ScaleGMN unchanged on rescaled networks", [abs(before - after) < UNMOVED], [True]),
        above("τ of ScaleGMN minus permutation-only", against(tables, "scale-gmn", "gmn", ACTIVATIONS), -CLOSE),
    ]


CLAIMS = (
    Claim("A18", PAPER, "Accuracy is easier to read off the weights of W networks",
          "MLP .389 → .864, DMC .787 → .911, DeepSets .617 → .858, StatNN .866 → .935", "second-hand",
          (Setting(ZOO, "metanet", lambda t: _a18(t, "whole")),
           Setting(f"{ZOO}, accuracies of both zoos matched", "metanet", lambda t: _a18(t, "matched")),
           Setting(f"{ZOO}, accuracies matched, pairs of like hyper-parameters", "metanet", _a18_strata),
           Setting(f"{IMAGES.name}, accuracies matched", IMAGES.command, lambda t: _a18(t, "matched", IMAGES))),
          headline=True),
    Claim("A19", PAPER, "Parameter count does not explain it", "“little to no change”", "verified",
          (Setting(ZOO, "metanet --variants standard smaller", _a19),)),
    Claim("B01", SCALE, "ScaleGMN does not change when networks are permuted or rescaled", "theorem", "verified",
          (Setting(ZOO, "metanet", _b01),
           Setting(f"{ZOO}, bidirectional", f"metanet {BACKWARD}", _b01_both))),
    Claim("B02", SCALE, "ScaleGMN reads accuracy at least as well as permutation-only readers", "≈ .93 against ≈ .927",
          "second-hand",
          (Setting(ZOO, "metanet", _b02),
           *(Setting(zoo.name, zoo.command, partial(_b02, zoo=zoo)) for zoo in (IMAGES, RESNET, ONE_SEED)),
           Setting(SHAPES.name, SHAPES.command, partial(_b02_controls, zoo=SHAPES))),
          headline=True),
    Claim("B03", SCALE, "ScaleGMN tells classes of implicit networks far better", "MNIST 96.6 against 91.4 %",
          "second-hand", (Setting("sine networks of digits", "inr", _b03),), headline=True),
    Claim("B04", SCALE, "Respecting scalings beats augmenting a permutation-only reader with them", "–", "verified",
          (Setting(ZOO, "metanet", _b04),)),
    Claim("B05", SCALE, "The bidirectional form can be much worse or better", "–", "verified",
          (Setting("sine networks of digits", "inr", _b05),
           Setting(ZOO, f"metanet {BACKWARD}", _b05_zoo))),
    Claim("B06", SCALE, "Networks can be edited through their weights", "mean squared errors", "second-hand",
          (Setting("sine networks of digits", "inr", _b06),)),
    Claim("B07", SCALE, "Several activations inside one network can be read", "–", "verified",
          (Setting(ACTIVATIONS.name, ACTIVATIONS.command, _b07),),
          elsewhere="invariance with mixed activations: tests/metanets/test_metanets_scale_gmn.py"),
    Claim("N03", OWN, "Fixing the gauge and reading permutation-only is as good as ScaleGMN", "open question", "–",
          (Setting(ZOO, "metanet", _n03),), headline=True),
    Claim("N08", OWN, "Flat readers need a start that networks share, not constants", "–", "–",
          (Setting(ZOO, f"metanet --variants standard w w-init{LESS}", _n08_start),
           Setting(ONE_SEED.name, ONE_SEED.command, _n08_seed)),
          headline=True),
    Claim("N09", OWN, "ScaleGMN needs no receiver in its messages, no edge updates and no skips", "–", "–",
          (Setting(ZOO, f"metanet {FORMS}", _n09),)),
    Claim("N10", OWN, "Of exact backward messages the repaired one alone can be trained, as well as the released one",
          "–", "–",
          (Setting(ZOO, f"metanet {BACKWARD}", _n10),)),
)  # fmt: skip
