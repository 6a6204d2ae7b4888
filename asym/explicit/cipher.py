"""Bit cipher: a distinct 0/1 code for every token, the most frequent ones furthest apart.

Codes are given out by rank of frequency (rank 0 is the most frequent token), in levels of the number of ones:

1. level 1: the b unit vectors e_1 … e_b, in this order; then their list is reversed once and stays so;
2. level k ≥ 2: let P be the codes of level k − 1 in reverse order. For each unit vector (outer loop, reversed list) and
   each code in P (inner loop) take the exclusive or; it is the next code if it has k ones and is new.

All 2^b − 1 codes but the zero are reached. Vector of a token: η̂ = η / ‖η‖₁, non-negative with unit sum, as the explicit
solution (`softmax.py`) asks for. No similarity of words is in it; it is one-hot coding at a lower dimension.

Source: Williams and others, the bit cipher of "Explicit Foundation Model Optimization with Self-Attentive Feed-Forward
Neural Units" (arXiv 2311.07510) and of arXiv 2311.11012, in the order of their released predecessor (IaMaN). That
raises b where there are more tokens than codes; here it is an error, since b is a size of the network.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, UInt8

NOISES = ("none", "nf", "f", "df")


def capacity(bits: int) -> int:
    """How many tokens codes of this length can tell apart: 2^b − 1."""
    return 2**bits - 1


def bit_cipher(count: int, bits: int) -> UInt8[np.ndarray, "count bits"]:
    """The codes of the `count` most frequent tokens.

    Args:
        count: tokens, at least 1.
        bits: b, length of a code.

    Raises:
        ValueError: count below 1, or more tokens than codes.
    """
    if bits < 1 or count < 1:
        raise ValueError(f"bits, count: got {bits}, {count}, must both be at least 1")
    if count > capacity(bits):
        raise ValueError(
            f"bits: {bits} tell {capacity(bits)} tokens apart, the vocabulary has {count}; take {count.bit_length()}"
        )
    units = [1 << place for place in range(bits)]
    given, level, seen = units[:count], list(units), set(units)
    units.reverse()
    for ones in range(2, bits + 1):
        if len(given) >= count:
            break
        above = level[::-1]
        level = []
        for unit in units:
            for code in above:
                new = unit ^ code
                if new not in seen and new.bit_count() == ones:
                    seen.add(new)
                    level.append(new)
            if len(given) + len(level) >= count:
                break
        given += level[: count - len(given)]
    out = np.zeros((count, bits), dtype=np.uint8)
    for rank, code in enumerate(given):
        while code:
            place = (code & -code).bit_length() - 1
            out[rank, place] = 1
            code &= code - 1
    return out


def cipher_vectors(
    counts: Int[np.ndarray, " v"],
    bits: int,
    *,
    noise: str = "none",
    documents: Int[np.ndarray, " v"] | None = None,
    total_documents: int = 0,
) -> Float[np.ndarray, "v bits"]:
    """Vectors with unit sum of tokens with these counts.

    Tokens are ranked by count, of equal ones the lower number first. With a noise model

        η̃_t = β_t η̂_t + (1 − β_t) q,    q ∝ 1 − f̄,    f̄ = Σ_t count_t η̂_t / Σ_t count_t

    so that noise lies on the bits that are used least, and every entry is positive where β < 1. β_t is 1 / (number of
    tokens with the same count) for `nf`, count / (count + 1) for `f`, documents with t / all documents for `df`.

    Args:
        counts: occurrences in the training text; a count of zero is a count like any other.
        bits: length of the vectors.
        noise: one of `NOISES`.
        documents: number of documents that hold each token, for `df`.
        total_documents: number of documents, for `df`.

    Raises:
        ValueError: more tokens than codes; an unknown noise; `df` without documents; counts that are all zero.
    """
    if noise not in NOISES:
        raise ValueError(f"noise: unknown {noise!r}; valid: {', '.join(NOISES)}")
    codes = np.empty((len(counts), bits))
    codes[np.argsort(-counts, kind="stable")] = bit_cipher(len(counts), bits)
    codes /= codes.sum(1, keepdims=True)
    if noise == "none":
        return codes
    if counts.sum() <= 0:
        raise ValueError("counts: are all zero, which leaves the noise without a direction")
    mean = counts @ codes / counts.sum()
    q = (1 - mean) / (1 - mean).sum() if bits > 1 else np.ones(1)
    if noise == "nf":
        _, place, same = np.unique(counts, return_inverse=True, return_counts=True)
        beta = 1 / same[place]
    elif noise == "f":
        beta = counts / (counts + 1)
    else:
        if documents is None or total_documents < 1:
            raise ValueError("documents: noise df needs the number of documents that hold each token")
        beta = documents / total_documents
    return beta[:, None] * codes + (1 - beta[:, None]) * q
