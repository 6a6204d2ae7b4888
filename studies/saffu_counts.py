"""Models that are counts alone: unigram, n-grams, and the explicit single layer on the last tokens' one-hot vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asym.data.text import Stream, TextData
from asym.explicit.counts import count_pairs
from asym.explicit.ngrams import SMOOTHINGS, NGram
from asym.explicit.softmax import choose_priming, solve_softmax
from studies.saffu_begin import Clock
from studies.saffu_nets import Part

ORDERS = (2, 3, 4, 5)
RADII = (1, 2, 3)
"""Tables of the single layer are dense, [r V, V]."""
LARGEST = 1 << 12
"""Vocabulary up to which the single layer is counted."""
PRIMING = (0.3, 0.5, 0.7, 1.0)
"""Candidates for K, times the norm r."""
SMOOTHING = (0.01, 0.1)


def counted_models(data: TextData, part: Part) -> Iterator[dict[str, Any]]:
    """Validation and test loss of each count model on a part of the training text."""
    train, size = part.of(data.train), len(data.tokens)
    val, test = part.held_out(data.val), part.held_out(data.test)
    for name, order, smoothing in [
        ("unigram", 1, "witten-bell"),
        *((f"{smoothing} {order}", order, smoothing) for order in ORDERS for smoothing in SMOOTHINGS),
    ]:
        clock = Clock("cpu")
        model = NGram(train, size, order, smoothing)
        spent = clock.seconds()
        yield _counted(name, model.mean_loss(val), model.mean_loss(test), spent)
    for radius in RADII if size <= LARGEST else ():
        clock = Clock("cpu")
        tables = count_pairs([(train.ids, train.starts)], size, [-d for d in range(1, radius + 1)])
        sums = torch.cat([torch.from_numpy(np.asarray(tables[-d]).T.copy()) for d in range(1, radius + 1)]).float()
        best: tuple[float, Tensor, dict[str, float]] | None = None
        for epsilon in SMOOTHING:
            choice = choose_priming(
                lambda share: _single_loss(_single(sums, radius, share, epsilon), val, size),  # noqa: B023
                PRIMING,
            )
            if best is None or choice.losses[choice.value] < best[0]:
                facts = {"priming": choice.value * radius, "smoothing": epsilon}
                best = choice.losses[choice.value], _single(sums, radius, choice.value, epsilon), facts
        assert best is not None
        loss = _single_loss(best[1], test, size)
        yield _counted(f"explicit layer {radius}", best[0], loss, clock.seconds()) | best[2]


def _counted(arm: str, val: float, test: float, seconds: float) -> dict[str, Any]:
    return {"arm": arm, "val_loss": val, "test_loss": test, "solve_s": seconds, "train_s": 0.0, "wall_s": seconds}


def _single(sums: Tensor, radius: int, share: float, smoothing: float) -> Tensor:
    return solve_softmax(sums, norm=float(radius), priming=share * radius, smoothing=smoothing)


def _single_loss(weight: Tensor, stream: Stream, size: int, batch: int = 2048) -> float:
    """Loss of the single layer on the concatenated one-hot vectors of the last tokens."""
    radius, total = len(weight) // size, 0.0
    for at in range(0, len(stream.targets), batch):
        places = stream.targets[at : at + batch]
        logits = torch.zeros(len(places), size)
        for back in range(radius):
            before = places - 1 - back
            there = torch.from_numpy((before >= stream.begin[places]).astype(np.float32))
            rows = torch.from_numpy(stream.ids[np.maximum(before, 0)].astype(np.int64)) + back * size
            logits += weight[rows] * there[:, None]
        y = torch.from_numpy(stream.ids[places].astype(np.int64))
        total += float(torch.nn.functional.cross_entropy(logits, y, reduction="sum"))
    return total / len(stream.targets)
