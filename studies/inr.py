"""Implicit networks: reading what an image shows off the weights of a network that draws it, and editing it there.

Small networks with sines are fitted to images, each from start values of its own. Readers then tell the class of the
image from the weights alone, and editors write new weights with which the network draws the image dilated. Weights are
known up to the order and the signs of hidden units only, which some readers respect and others have to learn. After
Kalogeropoulos et al., "Scale Equivariant Graph Metanetworks" (2024, arXiv 2406.10685, sections on implicit networks).

    python -m studies.inr
    python -m studies.inr --tasks classify --readers flat deepsets scale-gmn --fits 8
    python -m studies.inr --shared-start

A reader's name may be followed by `+matched` (as many parameters as scale-gmn at --reader-width), `+gauge` (signs and
phases are removed from the weights that it reads), `+augment` and `+shuffle` (random signs, random orders in training).
Every reader is trained by one protocol and judged again on test networks whose hidden units were reordered and flipped
at random, which changes no image.

From a notebook: `from studies import inr; rows = inr.run(inr.Config(tasks=("classify",)))`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Literal

from asym.names import METANETS
from studies.checks import InputError, check_choice, check_least, check_positive
from studies.cli import CommonConfig, run_study
from studies.flags import check_names
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd


KEY = ("config", "task", "reader", "instance")
TABLES = {
    "inr": KEY,
    "inr_summary": ("config", "task", "reader"),
    "inr_differences": ("config", "task", "reader", "other", "measure"),
    "inr_history": (*KEY, "epoch"),
    "inr_fits": ("config", "split"),
    "inr_images": ("config", "reader", "image"),
}
"""Tables of the study, and what makes a row of each unique."""
TASKS = ("classify", "edit")
READERS = tuple(name for name in METANETS if "boost" not in name and name != "dmc")
EDITORS = ("flat", "nfn-np", "nfn-hnp", "gmn", "gmn-b", "scale-gmn", "scale-gmn-b")
ADD_ONS = ("matched", "gauge", "augment", "shuffle")
STARTS = ("paper", "smooth")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CommonConfig):
    """Settings of the study; a value of None is set by the preset."""

    tasks: tuple[str, ...] = TASKS
    """Any of: classify edit."""
    readers: tuple[str, ...] | None = None
    """Readers, with add-ons behind a plus: flat+matched gmn+gauge scale-gmn scale-gmn-b+matched."""
    instances: int | None = None
    """Trainings of each reader, each with start values and an order of networks of its own."""
    fits: int | None = None
    """Networks fitted to each training image; validation and test images have one each."""
    train_size: int | None = None
    """Train on networks of so many images, drawn evenly from the classes."""
    siren_width: int | None = None
    """Units of a hidden layer of the implicit networks."""
    siren_depth: int = 2
    """Hidden layers of the implicit networks."""
    omega: float = 30.0
    """Factor inside their sines."""
    start: Literal["paper", "smooth"] = "smooth"
    """Their start values: those of Sitzmann et al., or those of the published networks of MNIST."""
    shared_start: bool = False
    """Give all implicit networks the same start values."""
    fit_steps: int | None = None
    """Steps of each fit."""
    fit_lr: float | None = None
    """Learning rate of the fits."""
    reader_width: int | None = None
    """Channels of the graph readers."""
    sign: Literal["canonicalise", "symmetrise"] | None = None
    """How scale-gmn makes states blind to signs: |x|, which is cheaper and tells less, or ρ(x) + ρ(−x)."""
    epochs: int | None = None
    """Passes of a reader over the training networks."""
    lr: float | None = None
    """Peak learning rate of readers."""
    batch_size: int | None = None
    """Networks a step."""
    footprint: Literal["cross", "square"] | None = None
    """Pixels whose maximum a dilated pixel is: itself and its 4 or its 8 neighbours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("tasks", self.tasks, TASKS)
        if self.readers is not None:
            check_names("readers", self.readers, None)
            for reader in self.readers:
                name, *add_ons = reader.split("+")
                check_choice("readers", name, READERS)
                for add_on in add_ons:
                    check_choice("readers", add_on, ADD_ONS)
                if len(set(add_ons)) < len(add_ons):
                    raise InputError(f"--readers: {reader} names an add-on twice")
        for flag in ("instances", "fits", "train_size", "siren_width", "siren_depth", "fit_steps", "reader_width",
                     "epochs", "batch_size"):  # fmt: skip
            check_least(flag.replace("_", "-"), getattr(self, flag), 1)
        for flag in ("omega", "fit_lr", "lr"):
            check_positive(flag.replace("_", "-"), getattr(self, flag))
        if "edit" not in self.tasks and self.footprint is not None:
            raise InputError("--footprint: has no meaning without edit among --tasks")
        names = [reader.split("+")[0] for reader in self.readers or EDITORS]
        if "edit" in self.tasks and not set(names) & set(EDITORS):
            raise InputError(
                f"--readers: none of {' '.join(names)} can edit; leave edit out of --tasks or add {', '.join(EDITORS)}"
            )


ROOMS = Rooms("inr_setup", "inr_work", text="inr_tables")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of `inr.csv` that belong to `config`."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("inr", __doc__, Config, ROOMS, args=args)


__all__ = ["ROOMS", "Config", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
