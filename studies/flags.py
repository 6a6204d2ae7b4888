"""Flags that several studies share beside those of every study: which network, how trained, where measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from asym.names import ARCHS, NORMS
from studies.checks import InputError, check_choice, check_least, check_positive, check_values
from studies.cli import CommonConfig

MASKED = ("w", "w-init", "w-sigma")
"""Variants with constants of a chosen size."""
MEANING = {"kappa": MASKED, "n_fix_scale": (*MASKED, "w-zero")}
"""Flags that only some variants have a use for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkConfig(CommonConfig):
    """Flags of a study that trains networks of one architecture."""

    arch: str = "resnet20"
    """Architecture: a name of `python -m asym.models`, `timm/<name>` or `package.module:factory`."""
    epochs: int | None = None
    """Passes over the training split."""
    lr: float | None = None
    """Peak learning rate of all networks."""
    batch_size: int | None = None
    """Images a step."""
    weight_decay: float | None = None
    """Decoupled weight decay of AdamW."""
    augment: Literal["per-image", "per-batch", "none"] = "per-image"
    """Random crop and flip, where the data set has them: one for each image, or one for a batch as released."""
    width: float = 1.0
    """Width multiplier."""
    norm: str | None = None
    """group, batch, layer or none; None is the architecture's own."""
    train_size: int | None = None
    """Train on so many images, drawn evenly from the classes."""
    eval_images: int | None = None
    """At most so many images of each split are evaluated along the line."""
    points: int = 25
    """Points on the line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arch not in ARCHS and not self.arch.startswith("timm/") and ":" not in self.arch:
            check_choice("arch", self.arch, [*ARCHS, "timm/<name>", "package.module:factory"])
        if self.norm is not None:
            check_choice("norm", self.norm, NORMS)
        for flag in ("epochs", "batch_size", "train_size", "eval_images"):
            check_least(flag.replace("_", "-"), getattr(self, flag), 1)
        check_least("weight-decay", self.weight_decay, 0)
        for flag in ("lr", "width"):
            check_positive(flag, getattr(self, flag))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedConfig(NetworkConfig):
    """Flags of a study that compares pairs of networks at tuned or given rates."""

    lr: float | None = None
    """Peak learning rate for every variant, instead of tuning."""
    lrs: tuple[float, ...] | None = None
    """Rates to tune over, for each variant, by validation loss."""
    schedule: Literal["constant", "linear", "geometric", "triangular", "cosine"] | None = None
    """Course of the learning rate."""
    warmup: float | None = None
    """Epochs of warm-up."""
    pairs: int | None = None
    """Independent pairs of networks for each variant."""
    restarts: int | None = None
    """Starts of weight matching."""
    points: int = 25
    """Points on the line, an odd number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag in ("pairs", "restarts"):
            check_least(flag, getattr(self, flag), 1)
        check_least("warmup", self.warmup, 0)
        check_values("lrs", self.lrs)
        if self.lr is not None and self.lrs is not None:
            raise InputError("--lr and --lrs: give one of them, a fixed rate or rates to tune over")
        if self.points < 3 or self.points % 2 == 0:
            raise InputError(f"--points: got {self.points}, must be odd and at least 3")


def check_names(flag: str, values: Sequence[str], choices: Sequence[str] | None) -> None:
    """Raise an `InputError` unless some names are given, each known (where the choices are) and given once."""
    if not values:
        raise InputError(f"--{flag}: got none" + (f"; valid: {', '.join(choices)}" if choices else ""))
    for value in values if choices is not None else ():
        check_choice(flag, value, choices or ())
    if len(set(values)) < len(values):
        raise InputError(f"--{flag}: named twice in {' '.join(values)}")


def check_meaning(config: Any, needed: Mapping[str, Sequence[str]]) -> None:
    """Raise an `InputError` for a flag that is set although none of the variants that need it is there."""
    for flag, variants in needed.items():
        default = type(config).__dataclass_fields__[flag].default
        if getattr(config, flag) != default and not set(variants) & set(config.variants):
            name = flag.replace("_", "-")
            raise InputError(f"--{name}: has no meaning without {' or '.join(variants)} among --variants")
