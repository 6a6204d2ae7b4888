"""Counting co-occurrences against a plain dictionary, and the explicit solve in training steps.

Text has Zipf's frequencies, tokens independent. The dictionary is a loop with `get`; `collections.Counter`, which
counts in C, is the third row's reference.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from asym.data.contexts import Reach, contexts
from asym.data.text import Stream
from asym.explicit import PairCounter, cipher_vectors, solve
from asym.models.output import output_loss
from asym.models.saffu import SaffuLM
from asym.seeds import numpy_generator
from benchmarks.harness import compare, single_thread

TARGET = 5.0
SOLVE_TARGET = 1.0
STEPS = 100
CONTEXTS = 30_000


def zipf(tokens: int, size: int) -> Stream:
    """A text of one document in which token k has probability ∝ 1 / (k + 1)."""
    share = 1 / np.arange(1, size + 1)
    ids = numpy_generator(0, "benchmark", "zipf").choice(size, tokens, p=share / share.sum()).astype(np.int32)
    return Stream(ids, np.array([0]), np.array([0], dtype=np.int32), tokens)


def count(stream: Stream, size: int) -> PairCounter:
    """Our way: pairs of neighbours."""
    counter = PairCounter(size)
    counter.add_stream(stream.ids, stream.starts, 1)
    counter.items()
    return counter


def dictionary(tokens: list[int]) -> dict[tuple[int, int], int]:
    """The plain way."""
    found: dict[tuple[int, int], int] = {}
    for i in range(len(tokens) - 1):
        pair = tokens[i], tokens[i + 1]
        found[pair] = found.get(pair, 0) + 1
    return found


def run(tokens: int = 4_000_000, share: int = 16, solve_contexts: int = CONTEXTS) -> list[dict[str, Any]]:
    """Ratios of counting, dense and sparse; the reference counts one `share`-th of the tokens."""
    single_thread()
    rows = []
    for size, reference, name in (
        (2_000, dictionary, "a plain dictionary"),
        (30_000, dictionary, "a plain dictionary"),
        (2_000, lambda ids: Counter(pairwise(ids)), "collections.Counter"),
    ):
        stream = zipf(tokens, size)
        part = stream.ids[: tokens // share].tolist()
        row = compare(
            f"co-occurrences of {size} tokens against {name}",
            lambda: count(stream, size),  # noqa: B023
            lambda: reference(part),  # noqa: B023
            target=TARGET if reference is dictionary else 0.0,
            per=share,
        )
        start = time.process_time()
        count(stream, size)
        rate = tokens / max(time.process_time() - start, 1e-9) / 1e6
        row["note"] = f"{rate:.0f} M tokens a processor second and offset; one thread"
        rows.append(row)
    return [*rows, solving(solve_contexts)]


def solving(count: int) -> dict[str, Any]:
    """The explicit solve against 100 training steps of the same model."""
    size, reach = 2_000, Reach(32, 8)
    stream = zipf(4 * count, size)
    counts = np.bincount(stream.ids, minlength=size)
    model = SaffuLM(torch.from_numpy(cipher_vectors(counts, 128)).float(), 64, reach)
    labels = torch.from_numpy(cipher_vectors(counts, 64)).float()
    places = numpy_generator(0, "benchmark", "places").permutation(stream.targets)
    x, y = contexts(stream, places[:count], reach), torch.from_numpy(stream.ids[places[:count]].astype(np.int64))
    solve(model, x, y, labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def steps() -> None:
        for i in range(STEPS // 10):
            at = slice(512 * i % count, 512 * i % count + 512)
            loss = output_loss(model.read(x[at]), model.output, y[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return compare(
        f"the explicit solve of {count} contexts against {STEPS} training steps",
        lambda: solve(model, x, y, labels),
        steps,
        target=SOLVE_TARGET,
        per=10,
        note="batches of 512, V = 2000, D = 128, H = 64, block 32, radius 8, one thread",
    )
