"""What a step of a reader costs in memory: the rise of the peak over a training step, in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
from pathlib import Path
from typing import Any

import torch

from asym.metanets import accumulate, take
from asym.populations import cached
from asym.store import Store
from studies.metanet_read import Reading, make_reader, open_zoo, splits_of

KIND = "metanet-cost"
COST_VERSION = 1
FEW = 2


def measure_cost(reading: Reading) -> dict[str, float]:
    """`peak_mb` of a step on one batch, kept in the store; NaN for readers without steps."""

    def compute() -> tuple[dict, dict, dict[str, Any]]:
        if "boost" in reading.reader:
            return {}, {}, {"peak_mb": float("nan")}
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return {}, {}, {"peak_mb": pool.apply(_peak, (reading,))}

    return cached(Store(reading.runs), KIND, {"version": COST_VERSION, "of": reading.config}, compute).state()


def _peak(reading: Reading) -> float:
    """MB by which a step on a batch raises the peak after a step on two networks."""
    torch.set_num_threads(1)
    zoo, train = open_zoo(reading.runs, reading.zoo), torch.from_numpy(splits_of(reading)["train"])
    reader = make_reader(reading, zoo).train()

    def step(size: int) -> None:
        batch, _ = take(zoo.stacks, train[:size])
        accumulate(reader, batch, torch.zeros(size, 1), torch.nn.functional.mse_loss, piece=reading.protocol.piece)

    step(FEW)
    before = high_water()
    step(min(reading.protocol.batch, len(train)))
    return round(high_water() - before, 1)


def high_water() -> float:
    """Largest resident memory of this process so far, in MB.

    From /proc where there is one: what `getrusage` says starts, in a new process, at its parent's peak.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


__all__ = ["high_water", "measure_cost"]
