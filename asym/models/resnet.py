"""CIFAR-style ResNets of depth 6·blocks + 2 with a width factor.

Stem (3 × 3 convolution, norm, ReLU), three stages of basic blocks with 16, 32 and 64 channels times the
width, the first block of stages 2 and 3 with stride 2 and a projection shortcut (1 × 1 convolution and norm),
global average pool, linear head; convolutions have no bias. The published norm is GroupNorm with one group.
Sources: He et al. 2016 (section 4.2), with the projections and the n_fix and κ tables of Lim et al. 2024
(arXiv 2405.20231), appendix.

Standard start values are Kaiming-normal. In the W networks of the released code that pass reaches no masked
layer, so they start from PyTorch's default, √6 times smaller; the variant `w-scale` gives the standard
network that scale.
"""

from __future__ import annotations

import math
from functools import partial

from torch import Tensor, nn

from asym.models.arch import Shape
from asym.models.parts import make_activation, make_norm, scaled
from asym.models.registry import register
from asym.nn.variants import LayerRule

CHANNELS = (16, 32, 64)


class ConvNorm(nn.Module):
    """Convolution without bias, then norm; the parts are `conv` and `norm`."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, bias=False)
        self.norm = make_norm(norm, out_channels, spatial=True)

    def forward(self, x: Tensor) -> Tensor:
        """(n, in, h, w) → (n, out, h / stride, w / stride)."""
        return self.norm(self.conv(x))


class BasicBlock(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + shortcut(x))."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.norm1 = make_norm(norm, out_channels, spatial=True)
        self.act1 = make_activation("relu")
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.norm2 = make_norm(norm, out_channels, spatial=True)
        projects = stride != 1 or in_channels != out_channels
        self.shortcut = ConvNorm(in_channels, out_channels, 1, stride, norm) if projects else nn.Identity()
        self.act2 = make_activation("relu")

    def forward(self, x: Tensor) -> Tensor:
        """(n, in, h, w) → (n, out, h / stride, w / stride)."""
        h = self.act1(self.norm1(self.conv1(x)))
        return self.act2(self.norm2(self.conv2(h)) + self.shortcut(x))


class ResNet(nn.Module):
    """(n, c, h, w) → (n, classes) by three stages of `blocks` basic blocks."""

    def __init__(self, input_shape: Shape, classes: int, *, blocks: int, width: float, norm: str) -> None:
        super().__init__()
        channels = stage_channels(width)
        self.stem = ConvNorm(input_shape[0], channels[0], 3, 1, norm)
        self.act = make_activation("relu")
        stages, last = [], channels[0]
        for i, c in enumerate(channels):
            strides = [1 if i == 0 else 2] + [1] * (blocks - 1)
            stages.append(
                nn.Sequential(*(BasicBlock(last if j == 0 else c, c, s, norm) for j, s in enumerate(strides)))
            )
            last = c
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.stages(self.act(self.stem(x)))
        return self.head(x.mean((2, 3)))


def stage_channels(width: float) -> tuple[int, ...]:
    """Channels of the three stages at a width factor."""
    return tuple(scaled(c, width) for c in CHANNELS)


def rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """The published n_fix at widths 1 and 8, at others the table of width 1 times √width; κ = 2 everywhere.

    At width 8 the table fixes all 27 entries of a stem filter: the stem is frozen on purpose.
    """
    if width == 8:
        stem, stages, shortcuts, head = 27, (108, 162, 216), (12, 18, 24), 24
    else:
        wide = math.sqrt(width)
        stem, head = round(12 * wide), round(8 * wide)
        stages = tuple(round(n * wide) for n in (36, 54, 72))
        shortcuts = tuple(round(n * wide) for n in (4, 6, 8))
    layers = [LayerRule("stem.conv", stem, 2.0, fan_in=27, allow_frozen=width == 8)]
    for i in range(3):
        layers.append(LayerRule(f"stages.{i}.*.conv[12]", stages[i], 2.0))
        if i > 0:  # the published row for shortcuts of stage 1 belongs to no layer
            layers.append(LayerRule(f"stages.{i}.0.shortcut.conv", shortcuts[i], 2.0))
    return (*layers, LayerRule("head", head, 2.0))


def resnet8_rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """Whole input channels: 8 of every convolution (so the stem of 3 is frozen on purpose), 8 entries of the head."""
    n_fix = round(8 * math.sqrt(width))
    stem = LayerRule("stem.conv", n_fix, 2.0, fan_in=3, granularity="channel", allow_frozen=True)
    convs = LayerRule("stages.*conv*", n_fix, 2.0, granularity="channel")
    return (stem, convs, LayerRule("head", n_fix, 2.0))


def _resnet(
    blocks: int, *, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str
) -> ResNet:
    return ResNet(input_shape, classes, blocks=blocks, width=width, norm=norm)


for _depth, _widths in ((8, (1.0, 0.875)), (20, (1.0, 8.0)), (32, (1.0,)), (56, (1.0,)), (110, (1.0,))):
    register(
        f"resnet{_depth}",
        rules=resnet8_rules if _depth == 8 else rules,
        input_shape=(3, 32, 32),
        depth=_depth,
        norms=("group", "batch", "none"),
        scheme="kaiming",
        figlu_scale="1/sqrt(d)",
        widths=_widths,
    )(partial(_resnet, (_depth - 2) // 6))
