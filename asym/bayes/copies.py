"""Which copy of a mode a draw lies in: the group of a one-hidden-layer network, and the element nearest to a draw.

A hidden layer of m units with an odd activation computes the same function after any permutation of its units and any
change of sign of a unit's incoming (weights and bias) and outgoing weights: m! · 2^m copies of each point, 'm!' with an
activation that is not odd (ReLU). The element that brings a draw closest to a reference solves an assignment problem:
with a_i, r_j the vectors of incoming and outgoing weights of unit i of the draw and j of the reference,

    maximise over permutations π and signs s:  Σ_j s_j ⟨a_π(j), r_j⟩,        s_j the sign of ⟨a_π(j), r_j⟩

since |Σ ‖s a − r‖²| differs from it by a constant. Two draws with different elements lie in different copies; how many
elements a sampler has visited says how many of the copies it has found.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment


def group_order(hidden: int, *, odd: bool) -> int:
    """m! · 2^m for an odd activation, m! otherwise."""
    return math.factorial(hidden) * (2**hidden if odd else 1)


def nearest_element(units: ArrayLike, reference: ArrayLike, *, odd: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(permutation, signs) such that `signs[j] · units[permutation[j]]` is closest to `reference[j]`.

    Args:
        units: `[m, k]`, incoming and outgoing weights of each unit.
        reference: `[m, k]`.
        odd: whether signs may change.
    """
    gain = np.asarray(reference, dtype=float) @ np.asarray(units, dtype=float).T
    _, order = linear_sum_assignment(np.abs(gain) if odd else gain, maximize=True)
    picked = gain[np.arange(len(gain)), order]
    signs = np.where((picked < 0) & odd, -1, 1)
    return tuple(int(i) for i in order), tuple(int(s) for s in signs)


def visited(units: ArrayLike, reference: ArrayLike, *, odd: bool, share: float = 0.01) -> tuple[int, np.ndarray]:
    """How many group elements at least `share` of the draws are nearest to, and all draws moved to the reference.

    Args:
        units: `[s, m, k]`, draws.
        reference: `[m, k]`.
        odd: whether signs may change.
        share: copies with fewer draws are not counted: near the border of two copies a draw may fall to either side.
    """
    draws = np.asarray(units, dtype=float)
    counts: dict[tuple, int] = {}
    aligned = np.empty_like(draws)
    for i, draw in enumerate(draws):
        order, signs = nearest_element(draw, reference, odd=odd)
        counts[order, signs] = counts.get((order, signs), 0) + 1
        aligned[i] = draw[list(order)] * np.asarray(signs)[:, None]
    return sum(count >= share * len(draws) for count in counts.values()), aligned
