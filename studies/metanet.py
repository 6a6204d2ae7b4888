"""Accuracy prediction: how well can the accuracy of a network be read off its weights, and what do symmetries cost?

Zoos of small CNNs, standard and W-Asymmetric, are trained with hyper-parameters drawn for each network; readers then
learn to predict the test accuracy of networks from their weights. Two ways to deal with symmetries meet: networks that
have fewer of them (Lim et al. 2024, arXiv 2405.20231, section 5.3), and readers that respect them (ScaleGMN,
Kalogeropoulos et al. 2024, arXiv 2406.10685).

    python -m studies.metanet
    python -m studies.metanet --networks 400 --readers stats gmn scale-gmn
    python -m studies.metanet --files small-cnn-zoo --readers stats gmn scale-gmn

All readers are trained by one protocol (`asym.metanets.fitting`), with as many learning rates tried for each, on
validation networks; epochs and rates are chosen by Kendall's τ there, and test networks are read once. A reader's name
may carry add-ons: `gmn+gauge` reads networks whose scalings were removed, `gmn+augment` trains on randomly rescaled
ones, `gmn+shuffle` on permuted ones; these are for zoos without masks, whose networks have these symmetries. Forms of
graph readers are named alike: `scale-gmn+canonicalise` takes absolute values where signs would be symmetrised (of tanh
networks), `+receiver` shows messages their receiver, `+no-edges` and `+no-skips` leave out edge updates and skips, and
`scale-gmn-b+reciprocal`, `+pinv`, `+shipped` are other backward messages. Graph readers that respect permutations only
(`gmn`) are as wide as makes their parameters those of `scale-gmn`.

With `--arch resnet8` the networks have skips and norms: graph readers go by their streams (`asym.symmetry.residual`),
in three rounds that read all units, since a step costs some twenty times that on small CNNs. `w-init` is the control
that starts where W-Asymmetric networks start and trains all of it. With several `--widths` and `--depths` the networks
of a zoo differ in their shape, and readers that mix read them together.

Parts: `whole`, all training networks; `curve`, fewer of them; `matched`, zoos cut to one histogram of accuracies, since
their spread alone moves τ. Beside the test networks themselves (`tau`), those without masks are read again after their
units were permuted and rescaled at random (`tau_permuted`, `tau_rescaled`), which changes no function.

From a notebook: `from studies import metanet; rows = metanet.run(metanet.Config())`.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from asym.names import METANETS
from studies.checks import InputError, check_choice, check_least, check_once, check_positive, check_values
from studies.cli import CommonConfig, run_study
from studies.flags import check_names
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd

KEY = ("config", "repeat")
TABLES = {
    "metanet": KEY,
    "metanet_summary": ("config",),
    "metanet_differences": ("config", "other_config", "measure"),
    "metanet_tuning": ("config", "lr"),
    "metanet_cost": ("config",),
    "metanet_zoos": ("zoo", "other_zoo"),
}
"""Tables of the study, and what makes a row of each unique."""
BLIND = ("stats", "stats-boost", "hyper-boost", "flat", "dmc", "deepsets")
"""Readers that need not know how layers hang together."""
ADDONS = ("gauge", "augment", "shuffle")
"""What can be done to networks before any reader reads them."""
BACKWARD = ("reciprocal", "pinv", "shipped")
FORMS = ("canonicalise", "receiver", "no-edges", "no-skips", *BACKWARD)
"""Other forms of graph readers."""
VARIANTS = ("standard", "w", "smaller", "w-zero", "w-init")
"""Families that can be read and that keep drawn starts; `smaller` is standard with as many parameters as w trains."""
ACTIVATIONS = ("relu", "tanh", "gelu", "silu", "relu-tanh")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CommonConfig):
    """Settings of the study; a value of None is set by the preset."""

    arch: Literal["small-cnn", "resnet8"] = "small-cnn"
    """Networks of the zoos; for resnet8 readers with add-ons are read if they are named."""
    variants: tuple[str, ...] = ("standard", "w")
    """Zoos: standard w smaller w-zero w-init."""
    files: Path | None = None
    """Folder of a published zoo to read in place of zoos that are trained here: the Small CNN Zoo's weights.npy,
    metrics.csv and layout.csv, or *.pt of the asymmetric networks'."""
    networks: int | None = None
    """Trainings of each zoo."""
    zoo_epochs: int | None = None
    """Epochs of each of them; of resnet8 they are drawn, 10 to 40."""
    train_size: int | None = None
    """Networks are trained on so many images, drawn evenly from the classes, of which each has its drawn share."""
    widths: tuple[float, ...] = (1.0,)
    """Width multipliers of the networks in turn; small-cnn."""
    depths: tuple[int, ...] = ()
    """Convolutions of the networks in turn; small-cnn has 3."""
    activations: tuple[str, ...] = ("relu",)
    """Activations of the networks in turn: relu tanh gelu silu, relu-tanh for both inside one network."""
    checkpoints: tuple[int, ...] = ()
    """Epochs after which each network is kept too; checkpoints of one training stay in one split; small-cnn."""
    one_seed: bool = False
    """One seed for all networks of a zoo, as in the Small CNN Zoo."""
    kappa: float | None = None
    """Standard deviation of the fixed weights; None is the architecture's table."""
    readers: tuple[str, ...] | None = None
    """Readers: stats stats-boost hyper-boost flat dmc deepsets nfn-np nfn-hnp gmn gmn-b scale-gmn scale-gmn-b, and
    stats-boost-lightgbm stats-boost-xgboost (the extra `boost`), each with +gauge, +augment, +shuffle; graph readers
    with +canonicalise, +receiver, +no-edges, +no-skips, and scale-gmn-b with +reciprocal, +pinv, +shipped."""
    reader_width: int | None = None
    """Channels of scale-gmn."""
    epochs: int | None = None
    """Passes of a reader over all training networks."""
    batch_size: int = 64
    """Networks a step."""
    lr: float | None = None
    """One learning rate for readers that are trained by gradients, instead of tuning."""
    lrs: tuple[float, ...] | None = None
    """Rates that are tried for each reader that is trained by gradients."""
    repeats: int | None = None
    """Trainings of each reader."""
    sizes: tuple[int, ...] | None = None
    """Fewer training networks, for learning curves."""
    target: str = "logit"
    """What readers learn: logit or plain accuracies, in standard units."""
    skip: tuple[str, ...] = ()
    """Parts to leave out: curve matched cost."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("variants", self.variants, VARIANTS)
        check_names("activations", self.activations, ACTIVATIONS)
        check_choice("target", self.target, ("logit", "plain"))
        if self.skip:
            check_names("skip", self.skip, ("curve", "matched", "cost"))
        if self.readers is not None:
            check_names("readers", ["+".join(sorted(reader.split("+"))) for reader in self.readers], None)
            for reader in self.readers:
                check_reader(reader)
                signs = any("tanh" in activation for activation in self.activations)
                if "+canonicalise" in reader and not signs and self.files is None:
                    raise InputError(f"--readers: {reader} is another form for signs; add tanh to --activations")
                if self.arch != "small-cnn" and set(reader.split("+")) & set(BACKWARD):
                    raise InputError(f"--readers: {reader} reads chains of layers, {self.arch} is none")
        for flag, least in (("networks", 20), ("zoo_epochs", 1), ("reader_width", 1), ("epochs", 1), ("repeats", 1)):
            check_least(flag.replace("_", "-"), getattr(self, flag), least)
        check_least("batch-size", self.batch_size, 1)
        check_least("train-size", self.train_size, 10)
        check_values("widths", self.widths)
        for depth in self.depths:
            check_least("depths", depth, 1)
        check_once("depths", self.depths)
        if self.arch != "small-cnn" and self.checkpoints:
            raise InputError(f"--checkpoints: {self.arch} is trained at rates that change, only small-cnn has some")
        if self.arch != "small-cnn" and (self.depths or self.widths != (1.0,)):
            raise InputError(f"--widths and --depths: {self.arch} has one shape, only small-cnn has others")
        check_least("kappa", self.kappa, 0)
        check_positive("lr", self.lr)
        check_values("lrs", self.lrs)
        for epochs in self.checkpoints:
            check_least("checkpoints", epochs, 1)
        if len(set(self.checkpoints)) < len(self.checkpoints):
            raise InputError(f"--checkpoints: named twice in {' '.join(map(str, self.checkpoints))}")
        for size in self.sizes or ():
            check_least("sizes", size, 2)
        check_once("sizes", self.sizes)
        if self.lr is not None and self.lrs is not None:
            raise InputError("--lr and --lrs: give one of them, a fixed rate or rates to tune over")
        if self.kappa is not None and not {"w", "w-init"} & set(self.variants):
            raise InputError("--kappa: has no meaning without w or w-init among --variants")


def check_reader(text: str) -> None:
    """Raise an `InputError` unless this is a reader's name, with add-ons that it can have."""
    name, *addons = text.split("+")
    check_choice("readers", name, METANETS)
    for addon in addons:
        if addon not in (*ADDONS, *FORMS):
            valid = ", ".join((*ADDONS, *FORMS))
            raise InputError(f"--readers: {text} has the unknown add-on {addon!r}; valid: {valid}")
        if addon in FORMS and addon not in forms_of(name):
            valid = ", ".join((*ADDONS, *forms_of(name)))
            raise InputError(f"--readers: {name} has no form {addon}; it takes {valid}")
    if len(set(addons)) < len(addons):
        raise InputError(f"--readers: an add-on twice in {text}")
    if len(set(addons) & set(BACKWARD)) > 1:
        raise InputError(f"--readers: {text} has two forms of backward messages")
    if addons and name == "hyper-boost":
        raise InputError(f"--readers: {text} reads no weights, to which add-ons would be done")
    if "boost" in name and {"augment", "shuffle"} & set(addons):
        raise InputError(f"--readers: {text} is fitted once, only +gauge has a meaning")


def forms_of(name: str) -> tuple[str, ...]:
    """Other forms that a reader has, by its name without add-ons."""
    if "gmn" not in name:
        return ()
    own = ("canonicalise", "receiver") if name.startswith("scale") else ()
    return (*own, "no-edges", "no-skips", *(BACKWARD if name == "scale-gmn-b" else ()))


def moves_networks(reader: str) -> bool:
    """Whether a reader's add-ons change networks in ways that masks do not allow."""
    return bool(set(reader.split("+")) & set(ADDONS))


ROOMS = Rooms("metanet_setup", "metanet_work", plan="metanet_estimate", text="metanet_tables")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of `metanet.csv` that belong to `config`."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("metanet", __doc__, Config, ROOMS, args=args)


__all__ = ["ROOMS", "Config", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
