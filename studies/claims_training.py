"""Claims about paths of training, posteriors and the symmetries that are left: published ones and our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from studies.claims_rules import (
    OWN,
    PAPER,
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

POINT = 0.02
"""Accuracies within this of each other are alike."""
_BNN16 = "bnn --variants standard w w-init w-zero sigma standard-equal --archs mlp-16 --methods vi --kl-weights 0.125"
_FASHION = (
    "bnn --dataset fashion_mnist --variants {} --archs {} --methods {} --kl-weights 0.125 --epochs 10 --train-size 6000"
)
VI: dict[str, Any] = {"method": "vi", "guide": "lowrank"}


def _a13(tables: Tables, column: str = "smooth_monotone") -> list[Check]:
    def change(variant: str, other: str) -> Interval:
        rows = tables("mli_differences", variant=variant, other=other, matched_on="hyperparameters", measure=column)
        return given(rows)

    return [
        above("W minus standard", change("w", "standard")),
        above("σ minus standard", change("sigma", "standard")),
        above("W minus σ", change("w", "sigma")),
    ]


def _vi(tables: Tables, arch: str, variant: str, dataset: str = "digits") -> pd.DataFrame:
    noise = -12.0 if arch.startswith("resnet") else -10.0
    return tables("bnn", arch=arch, variant=variant, dataset=dataset, kl_weight=0.125, log_variance=noise, **VI)


def _a15(tables: Tables, *, dataset: str = "digits") -> list[Check]:
    w, plain, started = (_vi(tables, "mlp-16", v, dataset) for v in ("w", "standard", "w-init"))
    return [
        above("W minus standard accuracy", paired(w, plain, "test_acc", ("instance",)), 0.2),
        below("standard accuracy", mean_of(plain, "test_acc"), 0.2),
        below("accuracy of standard networks started at W's values", mean_of(started, "test_acc"), 0.2),
    ]


def _a16(tables: Tables, *, dataset: str = "digits") -> list[Check]:
    w, plain = (_vi(tables, "resnet20", v, dataset) for v in ("w", "standard"))
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
    convolved = ("mlp", "resnet8", "gnn", "timm/resnet18")  # heads of attention have no activation to be gated
    rows = tables("audit", kind="permutations", arch=convolved, variant="sigma")
    signs = tables("audit", kind="signs", arch=convolved, variant="sigma")
    return [
        exactly("networks without an exchange", rows["found"], [0] * len(rows)),
        exactly("networks without a sign flip", signs["found"], [0] * len(signs)),
    ]


def _none(tables: Tables, variants: tuple[str, ...]) -> Check:
    rows = tables("audit", kind=("permutations", "signs"), variant=variants)
    return exactly("tests without an exchange or sign flip", rows["found"], [0] * len(rows))


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
        exactly("W networks with continuous symmetries left", left["found"] > 0, [True] * len(left)),
        _none(tables, ("w",)),
    ]


def _p01(tables: Tables, *, dataset: str = "digits") -> list[Check]:
    started, w, plain = (_vi(tables, "mlp-16", v, dataset) for v in ("w-init", "w", "standard"))
    return [
        above("started at W minus standard accuracy", paired(started, plain, "test_acc", ("instance",)), 0.2),
        inside("started at W minus W accuracy", paired(started, w, "test_acc", ("instance",)), 0.2),
    ]


def _fashion(variants: str, arch: str, methods: str, checks: Any, more: str = "") -> Setting:
    name = {"mlp-16": "MLP-16", "resnet20": "ResNet-20 with group norm"}[arch]
    return Setting(
        f"{name}, Fashion-MNIST, 6,000 images, KL × 1/8",
        _FASHION.format(variants, arch, methods) + more,
        lambda tables: checks(tables, dataset="fashion_mnist"),
    )


CLAIMS = (
    Claim("A13", PAPER, "Monotone from initial to final weights: standard < σ < W", "26.3, 87.3, 100 %", "second-hand",
          (Setting("100 ResNet-8 a family, digits, label smoothing", "mli", _a13),), headline=True),
    Claim("A14", PAPER, "Global convexity of these lines: standard < σ < W", ".823, .976, 1.00", "second-hand",
          (Setting("100 ResNet-8 a family, digits, label smoothing", "mli",
                   lambda t: _a13(t, "smooth_global_convexity")),)),
    Claim("A15", PAPER, "Variational inference trains a 16-layer MLP only if W", "13.5 against 55.2 %", "second-hand",
          (Setting("MLP-16, digits, KL × 1/8", "bnn", _a15), _fashion("standard w w-init", "mlp-16", "vi", _a15)),
          headline=True),
    Claim("A16", PAPER, "Variational ResNet: W ahead early, tie late", "CIFAR-10: a tie; CIFAR-100 49.3, 46.8",
          "second-hand", (
              Setting("ResNet-20 with group norm, digits, KL × 1/8", "bnn", _a16),
              _fashion("standard w", "resnet20", "vi", _a16, " --eval-images 2000"),
          )),
    Claim("A17", PAPER, "Parameter count does not explain the Bayesian gain", "46.5 ± 1.1", "verified",
          (Setting("MLP-16, digits, KL × 1/8", _BNN16, _a17),)),
    Claim("A21", PAPER, "Masks of distinct non-zero rows and κ = 0 leave no automorphism", "theorem", "second-hand",
          (Setting("tiny MLP exactly; exchanges and signs in six networks", "audit --points 3", _a21),)),
    Claim("A22", PAPER, "FiGLU leaves no permutation and no diagonal equivariance", "theorem", "second-hand",
          (Setting("MLP, ResNet-8, GNN, timm ResNet-18", "audit --points 3", _a22),)),
    Claim("N05", OWN, "Removing symmetries mends mixing in weights more than in predictions", "open question", "–",
          (Setting("NUTS, three hidden units, digits", "bnn --sampler nuts", _n05),)),
    Claim("N06", OWN, "The audit finds what is predicted; W keeps continuous symmetries and no discrete one", "–", "–",
          (Setting("six networks, three points each", "audit --points 3", _n06),)),
    Claim("P01", OWN, "What trains the deep variational MLP is where it starts, not that entries are fixed", "–", "–",
          (Setting("MLP-16, digits, KL × 1/8", _BNN16, _p01), _fashion("standard w w-init", "mlp-16", "vi", _p01))),
)  # fmt: skip
