"""What the studies of readers share: the score by which a training is chosen, and what is kept of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sized
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from asym.metanets import Fit
from asym.metanets.boosting import extra
from asym.rank_metrics import kendall
from studies.checks import InputError


def check_installed(readers: Iterable[str]) -> None:
    """Raise an `InputError` for a reader whose library is missing."""
    for reader in readers:
        library = next((name for name in ("lightgbm", "xgboost") if name in reader), None)
        if library is not None:
            try:
                extra(library)
            except (ValueError, OSError) as error:
                plain = reader.replace(f"-{library}", "").replace(f"{library}-", "").replace(library, "boost")
                raise InputError(
                    f"--readers: {reader} needs the library {library}, which is not installed or cannot be loaded; "
                    f'pip install -e ".[boost]", or read with {plain}, which works without'
                ) from error


def by_gradient(reader: str) -> bool:
    """Whether a reader is trained in epochs, by its name; trees are fitted at once."""
    return not any(word in reader for word in ("boost", "forest", "lightgbm"))


def rank_score(outputs: Float[Tensor, "n 1"], truth: Float[Tensor, "n 1"]) -> float:
    """Kendall's τ-b of a reader's answers; NaN, which is never the best, if one is not finite."""
    if not torch.isfinite(outputs).all():
        return math.nan
    return kendall(truth[:, 0].cpu().numpy(), outputs[:, 0].cpu().numpy())


def kept(found: Fit, reader: nn.Module, places: Mapping[str, Sized], start: float) -> dict[str, Any]:
    """Facts of a training that go to the store beside its predictions.

    Args:
        found: what came of it.
        reader: trained.
        places: networks of each split.
        start: `time.perf_counter()` when it began.
    """
    return {
        "epoch": found.epoch,
        "diverged": found.diverged,
        "epoch_s": found.epoch_s,
        "params": sum(p.numel() for p in reader.parameters()),
        "networks": {name: len(part) for name, part in places.items()},
        "wall_s": time.perf_counter() - start,
        "history": found.history,
    }
