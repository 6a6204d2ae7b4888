"""Loss and accuracy of many weight vectors of one network, and of the straight line between two of them.

Evaluation is always in float32 and in evaluation mode, on normalised images without augmentation. Where a network has
BatchNorm, a point of a path gets statistics of its own: they are re-estimated as the plain average over training
batches, at the end points too, since averaging the statistics of two networks gives those of neither (Jordan et al.,
"REPAIR", 2023). On a graph a pass in training mode sees all nodes: it gives the statistics whole, and more passes would
repeat it, where nothing is drawn at random.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from asym.data import Data, Items
from asym.populations.layout import Layout, channels_last
from asym.seeds import numpy_generator

S = TypeVar("S", bound=Items)

EVAL_BATCH = 250
BATCHNORM_BATCHES = 20
BATCHNORM_BATCH_SIZE = 128


class Evaluator:
    """Evaluates rows of a `Layout` through one module, with the batches of its splits prepared once.

    Args:
        network: a module of the right architecture; a copy of it is used, its own weights do not matter.
        layout: what a row holds.
        data: makes inputs of items, and has the training items for BatchNorm statistics.
        splits: name → split to evaluate on.
        device: where to compute.
        reestimate: whether running statistics of BatchNorm are re-estimated for each row.
    """

    def __init__(
        self,
        network: nn.Module,
        layout: Layout,
        data: Data,
        splits: Mapping[str, Items],
        *,
        device: torch.device | str = "cpu",
        reestimate: bool = False,
    ) -> None:
        self.network, self.layout, self.data = copy.deepcopy(network).to(device).eval(), layout, data
        self.device, self.splits = torch.device(device), splits
        self.channels_last = any(isinstance(m, nn.Conv2d) for m in network.modules())
        if self.channels_last:
            self.network.to(memory_format=torch.channels_last)
        self._batches = {name: self._prepare(split, EVAL_BATCH) for name, split in splits.items()}
        self._calibration = []
        if reestimate and Layout.running(network).names:
            sample = subset(data.train, BATCHNORM_BATCHES * BATCHNORM_BATCH_SIZE, "batchnorm")
            self._calibration = self._prepare(sample, BATCHNORM_BATCH_SIZE)

    def __call__(self, row: Float[Tensor, " p"]) -> dict[str, tuple[float, float]]:
        """Split name → (mean cross-entropy in nats, accuracy as a fraction) at one weight vector."""
        self._set(row)
        return {name: self._measure(batches) for name, batches in self._batches.items()}

    @torch.no_grad()
    def logits(self, row: Float[Tensor, " p"]) -> dict[str, tuple[Float[Tensor, "b c"], Tensor]]:
        """Split name → (logits `b c`, labels `b`) at one weight vector, for measures that a mean does not give."""
        self._set(row)
        out = {}
        for name, batches in self._batches.items():
            found = torch.cat([self.network(images) for images, _ in batches])
            out[name] = (found.cpu(), torch.cat([labels for _, labels in batches]).cpu())
        return out

    def _set(self, row: Float[Tensor, " p"]) -> None:
        self.layout.load_(self.network, row.to(self.device))
        if self._calibration:
            reestimate_running(self.network, [images for images, _ in self._calibration])

    @torch.no_grad()
    def _measure(self, batches: Sequence[tuple[Any, Tensor]]) -> tuple[float, float]:
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        hits, count = torch.zeros((), dtype=torch.int64, device=self.device), 0
        for images, labels in batches:
            logits = self.network(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").double()
            hits += (logits.argmax(dim=1) == labels).sum()
            count += len(labels)
        return loss.item() / count, hits.item() / count

    def _prepare(self, split: Items, batch_size: int) -> list[tuple[Any, Tensor]]:
        batches = []
        for part in split.parts(batch_size):
            part = part.to(self.device)
            x = self.data.inputs(part)
            batches.append((channels_last(x) if self.channels_last else x, part.labels))
        return batches


def subset(split: S, count: int | None, name: str) -> S:
    """A random part of `split`, the same for every caller with this `name`; the whole if `count` is None or larger."""
    if count is None or count >= len(split.labels):
        return split
    order = numpy_generator(0, "subset", name).permutation(len(split.labels))[:count]
    return split.take(torch.from_numpy(order.copy()))


@torch.no_grad()
def reestimate_running(network: nn.Module, batches: Sequence[Any]) -> None:
    """Replace BatchNorm's running statistics by their plain average over `batches` of inputs at the present weights."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average
    was_training = network.training
    network.train()
    try:
        for images in batches:
            network(images)
    finally:
        network.train(was_training)
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum


def path(
    evaluate: Evaluator,
    row_a: Float[Tensor, " p"],
    row_b: Float[Tensor, " p"],
    lambdas: Sequence[float],
    *,
    on_point: Callable[[], None] = lambda: None,
) -> dict[str, tuple[list[float], list[float]]]:
    """Split name → (losses, accuracies) at (1 − λ) a + λ b for each λ; exactly a and b at 0 and 1."""
    curves: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in evaluate.splits}
    for lam in lambdas:
        row = row_a if lam == 0 else row_b if lam == 1 else torch.lerp(row_a, row_b, lam)
        for name, (loss, accuracy) in evaluate(row).items():
            curves[name][0].append(loss)
            curves[name][1].append(accuracy)
        on_point()
    return curves
