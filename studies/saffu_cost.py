"""What a language model costs: seconds, memory, operations, and the time of a prediction with and without the cache."""

from __future__ import annotations

import importlib
import math
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asym.models.saffu import SaffuLM
from studies.saffu_begin import Clock, at_places
from studies.saffu_quality import Trial
from studies.saffu_train import examples, train

PREDICTIONS = 2048


def timed(trial: Trial) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The row of the cost of one model: seconds, memory, operations; call it in a process of its own."""
    data, device = trial.args.load(), trial.device
    begun = time.perf_counter()
    model, _, facts = train(trial.net, data, device, 64)
    places = data.test.targets[:PREDICTIONS]
    if model.reads == "contexts":
        inputs = at_places(data.test, places, trial.net.sizes.reach, device)[0]
        tokens = len(inputs)
    else:
        inputs = examples(data.test, trial.net.sizes, PREDICTIONS, device).sequences[0]
        tokens = inputs.numel()
    row = dict(trial.columns) | {key: facts[key] for key in ("params", "solve_s", "train_s", "diverged")}
    row["step_ms"] = 1e3 * facts["train_s"] / trial.net.steps
    row["tokens_per_s"] = trial.net.batch * trial.net.steps / facts["train_s"]
    row["solve_in_steps"] = facts["solve_s"] * trial.net.steps / facts["train_s"]
    row["inference_us"] = _inference(model, inputs, tokens, device)
    if not isinstance(model, SaffuLM):
        row["flops"] = model.flops(trial.net.sizes.length)  # type: ignore[operator]
    else:
        row["flops"] = model.flops()
        row["flops_uncached"] = model.flops(cached=False)
        model.comparisons_table = lambda: None  # type: ignore[method-assign]
        row["inference_uncached_us"] = _inference(model, inputs, tokens, device)
    row["peak_mb"] = peak_memory()
    if device.startswith("cuda"):
        row["peak_device_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return [row | {"wall_s": time.perf_counter() - begun}], []


def peak_memory() -> float:
    """Largest resident memory of this process so far, in MiB; NaN where the system does not say."""
    try:
        resource: Any = importlib.import_module("resource")
    except ModuleNotFoundError:
        return math.nan
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@torch.no_grad()
def _inference(model: torch.nn.Module, inputs: Tensor, tokens: int, device: str) -> float:
    """Microseconds of one prediction, the median of five passes."""
    model.eval()
    times = []
    for _ in range(6):
        clock = Clock(device)
        model(inputs)
        times.append(clock.seconds())
    return 1e6 * float(np.median(times[1:])) / tokens
