"""N-gram language models, vectorised: interpolated Kneser–Ney and Witten–Bell, orders 1 and up.

With history h of n − 1 tokens, h′ the same without its oldest token, c counts, T(h) the number of distinct tokens after
h, and p_0 = 1/V:

    Witten–Bell   p(w|h) = (c(h, w) + T(h) p(w|h′)) / (c(h) + T(h))
    Kneser–Ney    p(w|h) = (max(c(h, w) − D, 0) + D T(h) p(w|h′)) / c(h),        D = n_1 / (n_1 + 2 n_2)

where for all but the highest order c(h, w) of Kneser–Ney is the number of distinct tokens seen before (h, w), and n_k
is the number of n-grams with count k. A history that was never seen leaves p(w|h′). (Kneser and Ney 1995, Witten and
Bell 1991, both as in Chen and Goodman 1998.)

Before a document's beginning stands a sign of its own; no history reaches into another document.
Histories are numbered order by order, so that any order and vocabulary fit into 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from asym.data.text import Stream

SMOOTHINGS = ("kneser-ney", "witten-bell")


@dataclass(frozen=True)
class _Order:
    """Counts of n-grams of one order.

    `below`: numbers of h that have been seen, as (number of h′) (V + 1) + oldest token, rising; a history's number is
    its place. `grams`: (number of h) V + w, rising; `counts` of each; `total` c(h) and `kinds` T(h) of each history.
    """

    below: np.ndarray
    grams: np.ndarray
    counts: np.ndarray
    total: np.ndarray
    kinds: np.ndarray
    discount: float


class NGram:
    """An n-gram model of a stream.

    Args:
        stream: to count.
        size: V.
        order: n, at least 1.
        smoothing: `kneser-ney` or `witten-bell`.

    Raises:
        ValueError: an order below 1, an unknown smoothing, an empty stream.
    """

    def __init__(self, stream: Stream, size: int, order: int, smoothing: str = "kneser-ney") -> None:
        if order < 1:
            raise ValueError(f"order: got {order}, must be at least 1")
        if smoothing not in SMOOTHINGS:
            raise ValueError(f"smoothing: unknown {smoothing!r}; valid: {', '.join(SMOOTHINGS)}")
        if len(stream) == 0:
            raise ValueError("stream: has no token to count")
        self.size, self.order, self.smoothing = size, order, smoothing
        places = np.arange(len(stream))
        words = stream.ids.astype(np.int64)
        history, found = np.zeros(len(places), dtype=np.int64), []
        for n in range(order):
            below = np.zeros(1, dtype=np.int64)
            if n:
                below, history = np.unique(history * (size + 1) + _before(stream, places, n, size), return_inverse=True)
            grams, place, counts = np.unique(history * size + words, return_inverse=True, return_counts=True)
            found.append((below, grams, place, counts))
        self._orders: list[_Order] = []
        for n, (below, grams, place, counts) in enumerate(found):
            if smoothing == "kneser-ney" and n + 1 < order:  # distinct tokens before: longer n-grams that end in this
                longer, longer_place = found[n + 1][1], found[n + 1][2]
                shorter = np.empty(len(longer), dtype=np.int64)
                shorter[longer_place] = place
                counts = np.bincount(shorter, minlength=len(grams))
            owner = grams // size
            once, twice = int((counts == 1).sum()), int((counts == 2).sum())
            discount = once / (once + 2 * twice) if once else 0.5
            total = np.bincount(owner, weights=counts, minlength=len(below))
            kinds = np.bincount(owner, minlength=len(below))
            self._orders.append(_Order(below, grams, counts, total, kinds, min(max(discount, 0.1), 0.95)))

    def probabilities(self, stream: Stream, places: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """p of the tokens at these places of any stream of this vocabulary."""
        return self._probabilities(stream, places, stream.ids[places].astype(np.int64))

    def distribution(self, stream: Stream, place: int) -> Float[np.ndarray, " v"]:
        """p of every token at one place."""
        return self._probabilities(stream, np.full(self.size, place), np.arange(self.size))

    def mean_loss(self, stream: Stream) -> float:
        """Mean −log p, in nats, of all tokens but the first of each document."""
        return float(-np.log(self.probabilities(stream, stream.targets)).mean())

    def _probabilities(self, stream: Stream, places: np.ndarray, words: np.ndarray) -> np.ndarray:
        p = np.full(len(places), 1 / self.size)
        history = np.zeros(len(places), dtype=np.int64)
        for n, level in enumerate(self._orders):
            if n:
                keys = history * (self.size + 1) + _before(stream, places, n, self.size)
                history = np.where(history >= 0, _find(level.below, keys), -1)
            seen = history >= 0
            at = np.where(seen, history, 0)
            gram = _find(level.grams, at * self.size + words)
            count = np.where(seen & (gram >= 0), level.counts[np.maximum(gram, 0)], 0)
            total, kinds = level.total[at], level.kinds[at]
            if self.smoothing == "witten-bell":
                new = (count + kinds * p) / (total + kinds)
            else:
                new = (np.maximum(count - level.discount, 0) + level.discount * kinds * p) / total
            p = np.where(seen, new, p)
        return p


def _before(stream: Stream, places: np.ndarray, back: int, pad: int) -> np.ndarray:
    at = places - back
    return np.where(at >= stream.begin[places], stream.ids[np.maximum(at, 0)], pad).astype(np.int64)


def _find(rising: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Places of keys in a rising array, −1 where they are not."""
    at = np.minimum(np.searchsorted(rising, keys), len(rising) - 1)
    return np.where(rising[at] == keys, at, -1)
