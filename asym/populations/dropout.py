"""Dropout of many networks at once, each with a rate and random numbers of its own.

For each network and epoch a generator named by (seed, "dropout", epoch) gives, step after step, one uniform number an
image and entry, in the order of the places: what a network drops depends on its seed, its rate and the epoch, neither
on the networks beside it nor on where training was resumed. Networks of one seed draw the same numbers; what is dropped
at one rate is dropped at every higher one. The numbers are drawn on the CPU, so that they are those of every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from asym.nn.dropout import Dropout, dropout_shapes, keep_mask
from asym.populations.recipes import Recipe
from asym.seeds import torch_generator


def check_dropout(network: nn.Module, arch: str, recipes: Sequence[Recipe]) -> None:
    """Raise ValueError if a recipe asks for dropout that the network of an architecture has no place for."""
    rate = max(recipe.dropout for recipe in recipes)
    if rate and not any(isinstance(module, Dropout) for module in network.modules()):
        raise ValueError(f"dropout: got {rate:g}, but {arch} has no place for it and needs 0")


class Dropping:
    """The masks of a chunk's networks.

    Args:
        network: one of them; tells the places.
        input_shape: of one input.
        seeds: of the networks.
        rates: of the networks.
        device: where masks are needed.
    """

    def __init__(
        self,
        network: nn.Module,
        input_shape: tuple[int, ...],
        seeds: Sequence[int],
        rates: Sequence[float],
        device: torch.device,
    ) -> None:
        self.seeds, self.rates, self.device = seeds, rates, device
        self.shapes = dropout_shapes(network, torch.zeros(2, *input_shape, device=device)) if any(rates) else {}

    def epoch(self, rows: Sequence[int], epoch: int) -> Callable[[int], dict[str, Tensor]]:
        """A function that gives, for the images of the next step, name of a place → masks `k images …` of the networks
        `rows`; nothing where none of them has dropout.
        """
        rates = [self.rates[i] for i in rows]
        if not any(rates):
            return lambda images: {}
        streams = [torch_generator(self.seeds[i], "dropout", epoch) for i in rows]

        def step(images: int) -> dict[str, Tensor]:
            sizes = [images * math.prod(shape) for shape in self.shapes.values()]
            total = sum(sizes)
            masks = [keep_mask(total, rate, own) if rate else torch.ones(total) for rate, own in zip(rates, streams)]
            parts = torch.stack(masks).to(self.device).split(sizes, dim=1)
            return {n: part.reshape(len(rows), images, *self.shapes[n]) for n, part in zip(self.shapes, parts)}

        return step
