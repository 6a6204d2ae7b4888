"""What is random in a network: the trainable entries of its linear and convolutional layers.

A layer's random vector is its weight, flattened, followed by its bias. Entries of a masked layer that are fixed stay
constants: they have no prior and no posterior, and the places they have in the vector hold zeros that nothing reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd as ConvBase

from asym.bayes.priors import PriorRule, prior_variance
from asym.nn import MaskedLayer


@dataclass(frozen=True)
class RandomLayer:
    """A layer whose trainable entries are random variables."""

    name: str
    """Qualified name in the network."""
    parameters: tuple[str, ...]
    """Qualified names of weight and bias."""
    shapes: tuple[tuple[int, ...], ...]
    """Their shapes."""
    variance: float
    """Prior variance of an entry."""
    entries: int
    """Number of random entries."""
    linear: bool
    """Whether it is a linear layer."""
    masked: bool
    """Whether some entries are fixed."""

    @property
    def size(self) -> int:
        """Length of its vector, fixed entries included."""
        return sum(math.prod(shape) for shape in self.shapes)

    def split(self, vector: Float[Tensor, "*n d"]) -> dict[str, Tensor]:
        """Weight and bias by qualified name; leading axes are kept."""
        parts = vector.split([math.prod(shape) for shape in self.shapes], dim=-1)
        lead = vector.shape[:-1]
        return {name: part.view(*lead, *shape) for name, part, shape in zip(self.parameters, parts, self.shapes)}

    def mask(self, network: nn.Module) -> Bool[Tensor, " d"]:
        """True at the random entries of its vector."""
        module, weight = network.get_submodule(self.name), math.prod(self.shapes[0])
        own = torch.ones(self.size, dtype=torch.bool)
        if isinstance(module, MaskedLayer):
            own[:weight] = module.mask.reshape(-1).cpu()
        return own

    def vector(self, network: nn.Module) -> Float[Tensor, " d"]:
        """The network's values, zero at fixed entries."""
        values = torch.cat([network.get_parameter(name).detach().reshape(-1) for name in self.parameters])
        return values * self.mask(network).to(values.device)


def random_layers(network: nn.Module, rules: Sequence[PriorRule], *, last_only: bool = False) -> list[RandomLayer]:
    """The linear and convolutional layers of a network, in order, with the prior of each.

    A layer that is frozen, or fixed as a whole but for a bias that it does not have, is left out.

    Raises:
        ValueError: if there is none, or no rule matches one.
    """
    found = []
    for name, module in network.named_modules():
        if not isinstance(module, nn.Linear | ConvBase):
            continue
        own = [(k, p) for k, p in module.named_parameters(recurse=False) if k in ("weight", "bias") and p.requires_grad]
        if not own or own[0][0] != "weight":
            continue
        entries = sum(p.numel() for _, p in own)
        if isinstance(module, MaskedLayer):
            entries += module.n_trainable - module.weight.numel()
        if not entries:
            continue
        found.append(
            RandomLayer(
                name=name,
                parameters=tuple(f"{name}.{k}" if name else k for k, _ in own),
                shapes=tuple(tuple(p.shape) for _, p in own),
                variance=prior_variance(name, module, tuple(rules)),
                entries=entries,
                linear=isinstance(module, nn.Linear),
                masked=isinstance(module, MaskedLayer),
            )
        )
    if not found:
        raise ValueError(
            f"network: {type(network).__name__} has no linear or convolutional layer with trainable weights"
        )
    return found[-1:] if last_only else found
