"""Timing two ways of doing the same work in one process, in turns, so that a busy machine slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from asym.data import Augment, ImageData, Split, load
from asym.seeds import torch_generator


def compare(
    name: str,
    ours: Callable[[], Any],
    reference: Callable[[], Any],
    *,
    target: float,
    repeats: int = 3,
    per: float = 1.0,
    note: str = "",
    setup: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """Median seconds of both, after a warm-up of each, and the ratio reference / ours.

    Args:
        name: of the row.
        ours: our way.
        reference: the plain way; the same work, or `per` times less of it.
        target: the ratio to pass.
        repeats: timed runs of each, in turns.
        per: how many times the reference's work ours does.
        note: conditions.
        setup: a change of this process that is part of our way and cannot be undone; the reference then runs first,
            all of it, in place of in turns.
    """
    times: tuple[list[float], list[float]] = ([], [])
    turns = [(times[0], ours), (times[1], reference)] * repeats
    if setup is not None:
        turns.sort(key=lambda turn: turn[1] is ours)
    for kept, function in turns:
        if function is ours and not kept and setup is not None:
            setup()
        for warm_up in (True, False) if not kept else (False,):
            start = time.perf_counter()
            function()
            if not warm_up:
                kept.append(time.perf_counter() - start)
    mine, plain = (statistics.median(kept) for kept in times)
    return {
        "name": name,
        "ratio": plain * per / mine,
        "target": target,
        "ours_s": mine,
        "reference_s": plain * per,
        "note": note,
    }


def random_images(channels: int, side: int, count: int) -> ImageData:
    """Random images with random labels of ten classes, with the augmentation of CIFAR where large enough."""
    generator = torch_generator(0, "benchmark", channels, side)
    images = torch.randint(0, 256, (count, channels, side, side), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (count,), generator=generator))
    augment = Augment(4, True) if side >= 32 else Augment(0, False)
    return ImageData(
        name="random",
        classes=10,
        class_names=tuple("0123456789"),
        input_shape=(channels, side, side),
        train=split,
        val=split,
        test=split,
        mean=(127.5,) * channels,
        std=(73.6,) * channels,
        fingerprint=f"random-{channels}-{side}-{count}",
        augment=augment,
    )


def large_digits(side: int = 32, channels: int = 3) -> ImageData:
    """The digits enlarged to the size of CIFAR's images: real data for a comparison of accuracies."""
    small = load("digits")

    def grow(split: Split) -> Split:
        factor = side // 8
        big = split.images.repeat_interleave(factor, dim=2).repeat_interleave(factor, dim=3)
        return Split(big.repeat(1, channels, 1, 1).contiguous(), split.labels)

    return ImageData(
        name=f"digits-{side}",
        classes=10,
        class_names=small.class_names,
        input_shape=(channels, side, side),
        train=grow(small.train),
        val=grow(small.val),
        test=grow(small.test),
        mean=small.mean * channels,
        std=small.std * channels,
        fingerprint=f"{small.fingerprint}-{side}-{channels}",
        augment=Augment(2, False),
    )


def single_thread() -> None:
    """One computing thread, as the project's processes have."""
    torch.set_num_threads(1)
