"""What all readers share: `reader(stack) → n out`, checks, and two add-ons for every one of them.

`gauge` removes scalings, signs and phases from the input exactly (`asym.symmetry.scaling.gauge_fix`), so that a reader
without the symmetry sees one network for each orbit; `augment` draws, in training mode, random factors that each layer
allows (log-uniform in [1/augment, augment], or signs) for every network and step; `shuffle` draws permutations
likewise.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from asym.metanets.stack import Bag, Stack, Stacks, as_list
from asym.seeds import torch_generator
from asym.symmetry.chain import Frame
from asym.symmetry.scaling import gauge_fix, permute_units, random_factors, random_orders, scale_units


class Reader(nn.Module, abc.ABC):
    """A network that reads stacks of networks.

    Args:
        chains: the architecture, or for readers that mix, the architectures.
        out: numbers a network.
        gauge: whether scalings are removed from the input.
        augment: largest factor of random scalings in training, at least 1; None for none.
        shuffle: whether hidden units are permuted at random in training.
        seed: of the random draws of `augment` and `shuffle`.

    Raises:
        ValueError: for several architectures where the reader cannot mix, an option out of range, or networks of
            unknown structure for a reader or an add-on that needs it.
    """

    mixes: ClassVar[bool] = False
    """Whether networks of several architectures may be read together."""
    structured: ClassVar[bool] = True
    """Whether it reads how tensors hang together."""
    pads: ClassVar[bool] = False
    """Whether it tells padding from units (`padding.py`)."""
    by_gradient: ClassVar[bool] = True
    """Whether it is trained by gradient descent; else it has `fit(stacks, targets)`."""

    def __init__(
        self,
        chains: Frame | Sequence[Frame],
        *,
        out: int = 1,
        gauge: bool = False,
        augment: float | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.chains = tuple(chains) if isinstance(chains, Sequence) else (chains,)
        if not self.chains:
            raise ValueError("chains: got none")
        if out < 1:
            raise ValueError(f"out: {out}; must be at least 1")
        if augment is not None and not 1 <= augment < math.inf:
            raise ValueError(f"augment: {augment}; must be a finite number of at least 1")
        needs = [name for name, on in (("gauge", gauge), ("augment", augment), ("shuffle", shuffle)) if on]
        if any(isinstance(chain, Bag) for chain in self.chains) and (self.structured or needs):
            what = " with ".join([type(self).__name__, *needs[:1]])
            raise ValueError(
                f"chains: {what} needs to know how layers hang together, which is unknown of a bag of tensors"
            )
        self.shapes = {tuple(chain.shapes.items()) for chain in self.chains}
        if not self.mixes and len(self.shapes) > 1:
            raise ValueError(
                f"chains: {type(self).__name__} reads networks of one architecture, got {len(self.shapes)} with "
                f"{', '.join(str(chain.sizes) for chain in self.chains)} units"
            )
        self.out, self.gauge, self.augment, self.shuffle = out, gauge, augment, shuffle
        self.generator = torch_generator(seed, "metanets", "augment")

    def forward(self, stacks: Stacks) -> Tensor:
        """`n out` for all networks of a stack or of several, in order.

        Raises:
            ValueError: if an architecture is none of those that the reader was made for.
        """
        return torch.cat([self.read(self.prepare(stack)) for stack in as_list(stacks)])

    def observe(self, stacks: Stacks) -> None:
        """Take from the training set what the reader needs before training, such as moments of its inputs."""

    def ahead(self, stack: Stack) -> Stack:
        """The stack with whatever the reader can work out of each network once, before it reads them many times."""
        return stack

    @abc.abstractmethod
    def read(self, stack: Stack) -> Tensor:
        """`n out` for one stack that is checked and prepared."""

    def prepare(self, stack: Stack) -> Stack:
        """The stack as the reader sees it: checked, augmented, in its gauge."""
        if tuple(stack.chain.shapes.items()) not in self.shapes:
            known = ", ".join(str(chain.sizes) for chain in self.chains)
            raise ValueError(
                f"stack: networks of {stack.chain.sizes} units and {len(stack.chain.shapes)} tensors, but this "
                f"{type(self).__name__} was made for {known}"
            )
        if stack.alive is not None and (not self.pads or self.shuffle):
            what = "shuffle" if self.pads else type(self).__name__
            raise ValueError(f"stack: its networks are padded, and {what} would take padding for units")
        chain, tensors, lead = stack.chain, dict(stack.tensors), (len(stack),)
        if self.training and self.augment is not None:
            factors = random_factors(chain, lead, self.generator, ratio=self.augment, like=stack.like)
            tensors = scale_units(chain, factors, tensors)
        if self.training and self.shuffle:
            orders = [order.to(stack.like.device) for order in random_orders(chain, lead, self.generator)]
            tensors = permute_units(chain, orders, tensors)
        return stack.replace(gauge_fix(chain, tensors) if self.gauge else tensors)


def choose(argument: str, value: str, allowed: Sequence[str]) -> None:
    """Raise a ValueError unless the value is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{argument}: {value!r}; choose from {', '.join(allowed)}")
