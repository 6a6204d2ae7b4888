"""Monotonic linear interpolation: does the loss only fall on the straight line from initial to final weights?

For each family (variant) a population of networks is trained, each with hyper-parameters of its own, drawn from the
published distributions; network k has the same hyper-parameters in every family. The loss is then measured along the
line from its initial to its final weights. Lim et al., "The Empirical Impact of Neural Parameter Symmetries, or Lack
Thereof" (2024, section 5.4 and appendix), found 26.3 % of standard, 87.3 % of σ- and 100 % of W-Asymmetric ResNet-8
networks to be monotone.

    python -m studies.mli
    python -m studies.mli --arch mlp --networks 30

Where this differs from the released code: the loss is that of the fixed training split in evaluation mode, not of an
augmented, shuffled one in half precision; the chord of global convexity ends at the last point, the released one, which
runs to the second, is given beside it; losses with the run's label smoothing (the published ones), without it, and on
test images are measured; and families are compared among networks of the same hyper-parameters and of the same
accuracy. A loss without smoothing of networks that were trained with it rises towards the end where they overshoot in
confidence, so the two need not agree. The preset `paper` crops with the data set's own padding and has no cutout.

From a notebook: `from studies import mli; rows = mli.run(mli.Config())`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from asym.names import VARIANTS
from studies.checks import InputError, check_least, check_positive
from studies.cli import run_study
from studies.flags import MEANING, NetworkConfig, check_meaning, check_names
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd

    from studies.mli_paths import Task

KEY = ("config", "variant", "network")
TABLES = {
    "mli": KEY,
    "mli_curves": (*KEY, "lam"),
    "mli_summary": ("config", "variant"),
    "mli_differences": ("config", "other_config", "matched_on", "measure"),
    "mli_matched": ("config", "other_config", "matched_on", "measure"),
    "mli_by_lr": ("config", "variant", "lr_low"),
}
"""Tables of the study, and what makes a row of each unique."""
GROUP = ("config", "preset", "arch", "dataset", "variant")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(NetworkConfig):
    """Settings of the study; a value of None is set by the preset, or drawn for each network."""

    arch: str = "resnet8"
    """Architecture: a name of `python -m asym.models`, `timm/<name>` or `package.module:factory`."""
    variants: tuple[str, ...] = ("standard", "sigma", "w")
    """Any of: standard w sigma w-zero w-init w-scale bias w-sigma syre."""
    networks: int | None = None
    """Networks of each variant; where 32 small ones are trained together, fewer are another config."""
    epochs_scale: float | None = None
    """Factor on the drawn epochs (10 to 40) and on the 5 epochs of warm-up."""
    epochs: int | None = None
    """The same epochs for all networks instead of drawn ones."""
    lr: float | None = None
    """The same peak learning rate for all networks instead of drawn ones."""
    weight_decay: float | None = None
    """The same weight decay for all networks instead of drawn ones."""
    smoothing: float | None = None
    """The same label smoothing for all networks instead of drawn ones."""
    kappa: float | None = None
    """Standard deviation of the fixed weights of every masked layer; None is the architecture's table."""
    n_fix_scale: float = 1.0
    """Multiplies the number of fixed weights of every row."""
    eval_images: int | None = None
    """At most so many images of each split are evaluated along the line; None is all, in smoke 200."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("variants", self.variants, VARIANTS)
        check_least("networks", self.networks, 1)
        check_least("kappa", self.kappa, 0)
        for flag in ("epochs_scale", "n_fix_scale"):
            check_positive(flag.replace("_", "-"), getattr(self, flag))
        check_least("points", self.points, 3)
        if self.smoothing is not None and not 0 <= self.smoothing < 1:
            raise InputError(f"--smoothing: got {self.smoothing}, must be at least 0 and below 1")
        if self.epochs is not None and self.epochs_scale is not None:
            raise InputError("--epochs and --epochs-scale: give one of them, a fixed length or a factor on drawn ones")
        check_meaning(self, MEANING)


@dataclasses.dataclass(frozen=True)
class Family:
    """One variant of a prepared study."""

    variant: str
    config: str
    """Hash of what determines its networks and their measurement."""
    tasks: list[Task]
    """The chunks of networks that are trained together."""
    layers: list[str]
    """Lines that describe the masked layers."""


ROOMS = Rooms("mli_setup", "mli_work")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of `mli.csv` that belong to `config`."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("mli", __doc__, Config, ROOMS, note=", or drawn for each network.", args=args)


__all__ = ["ROOMS", "Config", "Family", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
