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
    """A new activation module; ReLU works in place, which saves a pass over memory."""
    if kind == "relu":
        return nn.ReLU(inplace=True)
    return {"gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU}[kind]()
