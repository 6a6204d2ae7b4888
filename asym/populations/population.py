"""A population: networks of one architecture that differ in seeds and hyper-parameters.

`Architecture` says how a network is built, `Member` what sets one network apart, `Population` joins them with the data
set's identity. All three are plain data: they can be hashed, written as JSON and sent to another process.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch import nn

from asym.models import build, count, plan
from asym.nn import Variant
from asym.populations.recipes import Recipe

RECIPE_VERSION = 1
"""Raised by hand whenever the same configuration would give other weights than before."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Everything that determines a network's function apart from its weights and its mask seed."""

    arch: str
    input_shape: tuple[int, ...]
    classes: int
    width: float = 1.0
    norm: str | None = None
    variant: Variant = dataclasses.field(default_factory=Variant)
    activation: str | None = None
    depth: int | None = None

    def build(self, seed: int, mask_seed: int = 0) -> nn.Module:
        """The network with the initial weights of `seed` and the masks and fixed values of `mask_seed`."""
        masked = dataclasses.replace(self, variant=dataclasses.replace(self.variant, mask_seed=mask_seed))
        return build(**masked._options, seed=seed)

    @property
    def layers(self) -> dict[str, dict[str, Any]]:
        """Masked layers by name: what the rules resolved to for this architecture and input shape."""
        return {name: dataclasses.asdict(layer) for name, layer in plan(**self._options).items()}

    @property
    def trainable(self) -> int:
        """Number of trainable entries of one network."""
        return count(**self._options)[0]

    @property
    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def describe(self) -> list[str]:
        """A line for each group of equally masked layers, for people."""
        groups: dict[str, list[str]] = {}
        for name, layer in self.layers.items():
            unit = "channels" if layer["granularity"] == "channel" else "entries"
            text = f"{layer['n_fix']} of {layer['fan_in']} {unit} of a row fixed, κ = {layer['kappa']:g}"
            groups.setdefault(text + (", frozen" if layer["frozen"] else ""), []).append(name)
        return [f"{self.variant.name}: {text}: {_few(names)}" for text, names in groups.items()]


def start_at_constants(network: nn.Module, architecture: Architecture, member: Member) -> None:
    """Overwrite, in place, the entries that the masked network of this architecture would fix with its constants.

    A `w-init` network is built with them; needed again after its other entries were drawn anew.
    """
    variant = dataclasses.replace(architecture.variant, name="w")
    masked = dataclasses.replace(architecture, variant=variant).build(member.seed, member.mask_seed)
    constants = dict(masked.named_buffers())
    with torch.no_grad():
        for name, mask in constants.items():
            layer, _, kind = name.rpartition(".")
            if kind == "mask" and f"{layer}.fixed" in constants:
                weight = network.get_parameter(f"{layer}.weight")
                weight.copy_(torch.where(mask, weight, constants[f"{layer}.fixed"]))


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} … {names[-1]} ({len(names)} layers)"


@dataclasses.dataclass(frozen=True)
class Member:
    """One network of a population."""

    seed: int
    """Determines initial weights, data order and augmentation."""
    mask_seed: int = 0
    """Determines masks and fixed values; networks that are to be compared share it."""
    recipe: Recipe = dataclasses.field(default_factory=Recipe)


@dataclasses.dataclass(frozen=True)
class Population:
    """Networks to be trained on one data set."""

    architecture: Architecture
    members: tuple[Member, ...]
    data: str
    """Fingerprint of the data set."""

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("members: a population needs at least one network, got none")

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """What determines the trained weights, as JSON-able data; the numerical plan is added by the trainer."""
        return {
            "version": RECIPE_VERSION,
            "data": self.data,
            "architecture": compact(self.architecture),
            "layers": self.architecture.layers,
            "members": [compact(member) for member in self.members],
        }


def compact(value: Any) -> dict[str, Any]:
    """A dataclass as nested dictionaries without the fields that have their default value.

    A field that is added later, with a default that does what was done before, leaves old names of runs as they are.
    """
    out = {}
    for field in dataclasses.fields(value):
        entry = getattr(value, field.name)
        factory = field.default_factory
        if entry != (field.default if factory is dataclasses.MISSING else factory()):
            out[field.name] = compact(entry) if dataclasses.is_dataclass(entry) else entry
    return out


def equal_width(architecture: Architecture, target: int) -> float:
    """The width, a multiple of 1/256, at which an architecture's trainable parameters come closest to `target`."""

    def size(k: int) -> int:
        return dataclasses.replace(architecture, width=k / 256).trainable

    low, high = 1, max(2, int(256 * architecture.width) * 2)
    while low < high:  # the smallest k with at least `target` parameters
        middle = (low + high) // 2
        low, high = (low, middle) if size(middle) >= target else (middle + 1, high)
    best = min((k for k in (low - 1, low) if k >= 1), key=lambda k: abs(size(k) - target))
    return best / 256
