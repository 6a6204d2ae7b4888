"""What a network's output says about a target: class probabilities, or a mean with known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Categorical:
    """Outputs are logits, targets are labels."""

    def nll(self, output: Float[Tensor, "*n c"], target: Tensor) -> Float[Tensor, "*n"]:
        """− log p(target | output) of each item, in nats."""
        return -F.log_softmax(output, dim=-1).gather(-1, target[..., None])[..., 0]


@dataclass(frozen=True)
class Gaussian:
    """The output is the mean of a normal target with standard deviation `scale`."""

    scale: float = 1.0
    """Positive."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale: got {self.scale}, must be a positive number")

    def nll(self, output: Float[Tensor, "*n 1"], target: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """− log p(target | output) of each item, in nats."""
        z = (target - output[..., 0]) / self.scale
        return 0.5 * z.square() + math.log(self.scale) + 0.5 * math.log(2 * math.pi)
