"""Accuracy prediction for transformers: does a reader that respects the symmetries of attention read more off weights?

A zoo of small transformers is trained with hyper-parameters from the published grid, once with one seed for all, as
published, and once with a seed for each. Readers learn to predict test accuracies: Transformer-NFN (Tran et al. 2025,
arXiv 2410.04209) as published, of low rank, aware of single heads, or with less to read; perceptrons, trees and a
forest; hyper-parameters alone, a control.

    python -m studies.transformer_metanet
    python -m studies.transformer_metanet --networks 1500 --thresholds 0 0.2 0.4 0.6 0.8 --repeats 5

`--dataset docstrings`, `--dataset ag_news --data-dir FOLDER`: zoos on text; `--dataset characters --arch
transformer-causal`: of language models; `--arch transformer`: of ordinary encoders, read after their norms are taken
into the matrices that read them, under the group that residual connections leave.

`reader+canonical` reads one representative of each orbit. Parts: `random` and `held-out` splits (test networks have
learning rates that no training network has); `augmented`: each network also as a random image under the published
group, entries of M and N uniform on [−s, s], in training and test; `moves`: test networks after each symmetry alone;
`heads`: networks whose query-key and value-output pairs belong together, against the same with the pairs of heads
exchanged. All readers are trained by one protocol (`asym.metanets.fitting`) at one rate for each kind; accuracies below
a threshold are left out before networks are split.

From a notebook: `from studies import transformer_metanet as t; rows = t.run(t.Config())`.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asym.names import TRANSFORMER_METANETS
from studies.checks import InputError, check_choice, check_least, check_once, check_positive, check_values
from studies.cli import CommonConfig, run_study
from studies.flags import check_names
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd

TABLES = {
    "transformer_metanet": ("config", "repeat"),
    "transformer_metanet_summary": ("config",),
    "transformer_metanet_differences": ("config", "other_config"),
    "transformer_metanet_moves": ("config", "move"),
    "transformer_metanet_heads": ("config", "repeat"),
    "transformer_metanet_zoos": ("zoo",),
}
"""Tables of the study, and what makes a row of each unique."""
ZOOS = ("one-seed", "many-seeds")
ARCHS = ("transformer-plain", "transformer", "transformer-causal")
ORDINARY = "transformer"
"""The one with residual connections."""
SKIPS = ("held-out", "augmented", "moves", "heads")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CommonConfig):
    """Settings of the study; a value of None is set by the preset."""

    zoos: tuple[str, ...] = ZOOS
    """Zoos: one-seed many-seeds."""
    dataset: str | None = None
    """digits, fashion_mnist, mnist, cifar10, cifar100, imagefolder:PATH, the texts docstrings and ag_news, characters
    for language models, or `package.module:loader`."""
    arch: str = "transformer-plain"
    """Transformers: transformer-plain as published; transformer, the ordinary one with residual connections, biases and
    norms with scale and shift; transformer-causal, a language model (--dataset characters)."""
    networks: int | None = None
    """Trainings of each zoo."""
    zoo_epochs: int | None = None
    """Epochs of each of them."""
    dim: int | None = None
    """D, an even number."""
    files: Path | None = None
    """Folder of published files `<run>_<epoch>_<acc>.pt` to read in place of zoos that are trained here."""
    heads: int | None = None
    """Heads of the transformers in --files, 2 by default."""
    readers: tuple[str, ...] | None = None
    """Readers: nfn nfn-low nfn-heads nfn-residual nfn-encoder nfn-embedding nfn-classifier units flat stats stats-boost
    boost forest deepsets hyper-boost, xgboost lightgbm lightgbm-forest (as published; the extra `boost`), each with
    +canonical."""
    thresholds: tuple[float, ...] | None = None
    """Networks below this accuracy are left out; several, one after the other."""
    spreads: tuple[float, ...] | None = None
    """Ranges s of the augmentation."""
    epochs: int | None = None
    """Passes of a reader over all training networks."""
    batch_size: int = 16
    """Networks a step."""
    lr: float = 1e-3
    """Learning rate of readers that are trained by gradients."""
    repeats: int | None = None
    """Trainings of each reader."""
    skip: tuple[str, ...] = ()
    """Parts to leave out: held-out augmented moves heads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("zoos", self.zoos, ZOOS)
        check_choice("arch", self.arch, ARCHS)
        if self.skip:
            check_names("skip", self.skip, SKIPS)
        if self.readers is not None:
            check_names("readers", self.readers, None)
            for reader in self.readers:
                name, plus, addon = reader.partition("+")
                check_choice("readers", name, TRANSFORMER_METANETS)
                if plus and addon != "canonical":
                    raise InputError(f"--readers: {reader!r} has the add-on {addon!r}; valid: canonical")
                if plus and name.startswith("hyper"):
                    raise InputError(f"--readers: {reader} reads no weights, of which one of each orbit would be taken")
                if plus and self.arch == ORDINARY:
                    raise InputError(f"--readers: {reader!r}: one of each orbit is not known for --arch {ORDINARY}")
        for flag, least in (("networks", 20), ("zoo_epochs", 1), ("epochs", 1), ("repeats", 1), ("batch_size", 1)):
            check_least(flag.replace("_", "-"), getattr(self, flag), least)
        check_least("heads", self.heads, 1)
        if self.heads is not None and self.files is None:
            raise InputError("--heads: has no meaning without --files")
        if self.dim is not None and (self.dim < 2 or self.dim % 2):
            raise InputError(f"--dim: got {self.dim}, must be an even number of at least 2: there are two heads")
        check_positive("lr", self.lr)
        for threshold in self.thresholds or ():
            if not 0 <= threshold < 1:
                raise InputError(f"--thresholds: got {threshold}, must be fractions of at least 0 and below 1")
        check_once("thresholds", self.thresholds)
        if self.thresholds == ():
            raise InputError("--thresholds: got none, give one or more")
        check_values("spreads", self.spreads)
        if self.spreads is not None and "augmented" in self.skip:
            raise InputError("--spreads: has no meaning with augmented in --skip")


ROOMS = Rooms("transformer_metanet_setup", "transformer_metanet_work")


def run(config: Config) -> pd.DataFrame:
    """Run the study; returns the rows of `transformer_metanet.csv` that belong to `config`."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("transformer_metanet", __doc__, Config, ROOMS, args=args)


__all__ = ["ROOMS", "Config", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
