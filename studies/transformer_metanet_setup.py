"""Planning the study of readers of transformers: every check that can be made before work starts, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from asym.data import ImageData
from asym.metanets import Protocol
from asym.populations import Architecture, Plan, Population
from asym.populations.runs import KIND as POPULATION
from asym.populations.runs import run_config
from asym.populations.zoo_nets import LABELS, ZOO, ZooPlan, labels_config
from asym.seeds import derived_seed
from asym.store import config_hash
from studies.checks import InputError
from studies.readings import check_installed
from studies.setup import DataArgs, check_places, check_stored, resolve_device
from studies.transformer_metanet import ORDINARY, TABLES, Config
from studies.transformer_metanet_read import KIND, Reading, files_fingerprint, open_files, open_zoo, splits_of

PUBLISHED_WIDTH = 32
"""D of the architecture at width 1."""
HEADS = 2
"""Of the published transformers."""


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Values that a preset gives to the flags that were left out."""

    dataset: str
    zoo: str
    networks: int
    zoo_epochs: int
    zoo_batch: int
    dim: int
    readers: tuple[str, ...]
    thresholds: tuple[float, ...]
    spreads: tuple[float, ...]
    epochs: int
    repeats: int


MAIN = ("nfn", "nfn-low", "nfn-heads", "units", "flat", "stats", "stats-boost", "boost", "forest", "hyper-boost")
ABLATION = ("nfn-encoder", "nfn-embedding", "nfn-classifier")
PUBLISHED_TREES = ("xgboost", "lightgbm", "lightgbm-forest")
CANONICAL = ("flat+canonical", "stats-boost+canonical")
PRESETS = {
    "smoke": Defaults(
        "digits", "transformer-digits", 40, 1, 64, 4, ("nfn", "nfn-heads", "stats", "hyper-boost", "flat+canonical"),
        (0.0,), (1.0,), 2, 1,
    ),
    "laptop": Defaults(
        "digits", "transformer-digits", 600, 15, 64, 16, (*MAIN, *ABLATION, *CANONICAL), (0.0, 0.6), (1.0,), 30, 3,
    ),
    "paper": Defaults(
        "mnist", "transformer", 16_000, 75, 128, 32, (*MAIN, *ABLATION, *CANONICAL, "deepsets", *PUBLISHED_TREES),
        (0.0, 0.2, 0.4, 0.6, 0.8), (1.0, 10.0, 100.0), 100, 5,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Family:
    """One zoo."""

    kind: str
    """one-seed, many-seeds or files."""
    zoo: str
    """Hash of its run, or of its files."""
    plans: tuple[ZooPlan, ...]
    chunks: tuple[tuple[Population, Plan], ...]
    columns: dict[str, Any]


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
    threshold: float
    part: str
    """random, held-out, augmented or heads."""
    spread: float | None = None


def prepare(config: Config) -> Prepared:
    """The study of a config.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    device = resolve_device(config)
    check_places(config, TABLES)
    names = ("networks", "zoo_epochs", "dim", "readers", "thresholds", "spreads", "epochs", "repeats")
    given: dict[str, Any] = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    defaults = dataclasses.replace(PRESETS[config.preset], **given)
    check_installed(defaults.readers)
    if config.files is not None:
        _check_meaning(config)
        if any(reader.startswith("hyper") for reader in defaults.readers):
            if config.readers is not None:
                raise InputError("--readers: hyper-boost reads hyper-parameters, which --files do not have")
            kept = tuple(reader for reader in defaults.readers if not reader.startswith("hyper"))
            defaults = dataclasses.replace(defaults, readers=kept)
        prepared = Prepared((_files(config),), defaults, DataArgs.of(config, defaults.dataset), device)
        check_splits(config, prepared)
        return prepared
    if config.arch == ORDINARY:
        kept = tuple(reader for reader in defaults.readers if "+" not in reader)
        defaults = dataclasses.replace(defaults, readers=kept)
    data_args = DataArgs.of(config, defaults.dataset)
    data = data_args.load()
    if data.domain != "images":
        raise InputError(f"--dataset: {data.name} has no images; zoos are of transformers on images")
    families = tuple(_family(config, kind, defaults, data, device) for kind in config.zoos)
    prepared = Prepared(families, defaults, data_args, device)
    check_stored(config, stored(config, prepared))
    return prepared


TRAINED_ONLY = ("arch", "zoos", "networks", "zoo_epochs", "dim", "dataset", "data_dir", "download", "spreads")
"""Flags of zoos that are trained here, and of what is done to those alone."""


def _check_meaning(config: Config) -> None:
    fields = type(config).__dataclass_fields__
    for flag in TRAINED_ONLY:
        if getattr(config, flag) != fields[flag].default:
            raise InputError(f"--{flag.replace('_', '-')}: has no meaning with --files")


def check_splits(config: Config, prepared: Prepared) -> None:
    """Raise an `InputError` if a reading would get too few networks; zoos must be there."""
    for item in items(config, prepared):
        some = reading(config, prepared, item, 0)
        try:
            splits_of(some, open_zoo(some))
        except ValueError as error:
            raise InputError(str(error)) from error


def _files(config: Config) -> Family:
    try:
        name = files_fingerprint(str(config.files), config.heads or HEADS)
        zoo = open_files(str(config.files), config.heads or HEADS)
    except (ValueError, FileNotFoundError) as error:
        if str(error).startswith(("heads: ", "--files: ")):
            raise
        raise InputError(f"--files: {error}") from error
    columns = {"study": "transformer_metanet", "preset": config.preset, "arch": "published files",
               "dataset": config.dataset_name or zoo.zoo.about["dataset"], "kind": "files", "networks": len(zoo.zoo),
               "dim": zoo.encoder.size.dim, "network_epochs": 75, "seed": config.seed}  # fmt: skip
    return Family("files", name, (), (), columns)


def _family(config: Config, kind: str, defaults: Defaults, data: ImageData, device: str) -> Family:
    width = defaults.dim / PUBLISHED_WIDTH
    architecture = Architecture(config.arch, data.input_shape, data.classes, width)
    fixed: dict[str, Any] = {"epochs": defaults.zoo_epochs, "batch_size": defaults.zoo_batch}
    if config.preset == "smoke":  # networks that differ in these are not trained together
        fixed |= {"optimizer": "adam", "train_fraction": 1.0}
    plan = ZooPlan(
        defaults.zoo, architecture, defaults.networks, config.seed, data.fingerprint, tuple(sorted(fixed.items())),
        one_seed=kind == "one-seed",
    )  # fmt: skip
    columns = {
        "study": "transformer_metanet",
        "preset": config.preset,
        "arch": config.arch,
        "dataset": data.name,
        "kind": kind,
        "networks": defaults.networks,
        "dim": defaults.dim,
        "network_epochs": defaults.zoo_epochs,
        "network_params": architecture.trainable,
        "seed": config.seed,
    }
    return Family(kind, config_hash(plan.config(device)), (plan,), tuple(plan.chunks(device)), columns)


def items(config: Config, prepared: Prepared) -> list[Item]:
    """All groups of readings."""
    found = []
    for family in prepared.families:
        for place, threshold in enumerate(prepared.defaults.thresholds):
            for reader in prepared.defaults.readers:
                found.append(Item(family, reader, threshold, "random"))
                if place or family.kind == "files" or reader in ABLATION:
                    continue
                if "held-out" not in config.skip:
                    found.append(Item(family, reader, threshold, "held-out"))
                if "augmented" not in config.skip and not reader.startswith("hyper"):
                    spreads = prepared.defaults.spreads
                    found += [Item(family, reader, threshold, "augmented", spread) for spread in spreads]
        if "heads" not in config.skip:
            found += [Item(family, reader, 0.0, "heads") for reader in ("nfn-encoder", "nfn-heads")]
    return found


def reading(config: Config, prepared: Prepared, item: Item, repeat: int) -> Reading:
    """One reading of a group."""
    defaults = prepared.defaults
    protocol = Protocol(
        epochs=defaults.epochs, lr=config.lr, batch=config.batch_size, checks=min(10, defaults.epochs),
        piece=config.batch_size,
    )  # fmt: skip
    heads, moves = config.heads or HEADS, "moves" not in config.skip and item.part == "random"
    seed = derived_seed(config.seed, "transformer metanet", "reader", repeat)
    return Reading(
        item.family.zoo, None if config.files is None else str(config.files), heads, item.reader, protocol,
        item.threshold, item.part, item.spread, moves, config.seed, seed, str(config.runs), prepared.device,
    )  # fmt: skip


def item_config(config: Config, prepared: Prepared, item: Item) -> str:
    """Hash of what determines a group: its readings without their seeds."""
    some = reading(config, prepared, item, 0).config
    return config_hash({key: value for key, value in some.items() if key != "seed"})


def stored(config: Config, prepared: Prepared) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and config of every run of the store that the study may read or write, existing or not."""
    for family in prepared.families:
        for chunk, plan in family.chunks:
            yield POPULATION, run_config(chunk, plan)
            yield LABELS, labels_config(chunk, plan)
        for zoo in family.plans:
            yield ZOO, zoo.config(prepared.device)
    for item in items(config, prepared):
        for repeat in range(prepared.defaults.repeats):
            yield KIND, reading(config, prepared, item, repeat).config
