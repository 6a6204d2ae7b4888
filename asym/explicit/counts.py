"""Co-occurrence counts in one pass over a text, block after block.

    C^(δ)[u, v] = number of places i with token u at i and v at i + δ, both in one document

Counts are sums, so that shards can be counted apart, in several processes, and added: C of a union is the sum of its
parts' C. A block of places becomes numbers u V + v; a small vocabulary counts them into V² cells (`bincount`), a large
one sorts them and merges distinct ones, so that memory is that of a block and of the distinct pairs, whatever the
length of the text (which may be a memory map).

Arithmetic for 10⁸ tokens: 0.4 GB as int32, read once for each δ. At the 10 to 30 million tokens a second a processor
that `benchmarks.counting` measures, an offset takes seconds, a window of ± 8 a few minutes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from scipy import sparse

from asym.populations.workers import run_tasks

BLOCK = 1 << 20
"""Places that are counted at a time, at least."""
DENSE_CELLS = 1 << 25
"""A table of at most so many cells (256 MB) is counted as a whole."""
Counts = np.ndarray | sparse.csr_array


class PairCounter:
    """Counts of pairs of tokens of a vocabulary of `size`.

    Args:
        size: V.
        dense: whether to hold all V² cells; by default where that are at most `DENSE_CELLS`.
    """

    def __init__(self, size: int, *, dense: bool | None = None) -> None:
        if size < 1:
            raise ValueError(f"size: got {size}, must be at least 1")
        self.size = size
        self.dense = size * size <= DENSE_CELLS if dense is None else dense
        self._cells = np.zeros(size * size, dtype=np.int64) if self.dense else None
        self._kept: tuple[np.ndarray, np.ndarray] = (np.empty(0, np.int64), np.empty(0, np.int64))
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]) -> None:
        """Count pairs.

        Raises:
            ValueError: a token outside the vocabulary.
        """
        if len(first) == 0:
            return
        if min(first.min(), second.min()) < 0 or max(first.max(), second.max()) >= self.size:
            raise ValueError(f"tokens: must lie between 0 and {self.size - 1}")
        keys = first.astype(np.int64)
        keys *= self.size
        keys += second
        if self._cells is not None:
            self._cells += np.bincount(keys, minlength=len(self._cells))
            return
        keys.sort()
        self._wait(_runs(keys, None))

    def add_stream(self, ids: Int[np.ndarray, " n"], starts: Int[np.ndarray, " d"], offset: int) -> None:
        """Count every token with the one `offset` ≠ 0 places further in the same document.

        Args:
            ids: the text; it may be a memory map.
            starts: where documents begin, rising from 0.
            offset: δ.

        Raises:
            ValueError: an offset of 0, a token outside the vocabulary.
        """
        if offset == 0:
            raise ValueError("offset: must not be 0")
        reach = abs(offset)
        block = max(BLOCK, self.size * self.size if self.dense else 0)
        for low in range(0, len(ids) - reach, block):
            high = min(low + block, len(ids) - reach)
            part = np.asarray(ids[low : high + reach])
            inside = starts[np.searchsorted(starts, low, "right") : np.searchsorted(starts, high + reach, "left")] - low
            early, late = part[:-reach], part[reach:]
            if len(inside):
                fence = np.zeros(len(part), dtype=np.int32)
                fence[inside] = 1
                document = fence.cumsum(dtype=np.int32)
                same = document[:-reach] == document[reach:]
                early, late = early[same], late[same]
            self.add(*((early, late) if offset > 0 else (late, early)))

    def merge(self, other: PairCounter) -> None:
        """Add the counts of another text.

        Raises:
            ValueError: another vocabulary size.
        """
        if other.size != self.size:
            raise ValueError(f"size: {other.size} tokens cannot be added to {self.size}")
        if self._cells is not None and other._cells is not None:
            self._cells += other._cells
        else:
            keys, counts = other.items()
            if self._cells is not None:
                self._cells[keys] += counts
            else:
                self._wait((keys, counts))

    def items(self) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
        """The distinct pairs as u V + v, rising, and their counts."""
        if self._cells is not None:
            keys = np.flatnonzero(self._cells)
            return keys, self._cells[keys]
        if self._waiting:
            parts = [self._kept, *self._waiting]
            self._waiting = []
            keys = np.concatenate([keys for keys, _ in parts])
            order = np.argsort(keys, kind="stable")
            self._kept = _runs(keys[order], np.concatenate([counts for _, counts in parts])[order])
        return self._kept

    def matrix(self) -> Counts:
        """C `[V, V]`: an array, or a sparse one where the vocabulary is large."""
        if self._cells is not None:
            return self._cells.reshape(self.size, self.size)
        keys, counts = self.items()
        return sparse.csr_array((counts, (keys // self.size, keys % self.size)), shape=(self.size, self.size))

    def _wait(self, part: tuple[np.ndarray, np.ndarray]) -> None:
        self._waiting.append(part)
        if sum(len(keys) for keys, _ in self._waiting) > len(self._kept[0]) + BLOCK:
            self.items()  # merging waits until there is as much new as old, so that each pair is moved few times


def count_pairs(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    size: int,
    offsets: Sequence[int],
    *,
    jobs: int = 1,
    dense: bool | None = None,
) -> dict[int, Counts]:
    """C^(δ) of a text in parts, a task for each part and offset, in `jobs` processes.

    Args:
        parts: `(ids, starts)` of each shard.
        size: V.
        offsets: the δ.
        jobs: processes.
        dense: see `PairCounter`.

    Raises:
        ValueError: see `PairCounter` and `asym.populations.run_tasks`.
    """
    tasks = [(ids, starts, size, offset, dense) for offset in offsets for ids, starts in parts]
    totals = {offset: PairCounter(size, dense=dense) for offset in offsets}

    def keep(result: tuple[int, PairCounter]) -> None:
        totals[result[0]].merge(result[1])

    run_tasks(_count, tasks, jobs=jobs, on_result=keep)
    return {offset: counter.matrix() for offset, counter in totals.items()}


def _count(ids: np.ndarray, starts: np.ndarray, size: int, offset: int, dense: bool | None) -> tuple[int, PairCounter]:
    counter = PairCounter(size, dense=dense)
    counter.add_stream(ids, starts, offset)
    return offset, counter


def _runs(keys: np.ndarray, counts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Distinct values of sorted keys and the sum of counts (ones if not given) of each."""
    if len(keys) == 0:
        return keys, np.empty(0, dtype=np.int64)
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    if counts is None:
        return keys[first], np.diff(np.append(first, len(keys)))
    return keys[first], np.add.reduceat(counts, first)
