"""Planning the accuracy-prediction study: every check that can be made before work starts, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from asym.metanets import Protocol
from asym.populations.runs import KIND as POPULATION
from asym.populations.runs import run_config
from asym.populations.zoo_nets import LABELS, ZOO, labels_config
from asym.store import config_hash
from studies import metanet_files
from studies.checks import InputError
from studies.metanet import TABLES, Config, moves_networks
from studies.metanet_read import KIND, TEST_SHARE, VAL_SHARE, Reading, reader_seed
from studies.metanet_zoos import Defaults, Family, family_of
from studies.readings import check_installed
from studies.setup import DataArgs, check_places, check_stored, resolve_device

TUNING = "tuning"
PIECE, RESIDUAL_PIECE = 64, 8
"""Networks that a reader holds in memory together, small CNNs and residual ones; with batch norm it is the batch."""


MAIN = ("stats", "stats-boost", "hyper-boost", "flat", "deepsets", "gmn", "scale-gmn")
PRESETS = {
    "smoke": Defaults(
        "digits", "small-cnn-digits", 40, 2, 64, ("stats", "hyper-boost", "gmn", "gmn+gauge", "scale-gmn"), 4, True, 2,
        (2e-3,), (0.1,), 1, (10,), memory=False, fixed=(("optimizer", "adam"),),
    ),
    "laptop": Defaults(
        "digits", "small-cnn-digits", 2_000, 20, 64, (*MAIN, "gmn+gauge", "gmn+augment"), 16, True, 24,
        (1e-3, 4e-3, 1.6e-2), (0.02, 0.05, 0.15), 3, (250, 500), tuning=0.5,
    ),
    "paper": Defaults(
        "cifar10", "small-cnn", 10_000, 86, 512,
        (
            *MAIN, "dmc", "nfn-np", "nfn-hnp", "gmn-b", "scale-gmn-b", "gmn+gauge", "gmn+augment", "gmn+shuffle",
            "stats+gauge", "stats-boost+gauge", "flat+gauge", "nfn-hnp+augment",
        ),
        64, False, 100, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (0.01, 0.02, 0.05, 0.1, 0.2), 5, (250, 500, 1_000, 2_000),
    ),
}  # fmt: skip
"""Digits: batches of 64 and momentum, so that a network learns in 20 epochs of at most 1,097 images."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A planned study."""

    families: tuple[Family, ...]
    defaults: Defaults
    """The preset's values with the flags in their place."""
    data: DataArgs
    device: str


@dataclasses.dataclass(frozen=True)
class Item:
    """A group of readings that differ in their seed alone: one row of the summary."""

    family: Family
    reader: str
    part: str
    """whole, curve or matched."""
    train: int | None
    matched: tuple[str, str] | None


def prepare(config: Config) -> Prepared:
    """The study of a config.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    device = resolve_device(config)
    check_places(config, TABLES)
    preset = PRESETS[config.preset]
    names = ("networks", "zoo_epochs", "readers", "epochs", "repeats", "sizes", "lrs")
    given: dict[str, Any] = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    if config.reader_width is not None:
        given["width"] = config.reader_width
    if config.lr is not None:
        given["lrs"] = (config.lr,)
    defaults = dataclasses.replace(preset, **given)
    check_installed(defaults.readers)
    data_args = DataArgs.of(config, defaults.dataset, config.train_size)
    if config.files is not None:
        metanet_files.check(config)
        zoo, readers, columns = metanet_files.facts(config, defaults.readers)
        defaults = dataclasses.replace(defaults, networks=columns["networks"])
        _check_sizes(config, defaults)
        prepared = Prepared((Family("files", (), (), zoo, readers, columns),), defaults, data_args, device)
        check_stored(config, [*stored(config, prepared), (ZOO, metanet_files.zoo_config(config.files))])
        return prepared
    _check_sizes(config, defaults)
    data = data_args.load()
    if data.domain != "images":
        raise InputError(f"--dataset: {data.name} has no images; zoos are of networks on images")
    families = tuple(family_of(config, variant, defaults, data, device) for variant in config.variants)
    prepared = Prepared(families, defaults, data_args, device)
    check_stored(config, stored(config, prepared))
    return prepared


def _check_sizes(config: Config, defaults: Defaults) -> None:
    train = round((1 - VAL_SHARE - TEST_SHARE) * defaults.networks)
    for size in defaults.sizes:
        if size >= train:
            if config.sizes is None and (config.networks is not None or config.files is not None):
                continue  # the preset's curve, of which what is left is drawn
            raise InputError(f"--sizes: got {size}, of {defaults.networks} networks only {train} are for training")


def curve_sizes(defaults: Defaults) -> tuple[int, ...]:
    """Sizes of learning curves that the zoos allow."""
    train = round((1 - VAL_SHARE - TEST_SHARE) * defaults.networks)
    return tuple(size for size in defaults.sizes if size < train)


def items(config: Config, prepared: Prepared) -> list[Item]:
    """All groups of readings, in the order of variants, readers and parts."""
    found = []
    first, *others = prepared.families
    sizes = () if "curve" in config.skip else curve_sizes(prepared.defaults)
    for family in prepared.families:
        partner = first.zoo if family is not first else others[0].zoo if others else None
        pair = None if partner is None else (first.zoo, family.zoo if family is not first else others[0].zoo)
        for reader in family.readers:
            found.append(Item(family, reader, "whole", None, None))
            found += [Item(family, reader, "curve", size, None) for size in sizes] if family is first else []
            if pair is not None and "matched" not in config.skip and not moves_networks(reader):
                found.append(Item(family, reader, "matched", None, pair))
    return found


def reading(config: Config, prepared: Prepared, item: Item, lr: float, repeat: int | str) -> Reading:
    """One reading of a group."""
    defaults = prepared.defaults
    whole = round((1 - VAL_SHARE - TEST_SHARE) * defaults.networks)
    # Fewer networks are read more often, up to half of the steps of a whole training.
    often = 1.0 if item.train is None else max(1.0, 0.5 * whole / item.train)
    epochs = round(often * defaults.epochs * (defaults.tuning if repeat == TUNING else 1.0))
    most = PIECE if config.arch == "small-cnn" else RESIDUAL_PIECE
    protocol = Protocol(
        epochs=max(1, epochs), lr=lr, batch=config.batch_size, checks=min(12, defaults.epochs),
        piece=config.batch_size if item.reader.startswith("dmc") else min(most, config.batch_size),
    )  # fmt: skip
    return Reading(
        item.family.zoo, item.reader, defaults.width, defaults.small, protocol, item.train, item.matched, config.target,
        config.seed, reader_seed(config.seed, repeat), str(config.runs), prepared.device,
    )  # fmt: skip


def rates(prepared: Prepared, reader: str) -> tuple[float, ...]:
    """Rates that are tried for a reader: of the optimiser, or of each tree."""
    return prepared.defaults.tree_lrs if "boost" in reader else prepared.defaults.lrs


def item_config(config: Config, prepared: Prepared, item: Item) -> str:
    """Hash of what determines a group: its readings without their seeds, the rates that were tried and how long."""
    tried = rates(prepared, item.reader)
    some = reading(config, prepared, item, tried[0], 0).config
    how: dict[str, Any] = {"seed": config.seed, "rates": list(tried)}
    if len(tried) > 1:
        how["tuning_epochs"] = reading(config, prepared, item, tried[0], TUNING).protocol.epochs
    return config_hash(some | how)


def stored(config: Config, prepared: Prepared) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and config of every run of the store that the study may read or write, existing or not."""
    for family in prepared.families:
        for chunk, plan in family.chunks:
            yield POPULATION, run_config(chunk, plan)
            yield LABELS, labels_config(chunk, plan)
        for zoo in family.plans:
            yield ZOO, zoo.config(prepared.device)
    for item in items(config, prepared):
        for lr in rates(prepared, item.reader):
            repeats: list[int | str] = [*range(prepared.defaults.repeats), TUNING]
            for repeat in repeats if item.part == "whole" else repeats[:-1]:
                yield KIND, reading(config, prepared, item, lr, repeat).config


__all__ = ["PRESETS", "Family", "Item", "Prepared", "item_config", "items", "prepare", "rates", "reading"]
