"""Small parts that several architectures choose by name: norms and activations."""

from __future__ import annotations

from torch import nn


def make_norm(kind: str, channels: int, *, spatial: bool) -> nn.Module:
    """A norm over `channels` features of vectors or (spatial) of feature maps.

    "group" is GroupNorm with one group, which the paper calls layer norm; "layer" is LayerNorm over vectors;
    "batch" is BatchNorm; "none" the identity.
    """
    if kind == "group":
        return nn.GroupNorm(1, channels)
    if kind == "layer":
        return nn.LayerNorm(channels)
    if kind == "batch":
        return nn.BatchNorm2d(channels) if spatial else nn.BatchNorm1d(channels)
    return nn.Identity()


def make_activation(kind: str) -> nn.Module:
    """A new activation module.

    Never in place: that was measured to save under 2 % of a ResNet-20's step, and it would overwrite what a
    hook on the norm before it has seen.
    """
    kinds = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU, "identity": nn.Identity}
    return kinds[kind]()


def scaled(units: int, width: float) -> int:
    """`units · width`, rounded.

    Raises:
        ValueError: if no unit is left.
    """
    left = round(units * width)
    if left < 1:
        raise ValueError(f"width: got {width:g}, which leaves no unit of {units}; the least is {1 / units:g}")
    return left
