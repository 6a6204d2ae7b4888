"""Claims about loss landscapes and Bayesian training: the asymmetric networks' paper, later work on it, and our own.

Barriers are test losses at λ = ½ in nats. Comparisons of two alignments are paired by pair of networks, of two
variants independent (Welch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from studies.claims_rules import (
    Check,
    Claim,
    Setting,
    Tables,
    above,
    below,
    exactly,
    given,
    independent,
    inside,
    mean_of,
    paired,
)

if TYPE_CHECKING:
    import pandas as pd

    from asym.intervals import Interval

PAPER = "Empirical Impact of Neural Parameter Symmetries"
LATER = "later work on asymmetric networks"
OWN = "this project"
BARRIER = "barrier_loss_mid"
LARGE = 0.5
"""A barrier above this many nats is large."""
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
    ]


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
        above("σ minus W barrier", independent(sigma, w, BARRIER)),
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


def _a10(tables: Tables) -> list[Check]:
    started, w, plain = (_pairs(tables, "ablate_init", v) for v in ("w-init", "w", "standard"))
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


def _a13(tables: Tables, column: str = "smooth_monotone") -> list[Check]:
    def change(variant: str, other: str) -> Interval:
        rows = tables("mli_differences", variant=variant, other=other, matched_on="hyperparameters", measure=column)
        return given(rows)

    return [
        above("W minus standard", change("w", "standard")),
        above("σ minus standard", change("sigma", "standard")),
        above("W minus σ", change("w", "sigma")),
    ]


VI: dict[str, Any] = {"method": "vi", "guide": "lowrank"}


def _vi(tables: Tables, arch: str, variant: str, kl: float = 0.125) -> pd.DataFrame:
    noise = -12.0 if arch.startswith("resnet") else -10.0
    return tables("bnn", arch=arch, variant=variant, kl_weight=kl, log_variance=noise, **VI)


def _a15(tables: Tables) -> list[Check]:
    w, plain = (_vi(tables, "mlp-16", v) for v in ("w", "standard"))
    return [
        above("W minus standard accuracy", paired(w, plain, "test_acc", ("instance",)), 0.2),
        below("standard accuracy", mean_of(plain, "test_acc"), 0.2),
    ]


def _a16(tables: Tables) -> list[Check]:
    w, plain = (_vi(tables, "resnet20", v) for v in ("w", "standard"))
    return [
        above("W minus standard accuracy half-way", paired(w, plain, "half_acc", ("instance",))),
        inside("W minus standard accuracy at the end", paired(w, plain, "test_acc", ("instance",)), POINT),
    ]


def _a17(tables: Tables) -> list[Check]:
    equal, plain, w = (_vi(tables, "mlp-16", v) for v in ("standard-equal", "standard", "w"))
    return [
        inside("standard of W's size minus standard accuracy", paired(equal, plain, "test_acc", ("instance",)), 0.1),
        above("W minus standard of W's size", paired(w, equal, "test_acc", ("instance",))),
    ]


def _a21(tables: Tables) -> list[Check]:
    rows = tables("audit", kind="automorphisms", variant=("w", "w-zero"))
    return [exactly("networks with one automorphism", rows["found"], [1] * len(rows)), _none(tables, ("w", "w-zero"))]


def _a22(tables: Tables) -> list[Check]:
    rows = tables("audit", kind="permutations", arch=("mlp", "resnet8", "gnn", "timm/resnet18"), variant="sigma")
    signs = tables("audit", kind="signs", variant="sigma")
    return [
        exactly("networks without an exchange", rows["found"], [0] * len(rows)),
        exactly("networks without a sign flip", signs["found"], [0] * len(signs)),
    ]


def _none(tables: Tables, variants: tuple[str, ...]) -> Check:
    rows = tables("audit", kind=("permutations", "signs"), variant=variants)
    return exactly("tests without an exchange or sign flip", rows["found"], [0] * len(rows))


def _a23(tables: Tables) -> list[Check]:
    zero, w = _pairs(tables, "ablate_zero", "w-zero"), _pairs(tables, "ablate_zero", "w")
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


def _n05(tables: Tables) -> list[Check]:
    """R̂ − 1 of W over that of standard networks, in weights and in predictions; one pair of networks each."""
    found = []
    for activation in ("tanh", "relu"):
        rows = {v: tables("bnn_nuts", variant=v, activation=activation).iloc[:1] for v in ("standard", "w")}
        for name, label in (("weights", "weights"), ("predictions", "predictions")):
            column = f"rhat_{name}_median"
            text = f"R̂ of {label}, W minus standard, {activation}"
            found.append(below(text, independent(rows["w"], rows["standard"], column)))
    return found


def _n06(tables: Tables) -> list[Check]:
    rows = tables("audit", kind="continuous", family="all", variant=("standard", "sigma"))
    left = tables("audit", kind="continuous", family="all", variant="w")
    return [
        exactly("standard and σ networks where predicted = found", rows["found"], rows["predicted"]),
        above("continuous symmetries left in W networks", mean_of(left, "found")),
        _none(tables, ("w",)),
    ]


def _p01(tables: Tables) -> list[Check]:
    started, w, plain = (_vi(tables, "mlp-16", v) for v in ("w-init", "w", "standard"))
    return [
        above("started at W minus standard accuracy", paired(started, plain, "test_acc", ("instance",)), 0.2),
        inside("started at W minus W accuracy", paired(started, w, "test_acc", ("instance",)), 0.2),
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
    accuracy = {k: r.assign(acc=r[["acc_a", "acc_b"]].mean(axis=1)) for k, r in (("m", mild), ("p", plain))}
    return [
        inside("barrier at κ = 1 and half of n_fix", mean_of(mild, BARRIER), FLAT),
        inside("its accuracy minus standard's", independent(accuracy["m"], accuracy["p"], "acc"), POINT),
    ]


def _in_lmc(checks: Any) -> tuple[Setting, ...]:
    return tuple(
        Setting(name, command, lambda tables, where=where: checks(tables, **where))
        for name, (command, where) in LMC.items()
    )


def _ablation(factor: str, checks: Any, flags: str = "") -> tuple[Setting, ...]:
    return (Setting("ResNet-8, digits", f"ablate --factor {factor}{flags}", checks),)


_BNN16 = "bnn --variants standard w w-init w-zero sigma standard-equal --archs mlp-16 --methods vi --kl-weights 0.125"

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
          "verified", _ablation("init", _a10)),
    Claim("A11", PAPER, "Fixing biases does not connect networks", "3.76 to 10.6", "second-hand",
          _ablation("bias", _a11)),
    Claim("A12", PAPER, "A cosine gate does not rescue σ", "–", "verified", _ablation("gate", _a12)),
    Claim("A13", PAPER, "Monotone from initial to final weights: standard < σ < W", "26.3, 87.3, 100 %", "second-hand",
          (Setting("100 ResNet-8 a family, digits, label smoothing", "mli", _a13),), headline=True),
    Claim("A14", PAPER, "Global convexity of these lines: standard < σ < W", ".823, .976, 1.00", "second-hand",
          (Setting("100 ResNet-8 a family, digits, label smoothing", "mli",
                   lambda t: _a13(t, "smooth_global_convexity")),)),
    Claim("A15", PAPER, "Variational inference trains a 16-layer MLP only if W", "13.5 against 55.2 %", "second-hand",
          (Setting("MLP-16, digits, KL × 1/8", "bnn", _a15),), headline=True),
    Claim("A16", PAPER, "Variational ResNet: W ahead early, tie late", "CIFAR-10: a tie; CIFAR-100 49.3, 46.8",
          "second-hand", (Setting("ResNet-20 with group norm, digits, KL × 1/8", "bnn", _a16),)),
    Claim("A17", PAPER, "Parameter count does not explain the Bayesian gain", "46.5 ± 1.1", "verified",
          (Setting("MLP-16, digits, KL × 1/8", _BNN16, _a17),)),
    Claim("A20", PAPER, "Distance between networks does not explain connectivity", "W farther apart than standard",
          "second-hand", elsewhere="distances are not kept in the tables"),
    Claim("A21", PAPER, "Masks of distinct non-zero rows and κ = 0 leave no automorphism", "theorem", "second-hand",
          (Setting("tiny MLP exactly; exchanges and signs in six networks", "audit --points 3", _a21),)),
    Claim("A22", PAPER, "FiGLU leaves no permutation and no diagonal equivariance", "theorem", "second-hand",
          (Setting("MLP, ResNet-8, GNN, timm ResNet-18", "audit --points 3", _a22),)),
    Claim("A23", LATER, "Constants of zero leave a high barrier, though no permutation is left", "≈ 80 points",
          "second-hand", _ablation("zero", _a23), headline=True),
    Claim("A24", LATER, "Width alone removes the barrier (×32, with temperature)", ".087", "second-hand",
          elsewhere="widths 1 and 2 only: ablate_width.csv, ablate_temperature.csv"),
    Claim("N04", OWN, "Averaging eight W networks needs no maps", "open question", "–", _ablation("merge", _n04),
          headline=True),
    Claim("N05", OWN, "Removing symmetries mends mixing in weights more than in predictions", "open question", "–",
          (Setting("NUTS, three hidden units, digits", "bnn --sampler nuts", _n05),)),
    Claim("N06", OWN, "The audit finds what is predicted; W keeps continuous symmetries and no discrete one", "–", "–",
          (Setting("six networks, three points each", "audit --points 3", _n06),)),
    Claim("P01", OWN, "What trains the deep variational MLP is where it starts, not that entries are fixed", "–", "–",
          (Setting("MLP-16, digits, KL × 1/8", _BNN16, _p01),)),
    Claim("P02", OWN, "The standard barrier falls as the learning rate grows", "–", "–", _ablation("lr", _p02)),
    Claim("P03", OWN, "SyRe at its paper's deviation removes symmetries without connecting networks", "–", "–",
          _ablation("syre", _p03)),
    Claim("P04", OWN, "κ = 1 and half of the published n_fix connect at no cost in accuracy", "–", "–",
          _ablation("kappa-nfix", _p04)),
)  # fmt: skip
