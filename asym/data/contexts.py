"""What a language model sees of the tokens before the one it predicts, as rows of token numbers; −1 is an empty slot.

For the token at place t of a document that begins at b, with p = t − 1 − b the place of the last token before it:

- pivot: the token at t − 1;
- block: n slots of absolute places, those of the block of n tokens that p lies in; slots after p are empty;
- radius: the last r tokens, the most recent first;
- document: the last L tokens, to be taken as a bag.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from asym.data.text import Stream

NAMES = ("block", "radius", "document")


@dataclass(frozen=True)
class Reach:
    """Sizes of the contexts; 0 leaves one out.

    Attributes:
        block: n.
        radius: r.
        document: L.
        stack: places that each layer above the first looks back, (S,) for two layers.
    """

    block: int = 32
    radius: int = 8
    document: int = 0
    stack: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = (self.block, self.radius, self.document)
        if min(sizes) < 0 or max(sizes) == 0 or any(s < 1 for s in self.stack):
            raise ValueError(f"block, radius, document: got {sizes}, must not be negative, and not all 0")

    @property
    def slots(self) -> dict[str, int]:
        """Slots of each context that is there, by name."""
        return {name: getattr(self, name) for name in NAMES if getattr(self, name)}

    @property
    def columns(self) -> int:
        """Length of a row: the pivot, then the contexts."""
        return 1 + sum(self.slots.values())


def contexts(stream: Stream, places: Int[np.ndarray, " m"], reach: Reach) -> Int[Tensor, "m ..."]:
    """Contexts of the tokens at these places, `[m, *stack, columns]`.

    With a stack S, entry j of that axis is the context of the token j places before, empty where its document has none.
    """
    if reach.stack:
        first, rest = reach.stack[0], Reach(reach.block, reach.radius, reach.document, reach.stack[1:])
        lower = [_at(stream, places, back, rest) for back in range(first)]
        return torch.stack(lower, 1)
    return _at(stream, places, 0, reach)


def _at(stream: Stream, places: np.ndarray, back: int, reach: Reach) -> Tensor:
    begin = stream.begin[places]
    moved = places - back
    there = moved > begin
    moved = np.where(there, moved, begin + 1)  # any place that exists; emptied below
    if reach.stack:
        rows = contexts(stream, np.minimum(moved, len(stream) - 1), reach)
        shape = (-1,) + (1,) * (rows.ndim - 1)
        return torch.where(torch.from_numpy(there).view(shape), rows, -1)
    last = moved - 1
    parts = [last[:, None]]
    if reach.block:
        parts.append((begin + (last - begin) // reach.block * reach.block)[:, None] + np.arange(reach.block))
    parts += [last[:, None] - np.arange(size) for size in (reach.radius, reach.document) if size]
    at = np.concatenate(parts, axis=1)
    inside = (at >= begin[:, None]) & (at <= last[:, None]) & there[:, None]
    return torch.from_numpy(np.where(inside, stream.ids[np.where(inside, at, 0)], -1).astype(np.int64))
