"""A full training epoch of ResNet-20 on images of CIFAR's size: data, augmentation, step."""

from __future__ import annotations

from typing import Any

import numpy as np

from asym.intervals import paired_interval
from asym.models import build
from asym.populations import Architecture, Evaluator, Layout, Member, Recipe, make_plan, train_chunk
from asym.populations.plan import keep_freed_memory
from benchmarks.harness import compare, large_digits, random_images, single_thread
from benchmarks.reference import plain_epoch

TARGET_BF16, TARGET_FLOAT32 = 3.0, 1.7


def run(images: int = 2560) -> list[dict[str, Any]]:
    """The speed ratio, then the difference in accuracy with its 95 % interval over seeds."""
    single_thread()
    data = random_images(3, 32, images)
    architecture = Architecture("resnet20", data.input_shape, data.classes)
    plan = make_plan(architecture.build(0), data.input_shape, 128, _cpu())
    member = Member(0, 0, Recipe(lr=1e-3, epochs=1))

    def reference() -> None:
        plain_epoch(build("resnet20", input_shape=data.input_shape, classes=10), data, batch_size=128, lr=1e-3)

    speed = compare(
        "epoch of resnet20 at 3x32x32",
        lambda: train_chunk(architecture, [member], data, plan),
        reference,
        setup=keep_freed_memory,
        target=TARGET_BF16 if plan.dtype == "bfloat16" else TARGET_FLOAT32,
        note=f"{images} images, one thread, {plan.dtype}, channels-last, freed memory kept",
    )
    return [speed]


def accuracy(seeds: int = 10, epochs: int = 30, side: int = 16, lr: float = 3e-3) -> list[dict[str, Any]]:
    """Test accuracy and loss of networks trained our way minus those trained the plain way, same initial weights.

    Trained to the end, at half of CIFAR's side: short trainings differ by more between two seeds than between two ways.
    """
    single_thread()
    data = large_digits(side)
    architecture = Architecture("resnet20", data.input_shape, data.classes)
    network = architecture.build(0)
    layout = Layout.full(network)
    plan = make_plan(network, data.input_shape, 128, _cpu())
    evaluate = Evaluator(network, layout, data, {"test": data.test})
    ours, plain = [], []
    for seed in range(seeds):
        trained = train_chunk(architecture, [Member(seed, 0, Recipe(lr=lr, epochs=epochs))], data, plan)
        ours.append(evaluate(trained.theta[0])["test"])
        other = architecture.build(seed)
        plain_epoch(other, data, batch_size=128, lr=lr, epochs=epochs, order=seed)
        plain.append(evaluate(layout.flatten(other.state_dict()))["test"])
    rows = []
    for i, what in enumerate(("loss", "accuracy")):
        a, b = (np.array([value[i] for value in values]) for values in (ours, plain))
        mean, low, high, n = paired_interval(a, b)
        rows.append(
            {
                "name": f"test {what} after {epochs} epochs, ours minus plain",
                "difference": mean,
                "low": low,
                "high": high,
                "note": f"digits at 3x{side}x{side}, n = {n}, ours {a.mean():.4f} ({plan.dtype}), plain {b.mean():.4f}",
            }
        )
    return rows


def _cpu():
    import torch

    return torch.device("cpu")
