"""FiGLU, the fixed gated linear unit of σ-Asymmetric networks.

    FiGLU(x) = g(F x) ⊙ x,      g = sigmoid (or cosine),      F ∈ R^(d × d) fixed,  F_ij ~ N(0, scale²)

F mixes the units of a layer, so that (almost surely) no permutation and no diagonal scaling of the units
commutes with the activation. On feature maps F acts on the channel vector of every position (a 1 × 1
convolution). Source: Lim et al. 2024 (arXiv 2405.20231), σ-Asymmetric networks; the cosine gate is mentioned
there as working less well. Every site of a network has its own F, drawn from (seed, name).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.nn.masks import sample_fixed

GATES = {"sigmoid": torch.sigmoid, "cosine": torch.cos}


class FiGLU(nn.Module):
    """g(F x) ⊙ x over one axis of the input.

    Shapes: input and output (…, width) with channel_dim -1, (n, width, …) with channel_dim 1; `fixed` is the
        persistent
    buffer F of shape (width, width). There are no trainable parameters.

    Args:
        width: size of the gated axis.
        scale: standard deviation of F's entries, above 0; 1 in the published MLP, 1/√width in the ResNets.
        seed: integer seed of F.
        name: name of the site in its network; with the seed it determines F.
        gate: "sigmoid" or "cosine".
        channel_dim: -1 or 1, the axis that F mixes.
        device: as in `nn.Linear`.
        dtype: as in `nn.Linear`.

    Raises:
        ValueError: for a width below 1, a scale that is not positive and finite, an unknown gate or axis.
    """

    fixed: Tensor

    def __init__(
        self,
        width: int,
        *,
        scale: float,
        seed: int,
        name: str,
        gate: str = "sigmoid",
        channel_dim: int = -1,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width: {width} at {name!r}; must be at least 1")
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale: {scale} at {name!r}; must be a finite number above 0")
        if gate not in GATES:
            raise ValueError(f"gate: {gate!r} at {name!r}; choose from {', '.join(GATES)}")
        if channel_dim not in (-1, 1):
            raise ValueError(f"channel_dim: {channel_dim} at {name!r}; choose from -1, 1")
        self.width, self.scale, self.seed, self.name = width, scale, seed, name
        self.gate, self.channel_dim = gate, channel_dim
        self.register_buffer("fixed", torch.empty(width, width, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Write F into its buffer again; `generator` is not used, F depends on (seed, name) alone."""
        if not self.fixed.is_meta:
            self.fixed.copy_(sample_fixed((self.width, self.width), self.scale, seed=self.seed, name=self.name))

    def forward(self, input: Tensor) -> Tensor:
        """Gate the input; the shape stays."""
        if self.channel_dim == -1 or input.dim() == 2:
            mixed = F.linear(input, self.fixed)
        elif input.dim() == 4:
            mixed = F.conv2d(input, self.fixed[:, :, None, None])
        else:
            mixed = F.linear(input.movedim(1, -1), self.fixed).movedim(-1, 1)
        return GATES[self.gate](mixed) * input

    def extra_repr(self) -> str:
        """Width, scale, gate and axis."""
        return f"{self.width}, scale={self.scale:g}, gate={self.gate}, channel_dim={self.channel_dim}"
