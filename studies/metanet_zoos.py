"""Planning the zoos of the accuracy-prediction study: which networks, of which shapes, and who can read them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from asym.data import ImageData
from asym.metanets.blind import FEWEST
from asym.models import get_arch
from asym.names import METANETS
from asym.nn import Variant
from asym.populations import Architecture, Plan, Population
from asym.populations.population import equal_width
from asym.populations.zoo_nets import ZooPlan
from asym.store import config_hash
from studies.checks import InputError
from studies.metanet import Config, moves_networks
from studies.metanet_read import mixes


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Values that a preset gives to the flags that were left out."""

    dataset: str
    zoo: str
    networks: int
    zoo_epochs: int
    zoo_batch: int
    readers: tuple[str, ...]
    width: int
    small: bool
    epochs: int
    lrs: tuple[float, ...]
    tree_lrs: tuple[float, ...]
    repeats: int
    sizes: tuple[int, ...]
    tuning: float = 1.0
    """Length of the trainings that choose a rate, as a share of `epochs`; the same for all readers."""
    memory: bool = True
    """Whether peak memory is measured, in a process for each reader."""
    fixed: tuple[tuple[str, Any], ...] = ()
    """Hyper-parameters of networks that are not drawn."""


@dataclasses.dataclass(frozen=True)
class Family:
    """One zoo and what reads it."""

    variant: str
    plans: tuple[ZooPlan, ...]
    """One for each architecture; none for files."""
    chunks: tuple[tuple[Population, Plan], ...]
    zoo: str
    """Hash of its run, or of its runs."""
    readers: tuple[str, ...]
    columns: dict[str, Any]


def family_of(config: Config, variant: str, defaults: Defaults, data: ImageData, device: str) -> Family:
    """The zoo of a variant, and what reads it.

    Raises:
        InputError: for numbers of networks and readers that do not fit.
    """
    architectures = [_architecture(config, variant, data, width, depth) for width, depth in shapes_of(config)]
    own = config.arch == "small-cnn"
    fixed = {"batch_size": defaults.zoo_batch, **(dict(defaults.fixed) if own else {})}
    if own or config.zoo_epochs is not None:
        fixed["epochs"] = defaults.zoo_epochs
    for checkpoint in config.checkpoints:
        if "epochs" in fixed and checkpoint >= fixed["epochs"]:
            most = fixed["epochs"]
            raise InputError(f"--checkpoints: got {checkpoint}, must be below the {most} epochs of a training")
    if defaults.networks < len(architectures):
        least = len(architectures)
        raise InputError(f"--networks: got {defaults.networks}, must be at least {least}, as many as shapes")
    plans = tuple(
        ZooPlan(
            defaults.zoo if own else config.arch,
            architecture,
            defaults.networks,
            config.seed,
            data.fingerprint,
            tuple(sorted(fixed.items())),
            activations=config.activations,
            checkpoints=config.checkpoints,
            one_seed=config.one_seed,
            part=(i, len(architectures)),
        )
        for i, architecture in enumerate(architectures)
    )
    chunks = tuple(chunk for plan in plans for chunk in plan.chunks(device))
    readers = _able(config, defaults.readers, len(architectures))
    smallest = min(a.trainable for a in architectures)
    if smallest < FEWEST and any(reader.startswith("dmc") for reader in readers):
        raise InputError(f"--readers: dmc needs networks of at least {FEWEST} weights, {variant} trains {smallest}")
    if architectures[0].variant.masked:
        readers = tuple(reader for reader in readers if not moves_networks(reader))
        if not readers:
            raise InputError(
                f"--readers: {' '.join(defaults.readers)} move networks along symmetries, which zoos with masks do not "
                f"have; for {variant} take readers without +gauge, +augment and +shuffle"
            )
    columns = {
        "study": "metanet",
        "preset": config.preset,
        "arch": config.arch,
        "dataset": data.name,
        "variant": variant,
        "activations": " ".join(config.activations),
        "shapes": _shape_text(config),
        "networks": defaults.networks,
        "network_epochs": str(fixed.get("epochs", "drawn")),
        "network_params": round(sum(a.trainable for a in architectures) / len(architectures)),
        "kappa": "" if not architectures[0].variant.plans else "table" if config.kappa is None else f"{config.kappa:g}",
        "checkpoints": " ".join(map(str, config.checkpoints)),
        "one_seed": config.one_seed,
        "seed": config.seed,
        "train_images": len(data.train.labels),
        "test_images": len(data.test.labels),
    }
    zoo = "+".join(config_hash(plan.config(device)) for plan in plans)
    return Family(variant, plans, chunks, zoo, readers, columns)


def shapes_of(config: Config) -> list[tuple[float, int | None]]:
    """Width and depth of each architecture of a zoo; a depth of None is the published one."""
    usual = get_arch(config.arch).depth
    depths = [None if depth == usual else depth for depth in config.depths or (usual,)]
    return list(itertools.product(config.widths, depths))


def _shape_text(config: Config) -> str:
    """What differs from the published network."""
    widths = "" if config.widths == (1.0,) else f"width {' '.join(f'{width:g}' for width in config.widths)}"
    usual = config.depths in ((), (get_arch(config.arch).depth,))
    depths = "" if usual else f"depth {' '.join(map(str, config.depths))}"
    return ", ".join(filter(None, (widths, depths))) or "published"


def _able(config: Config, readers: tuple[str, ...], shapes: int) -> tuple[str, ...]:
    """The readers that can read networks of so many architectures together."""
    if config.arch != "small-cnn" and config.readers is None:
        readers = tuple(reader for reader in readers if "+" not in reader)
    able = tuple(reader for reader in readers if shapes == 1 or mixes(reader))
    if config.readers is not None and able != readers:
        unable = next(reader for reader in readers if reader not in able)
        valid = ", ".join(name for name in METANETS if mixes(name))
        raise InputError(f"--readers: {unable} reads networks of one shape, here are {shapes}; valid: {valid}")
    return able


def _architecture(config: Config, variant: str, data: ImageData, width: float, depth: int | None) -> Architecture:
    masked = Architecture(
        config.arch, data.input_shape, data.classes, width, variant=Variant("w", kappa=config.kappa), depth=depth
    )
    plain = dataclasses.replace(masked, variant=Variant())
    if variant == "smaller":
        return dataclasses.replace(plain, width=equal_width(plain, masked.trainable))
    kappa = config.kappa if variant == "w-init" else None
    other = dataclasses.replace(plain, variant=Variant(variant, kappa=kappa))
    return {"standard": plain, "w": masked}.get(variant, other)


__all__ = ["Defaults", "Family", "family_of", "shapes_of"]
