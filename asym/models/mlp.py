"""Multi-layer perceptrons on flattened images.

    x → [Linear → norm → activation] × depth → Linear

`mlp` is the network of the connectivity experiments (784-512-512-512-10, LayerNorm, GELU; 935,434 parameters,
834,570 trainable ones as W), `mlp-8` and `mlp-16` are those of the Bayesian ones (hidden layers of 256,
LayerNorm, ReLU). Source of sizes and tables: Lim et al. 2024 (arXiv 2405.20231), appendix.
"""

from __future__ import annotations

import math
from itertools import pairwise

from torch import Tensor, nn

from asym.models.arch import Shape
from asym.models.parts import make_activation, make_norm, scaled
from asym.models.registry import register
from asym.nn.variants import LayerRule


class Hidden(nn.Module):
    """Linear → norm → activation on (n, in_features)."""

    def __init__(self, in_features: int, out_features: int, norm: str, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = make_norm(norm, out_features, spatial=False)
        self.act = make_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        """(n, in_features) → (n, out_features)."""
        return self.act(self.norm(self.linear(x)))


class MLP(nn.Module):
    """(n, c, h, w) → (n, classes) by `depth` hidden layers of `hidden` units."""

    def __init__(
        self, input_shape: Shape, classes: int, *, hidden: int, depth: int, norm: str, activation: str
    ) -> None:
        super().__init__()
        widths = [math.prod(input_shape)] + [hidden] * depth
        self.hidden = nn.ModuleList(Hidden(a, b, norm, activation) for a, b in pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = x.flatten(1)
        for layer in self.hidden:
            x = layer(x)
        return self.head(x)


def rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """n_fix 64, 64, 64, 256 and κ 1, 1, 1/2, 1/4; further hidden layers as the third, n_fix times √width."""
    wide = math.sqrt(width)
    hidden = [LayerRule(f"hidden.{i}.linear", round(64 * wide), 1.0 if i < 2 else 0.5) for i in range(1, depth)]
    first = LayerRule("hidden.0.linear", round(64 * wide), 1.0, fan_in=784)
    return (first, *hidden, LayerRule("head", round(256 * wide), 0.25))


def bayesian_rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """n_fix 8 a neuron and κ 1/2 in all layers; published alike for inputs of 784 and of 3,072."""
    return (LayerRule("*", round(8 * math.sqrt(width)), 0.5),)


@register(
    "mlp",
    rules=rules,
    input_shape=(1, 28, 28),
    depth=3,
    free_depth=True,
    norms=("layer", "batch", "none"),
    activations=("gelu", "relu", "tanh", "silu"),
    figlu_scale="1",
)
def mlp(*, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str) -> MLP:
    """The MLP of the connectivity experiments; `depth` counts hidden layers of 512 · width units."""
    hidden = scaled(512, width)
    return MLP(input_shape, classes, hidden=hidden, depth=depth, norm=norm, activation=activation)


def _bayesian(*, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str) -> MLP:
    hidden = scaled(256, width)
    return MLP(input_shape, classes, hidden=hidden, depth=depth, norm=norm, activation=activation)


for _depth in (8, 16):
    register(
        f"mlp-{_depth}",
        rules=bayesian_rules,
        input_shape=(1, 28, 28),
        depth=_depth,
        norms=("layer", "batch", "none"),
        activations=("relu", "gelu", "tanh", "silu"),
        figlu_scale="1",
    )(_bayesian)
