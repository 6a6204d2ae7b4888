"""Ablations: one thing is varied, all else stays; barriers beside end points, with intervals over pairs.

Each factor is a question to the connectivity study (`studies.lmc`) and uses its networks, rates and measures: κ × n_fix
(`kappa-nfix`), `warmup`, `lr`, `width`, calibrated losses (`temperature`), fixed biases (`bias`), the gate of σ
networks (`gate`), κ = 0 (`zero`), the start (`init`), a standard network of equal size (`equal-params`), training
`time`, averaging k networks (`merge`), SyRe (`syre`), the `plane` through three networks. `--factor all` runs all.

The learning rate is tuned once for each variant, as in `studies.lmc`, at the settings that all factors share; a factor
then varies one thing at that rate. `--retune` tunes it again at each level, with the same rates to choose from.

    python -m studies.ablate --factor kappa-nfix
    python -m studies.ablate --factor width --arch mlp --pairs 5
    python -m studies.ablate --factor lr --levels 1e-3 1e-2 1e-1

From a notebook: `from studies import ablate; rows = ablate.run(ablate.Config(factor="zero"))`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from studies.ablate_factors import FACTORS
from studies.checks import InputError, check_choice, check_least, check_positive
from studies.cli import run_study
from studies.flags import TunedConfig
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd


KEY = ("config", "level", "variant", "alignment", "pair")
GROUP = ("config", "preset", "arch", "dataset", "level", "value", "variant", "alignment")
TUNING_KEY = ("config", "variant")
GRID_KEY = ("config", "level", "variant", "alignment", "pair", "column", "row")


def tables(factor: str) -> dict[str, tuple[str, ...]]:
    """Tables of a factor, and what makes a row of each unique."""
    name = table_name(factor)
    out: dict[str, tuple[str, ...]] = {
        name: KEY,
        f"{name}_summary": ("config", "level", "variant", "alignment"),
        "ablate_tuning": TUNING_KEY,
    }
    return out | ({f"{name}_grid": GRID_KEY} if factor == "plane" else {})


def table_name(factor: str) -> str:
    """`ablate_<factor>`, with underscores."""
    return f"ablate_{factor.replace('-', '_')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TunedConfig):
    """Settings of the study; a value of None is set by the preset or by the factor."""

    factor: str
    """What is varied: a name, or all."""
    levels: tuple[float, ...] | None = None
    """The factor's values, where it has an axis: rates, widths, epochs, k, …"""
    arch: str = "resnet8"
    """Architecture: a name of `python -m asym.models`, `timm/<name>` or `package.module:factory`."""
    retune: bool = False
    """Tune the rate at each level, not once for each variant."""
    target_accuracy: float = 0.9
    """Training accuracy to which epochs are counted."""
    grid: int = 15
    """Points along each side of the plane's grid."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("factor", self.factor, [*FACTORS, "all"])
        check_least("grid", self.grid, 3)
        if not 0 < self.target_accuracy <= 1:
            raise InputError(f"--target-accuracy: got {self.target_accuracy}, must be a fraction above 0, at most 1")
        if self.retune and self.lr is not None:
            raise InputError("--retune: contradicts --lr, a fixed rate is not tuned")
        self._check_factor()

    def _check_factor(self) -> None:
        """The flags that this factor sets itself, or that it has no use for."""
        fields = {field.name: field.default for field in dataclasses.fields(self)}
        if self.factor == "all" and self.levels is not None:
            raise InputError("--levels: has no meaning with --factor all; name one factor")
        for name in FACTORS if self.factor == "all" else (self.factor,):
            for field in FACTORS[name].takes:
                if field in fields and getattr(self, field) != fields[field]:
                    flag, among = field.replace("_", "-"), " (one of all)" if self.factor == "all" else ""
                    raise InputError(f"--{flag}: contradicts --factor {name}{among}, which sets it at each level")
        if self.factor != "all":
            self._check_levels()
        for flag, needed in (("grid", ("plane",)),):
            if getattr(self, flag) != fields[flag] and self.factor not in (*needed, "all"):
                raise InputError(f"--{flag}: has no meaning without --factor {' or '.join(needed)}")
        if self.retune and self.factor == "lr":
            raise InputError("--retune: contradicts --factor lr, whose rates are given")
        if self.factor in ("time", "all") and self.schedule in ("triangular", "cosine"):
            raise InputError(
                f"--schedule: {self.schedule} depends on the length of training, so that a shorter one is no part of "
                "it, as --factor time needs; give constant, linear or geometric"
            )

    def _check_levels(self) -> None:
        factor = FACTORS[self.factor]
        if self.levels is None:
            return
        if factor.values is None:
            chosen = ", ".join(name for name, f in FACTORS.items() if f.values is not None)
            raise InputError(f"--levels: those of --factor {self.factor} are not to be chosen; those of {chosen} are")
        if not self.levels:
            raise InputError("--levels: got none")
        if len(set(self.levels)) < len(self.levels):
            raise InputError(f"--levels: named twice in {' '.join(f'{v:g}' for v in self.levels)}")
        for value in self.levels:
            check_positive("levels", value)
            if value < factor.least or (factor.whole and value != int(value)):
                kind = "a whole number" if factor.whole else "a number"
                raise InputError(f"--levels: got {value:g}, must be {kind} of at least {factor.least:g}")

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the factors to run."""
        return tuple(FACTORS) if self.factor == "all" else (self.factor,)


ROOMS = Rooms("ablate_setup", "ablate_work")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of its tables that belong to `config`, all factors one below the other."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study(
        "ablate",
        __doc__,
        Config,
        ROOMS,
        draw=lambda figures, config: figures.draw(config.out, config.factors),
        note=f". Factors: {', '.join(FACTORS)}.",
        args=args,
    )


__all__ = ["ROOMS", "Config", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
