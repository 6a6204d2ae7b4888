"""Many small networks (the Small CNN Zoo's) trained as a population, against one by one the plain way."""

from __future__ import annotations

from typing import Any

from asym.models import build
from asym.populations import Architecture, Member, Population, Recipe, chunks_of, plan_for, run_tasks, train_chunk
from asym.populations.plan import keep_freed_memory
from benchmarks.harness import compare, random_images, single_thread
from benchmarks.reference import plain_epoch

NETWORKS = 64
SIZES = ((8, 64, 640, 4.0), (32, 128, 640, 2.0))
"""Side, batch size, images, target."""
REFERENCE_NETWORKS = 4
"""The plain way trains so many and is scaled up: its time is proportional."""


def run() -> list[dict[str, Any]]:
    """A row for each image size in one process, then one in two processes."""
    single_thread()
    keep_freed_memory()
    rows = []
    for side, batch, images, target in SIZES:
        data = random_images(1, side, images)

        def reference(data=data, batch=batch) -> None:
            for _ in range(REFERENCE_NETWORKS):
                network = build("small-cnn", input_shape=data.input_shape, classes=10)
                plain_epoch(network, data, batch_size=batch, lr=1e-3)

        def ours(side=side, images=images, batch=batch) -> None:
            train_share(side, images, batch, 0, NETWORKS)

        row = compare(
            f"{NETWORKS} small networks at {side}x{side}",
            ours,
            reference,
            target=target,
            per=NETWORKS / REFERENCE_NETWORKS,
            note=f"batch {batch}, {images} images, one process, chunk {_plan(side, images, batch).chunk}",
        )
        rows.append(row)
        half = NETWORKS // 2
        shares = [(side, images, batch, 0, half), (side, images, batch, half, NETWORKS)]
        two = compare(
            f"{NETWORKS} small networks at {side}x{side}, two processes",
            lambda shares=shares: run_tasks(train_share_twice, shares, jobs=2),
            reference,
            target=0.0,
            per=2 * NETWORKS / REFERENCE_NETWORKS,
            note="starting the processes (some seconds) included; reported, no target",
            repeats=1,
        )
        rows.append(two)
    return rows


def _plan(side: int, images: int, batch: int):
    data = random_images(1, side, images)
    return plan_for(_population(data, batch, 0, NETWORKS), "cpu")


def _population(data, batch: int, first: int, last: int) -> Population:
    recipe = Recipe(lr=1e-3, epochs=1, batch_size=batch)
    architecture = Architecture("small-cnn", data.input_shape, data.classes)
    return Population(architecture, tuple(Member(i, 0, recipe) for i in range(first, last)), data.fingerprint)


def train_share(side: int, images: int, batch: int, first: int, last: int) -> None:
    """Train networks `first` to `last` for an epoch."""
    data = random_images(1, side, images)
    population = _population(data, batch, first, last)
    plan = plan_for(population, "cpu")
    for chunk in chunks_of(population, plan):
        train_chunk(chunk.architecture, chunk.members, data, plan)


def train_share_twice(side: int, images: int, batch: int, first: int, last: int) -> None:
    """Two epochs' worth, so that starting a process weighs less."""
    for _ in range(2):
        train_share(side, images, batch, first, last)
