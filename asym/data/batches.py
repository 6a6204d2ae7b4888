"""Batches for many networks at once: each network has an order of images and an augmentation of its own.

All random numbers of an epoch are drawn from generators named by (network's seed, purpose, epoch), before its first
batch: they depend neither on the other networks nor on where training was resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from asym.data.images import ImageData
from asym.data.transforms import apply_augmentation, draw_augmentation
from asym.seeds import numpy_generator


class ImageBatches:
    """Batches of each network's own order and augmentation."""

    def __init__(
        self,
        data: ImageData,
        seeds: Sequence[int],
        batch_size: int,
        augment: str,
        device: torch.device,
    ) -> None:
        self.data, self.seeds, self.batch_size = data, seeds, batch_size
        self.augment = augment if (data.augment.pad or data.augment.flip) else "none"
        self.split = data.train.to(device)

    @property
    def steps(self) -> int:
        """Batches of an epoch; the last one may be smaller."""
        return -(-len(self.split) // self.batch_size)

    def epoch(self, rows: list[int], epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images `k b c h w`, normalised; labels `k b`)."""
        count = len(self.split.labels)
        orders, draws = [], []
        for i in rows:
            order = numpy_generator(self.seeds[i], "order", epoch).permutation(count)
            orders.append(torch.from_numpy(order).to(self.split.labels.device))
            if self.augment != "none":
                draws.append(self._draw(numpy_generator(self.seeds[i], "augment", epoch), count))
        for at in range(0, count, self.batch_size):
            picked = torch.stack([order[at : at + self.batch_size] for order in orders])
            flat = picked.reshape(-1)
            images = self.split.images[flat]
            if self.augment != "none":
                shifts = torch.cat([s[at : at + self.batch_size] for s, _ in draws])
                flips = torch.cat([f[at : at + self.batch_size] for _, f in draws])
                images = apply_augmentation(images, shifts, flips, self.data.augment)
            images = self.data.normalise(images)
            yield images.unflatten(0, picked.shape), self.split.labels[picked]

    def _draw(self, generator: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        device = self.split.labels.device
        if self.augment == "image":
            shifts, flips = draw_augmentation(generator, count, self.data.augment)
        else:  # one decision for each batch, as the released code does
            steps = -(-count // self.batch_size)
            shifts, flips = draw_augmentation(generator, steps, self.data.augment)
            shifts, flips = (x.repeat_interleave(self.batch_size, dim=0)[:count] for x in (shifts, flips))
        return shifts.to(device), flips.to(device)
