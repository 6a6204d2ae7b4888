"""Linear mode connectivity: how high is the loss between two networks that differ in their seed?

For each variant, pairs of networks with the same masks and fixed values and different seeds are trained; the loss is
measured along the straight line between them, as they are and after aligning the second one to the first. Networks
with the symmetry of permuting hidden units end up in different copies of a basin and cannot be averaged; matching
undoes part of that; networks that never had the symmetry should need no matching (Lim et al., "The Empirical Impact of
Neural Parameter Symmetries, or Lack Thereof", 2024, section 5).

    python -m studies.lmc --arch resnet20
    python -m studies.lmc --arch mlp --dataset fashion_mnist --variants standard w w-zero w-init
    python -m studies.lmc --arch gnn --dataset digits-graph --variants standard sigma w w-sigma

From a notebook: `from studies import lmc; rows = lmc.run(lmc.Config(arch="mlp"))`.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from asym.names import ALIGNMENTS, VARIANTS
from studies.checks import InputError, check_least, check_positive
from studies.cli import run_study
from studies.flags import MEANING, TunedConfig, check_meaning, check_names
from studies.presets import Defaults, defaults
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd

    from studies.lmc_pairs import CheckpointTask, Task, Trial

KEY = ("config", "variant", "alignment", "pair")
TABLES = {
    "lmc": KEY,
    "lmc_curves": (*KEY, "split", "lam"),
    "lmc_summary": ("config", "variant", "alignment"),
    "lmc_tuning": ("config", "variant"),
}
"""Tables of the study, and what makes a row of each unique."""
GROUP = ("config", "preset", "arch", "dataset", "variant", "alignment")
ASYMMETRIC = ("w", "w-zero", "sigma", "w-sigma")
"""Variants that have no permutation symmetry of their own."""
VALUES = (
    *(f"{p}{m}" for p in ("", "train_") for m in ("loss", "acc")),
    *(f"{p}barrier_{m}_{k}" for p in ("", "train_") for m in ("loss", "acc") for k in ("mid", "max")),
    "distance",
    "weight_norm",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TunedConfig):
    """Settings of the study; a value of None is set by the preset."""

    variants: tuple[str, ...] = ("standard", "sigma", "w")
    """Any of: standard w sigma w-sigma w-zero w-init w-scale bias."""
    alignments: tuple[str, ...] = ("none", "weight")
    """Any of: none weight activation."""
    align_asymmetric: bool = False
    """Align w and w-zero networks too, in plain form."""
    kappa: float | None = None
    """Standard deviation of the fixed weights of every masked layer."""
    n_fix_scale: float = 1.0
    """Multiplies the number of fixed weights of every row."""
    gate: Literal["sigmoid", "cosine"] = "sigmoid"
    """Gate of σ networks."""
    bias_range: float = 3.0
    """Fixed shifts of the variant `bias` are uniform in ± this."""
    syre_scale: str = ".01/sqrt(d)"
    """Standard deviation of θ₀ of the variant `syre`, d the fan-in."""
    checkpoints: tuple[Path, ...] = ()
    """Two state-dict files (.safetensors or .pt) of networks of --arch to compare, instead of training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("variants", self.variants, VARIANTS)
        check_names("alignments", self.alignments, ALIGNMENTS)
        check_least("kappa", self.kappa, 0)
        for flag in ("n_fix_scale", "bias_range"):
            check_positive(flag.replace("_", "-"), getattr(self, flag))
        check_meaning(self, {**MEANING, "gate": ("sigma", "w-sigma"), "bias_range": ("bias",), "syre_scale": ("syre",)})
        if self.align_asymmetric and not any(v in ("w", "w-zero") for v in self.variants):
            raise InputError("--align-asymmetric: has no meaning without w or w-zero among --variants")
        if len(self.checkpoints) not in (0, 2):
            raise InputError(f"--checkpoints: got {len(self.checkpoints)} files, must be two")
        if self.checkpoints and len(self.variants) > 1:
            raise InputError("--checkpoints: name the one variant of the networks with --variants")
        for flag in ("pairs", "epochs", "lr", "lrs", "batch_size", "weight_decay", "schedule", "warmup"):
            if self.checkpoints and getattr(self, flag) is not None:
                raise InputError(f"--{flag.replace('_', '-')}: has no meaning with --checkpoints, nothing is trained")

    def preset_defaults(self, variant: str) -> Defaults:
        """The preset's values for one variant."""
        return defaults(self.preset, self.arch, self.width, variant, self.epochs, self.dataset)


@dataclasses.dataclass(frozen=True)
class Job:
    """One variant of a prepared study."""

    variant: str
    tasks: dict[float, list[Task | CheckpointTask]]
    """Learning rate → the pairs trained at it; a single entry at 0 for networks from files."""
    trials: dict[float, Trial]
    """Learning rate → the network that is trained to choose it; empty where the rate is given."""
    layers: list[str]
    """Lines that describe the masked layers."""


ROOMS = Rooms("lmc_setup", "lmc_work", plan="lmc_estimate")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of `lmc.csv` that belong to `config`."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("lmc", __doc__, Config, ROOMS, args=args)


__all__ = ["ROOMS", "Config", "Job", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
