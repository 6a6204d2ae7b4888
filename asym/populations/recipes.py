"""How a network is trained, as data: optimiser, rate, schedule, epochs, batch, smoothing, augmentation, dropout.

Every number of a `Recipe` may differ between the networks of one population; the optimiser and the batch size group
the networks that can take a step together. The learning rate at epoch t (a real number, the step divided by the steps
of an epoch) is `lr * factor(t)`:

| schedule | factor |
|---|---|
| `constant` | 1 |
| `linear` | min(1, t / w): linear warm-up over w epochs, then constant |
| `geometric` | 100^(min(⌊t⌋, w) / w − 1): a hundredth at first, times 100^(1/w) at each epoch up to w, then constant |
| `triangular` | t / w up to w, then falling linearly to 0 at the last epoch |
| `cosine` | linear warm-up over w epochs, then half a cosine down to 0 |

with w = `warmup` epochs. The geometric one with w = 20 is the warm-up of the asymmetric-networks paper for ResNet-20
(1e-4 multiplied by 1.259 at each of twenty epochs, then constant at 1e-2); the triangular one is that of its zoos.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

OptimizerName = Literal["sgd", "momentum", "rmsprop", "adam", "adamw"]
ScheduleName = Literal["constant", "linear", "geometric", "triangular", "cosine"]
AugmentMode = Literal["image", "batch", "none"]
StartName = Literal["own", "glorot_normal", "he_normal", "orthogonal", "normal", "truncated_normal"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What determines the training of one network, its seed and data aside."""

    optimizer: OptimizerName = "adamw"
    """`sgd`, `momentum` (0.9, not Nesterov), `rmsprop`, `adam` (L2 penalty) or `adamw` (decoupled decay)."""
    lr: float = 1e-3
    """Peak learning rate, positive."""
    weight_decay: float = 0.0
    """Weight decay, not negative; on all trainable entries, as in the published runs."""
    schedule: ScheduleName = "constant"
    """Course of the learning rate, see the module."""
    warmup: float = 0.0
    """Epochs of warm-up."""
    epochs: int = 20
    """Passes over the training split."""
    batch_size: int = 128
    """Images a step; the last batch of an epoch may be smaller."""
    smoothing: float = 0.0
    """Label smoothing in [0, 1)."""
    augment: AugmentMode = "image"
    """One random crop and flip per `image`, one per `batch` (as the released code does), or `none`."""
    train_fraction: float = 1.0
    """Share of the training images that the network sees, in (0, 1]; a smaller share lies within a larger one."""
    start: StartName = "own"
    """Distribution of initial weights: the architecture's own, or one of `asym.nn.init` with biases at zero."""
    start_std: float = 0.05
    """Standard deviation of the starts `normal` and `truncated_normal`."""
    dropout: float = 0.0
    """Share of the entries that a training step drops, in [0, 1), at each `asym.nn.Dropout` of the architecture; one
    that has none takes 0 alone."""

    def __post_init__(self) -> None:
        def check(ok: bool, field: str, valid: str) -> None:
            if not ok:
                raise ValueError(f"{field}: got {getattr(self, field)!r}, must be {valid}")

        check(self.optimizer in get_args(OptimizerName), "optimizer", f"one of {get_args(OptimizerName)}")
        check(self.schedule in get_args(ScheduleName), "schedule", f"one of {get_args(ScheduleName)}")
        check(self.augment in get_args(AugmentMode), "augment", f"one of {get_args(AugmentMode)}")
        check(math.isfinite(self.lr) and self.lr > 0, "lr", "a positive number")
        check(math.isfinite(self.weight_decay) and self.weight_decay >= 0, "weight_decay", "zero or positive")
        check(math.isfinite(self.warmup) and self.warmup >= 0, "warmup", "zero or a positive number of epochs")
        check(self.epochs >= 1, "epochs", "at least 1")
        check(self.batch_size >= 1, "batch_size", "at least 1")
        check(0 <= self.smoothing < 1, "smoothing", "in [0, 1)")
        check(0 < self.train_fraction <= 1, "train_fraction", "in (0, 1]")
        check(self.start in get_args(StartName), "start", f"one of {get_args(StartName)}")
        check(math.isfinite(self.start_std) and self.start_std > 0, "start_std", "a positive number")
        check(0 <= self.dropout < 1, "dropout", "in [0, 1)")
        if self.schedule == "triangular":
            check(0 < self.warmup < self.epochs, "warmup", "between 0 and the epochs for a triangular schedule")

    def lr_at(self, epoch: float) -> float:
        """The learning rate at real-valued `epoch` in [0, epochs]."""
        return self.lr * _factor(self.schedule, epoch, self.warmup, self.epochs)


def _factor(schedule: ScheduleName, t: float, w: float, total: int) -> float:
    if schedule == "constant":
        return 1.0
    if schedule == "geometric":
        return 100.0 ** (min(math.floor(t), w) / w - 1) if w else 1.0
    rising = min(1.0, t / w) if w else 1.0
    if schedule == "linear" or t < w:
        return rising
    if schedule == "triangular":
        return max(0.0, (total - t) / (total - w))
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (t - w) / max(total - w, 1e-9))))
