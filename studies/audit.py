"""The symmetry audit: which parameter symmetries does each network really have left?

For each architecture and variant, on a copy that is narrow enough to count: continuous symmetries, predicted from the
network's graph and found as the null space of its Jacobian; exchanges of two units and sign flips, predicted and tried;
for tiny perceptrons all automorphisms. What no prediction explains is reported as unexplained. A second table has the
cost of the cheapest exchange of two units as a function of κ and n_fix, which is what the constants of a W network are
there to raise.

    python -m studies.audit
    python -m studies.audit --arch mlp --norm none --activation relu --depth 1
    python -m studies.audit --arch timm/resnet18 my.module:factory --variants standard w

From a notebook: `from studies import audit; rows = audit.run(audit.Config(arch=("mlp",)))`. Nothing is trained.
Inputs are normal. The n_fix of a narrow copy keeps its share of the fan-in. Formulas and rules: `asym.symmetry.audit`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Literal

from asym.names import ARCHS, NORMS, VARIANTS
from studies.checks import InputError, check_choice, check_least, check_positive
from studies.cli import CommonConfig, run_study
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd


KEY = ("config", "variant", "point", "kind", "family")
SWAP_KEY = ("config", "kappa", "n_fix_scale", "point")
TABLES = {
    "audit": KEY,
    "audit_summary": ("config", "variant", "kind", "family"),
    "audit_swaps": SWAP_KEY,
    "audit_swaps_summary": SWAP_KEY[:-1],
}
"""Tables of the study, and what makes a row of each unique."""
GROUP = ("preset", "arch", "variant", "kind", "family", "params", "config")
DEFAULT = tuple(
    a for a in ("mlp", "resnet8", "gnn", "transformer", "transformer-plain", "timm/resnet18") if a in ARCHS or "/" in a
)
SMOKE = ("mlp", "transformer")
"""Architectures of the preset smoke."""
SWAPS = ("mlp", "resnet8")
"""Architectures whose exchange costs are measured, where they are audited."""
TARGETS = {"smoke": 350, "laptop": 800, "paper": 4000}
"""Parameters of the narrow copies."""
UNUSED = ("dataset", "data_dir", "image_size", "download", "dataset_name")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CommonConfig):
    """Settings of the study; a value of None is set by the preset."""

    arch: tuple[str, ...] = ()
    """Architectures: names of `python -m asym.models`, `timm/<name>` or `package.module:factory`; none is a choice."""
    variants: tuple[str, ...] = ("standard", "sigma", "w", "w-zero")
    """Any of: standard w sigma w-zero w-init w-scale bias."""
    points: int | None = None
    """Random points of parameter space for each network."""
    width: float | None = None
    """Width multiplier, instead of the largest at which a copy has few enough parameters."""
    max_params: int = 4000
    """Networks with more trainable parameters are refused; the rank of a Jacobian costs their cube."""
    norm: str | None = None
    """group, batch, layer or none; None is the architecture's own."""
    activation: str | None = None
    """relu, gelu, tanh or silu; None is the architecture's own."""
    depth: int | None = None
    """Depth, in the unit of an architecture that allows it."""
    side: int | None = None
    """Pixels a side of the random images: 8, or 32 for networks that others wrote."""
    classes: int = 4
    """Outputs."""
    batch_norm: Literal["batch", "running"] = "batch"
    """Statistics that BatchNorm uses: the batch's own, as in training, or running ones, as in evaluation."""
    kappa: float | None = None
    """κ of every masked layer, instead of the architecture's table."""
    swaps: bool = True
    """Whether the cost of exchanging two units of mlp and resnet8 is measured; --no-swaps leaves it out."""
    swap_kappas: tuple[float, ...] | None = None
    """κ of the networks whose units are exchanged."""
    swap_n_fix: tuple[float, ...] | None = None
    """Factors on their n_fix."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag in UNUSED:
            if getattr(self, flag):
                raise InputError(f"--{flag.replace('_', '-')}: has no meaning for an audit, whose inputs are random")
        if self.retrain:
            raise InputError("--retrain: has no meaning for an audit, nothing is trained")
        if self.device not in ("auto", "cpu"):
            raise InputError(f"--device: got {self.device!r}; an audit computes in float64 on the cpu")
        for flag, values in (("arch", self.arch), ("variants", self.variants)):
            if not values and flag == "variants":
                raise InputError(f"--{flag}: got none")
            if len(set(values)) < len(values):
                raise InputError(f"--{flag}: named twice in {' '.join(values)}")
        for arch in self.arch:
            if arch not in ARCHS and not arch.startswith("timm/") and ":" not in arch:
                check_choice("arch", arch, [*ARCHS, "timm/<name>", "package.module:factory"])
        for variant in self.variants:
            check_choice("variants", variant, VARIANTS)
        if self.norm is not None:
            check_choice("norm", self.norm, NORMS)
        for flag in ("points", "depth", "side", "classes", "max_params"):
            check_least(flag.replace("_", "-"), getattr(self, flag), 1)
        for values in (self.swap_kappas, self.swap_n_fix):
            for value in values or ():
                check_least("swap-kappas" if values is self.swap_kappas else "swap-n-fix", value, 0)
        check_least("kappa", self.kappa, 0)
        check_positive("width", self.width)

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures to audit: those named, or the preset's."""
        return self.arch or (SMOKE if self.preset == "smoke" else DEFAULT)

    @property
    def target(self) -> int:
        """Parameters that narrow copies should have at most."""
        return min(self.max_params, TARGETS[self.preset])


ROOMS = Rooms("audit_setup", "audit_tables")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of `audit.csv` that belong to `config`."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("audit", __doc__, Config, ROOMS, args=args)


__all__ = ["ROOMS", "Config", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
