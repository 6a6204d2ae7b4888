"""Cutting an axis into pieces: what reshapes, concatenations and splits of axes have in common."""

from __future__ import annotations

from collections.abc import Sequence


def piece_ends(sizes: Sequence[int]) -> list[int]:
    """Where pieces of these sizes end."""
    total, ends = 0, []
    for size in sizes:
        total += size
        ends.append(total)
    return ends


def piece_sizes(ends: Sequence[int]) -> list[int]:
    """Sizes of pieces that end there."""
    return [end - start for start, end in zip([0, *ends], ends)]


def consecutive_runs(sizes: Sequence[int], wanted: Sequence[int]) -> list[list[int]] | None:
    """Which consecutive pieces of these sizes make up pieces of the wanted sizes; None where they do not."""
    ends, starts = piece_ends(sizes), [0, *piece_ends(sizes)]
    runs, start = [], 0
    for end in piece_ends(wanted):
        if start not in starts or end not in ends:
            return None
        runs.append(list(range(starts.index(start), ends.index(end) + 1)))
        start = end
    return runs


def common_factors(a: Sequence[int], b: Sequence[int]) -> list[int] | None:
    """The sizes of the coarsest product that refines both products; None where there is none."""
    queue_a, queue_b, result = list(a), list(b), []
    while queue_a and queue_b:
        x, y = queue_a.pop(0), queue_b.pop(0)
        small = min(x, y)
        if x % small or y % small:
            return None
        result.append(small)
        if x > small:
            queue_a.insert(0, x // small)
        if y > small:
            queue_b.insert(0, y // small)
    return result
