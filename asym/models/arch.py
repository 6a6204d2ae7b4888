"""What the project knows of an architecture: how its plain network is made, its tables and its choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from asym.data.graphs import GraphInput
from asym.nn.variants import LayerRule

Shape = tuple[int, ...]
"""Of one input: (channels, height, width) of an image, (features,) of a graph's node, (coordinates,) of a place."""

AXES = {"images": ("channels", "height", "width"), "graph": ("features",), "coordinates": ("coordinates",)}
"""Domain of an architecture → axes of its input shape."""


@dataclass(frozen=True)
class Arch:
    """An architecture: how its plain network is made, and what its variants need to know."""

    name: str
    make: Callable[..., nn.Module]
    """make(input_shape=, classes=, width=, depth=, norm=, activation=) → plain network, not initialised."""
    rules: Callable[[float, int], Sequence[LayerRule]]
    """rules(width, depth) → published n_fix and κ, scaled to the width."""
    input_shape: Shape
    """The published input: (channels, height, width), or (features,) of a node."""
    domain: str = "images"
    """What the network is called with: `images` or `coordinates`, a tensor (n, *input_shape), or `graph`, a
    `GraphInput`."""
    classes: int = 10
    depth: int = 0
    """The published depth, in the architecture's own unit."""
    free_depth: bool = False
    """Whether `depth` may be chosen."""
    norms: tuple[str, ...] = ("none",)
    """Norms to choose from; the first is the published one."""
    activations: tuple[str, ...] = ("relu",)
    """Activations to choose from; the first is the published one."""
    scheme: str = "default"
    """Initialisation of the standard network, "default" or "kaiming"."""
    figlu_scale: float | str = "1/sqrt(d)"
    """Standard deviation of F in the sigma variant."""
    widths: tuple[float, ...] = (1.0,)
    """Widths with published parameter counts."""

    @property
    def gateable(self) -> bool:
        """Whether the network has an activation that a gate can replace; the identity and sines are none."""
        return self.activations not in (("identity",), ("sin",))


def example_input(entry: Arch, input_shape: Shape) -> Tensor | GraphInput:
    """Zeros that a network of `entry` can be called with: two images or places, or a graph of two neighbours."""
    if entry.domain != "graph":
        return torch.zeros(2, *input_shape)
    return GraphInput(torch.zeros(2, *input_shape), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def check_options(
    entry: Arch,
    input_shape: Shape,
    classes: int,
    width: float,
    depth: int | None,
    norm: str | None,
    activation: str | None,
) -> dict[str, Any]:
    """Checked keyword arguments of `entry.make`."""
    name = entry.name
    axes = AXES[entry.domain]
    if len(input_shape) != len(axes) or min(input_shape) < 1:
        raise ValueError(f"input_shape: {input_shape} for {name}; must be ({', '.join(axes)}), each at least 1")
    if classes < 1:
        raise ValueError(f"classes: {classes}; must be at least 1")
    if not 0 < width < float("inf"):
        raise ValueError(f"width: {width}; must be a finite number above 0")
    if not entry.widths and width != 1.0:
        raise ValueError(f"width: {width}; {name} has a width of its own")
    if depth is not None and not entry.free_depth:
        raise ValueError(f"depth: {depth}; the depth of {name} is fixed")
    if depth is not None and depth < 1:
        raise ValueError(f"depth: {depth}; must be at least 1")
    for argument, value, allowed in (
        ("norm", norm, entry.norms),
        ("activation", activation, entry.activations),
    ):
        if value is not None and value not in allowed:
            raise ValueError(f"{argument}: {value!r} for {name}; choose from {', '.join(allowed) or 'its own alone'}")
    return {
        "input_shape": tuple(input_shape),
        "classes": classes,
        "width": width,
        "depth": entry.depth if depth is None else depth,
        "norm": norm or next(iter(entry.norms), None),
        "activation": activation or next(iter(entry.activations), None),
    }
