"""Claims about loss landscapes: the asymmetric networks' paper, later work on it, and our own.

Barriers are test losses at λ = ½ in nats. Comparisons of two alignments are paired by pair of networks, of two
variants independent (Welch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from studies.claims_rules import (
    LATER,
    OWN,
    PAPER,
    Check,
    Claim,
    NoRows,
    Setting,
    Tables,
    above,
    below,
    independent,
    inside,
    mean_of,
    paired,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from asym.intervals import Interval

BARRIER = "barrier_loss_mid"
LARGE = 0.5
"""A barrier above this many nats is large."""
ALIKE = 0.05
"""Accuracies of end points within this of each other can be compared."""
FLAT = 0.1
"""A barrier below this many nats is none."""
POINT = 0.02
"""Accuracies within this of each other are alike."""
PAIR = ("pair",)

_SHORT = (
    "lmc --dataset imagefolder:cifar10 --dataset-name cifar10-jpeg --epochs 10 --lr 0.01 --train-size 22500 "
    "--eval-images 1000 --pairs 3"
)
LMC: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNet-20, digits": ("lmc --alignments none weight activation", {"arch": "resnet20", "dataset": "digits"}),
    "ResNet-20, CIFAR-10 (JPEG), half of the images, 10 epochs": (
        f"{_SHORT} --variants standard --alignments none weight activation",
        {"arch": "resnet20", "dataset": "cifar10-jpeg"},
    ),
}
_DIGITS, _CIFAR = LMC
CONTROLS: dict[str, dict[str, str]] = {
    variant: {_DIGITS: "lmc --variants w-zero w-init w-scale bias --align-asymmetric", _CIFAR: f"{_SHORT} {flags}"}
    for variant, flags in (
        ("w-zero", "--variants w-zero --align-asymmetric"),
        ("w-init", "--variants w-init --kappa 2.0"),
    )
}
FASHION = ("lmc --dataset fashion_mnist --arch mlp --epochs 3 --lr 0.001 --pairs 3", {"dataset": "fashion_mnist"})
GRAPH = ("lmc --arch gnn --variants standard sigma w w-sigma --alignments none weight activation", {"arch": "gnn"})


def _pairs(tables: Tables, name: str, variant: str, alignment: str = "none", **where: Any) -> pd.DataFrame:
    return tables(name, variant=variant, alignment=alignment, **where)


def _a01(tables: Tables, **where: Any) -> list[Check]:
    return [above("barrier", mean_of(_pairs(tables, "lmc", "standard", **where), BARRIER), LARGE)]


def _a02(tables: Tables, **where: Any) -> list[Check]:
    plain, weight = (_pairs(tables, "lmc", "standard", a, **where) for a in ("none", "weight"))
    return [
        below("weight-matched minus unaligned barrier", paired(weight, plain, BARRIER, PAIR)),
        above("matched barrier", mean_of(weight, BARRIER), FLAT),
    ]


def _a03(tables: Tables, **where: Any) -> list[Check]:
    w, plain = _pairs(tables, "lmc", "w", **where), _pairs(tables, "lmc", "standard", **where)
    matched = _pairs(tables, "lmc", "standard", "weight", **where)
    return [
        below("W minus standard barrier", independent(w, plain, BARRIER)),
        below("W minus weight-matched standard barrier", independent(w, matched, BARRIER)),
        above("half of the standard barrier minus W's", independent(_half(plain), w, BARRIER)),
        inside(
            "W minus standard accuracy of the end points", independent(_ends(w), _ends(plain), "acc"), ALIKE
        )._replace(guard=True),
    ]


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(acc=rows[["acc_a", "acc_b"]].mean(axis=1))


def _half(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(**{BARRIER: 0.5 * rows[BARRIER]})


def _a04(tables: Tables) -> list[Check]:
    wide: dict[str, Any] = {"level": "width 2"}
    w = _pairs(tables, "ablate_width", "w", **wide)
    matched = _pairs(tables, "ablate_width", "standard", "weight", **wide)
    return [
        inside("W barrier", mean_of(w, BARRIER), FLAT),
        below("W minus weight-matched standard barrier", independent(w, matched, BARRIER)),
    ]


def _a05(tables: Tables, **where: Any) -> list[Check]:
    sigma, plain = (_pairs(tables, "lmc", v, **where) for v in ("sigma", "standard"))
    return [
        above("σ barrier minus half of the standard one", independent(sigma, plain, BARRIER, 0.5)),
        above("σ minus W barrier", independent(sigma, _pairs(tables, "lmc", "w", **where), BARRIER)),
    ]


def _a06(tables: Tables, **where: Any) -> list[Check]:
    rows = {v: _pairs(tables, "lmc", v, **where) for v in ("standard", "w")}
    matched = _pairs(tables, "lmc", "standard", "weight", **where)
    return [
        inside("W barrier", mean_of(rows["w"], BARRIER), FLAT),
        inside("weight-matched standard barrier", mean_of(matched, BARRIER), FLAT),
        above("standard minus W barrier", independent(rows["standard"], rows["w"], BARRIER)),
    ]


def _a07(tables: Tables, **where: Any) -> list[Check]:
    plain, w, sigma = (_pairs(tables, "lmc", v, **where) for v in ("standard", "w", "sigma"))
    matched = _pairs(tables, "lmc", "standard", "weight", **where)
    return [
        below("W minus weight-matched standard barrier", independent(w, matched, BARRIER)),
        below("weight-matched minus unaligned barrier", paired(matched, plain, BARRIER, PAIR)),
        below("σ minus standard barrier", independent(sigma, plain, BARRIER)),
        above("σ minus weight-matched standard barrier", independent(sigma, matched, BARRIER)),
    ]


def _a08(tables: Tables) -> list[Check]:
    def change(variant: str, alignment: str) -> Interval:
        short, long = (_pairs(tables, "ablate_warmup", variant, alignment, value=v) for v in (0.2, 4.0))
        return paired(short, long, BARRIER, PAIR)

    return [
        below("W barrier, short minus long warm-up", change("w", "none")),
        above("matched standard barrier, short minus long warm-up", change("standard", "weight")),
    ]


def _a09(tables: Tables) -> list[Check]:
    low, usual = (_pairs(tables, "ablate_lr", "w", value=v) for v in (1e-3, 1e-2))
    loss = {name: rows.assign(loss=rows[["loss_a", "loss_b"]].mean(axis=1)) for name, rows in zip("lu", (low, usual))}
    return [
        below("W barrier at rate 1e-3 minus 1e-2", paired(low, usual, BARRIER, PAIR)),
        above("W test loss at rate 1e-3 minus 1e-2", paired(loss["l"], loss["u"], "loss", PAIR)),
    ]


def _a10(tables: Tables, name: str = "ablate_init", **where: Any) -> list[Check]:
    started, w, plain = (_pairs(tables, name, v, **where) for v in ("w-init", "w", "standard"))
    return [
        below("started at W minus standard barrier", independent(started, plain, BARRIER)),
        inside("started at W minus W barrier", independent(started, w, BARRIER), FLAT),
    ]


def _a11(tables: Tables) -> list[Check]:
    return [
        above(f"barrier at k = {k:g}", mean_of(_pairs(tables, "ablate_bias", "bias", value=k), BARRIER), FLAT)
        for k in (1.0, 3.0, 9.0)
    ]


def _a12(tables: Tables) -> list[Check]:
    cosine = _pairs(tables, "ablate_gate", "sigma", level="cosine gate")
    return [above("barrier with the cosine gate", mean_of(cosine, BARRIER), LARGE)]


def _a20(tables: Tables, **where: Any) -> list[Check]:
    w, plain = (_pairs(tables, "lmc", v, **where) for v in ("w", "standard"))
    if "distance" not in w:  # a table from before it was measured
        raise NoRows("lmc.csv: no distances")
    return [
        above("W minus standard distance", independent(w, plain, "distance")),
        below("W minus standard barrier", independent(w, plain, BARRIER)),
    ]


def _a23(tables: Tables, name: str = "ablate_zero", **where: Any) -> list[Check]:
    zero, w = (_pairs(tables, name, v, **where) for v in ("w-zero", "w"))
    return [
        above("barrier at κ = 0", mean_of(zero, BARRIER), LARGE),
        above("κ = 0 minus W barrier", independent(zero, w, BARRIER)),
    ]


def _n04(tables: Tables) -> list[Check]:
    w, plain = (_pairs(tables, "ablate_merge", v, k=8) for v in ("w", "standard"))
    return [
        inside("loss of an average of 8 W networks minus its parts'", mean_of(w, BARRIER), FLAT),
        above("the same for standard networks", mean_of(plain, BARRIER), LARGE),
    ]


def _p02(tables: Tables) -> list[Check]:
    high, low = (_pairs(tables, "ablate_lr", "standard", value=v) for v in (3e-2, 1e-3))
    return [below("standard barrier at rate 3e-2 minus 1e-3", paired(high, low, BARRIER, PAIR))]


def _p03(tables: Tables) -> list[Check]:
    rows = tables("ablate_syre", variant="syre")
    weak = rows[rows["level"].str.contains("σ₀ .01", regex=False)]
    return [above("barrier of SyRe networks", mean_of(weak[weak["value"] == 0.1], BARRIER), LARGE)]


def _p04(tables: Tables) -> list[Check]:
    mild, plain = tables("ablate_kappa_nfix", level="κ 1, n_fix ×0.5"), tables("ablate_kappa_nfix", variant="standard")
    return [
        inside("barrier at κ = 1 and half of n_fix", mean_of(mild, BARRIER), FLAT),
        inside("its accuracy minus standard's", independent(_ends(mild), _ends(plain), "acc"), POINT),
    ]


def _in_lmc(checks: Any, commands: Mapping[str, str] | None = None) -> tuple[Setting, ...]:
    """The settings of ResNet-20; `commands` where other networks are needed than those of the main study."""
    return tuple(
        Setting(name, (commands or {}).get(name, command), lambda tables, where=where: checks(tables, **where))
        for name, (command, where) in LMC.items()
    )


def _control(variant: str) -> tuple[Setting, ...]:
    """The settings of ResNet-20 with a control beside W."""
    checks = {"w-init": _a10, "w-zero": _a23}[variant]
    return _in_lmc(lambda tables, **where: checks(tables, "lmc", **where), CONTROLS[variant])


def _ablation(factor: str, checks: Any, flags: str = "") -> tuple[Setting, ...]:
    return (Setting("ResNet-8, digits", f"ablate --factor {factor}{flags}", checks),)


CLAIMS = (
    Claim("A01", PAPER, "Standard ResNet-20s of different seeds are separated by a large barrier", "3.287 ± .32",
          "second-hand", _in_lmc(_a01)),
    Claim("A02", PAPER, "Git Re-Basin lowers the barrier of ResNet-20, not to zero", "2.041 ± .21", "second-hand",
          _in_lmc(_a02)),
    Claim("A03", PAPER, "W-Asymmetric ResNet-20s need no alignment: a far lower barrier", ".934 ± .72; .67 to .69",
          "verified", _in_lmc(_a03), headline=True),
    Claim("A04", PAPER, "In wider networks W is nearly flat and better than Git Re-Basin", ".031 against .509, width 8",
          "second-hand", (Setting("ResNet-8 of width 2, digits", "ablate --factor width --levels 1.0 2.0", _a04),)),
    Claim("A05", PAPER, "σ-Asymmetric networks gain little", "2.521 (width 1), 1.492 (width 8)", "second-hand",
          _in_lmc(_a05)),
    Claim("A06", PAPER, "MLP: W and Git Re-Basin both remove the barrier", "−.012, −.006; standard .188",
          "second-hand", (Setting("MLP, Fashion-MNIST, 3 epochs", FASHION[0], lambda t: _a06(t, **FASHION[1])),)),
    Claim("A07", PAPER, "Graph networks: W below matched below standard, σ between", ".095, .269, 1.475, .901",
          "second-hand", (Setting("GNN, neighbour graph of the digits", GRAPH[0], lambda t: _a07(t, **GRAPH[1])),)),
    Claim("A08", PAPER, "A short warm-up helps W and hurts Git Re-Basin", "W .931 → .691", "verified",
          _ablation("warmup", _a08)),
    Claim("A09", PAPER, "A lower rate gives W a lower barrier and a worse loss", ".285 ± .065", "verified",
          _ablation("lr", _a09)),
    Claim("A10", PAPER, "Standard networks started at W's values are almost as connected", ".79 ± .2 against .67 ± .3",
          "verified", (*_control("w-init"), *_ablation("init", _a10))),
    Claim("A11", PAPER, "Fixing biases does not connect networks", "3.76 to 10.6", "second-hand",
          _ablation("bias", _a11)),
    Claim("A12", PAPER, "A cosine gate does not rescue σ", "–", "verified", _ablation("gate", _a12)),
    Claim("A20", PAPER, "Distance between networks does not explain connectivity", "W farther apart than standard",
          "second-hand", _in_lmc(_a20)),
    Claim("A23", LATER, "Constants of zero leave a high barrier, though no permutation is left", "≈ 80 points",
          "second-hand", (*_ablation("zero", _a23), *_control("w-zero")), headline=True),
    Claim("A24", LATER, "Width alone removes the barrier (×32, with temperature)", ".087", "second-hand",
          elsewhere="widths 1 and 2 only: ablate_width.csv, ablate_temperature.csv"),
    Claim("N04", OWN, "Averaging eight W networks needs no maps", "open question", "–", _ablation("merge", _n04),
          headline=True),
    Claim("P02", OWN, "The standard barrier is lower at the highest learning rate than at the lowest", "–", "–",
          _ablation("lr", _p02)),
    Claim("P03", OWN, "SyRe at its paper's deviation removes symmetries without connecting networks", "–", "–",
          _ablation("syre", _p03)),
    Claim("P04", OWN, "κ = 1 and half of the published n_fix connect at no cost in accuracy", "–", "–",
          _ablation("kappa-nfix", _p04)),
)  # fmt: skip
