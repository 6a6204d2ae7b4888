"""Zoos: populations whose networks differ in their hyper-parameters, drawn for each network from fixed distributions.

Network k draws each hyper-parameter from a stream of its own, named by (seed, zoo, k, field): a longer zoo begins with
the networks of a shorter one, and families of networks that are drawn with one seed are paired, network k of each
having the same hyper-parameters.

    resnet8             AdamW, peak at epoch 5, then to 0; rate ½ · 10^(−U(0, 2)), weight decay 10^(−U(1, 5)),
                        smoothing U(0, 0.2), epochs integers 10 … 40
    small-cnn           Adam, SGD or RMSProp, constant rate, log-uniform 5e-4 … 5e-2; weight decay log-uniform
                        1e-8 … 1e-2; share of the images .1, .25, .5 or 1; start Glorot-normal, He-normal, orthogonal,
                        normal or truncated normal, the last two of deviation log-uniform 1e-3 … .5; dropout U(0, .7)
    small-cnn-digits    the same with momentum 0.9 in place of plain SGD and without dropout

`resnet8` is the zoo of Lim et al. 2024 (arXiv 2405.20231, metanetworks and monotone interpolation): batches of 512,
CIFAR-10. 40 is among the epochs here; whether the paper's RandInt(10, 40) includes it is not said. The paper's flip is
what `Augment` does, its shift is by two pixels and its cutout has no counterpart here.

`transformer` draws from the grids of the Small Transformer Zoo (Tran et al. 2025, arXiv 2410.04209, by its released
code): Adam, RMSprop, SGD and momentum, ten rates 3e-4 … 7e-2, initial deviations .1 … .5, weight decay 1e-8 … 1e-2,
shares of the images .7 … 1, dropout 0 … .2, cosine after a tenth of warm-up. Published are two whole grids, for
adaptive and other optimisers, whose rates and deviations are put together here; 100 epochs, of which networks are read
after 75, here they end at 75; starts cut at ±2, here at two deviations; one seed for all. `transformer-digits` is the
same without plain SGD and without dropout, in 20 epochs.

`small-cnn` is the Small CNN Zoo of Unterthiner et al. 2020 (arXiv 2002.11448): batches of 512, 86 epochs. Shares and
batch are read off its code; the other ranges are quoted from memory and were not checked against it. Different here:
the published networks penalise kernels alone, here biases too; and all have one seed (`one_seed` in
`asym.populations.zoo_nets`), here each has its own. On the 1,097 images of digits a network takes a fiftieth of the
published number of steps, in which plain SGD at these rates learns next to nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from asym.populations.recipes import Recipe
from asym.seeds import numpy_generator


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Uniform between `low` and `high`."""

    low: float
    high: float

    def draw(self, generator: np.random.Generator) -> float:
        """One value."""
        return float(generator.uniform(self.low, self.high))


@dataclasses.dataclass(frozen=True)
class LogUniform:
    """Uniform in the logarithm between two positive numbers."""

    low: float
    high: float

    def draw(self, generator: np.random.Generator) -> float:
        """One value."""
        return math.exp(generator.uniform(math.log(self.low), math.log(self.high)))


@dataclasses.dataclass(frozen=True)
class Integers:
    """Integers from `low` to `high`, both included."""

    low: int
    high: int

    def draw(self, generator: np.random.Generator) -> int:
        """One value."""
        return int(generator.integers(self.low, self.high, endpoint=True))


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values, each equally likely."""

    values: tuple[Any, ...]

    def draw(self, generator: np.random.Generator) -> Any:
        """One value."""
        return self.values[generator.integers(len(self.values))]


Draw = Uniform | LogUniform | Integers | Choice


@dataclasses.dataclass(frozen=True)
class Zoo:
    """How the hyper-parameters of a zoo's networks are drawn."""

    name: str
    """Names the streams that are drawn from."""
    base: Recipe
    """What all networks share."""
    draws: Mapping[str, Draw]
    """Field of `Recipe` → its distribution."""


def _small_cnn(name: str, optimizers: tuple[str, ...], **more: Draw) -> Zoo:
    return Zoo(
        name,
        Recipe(optimizer="adam", epochs=86, batch_size=512, augment="none"),
        {
            "optimizer": Choice(optimizers),
            "lr": LogUniform(5e-4, 5e-2),
            "weight_decay": LogUniform(1e-8, 1e-2),
            "train_fraction": Choice((0.1, 0.25, 0.5, 1.0)),
            "start": Choice(STARTS),
            "start_std": LogUniform(1e-3, 0.5),
            **more,
        },
    )


def _transformer(name: str, optimizers: tuple[str, ...], epochs: int, batch_size: int, **more: Draw) -> Zoo:
    return Zoo(
        name,
        Recipe(
            schedule="cosine", warmup=epochs / 10, epochs=epochs, batch_size=batch_size, augment="none",
            start="truncated_normal",
        ),
        {
            "optimizer": Choice(optimizers),
            "lr": Choice((3e-4, 5e-4, 1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 3e-2, 5e-2, 7e-2)),
            "start_std": Choice((0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)),
            "weight_decay": Choice((1e-8, 1e-7, 1e-6, 1e-4, 1e-2)),
            "train_fraction": Choice((0.7, 0.8, 0.9, 1.0)),
            **more,
        },
    )  # fmt: skip


STARTS = ("glorot_normal", "he_normal", "orthogonal", "normal", "truncated_normal")

ZOOS: dict[str, Zoo] = {
    zoo.name: zoo
    for zoo in (
        Zoo(
            "resnet8",
            Recipe(optimizer="adamw", schedule="triangular", warmup=5, epochs=40, batch_size=512),
            {
                "lr": LogUniform(0.005, 0.5),
                "weight_decay": LogUniform(1e-5, 0.1),
                "smoothing": Uniform(0.0, 0.2),
                "epochs": Integers(10, 40),
            },
        ),
        _transformer(
            "transformer", ("adam", "rmsprop", "sgd", "momentum"), 75, 128, dropout=Choice((0.0, 0.05, 0.1, 0.15, 0.2))
        ),
        _transformer("transformer-digits", ("adam", "rmsprop", "momentum"), 20, 64),
        _small_cnn("small-cnn", ("adam", "sgd", "rmsprop"), dropout=Uniform(0.0, 0.7)),
        _small_cnn("small-cnn-digits", ("adam", "momentum", "rmsprop")),
    )
}


def draw_recipes(
    zoo: str | Zoo, n: int, seed: int, *, epochs_scale: float = 1.0, fixed: Mapping[str, Any] | None = None
) -> list[Recipe]:
    """The recipes of the first `n` networks of a zoo.

    Args:
        zoo: a name in `ZOOS`, or distributions of your own.
        n: number of networks.
        seed: of the draws.
        epochs_scale: factor on drawn epochs and on the warm-up; epochs are rounded and at least 1. The warm-up is cut
            to half the training where it would be longer, which happens in no zoo above at factor 1.
        fixed: field of `Recipe` → value that all networks get in place of the drawn or shared one, unscaled.

    Raises:
        ValueError: naming the argument, for an unknown zoo or field or a value that a recipe does not allow.
    """
    if isinstance(zoo, str) and zoo not in ZOOS:
        raise ValueError(f"zoo: {zoo!r} is unknown; choose from {', '.join(ZOOS)}")
    chosen = ZOOS[zoo] if isinstance(zoo, str) else zoo
    if n < 1:
        raise ValueError(f"n: got {n}, must be at least 1")
    if not 0 < epochs_scale < math.inf:
        raise ValueError(f"epochs_scale: got {epochs_scale}, must be a positive number")
    given = dict(fixed or {})
    fields = [field.name for field in dataclasses.fields(Recipe)]
    for what, names in (("zoo", chosen.draws), ("fixed", given)):
        for field in names:
            if field not in fields:
                raise ValueError(f"{what}: {field!r} is no field of a recipe; choose from {', '.join(fields)}")
    return [_recipe(chosen, seed, k, epochs_scale, given) for k in range(n)]


def _recipe(zoo: Zoo, seed: int, k: int, scale: float, fixed: Mapping[str, Any]) -> Recipe:
    drawn = {field: draw.draw(numpy_generator(seed, "zoo", zoo.name, k, field)) for field, draw in zoo.draws.items()}
    drawn["epochs"] = max(1, round(scale * drawn.get("epochs", zoo.base.epochs)))
    drawn["warmup"] = scale * drawn.get("warmup", zoo.base.warmup)
    values = drawn | dict(fixed)
    if "warmup" not in fixed:
        values["warmup"] = min(values["warmup"], values["epochs"] / 2)
    return dataclasses.replace(zoo.base, **values)
