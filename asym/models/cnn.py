"""The network of the Small CNN Zoo, and deeper or shallower ones like it.

Three 3 × 3 convolutions of 16 filters with stride 2, an activation after each, global average pool, linear
head: 4,970 parameters with one input channel. Source: Unterthiner et al. 2020, "Predicting Neural Network
Accuracy from Weights". Images smaller than 15 pixels get a padding of 1, since without it the third
convolution has nothing left to see; d convolutions, for any `depth` d, need 2^(d + 1) − 1 pixels. An
activation such as `relu-tanh` names those of the layers in turn: ReLU, tanh, ReLU. No n_fix was published
for it: the rule of thumb applies.

As published there is a dropout after each activation; its rate is that of the training (`Recipe.dropout`).
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from asym.models.arch import Shape
from asym.models.parts import make_activation, scaled
from asym.models.registry import register
from asym.nn.dropout import Dropout
from asym.nn.variants import LayerRule


class SmallCNN(nn.Module):
    """(n, c, h, w) → (n, classes) by strided convolutions."""

    def __init__(self, input_shape: Shape, classes: int, *, channels: int, depth: int, activation: str) -> None:
        super().__init__()
        padding = 1 if min(input_shape[1:]) < 2 ** (depth + 1) - 1 else 0
        sizes = (input_shape[0], *[channels] * depth)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, 2, padding) for a, b in pairwise(sizes))
        kinds = activation.split("-")
        self.acts = nn.ModuleList(make_activation(kinds[i % len(kinds)]) for i in range(len(self.convs)))
        self.drops = nn.ModuleList(Dropout() for _ in self.convs)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        for conv, act, drop in zip(self.convs, self.acts, self.drops):
            x = drop(act(conv(x)))
        return self.head(x.mean((2, 3)))


def rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """The rule of thumb with κ = 1/2, since no norm holds back what larger constants amplify."""
    return (LayerRule("*", None, 0.5),)


@register(
    "small-cnn",
    rules=rules,
    input_shape=(1, 28, 28),
    depth=3,
    free_depth=True,
    activations=("relu", "tanh", "gelu", "silu", "relu-tanh"),
)
def small_cnn(*, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str) -> SmallCNN:
    """The Small CNN Zoo network with 16 · width filters a layer and `depth` convolutions."""
    return SmallCNN(input_shape, classes, channels=scaled(16, width), depth=depth, activation=activation)
