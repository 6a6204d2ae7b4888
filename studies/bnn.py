"""Bayesian networks: does a posterior train better without the symmetries that multiply its modes?

Variational posteriors of deep networks with and without symmetries, from the same seeds, beside deterministic training
and deep ensembles (Lim et al., "The Empirical Impact of Neural Parameter Symmetries, or Lack Thereof", 2024, section on
Bayesian networks); and, on networks small enough for it, sampling: chains that mix in weights, in predictions, or not.

    python -m studies.bnn
    python -m studies.bnn --sampler nuts
    python -m studies.bnn --archs mlp-16 --variants standard w --guide normal --kl-weights 1

From a notebook: `from studies import bnn; rows = bnn.run(bnn.Config(archs=("mlp-8",)))`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Literal

from asym.names import ARCHS, NORMS, VARIANTS
from studies.checks import InputError, check_choice, check_least, check_positive
from studies.cli import CommonConfig, run_study
from studies.flags import check_names
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd

KEY = ("config", "variant", "method", "instance")
TABLES = {
    "bnn": KEY,
    "bnn_curves": (*KEY, "epoch"),
    "bnn_reliability": (*KEY, "bins", "bin"),
    "bnn_summary": ("config", "variant", "method"),
    "bnn_differences": ("config", "reference", "variant", "method", "measure"),
    "bnn_nuts": ("config", "activation", "variant"),
    "bnn_plane": ("config", "variant", "a", "b"),
}
"""Tables of the study, and what makes a row of each unique."""
EQUAL = "standard-equal"
"""The standard network narrowed to the trainable parameters of the W network."""
METHODS = ("vi", "deterministic", "ensemble")
GUIDES = ("normal", "lowrank", "last")
DIAGONALS = ("learned", "constant")
PRIORS = ("published", "fan-in", "unit")
SAMPLED = ("standard", "fixed-scale", "w", "sigma")
"""Variants of the sampled networks; `fixed-scale` is a ReLU network without the scaling symmetry."""
ONLY_VI = ("archs", "methods", "instances", "kl_weights", "guide", "rank", "diagonal", "log_variance", "prior",
           "prior_precision", "samples", "epochs", "lr", "batch_size", "train_size", "eval_images", "ensemble",
           "width")  # fmt: skip
ONLY_NUTS = ("chains", "warmup", "draws", "tree_depth", "hidden", "features", "images")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CommonConfig):
    """Settings of the study; a value of None is set by the preset."""

    sampler: Literal["vi", "nuts"] = "vi"
    """vi: variational posteriors of deep networks; nuts: chains on small ones."""
    variants: tuple[str, ...] | None = None
    """vi: any of standard w sigma standard-equal …; nuts: any of standard fixed-scale w sigma."""
    archs: tuple[str, ...] | None = None
    """Architectures, a norm behind a slash: mlp-8 mlp-16 resnet20 resnet20/batch."""
    methods: tuple[str, ...] | None = None
    """Any of: vi deterministic ensemble."""
    instances: int | None = None
    """Networks of each kind."""
    kl_weights: tuple[float, ...] | None = None
    """Weights of the KL: 1 gives the posterior, 0.125 the published tempering."""
    guide: str | None = None
    """normal, lowrank or last (low rank, in the last layer alone); the preset's is lowrank."""
    rank: int | None = None
    """Factors of a low-rank guide; the preset's is 4."""
    diagonal: str | None = None
    """learned or constant; the preset's is constant for lowrank, learned otherwise."""
    log_variance: float | None = None
    """Log-variance of the diagonal, at the start if it is learned; the preset's is -10 for MLPs, -12 otherwise."""
    prior: str | None = None
    """published (by outputs or input channels), fan-in or unit."""
    prior_precision: float | None = None
    """Prior variance is 1 / (precision · fan); the preset's is 0.01 for MLPs, 1 otherwise."""
    samples: int | None = None
    """Samples of a predictive distribution."""
    epochs: int | None = None
    """Passes over the training split."""
    lr: float | None = None
    """Learning rate of Adam; the preset's is 5e-4 for MLPs, 1e-3 otherwise."""
    batch_size: int | None = None
    """Images a step."""
    train_size: int | None = None
    """Train on so many images, drawn evenly from the classes."""
    eval_images: int | None = None
    """At most so many images of each split are evaluated."""
    ensemble: int | None = None
    """Networks of a deep ensemble."""
    width: float | None = None
    """Width multiplier."""
    kappa: float | None = None
    """Standard deviation of the fixed weights; the preset's is 0.5."""
    chains: int | None = None
    """NUTS: chains of each network."""
    warmup: int | None = None
    """NUTS: draws for adaptation, thrown away."""
    draws: int | None = None
    """NUTS: draws that are kept, of each chain."""
    tree_depth: int | None = None
    """NUTS: at most 2^depth − 1 leapfrog steps a draw, 1 to 6."""
    hidden: int | None = None
    """NUTS: hidden units."""
    features: int | None = None
    """NUTS: principal components of the images that the network sees."""
    images: int | None = None
    """NUTS: training images."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag in ONLY_VI if self.sampler == "nuts" else ONLY_NUTS:
            if getattr(self, flag) is not None:
                raise InputError(f"--{flag.replace('_', '-')}: has no meaning with --sampler {self.sampler}")
        variants = SAMPLED if self.sampler == "nuts" else (*VARIANTS, EQUAL)
        for flag, values, choices in (("variants", self.variants, variants), ("methods", self.methods, METHODS)):
            if values is not None:
                check_names(flag, values, choices)
        if self.archs is not None:
            check_names("archs", self.archs, None)
            for arch in self.archs:
                name, norm = split_arch(arch)
                head, _, tail = arch.rpartition("/")
                if head in ARCHS and tail not in NORMS:
                    check_choice("archs", arch, [f"{head}/{known}" for known in NORMS])
                if name not in ARCHS and not name.startswith("timm/") and ":" not in name:
                    check_choice("archs", name, [*ARCHS, "timm/<name>", "package.module:factory"])
                check_choice("archs", norm or "group", NORMS)
        for flag, choices in (("guide", GUIDES), ("diagonal", DIAGONALS), ("prior", PRIORS)):
            if (value := getattr(self, flag)) is not None:
                check_choice(flag, value, choices)
        self._check_numbers()

    def _check_numbers(self) -> None:
        least = {"instances": 1, "rank": 1, "samples": 1, "epochs": 1, "batch_size": 1, "train_size": 1,
                 "eval_images": 1, "ensemble": 2, "chains": 2, "warmup": 1, "draws": 4, "tree_depth": 1, "hidden": 1,
                 "features": 1, "images": 10, "kappa": 0}  # fmt: skip
        for flag, lowest in least.items():
            check_least(flag.replace("_", "-"), getattr(self, flag), lowest)
        for flag in ("prior_precision", "lr", "width"):
            check_positive(flag.replace("_", "-"), getattr(self, flag))
        if self.kl_weights == ():
            raise InputError("--kl-weights: got none")
        for weight in self.kl_weights or ():
            check_positive("kl-weights", weight)
        if len(set(self.kl_weights or ())) < len(self.kl_weights or ()):
            raise InputError(f"--kl-weights: named twice in {' '.join(map(str, self.kl_weights or ()))}")
        if self.tree_depth is not None and self.tree_depth > 6:
            raise InputError(f"--tree-depth: got {self.tree_depth}, must be 1 to 6")
        if self.hidden is not None and self.hidden > 8:
            raise InputError(f"--hidden: got {self.hidden}, must be 1 to 8 (pyro takes a millisecond a gradient)")
        if self.log_variance is not None and not abs(self.log_variance) < 100:
            raise InputError(f"--log-variance: got {self.log_variance}, must be between -100 and 100")
        if self.guide == "normal" and self.rank is not None:
            raise InputError(f"--rank: got {self.rank}, guide normal has none; choose lowrank or last")
        if self.guide == "normal" and self.diagonal == "constant":
            raise InputError("--diagonal: constant leaves guide normal nothing to learn; choose learned")


def split_arch(arch: str) -> tuple[str, str | None]:
    """`resnet20/batch` is resnet20 with norm batch; without a norm behind a slash the architecture's own."""
    head, slash, tail = arch.rpartition("/")
    return (head, tail) if slash and tail in NORMS else (arch, None)


def rooms(config: Config) -> Rooms:
    """Where posteriors are fitted, or sampled."""
    return Rooms("bnn_nuts", "bnn_nuts") if config.sampler == "nuts" else Rooms("bnn_setup", "bnn_work")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of `bnn.csv` (or `bnn_nuts.csv`) that belong to `config`."""
    return rooms(config).run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("bnn", __doc__, Config, rooms, args=args)


__all__ = ["Config", "main", "rooms", "run"]

if __name__ == "__main__":
    sys.exit(main())
