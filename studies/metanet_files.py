"""A published zoo in place of zoos that are trained here: from files to a run of the store, read like any other zoo.

    Small CNN Zoo          weights.npy, metrics.csv.gz (or .csv), layout.csv; the checkpoints of its last step
    asymmetric networks    files *.pt, each a state dict and a test accuracy in percent

Networks are split by run like those of this project's zoos, not as published, so that all readers and zoos follow one
protocol (`asym.data.load_small_cnn_zoo` gives the published split). Ceilings of label noise assume the 10,000 test
images of MNIST, Fashion-MNIST and CIFAR-10 (SVHN has 26,032, so that its ceilings come out a little low).
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from asym.data.zoo_files import load_asymmetric_zoo, load_small_cnn_zoo, metrics_file
from asym.data.zoos import NetworkZoo, split_runs
from asym.files import sha256_files, stamps
from asym.metanets.blind import FEWEST
from asym.metanets.zoo_stack import FOREIGN
from asym.models import get_arch
from asym.names import METANETS
from asym.populations import cached
from asym.populations.zoo_nets import HYPER, ZOO
from asym.store import Store, config_hash
from studies.checks import InputError
from studies.metanet import BLIND, Config
from studies.metanet_read import TEST_SHARE, VAL_SHARE

VERSION = 2
"""Raised by hand whenever the same files would give another zoo."""
TEST_IMAGES = 10_000
OURS = {"learning_rate": "lr", "l2reg": "weight_decay"}
"""Names of published hyper-parameters → ours."""
TRAINED_ONLY = ("networks", "zoo_epochs", "dataset", "data_dir", "download", "kappa", "train_size")
"""Flags of zoos that are trained here."""
ENOUGH = 12
"""Trainings of which every split gets at least two, as ranks need."""


def zoo_config(folder: Path) -> dict[str, Any]:
    """What names the run of a folder of files: their names and contents."""
    return {"version": VERSION, "files": [list(pair) for pair in _contents(stamps(folder))]}


@functools.lru_cache(maxsize=4)
def _contents(files: tuple[tuple[Path, int, int], ...]) -> list[tuple[str, str]]:
    return sha256_files(file for file, _, _ in files)


def open_files(folder: Path) -> NetworkZoo:
    """The zoo of a folder, read again if a file of it has changed.

    Raises:
        FileNotFoundError, ValueError: as the loaders of `asym.data`.
    """
    return _zoo_of(folder, stamps(folder))


@functools.lru_cache(maxsize=1)
def _zoo_of(folder: Path, files: tuple[tuple[Path, int, int], ...]) -> NetworkZoo:
    if (folder / "weights.npy").is_file():
        zoo, _ = load_small_cnn_zoo(folder)
        table = zoo.table.rename(columns=OURS)
    else:
        zoo = load_asymmetric_zoo(folder)
        table = zoo.table
    kept = [name for name in ("run", "test_acc", "train_acc", "activation", *HYPER) if name in table]
    about = {"arch": FOREIGN, "classes": 10, "test_images": TEST_IMAGES, **zoo.about}
    return dataclasses.replace(zoo, table=table[kept].reset_index(drop=True), about=about)


def keep(runs: str, folder: Path) -> None:
    """Put the zoo into the store."""

    def build() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        zoo = open_files(folder)
        state = {"dropped": zoo.about.get("dropped", 0), "about": dict(zoo.about)}
        return dict(zoo.tensors), {"networks": zoo.table}, state

    cached(Store(runs), ZOO, zoo_config(folder), build)


def check(config: Config) -> None:
    """Raise an `InputError` for flags that say how to train zoos, which come from files here."""
    fields = type(config).__dataclass_fields__
    for flag in (*TRAINED_ONLY, "arch", "variants", "activations", "checkpoints", "one_seed", "widths", "depths"):
        if flag in fields and getattr(config, flag) != fields[flag].default:
            raise InputError(f"--{flag.replace('_', '-')}: has no meaning with --files")
    assert config.files is not None
    if not config.files.is_dir():
        raise InputError(f"--files: {config.files} is not a folder")


def _opened(folder: Path) -> NetworkZoo:
    """The zoo; what is wrong with its files is bad input that names the folder."""
    try:
        zoo = open_files(folder)
        if not len(zoo):
            raise ValueError("no network with finite weights")
        _check_activations(folder, zoo)
        return zoo
    except (KeyError, IndexError, ValueError, OSError) as error:
        reason = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        raise InputError(f"--files: {folder}: {reason}") from error


def _check_activations(folder: Path, zoo: NetworkZoo) -> None:
    arch, table = zoo.about["arch"], zoo.table
    if arch == FOREIGN or "activation" not in table:
        return
    valid = get_arch(arch).activations
    for name in table["activation"]:
        if name not in valid:
            where = metrics_file(folder).name
            raise ValueError(f"zoo: {where}: config.activation is {str(name)!r}; valid: {', '.join(valid)}")


def _check_split(config: Config, zoo: NetworkZoo) -> None:
    runs = zoo.table["run"]
    try:
        parts = split_runs(runs.to_numpy(), val=VAL_SHARE, test=TEST_SHARE, seed=config.seed)
        smallest = min(len(places) for places in parts.values())
    except ValueError:
        smallest = 0
    if smallest < 2:
        each = "files" if zoo.about["arch"] == FOREIGN else "values of modeldir"
        raise InputError(
            f"--files: {config.files} has {len(zoo)} networks of {runs.nunique()} trainings ({each}), too few to split "
            f"into training, validation and test networks; {ENOUGH} trainings are enough"
        )


def facts(config: Config, readers: tuple[str, ...]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """Hash of the zoo's run, the readers that can read it, and its columns in tables.

    Raises:
        InputError: for files that are no zoo, or too small a one, and for a reader, named by the user, that cannot
            read it.
    """
    assert config.files is not None
    zoo = _opened(config.files)
    known = [name for name in HYPER if name in zoo.table]
    chains = zoo.about["arch"] != FOREIGN
    able = tuple(r for r in readers if (chains or r in BLIND) and (known or not r.startswith("hyper")))
    if config.readers is not None and able != readers:
        unable = next(r for r in readers if r not in able)
        valid = ", ".join(r for r in (METANETS if chains else BLIND) if known or not r.startswith("hyper"))
        raise InputError(f"--readers: {unable} cannot read {config.files}; valid there: {valid}")
    _check_split(config, zoo)
    weights = sum(t[0].numel() for t in zoo.tensors.values())
    if weights < FEWEST and any(r.startswith("dmc") for r in able):
        if config.readers is not None:
            raise InputError(f"--readers: dmc needs networks of {FEWEST} weights or more, {config.files} has {weights}")
        able = tuple(r for r in able if not r.startswith("dmc"))
    activations = sorted(set(zoo.table["activation"])) if "activation" in zoo.table else ["own"]
    columns = {
        "study": "metanet", "preset": config.preset, "arch": zoo.about["arch"],
        "dataset": config.dataset_name or config.files.resolve().name, "variant": "files",
        "activations": " ".join(activations), "shapes": "published", "networks": len(zoo),
        "network_epochs": "published",
        "network_params": weights, "kappa": "", "checkpoints": "",
        "one_seed": False, "seed": config.seed, "train_images": 0, "test_images": TEST_IMAGES,
    }  # fmt: skip
    return config_hash(zoo_config(config.files)), able, columns
