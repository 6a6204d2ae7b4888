"""Sequences of a text for models that read sequences; no sequence reaches over the end of a document."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asym.data.text import Stream
from asym.seeds import numpy_generator


@dataclass(frozen=True)
class Windows:
    """Sequences in which some tokens are scored, each token of the text in at most one.

    Attributes:
        starts: place of the first token that is read.
        first: the first token that is scored, as a number of tokens after the start.
        length: tokens that are read.
        places: all scored tokens, rising within a window.
    """

    starts: np.ndarray
    first: np.ndarray
    length: int
    places: np.ndarray

    def tensors(self, stream: Stream) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens read `[n, T]`, tokens that follow them `[n, T]`, which of these are scored `[n, T]`."""
        at = self.starts[:, None] + np.arange(self.length + 1)
        ends = _ends(stream)[self.starts]
        inside = at < ends[:, None]
        ids = torch.from_numpy(np.where(inside, stream.ids[np.minimum(at, len(stream) - 1)], 0).astype(np.int64))
        scored = inside[:, 1:] & (np.arange(1, self.length + 1) >= self.first[:, None])
        return ids[:, :-1], ids[:, 1:], torch.from_numpy(scored)


def windows(stream: Stream, length: int, count: int | None = None, seed: int = 0) -> Windows:
    """Windows that overlap by half, of which the second half is scored; the first of a document is scored whole.

    Every predicted token of the text is scored in one of them, unless only `count` tokens are wanted: then as many
    windows as hold so many are drawn.
    """
    half = max(1, length // 2)
    ends = np.append(stream.starts[1:], len(stream))
    starts, first = [], []
    for begin, end in zip(stream.starts.tolist(), ends.tolist()):
        begins = [begin, *range(begin + half, max(begin + half, end - 1 - (length - half)), half)]
        begins = [b for b in begins if b == begin or b + length - half + 1 < end]
        starts += begins
        first += [1] + [length - half + 1] * (len(begins) - 1)
    found = np.array(starts, dtype=np.int64), np.array(first, dtype=np.int64)
    if count is not None and count < len(stream.targets):
        order = numpy_generator(seed, "saffu", "windows").permutation(len(found[0]))
        sizes = np.minimum(found[0] + length, _ends(stream)[found[0]] - 1) - (found[0] + found[1]) + 1
        order = np.sort(order[: int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1])
        found = found[0][order], found[1][order]
    at = found[0][:, None] + np.arange(1, length + 1)
    scored = (at < _ends(stream)[found[0]][:, None]) & (np.arange(1, length + 1) >= found[1][:, None])
    return Windows(*found, length, at[scored])


def sequences(stream: Stream, draw: np.random.Generator, n: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """n sequences for training, each around a token that is drawn evenly: read, following, which of those are there."""
    places = draw.choice(stream.targets, n)
    starts = np.maximum(stream.begin[places], places - 1 - draw.integers(0, length, n))
    return Windows(starts, np.ones(n, dtype=np.int64), length, places).tensors(stream)


def _ends(stream: Stream) -> np.ndarray:
    """For every token the end of its document."""
    return np.repeat(np.append(stream.starts[1:], len(stream)), np.diff(np.append(stream.starts, len(stream))))
