"""Masks and constants of W-Asymmetric layers.

A layer with `rows` output neurons and `fan_in` inputs keeps `fan_in - n_fix` entries of every row trainable
and fixes the others:

    M ∈ {0, 1}^(rows × fan_in),  rows of M pairwise distinct and non-zero,      F = κ · N(0, 1)

Distinct, non-zero rows are what the theorem on permutations asks for (Lim et al. 2024, "The Empirical Impact
of Neural Parameter Symmetries, or Lack Thereof", section on W-Asymmetric networks). Differences from the
released code: rows are drawn again until all are distinct (there, luck decides), a fully frozen layer has to
be asked for, and the numbers depend on (seed, layer name) alone. κ is a standard deviation and is not divided
by the fan-in, as there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from asym.seeds import numpy_generator

MODES = ("random", "fewest", "at-least")
"""How rows are chosen: random subsets of n_fix entries, or the subsets in order of size from 0 or from n_fix on."""

GRANULARITIES = ("entry", "channel")
"""What n_fix counts in a convolution: scalar entries of a filter, or whole input channels of it."""


def fewest_n_fix(rows: int, fan_in: int) -> int:
    """The fewest fixed entries a row with which `rows` rows of `fan_in` entries can be distinct and non-zero.

    Raises:
        ValueError: if no number of fixed entries allows it.
    """
    for n_fix in range(fan_in // 2 + 1):
        if n_fix < fan_in and math.comb(fan_in, n_fix) >= rows:
            return n_fix
    raise ValueError(f"fan_in: {rows} rows of {fan_in} entries cannot be distinct with equally many fixed entries")


def most_n_fix(rows: int, fan_in: int) -> int:
    """The most fixed entries a row with which `rows` rows of `fan_in` entries can be distinct and non-zero.

    Raises:
        ValueError: if no number of fixed entries allows it.
    """
    return fan_in - max(1, fewest_n_fix(rows, fan_in))


def check_mask(
    shape: Sequence[int],
    n_fix: int,
    *,
    name: str,
    mode: str = "random",
    granularity: str = "entry",
    allow_frozen: bool = False,
) -> None:
    """Raise what `sample_mask` would raise, without sampling."""
    if mode not in MODES:
        raise ValueError(f"mode: {mode!r} for layer {name!r}; choose from {', '.join(MODES)}")
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity: {granularity!r} for layer {name!r}; choose from {', '.join(GRANULARITIES)}")
    if len(shape) < 2 or min(shape) < 1:
        raise ValueError(f"shape: {tuple(shape)} of layer {name!r} has no rows and columns to mask")
    if n_fix < 0 or (mode == "fewest" and n_fix != 0):
        raise ValueError(f"n_fix: {n_fix} for layer {name!r}; must be at least 0, and 0 in mode 'fewest'")
    rows, fan_in, unit = shape[0], _fan_in(shape, granularity), _UNITS[granularity]
    if n_fix >= fan_in:
        if allow_frozen:
            return
        raise ValueError(
            f"n_fix: {n_fix} for layer {name!r} with a fan-in of {fan_in} {unit} leaves nothing to train; "
            f"choose at most {fan_in - 1}, or allow_frozen=True for a layer frozen on purpose"
        )
    sizes = [n_fix] if mode == "random" else range(n_fix, fan_in)
    possible = 0
    for size in sizes:
        possible += math.comb(fan_in, size)
        if possible >= rows:
            return
    try:
        hint = f"choose n_fix from {fewest_n_fix(rows, fan_in)} to {most_n_fix(rows, fan_in)}"
    except ValueError:
        hint = "no n_fix can; leave this layer plain"
    raise ValueError(
        f"n_fix: {n_fix} of {fan_in} {unit} gives only {possible} distinct rows, layer {name!r} has {rows}; {hint}"
    )


def sample_mask(
    shape: Sequence[int],
    n_fix: int,
    *,
    seed: int,
    name: str,
    mode: str = "random",
    granularity: str = "entry",
    allow_frozen: bool = False,
) -> Bool[Tensor, "*shape"]:
    """A mask of `shape` (out × in, or out × in × kernel…), True where the weight is trainable.

    Rows (one per output neuron or filter, flattened) are pairwise distinct and non-zero.

    Args:
        shape: shape of the weight; the first axis counts rows.
        n_fix: fixed entries a row, or fixed input channels a row with granularity "channel".
        seed: any integer; equal for all networks that are to be compared.
        name: the layer's qualified name.
        mode: "random" subsets; "fewest": the empty set, then all 1-subsets, then all 2-subsets … in
            lexicographic order (n_fix must be 0); "at-least": the same from size n_fix on. The last two use
            no random number.
        granularity: "entry" or "channel" (all kernel positions of an input channel together).
        allow_frozen: return an all-False mask where n_fix reaches the fan-in, in place of an error.

    Raises:
        ValueError: if n_fix ≥ fan-in without `allow_frozen`, or if the rows cannot be distinct.
    """
    check_mask(shape, n_fix, name=name, mode=mode, granularity=granularity, allow_frozen=allow_frozen)
    rows, fan_in = shape[0], _fan_in(shape, granularity)
    if n_fix >= fan_in:
        return torch.zeros(tuple(shape), dtype=torch.bool)
    if mode == "random":
        trainable = _random_rows(rows, fan_in, n_fix, numpy_generator(seed, "mask", name))
    else:
        subsets = (itertools.combinations(range(fan_in), size) for size in range(n_fix, fan_in))
        trainable = _without(rows, fan_in, itertools.islice(itertools.chain.from_iterable(subsets), rows))
    mask = torch.from_numpy(trainable)
    if granularity == "entry":
        return mask.reshape(tuple(shape))
    kernel = (1,) * (len(shape) - 2)
    return mask.reshape(rows, fan_in, *kernel).expand(tuple(shape)).contiguous()


def sample_fixed(shape: Sequence[int], kappa: float, *, seed: int, name: str) -> Float[Tensor, "*shape"]:
    """F of `shape` in float32: independent N(0, κ²), κ a standard deviation that no fan-in divides.

    F is κ times a normal matrix that does not depend on κ.

    Raises:
        ValueError: if κ is negative or not finite.
    """
    if not (math.isfinite(kappa) and kappa >= 0):
        raise ValueError(f"kappa: {kappa} for layer {name!r}; must be a finite number of at least 0")
    normal = numpy_generator(seed, "fixed", name).standard_normal(tuple(shape), dtype=np.float32)
    return torch.from_numpy(np.float32(kappa) * normal)


_UNITS = {"entry": "entries", "channel": "channels"}


def _fan_in(shape: Sequence[int], granularity: str) -> int:
    return math.prod(shape[1:]) if granularity == "entry" else shape[1]


def _random_rows(rows: int, fan_in: int, n_fix: int, rng: np.random.Generator) -> np.ndarray:
    """Distinct random rows, uniform over the sets of `rows` distinct n_fix-subsets."""
    possible = math.comb(fan_in, n_fix)
    if possible <= 4 * rows:  # rejection would be slow: draw from the list of all subsets, of the smaller side
        small = min(n_fix, fan_in - n_fix)
        subsets = list(itertools.combinations(range(fan_in), small))
        chosen = _without(rows, fan_in, (subsets[i] for i in rng.permutation(possible)[:rows]))
        return chosen if small == n_fix else ~chosen
    trainable = _draw(rows, fan_in, n_fix, rng)
    while True:
        _, first = np.unique(np.packbits(trainable, axis=1), axis=0, return_index=True)
        repeated = np.setdiff1d(np.arange(rows), first)
        if repeated.size == 0:
            return trainable
        trainable[repeated] = _draw(repeated.size, fan_in, n_fix, rng)


def _draw(rows: int, fan_in: int, n_fix: int, rng: np.random.Generator) -> np.ndarray:
    """Rows with n_fix random False entries each, not necessarily distinct."""
    trainable = np.ones((rows, fan_in), dtype=bool)
    if n_fix:
        fixed = np.argpartition(rng.random((rows, fan_in)), n_fix - 1, axis=1)[:, :n_fix]
        np.put_along_axis(trainable, fixed, False, axis=1)
    return trainable


def _without(rows: int, fan_in: int, subsets) -> np.ndarray:
    """Rows that are True outside the given subsets of columns."""
    trainable = np.ones((rows, fan_in), dtype=bool)
    for row, subset in zip(trainable, subsets, strict=True):
        row[list(subset)] = False
    return trainable
