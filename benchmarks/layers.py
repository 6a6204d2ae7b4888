"""What a mask costs: a training step of a W ResNet-20 against that of the plain one."""

from __future__ import annotations

from typing import Any

from asym.nn import Variant
from asym.populations import Architecture, Member, Recipe, make_plan, train_chunk
from asym.populations.plan import keep_freed_memory
from benchmarks.harness import compare, random_images, single_thread

TARGET = 0.95


def run(images: int = 2560) -> list[dict[str, Any]]:
    """The ratio plain / W of an epoch; one means that the mask is free."""
    import torch

    single_thread()
    keep_freed_memory()
    data = random_images(3, 32, images)
    standard, masked = (
        Architecture("resnet20", data.input_shape, data.classes, variant=Variant(name)) for name in ("standard", "w")
    )
    plan = make_plan(standard.build(0), data.input_shape, 128, torch.device("cpu"))
    member = Member(0, 0, Recipe(lr=1e-3, epochs=1))
    return [
        compare(
            "step of a W resnet20 against the plain one",
            lambda: train_chunk(masked, [member], data, plan),
            lambda: train_chunk(standard, [member], data, plan),
            target=TARGET,
            repeats=5,
            note=f"{images // 128} steps of 128 images at 3x32x32, one thread, {plan.dtype}; the W network's masks "
            "are drawn within the time",
        )
    ]
