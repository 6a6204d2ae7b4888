"""Which item goes where: seeded, the same in every process, and independent of PyTorch's generators.

Published: the official training set is split 90/10 into training and validation with split seed 42. The
seed is kept; the permutation is this project's own (`asym.seeds`), so the items differ from those of the
released code.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from asym.seeds import numpy_generator

OFFICIAL_SEED = 42
VALIDATION_SHARE = 0.1


def validation_split(n: int) -> tuple[Int[Tensor, " t"], Int[Tensor, " v"]]:
    """Places of training and validation items among n: 90 % and 10 %, not stratified, in ascending order."""
    order = numpy_generator(OFFICIAL_SEED, "data", "validation split", n).permutation(n)
    held_out = max(1, round(VALIDATION_SHARE * n))
    return _ascending(order[held_out:]), _ascending(order[:held_out])


def stratified_split(labels: Int[Tensor, " n"], sizes: Sequence[int], seed: int) -> list[Int[Tensor, " k"]]:
    """Disjoint parts of given sizes in which every class has its share, up to rounding.

    Args:
        labels: class of every item.
        sizes: sizes of the parts, at most n together.
        seed: of the draw.

    Returns:
        The places of each part's items in ascending order. The parts are cut, one after the other, from one
        order of the items in which the classes are evenly spread; so the first k items of a part do not
        depend on its size.

    Raises:
        ValueError: the sizes exceed the number of items, or one is negative.
    """
    n = len(labels)
    if min(sizes) < 0 or sum(sizes) > n:
        raise ValueError(f"sizes: {tuple(sizes)} out of {n} items")
    order = _spread(labels.numpy(), seed)
    stops = np.cumsum([0, *sizes])
    return [_ascending(order[start:stop]) for start, stop in itertools.pairwise(stops)]


def stratified_subset(labels: Int[Tensor, " n"], size: int, seed: int = 0) -> Int[Tensor, " k"]:
    """Places of `size` items, every class with its share; a smaller subset lies within a larger one."""
    return stratified_split(labels, [size], seed)[0]


def _spread(labels: np.ndarray, seed: int) -> np.ndarray:
    # The item of rank r among the m of its class goes to (r + u) / m in [0, 1], u one draw per class.
    position = np.empty(len(labels))
    for label in np.unique(labels):
        generator = numpy_generator(seed, "data", "stratified order", int(label))
        places = generator.permutation(np.flatnonzero(labels == label))
        position[places] = (np.arange(len(places)) + generator.random()) / len(places)
    return np.argsort(position, kind="stable")


def _ascending(index: np.ndarray) -> Int[Tensor, " k"]:
    return torch.from_numpy(np.sort(index)).long()
