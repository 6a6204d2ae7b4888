"""Gaussian priors by rules: which layers are random and how wide each one's prior is.

    w ~ N(0, 1 / (precision · fan))          independently for the trainable entries of a layer, its bias included

| prior | fan of a linear layer | fan of a convolution |
|---|---|---|
| `published` | outputs | input channels |
| `fan-in` | inputs of a row | inputs of a row |
| `unit` | 1 | 1 |

`published` is what the released code of the variational method behind Lim et al. 2024 (section on Bayesian networks;
ELRG-VI, Tomczak et al. 2020) uses, with precision 0.01 for MLPs and 1 for ResNets; `fan-in` keeps the scale of a
layer's output whatever its width. Scales and shifts of norms are no random variables there, nor here: they are fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.conv import _ConvNd as ConvBase

FANS = ("published", "fan-in", "unit")


@dataclass(frozen=True)
class PriorRule:
    """The prior of the layers whose name matches a shell-style pattern."""

    pattern: str = "*"
    """Which layers, by qualified name."""
    precision: float = 1.0
    """Positive."""
    fan: str = "published"
    """published, fan-in or unit."""

    def __post_init__(self) -> None:
        if self.fan not in FANS:
            raise ValueError(f"prior: unknown {self.fan!r}; valid: {', '.join(FANS)}")
        if not (math.isfinite(self.precision) and self.precision > 0):
            raise ValueError(f"prior precision: got {self.precision}, must be a positive number")

    def variance(self, layer: nn.Module) -> float:
        """Prior variance of the entries of a linear or convolutional layer."""
        return 1.0 / (self.precision * _fan(layer, self.fan))


def prior_variance(name: str, layer: nn.Module, rules: tuple[PriorRule, ...]) -> float:
    """The variance that the first matching rule gives.

    Raises:
        ValueError: if no rule matches.
    """
    for rule in rules:
        if fnmatchcase(name, rule.pattern):
            return rule.variance(layer)
    raise ValueError(
        f"prior: no rule matches layer {name!r}; patterns: {', '.join(r.pattern for r in rules) or 'none'}"
    )


def _fan(layer: nn.Module, kind: str) -> int:
    if kind == "unit":
        return 1
    weight = layer.get_parameter("weight")
    if kind == "fan-in":
        return weight[0].numel()
    return layer.in_channels if isinstance(layer, ConvBase) else weight.shape[0]
