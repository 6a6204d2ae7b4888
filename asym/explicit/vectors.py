"""Vectors of words from the ciphers of their neighbours.

    B^(δ)_t = Σ_{i : w_i = t} η̂(w_{i+δ}) = Σ_v C^(δ)[t, v] η̂_v,        0 < |δ| ≤ r

`sum`: Σ_δ B^(δ), dimension b; `cat`: B^(δ) side by side, dimension 2 r b. Rows then get unit sum, as the explicit
solution asks for; a word that has no neighbour keeps its own cipher, once or in every part. Source: arXiv 2311.11012.

L1-normalised counts are dominated by frequent neighbours and nearly parallel; `damping` divides the count of neighbour
v by its frequency to that power before (0: the source's vectors; 1: by its expectation).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from asym.explicit.counts import Counts

AGGREGATIONS = ("sum", "cat")


def context_vectors(
    pairs: Mapping[int, Counts],
    cipher: Float[np.ndarray, "v b"],
    counts: Int[np.ndarray, " v"],
    *,
    aggregation: str = "sum",
    damping: float = 0.0,
) -> Float[np.ndarray, "v d"]:
    """Vectors with unit sum.

    Args:
        pairs: C^(δ) by offset (`count_pairs`).
        cipher: η̂.
        counts: occurrences of every token.
        aggregation: `sum` or `cat`.
        damping: from 0 to 1.

    Raises:
        ValueError: an unknown aggregation, no offset, damping out of range, shapes that do not fit.
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation: unknown {aggregation!r}; valid: {', '.join(AGGREGATIONS)}")
    if not pairs:
        raise ValueError("pairs: no offset given")
    if not 0 <= damping <= 1:
        raise ValueError(f"damping: got {damping}, must lie between 0 and 1")
    for offset, table in pairs.items():
        if table.shape != (len(cipher), len(cipher)):
            raise ValueError(f"pairs: offset {offset} has shape {table.shape} for {len(cipher)} tokens")
    weighted = cipher / np.maximum(counts, 1)[:, None] ** damping
    blocks = [np.asarray(pairs[offset] @ weighted) for offset in sorted(pairs)]
    own = cipher
    if aggregation == "cat":
        vectors, own = np.concatenate(blocks, axis=1), np.tile(cipher, (1, len(blocks)))
    else:
        vectors = np.sum(blocks, axis=0)
    total = vectors.sum(1, keepdims=True)
    vectors = np.where(total > 0, vectors, own)
    return vectors / vectors.sum(1, keepdims=True)
