"""What is varied: a table of factors, each a list of levels, and one word for how a level is measured.

A level is a change of the connectivity study's config (`studies.lmc.Config`): a variant, some of its flags, and the
alignments to measure. What is measured of the networks that a level trains:

| measure | of what |
|---|---|
| `pair` | the line between two networks, as in `studies.lmc` |
| `calibrated` | the same line, each point at the temperature that fits the validation data best |
| `merge` | the plain average of k networks that share a mask seed, k = 2, 3, … |
| `plane` | the plane through three of them |

Nothing here imports torch: names and levels are checked before it loads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

Measure = Literal["pair", "calibrated", "merge", "plane"]
BOTH = ("none", "weight")
ALONE = ("none",)


@dataclasses.dataclass(frozen=True)
class Base:
    """What levels are made from: the settings of the study that factors vary."""

    epochs: int
    """Length of a full training."""
    warmup: float
    """Epochs of warm-up of a full training."""
    width: float
    lrs: tuple[float, ...]
    smoke: bool
    """Whether few levels will do."""
    kaiming: bool
    """Whether the architecture's standard network starts at another scale than its W networks."""
    equal_width: Callable[[], float]
    """The width at which the standard network has as many parameters as the W network."""


@dataclasses.dataclass(frozen=True)
class Level:
    """One cell of a factor."""

    level: str
    """Its name: with variant and alignment unique within the factor."""
    variant: str
    value: float | None = None
    """Where it lies on the factor's axis; None for one without an axis."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of the connectivity study's config."""
    alignments: tuple[str, ...] = ALONE


@dataclasses.dataclass(frozen=True)
class Factor:
    """A question, and the levels that answer it."""

    question: str
    levels: Callable[[Base, tuple[float, ...]], Iterable[Level]]
    """levels(base, values) → levels."""
    values: Callable[[Base], tuple[float, ...]] | None = None
    """Default values on the axis; None for a factor whose levels have no axis or one that is not to be chosen."""
    whole: bool = False
    """Whether values are whole numbers."""
    least: float = 0.0
    """Smallest value that makes sense; 0 stands for anything above 0."""
    measure: Measure = "pair"
    takes: tuple[str, ...] = ()
    """Flags that the factor sets itself."""


def _few(base: Base, values: tuple[float, ...]) -> tuple[float, ...]:
    return (values[0], values[-1]) if base.smoke else values


def _along(field: str, unit: str, series: Iterable[tuple[str, tuple[str, ...]]]) -> Callable[..., list[Level]]:
    """Levels that set one numeric field, for each (variant, alignments)."""

    def levels(base: Base, values: tuple[float, ...]) -> list[Level]:
        whole = field == "epochs"
        return [
            Level(f"{unit} {v:g}", variant, v, {field: int(v) if whole else v}, alignments)
            for variant, alignments in series
            for v in values
        ]

    return levels


STANDARD, STANDARD_BOTH, W = ("standard", ALONE), ("standard", BOTH), ("w", ALONE)
REFERENCE = Level("standard", "standard")
W_REFERENCE = Level("W", "w")
KAPPAS, N_FIX_SCALES = (0.3, 1.0, 3.0, 6.0), (0.5, 1.0, 1.5)


def _kappa_n_fix(base: Base, values: tuple[float, ...]) -> list[Level]:
    kappas, scales = _few(base, KAPPAS), N_FIX_SCALES[:2] if base.smoke else N_FIX_SCALES
    grid = [
        Level(f"κ {kappa:g}, n_fix ×{scale:g}", "w", kappa, {"kappa": kappa, "n_fix_scale": scale})
        for scale in scales
        for kappa in kappas
    ]
    return [REFERENCE, *grid]


def _warmups(base: Base) -> tuple[float, ...]:
    # The published pair is 1 and 20 epochs of 100.
    return (base.epochs / 100, base.epochs / 5)


def _bias(base: Base, values: tuple[float, ...]) -> list[Level]:
    return [REFERENCE, *(Level(f"k {k:g}", "bias", k, {"bias_range": k}) for k in values)]


def _gate(base: Base, values: tuple[float, ...]) -> list[Level]:
    gates = (Level(f"{gate} gate", "sigma", None, {"gate": gate}) for gate in ("sigmoid", "cosine"))
    return [REFERENCE, *gates]


def _zero(base: Base, values: tuple[float, ...]) -> list[Level]:
    plain = {"align_asymmetric": True}
    return [
        Level("standard", "standard", alignments=BOTH),
        Level("W, κ = 0", "w-zero", 0.0, plain, BOTH),
        Level("W", "w", None, plain, BOTH),
    ]


def _init(base: Base, values: tuple[float, ...]) -> list[Level]:
    scale = [Level("W's initial scale", "w-scale", alignments=BOTH)] if base.kaiming else []
    return [
        Level("standard", "standard", alignments=BOTH),
        *scale,
        Level("started at W", "w-init", alignments=BOTH),
        W_REFERENCE,
    ]


def _equal_params(base: Base, values: tuple[float, ...]) -> list[Level]:
    width = base.equal_width()
    return [
        Level("standard", "standard", base.width, alignments=BOTH),
        Level("standard, W's parameter count", "standard", width, {"width": width}, BOTH),
        Level("W", "w", base.width),
    ]


def _time(base: Base, values: tuple[float, ...]) -> list[Level]:
    # With the warm-up of the full run, t epochs are the first t of the full run to the bit.
    return [
        Level(f"epoch {t:g}", variant, t, {"epochs": int(t), "warmup": base.warmup}, alignments)
        for variant, alignments in (STANDARD_BOTH, W)
        for t in values
    ]


def _times(base: Base) -> tuple[float, ...]:
    return tuple(sorted({float(max(1, round(base.epochs * part))) for part in (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)}))


SYRE_SCALES = (".01/sqrt(d)", "1/sqrt(d)")


def _syre(base: Base, values: tuple[float, ...]) -> list[Level]:
    out = []
    for decay in values:
        options = {"weight_decay": decay}
        out.append(Level(f"γ {decay:g}", "standard", decay, options))
        out += [
            Level(f"γ {decay:g}, σ₀ {scale}", "syre", decay, options | {"syre_scale": scale}) for scale in SYRE_SCALES
        ]
        out.append(Level(f"γ {decay:g}", "w", decay, options))
    return out


def _together(base: Base, values: tuple[float, ...]) -> list[Level]:
    return [Level("together", variant, None, {}, alignments) for variant, alignments in (STANDARD_BOTH, W)]


FACTORS: dict[str, Factor] = {
    "kappa-nfix": Factor(
        "How large and how many must the constants of W networks be, and what do they cost?",
        _kappa_n_fix,
        takes=("kappa", "n_fix_scale"),
    ),
    "warmup": Factor(
        "Does a long warm-up matter?",
        _along("warmup", "warm-up", (STANDARD_BOTH, W)),
        _warmups,
        takes=("warmup",),
    ),
    "lr": Factor(
        "How does the learning rate move barriers and end points?",
        _along("lr", "rate", (STANDARD, W)),
        lambda base: _few(base, (*base.lrs, 3 * base.lrs[-1])),
        takes=("lr", "lrs"),
    ),
    "width": Factor(
        "Do wider networks need less matching?",
        _along("width", "width", (STANDARD_BOTH, W)),
        lambda base: tuple(times * base.width for times in ((0.5, 1.0) if base.smoke else (1.0, 2.0, 4.0))),
    ),
    "temperature": Factor(
        "How much of a barrier is lost confidence alone?",
        _along("width", "width", (STANDARD_BOTH, W)),
        lambda base: (base.width,) if base.smoke else (base.width, 2 * base.width),
        measure="calibrated",
    ),
    "bias": Factor(
        "Do fixed random shifts of the norms break the symmetry in practice?",
        _bias,
        lambda base: _few(base, (1.0, 3.0, 9.0, 27.0)),
        takes=("bias_range",),
    ),
    "gate": Factor("Does the gate of σ networks matter?", _gate, takes=("gate",)),
    "zero": Factor("Are W networks connected if their constants are zero, as in the theorem?", _zero),
    "init": Factor("How much of the effect of W is where training starts?", _init),
    "equal-params": Factor("Is it the number of trainable parameters?", _equal_params),
    "time": Factor(
        "When in training does the barrier arise?",
        _time,
        _times,
        whole=True,
        least=1,
    ),
    "merge": Factor(
        "How many networks can be averaged at once?",
        _together,
        lambda base: (2.0, 3.0) if base.smoke else (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
        whole=True,
        least=2,
        measure="merge",
    ),
    "syre": Factor(
        "Does SyRe connect networks as W does?",
        _syre,
        lambda base: _few(base, (0.1, 1.0)),
        takes=("weight_decay", "syre_scale"),
    ),
    "plane": Factor("What does the loss look like between three networks?", _together, measure="plane"),
}
"""Name → factor, in the order in which `--factor all` runs them."""
