"""ScaleGMN against its plain form: a training step on 64 small CNNs, and the memory that it takes.

Same batch (the Small CNN Zoo's layout, 4,970 weights), same parameters, same outputs; AdamW, one thread. The plain form
(`metanets_reference.py`) gathers and scatters as the published code does, which took 0.46 s a step at width 32 and
3.46 s at 128 (0.89 and 8.1 both ways) on a quiet machine of this kind: the targets are 0.2 s and 2 s, hence ratios of
2.3 and 1.7, and a fifth of the memory. Seconds are those of the processor, since a busy machine
stretches the clock's. Both ways is timed in the published form of backward messages (`shipped`) and in ours (`norm`).
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from asym.metanets import ScaleGMN, Stack, accumulate, chain_of
from asym.models import build
from asym.populations.plan import keep_freed_memory
from asym.seeds import torch_generator
from benchmarks.harness import single_thread
from benchmarks.metanets_reference import PlainScaleGMN

NETWORKS, PIECE = 64, 32
CASES = (
    (32, "forward", "norm", 0.46 / 0.2),
    (128, "forward", "norm", 3.46 / 2),
    (32, "bidirectional", "norm", 0.0),
    (32, "bidirectional", "shipped", 0.0),
)
"""Width, direction, form of backward messages, target of the ratio of times (0: reported, no target)."""
MEMORY_TARGET = 5.0


def networks(count: int) -> Stack:
    """Random small CNNs."""
    chain = chain_of(build("small-cnn", input_shape=(1, 28, 28), classes=10), torch.zeros(2, 1, 28, 28))
    generator = torch_generator(0, "benchmark", "metanets")
    tensors = {name: torch.randn(count, *shape, generator=generator) / 5 for name, shape in chain.shapes.items()}
    return Stack(chain, tensors)


def steps(stack: Stack, width: int, direction: str, backward: str) -> dict[str, Callable[[], Any]]:
    """A training step our way and the plain way, on the same parameters."""
    torch.manual_seed(0)
    model = ScaleGMN(stack.chain, width=width, direction=direction, backward=backward, skip=False)
    plain, targets = PlainScaleGMN(model), torch.zeros(len(stack), 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def ours() -> None:
        optimizer.zero_grad()
        accumulate(model, stack, targets, F.mse_loss, piece=PIECE)
        optimizer.step()

    def reference() -> None:
        optimizer.zero_grad()
        F.mse_loss(plain(stack), targets).backward()
        optimizer.step()

    return {"ours": ours, "reference": reference}


def run(repeats: int = 3) -> list[dict[str, Any]]:
    """Two rows a case: processor time, then memory."""
    single_thread()
    keep_freed_memory()
    stack, rows = networks(NETWORKS), []
    for width, direction, backward, target in CASES:
        what = f"step of {direction} ScaleGMN, width {width}" + (f", {backward}" if direction != "forward" else "")
        both = steps(stack, width, direction, backward)
        times: dict[str, list[float]] = {name: [] for name in both}
        for turn in range(repeats + 1):
            for name, step in both.items():
                start = time.process_time()
                step()
                if turn:
                    times[name].append(time.process_time() - start)
        ours, plain = (statistics.median(times[name]) for name in ("ours", "reference"))
        rows.append(
            {
                "name": what,
                "ratio": plain / ours,
                "target": target,
                "ours_s": ours,
                "reference_s": plain,
                "note": f"{NETWORKS} networks in pieces of {PIECE}, processor seconds",
            }
        )
        used = {name: peak_memory(name, width, direction, backward) for name in both}
        rows.append(
            {
                "name": f"memory of a {what}",
                "ratio": used["reference"] / used["ours"],
                "target": MEMORY_TARGET,
                "ours_mb": used["ours"],
                "reference_mb": used["reference"],
                "note": "rise of the peak over a step on two networks, each way in a process of its own",
            }
        )
    return rows


def peak_memory(which: str, width: int, direction: str, backward: str) -> float:
    """MB by which a step on all networks raises the peak of a new process after a step on two."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (which, width, direction, backward))


def _peak(which: str, width: int, direction: str, backward: str) -> float:
    single_thread()
    steps(networks(2), width, direction, backward)[which]()
    step = steps(networks(NETWORKS), width, direction, backward)[which]
    before = _high_water()
    step()
    return max(1.0, _high_water() - before)


def _high_water() -> float:
    """Largest resident memory of this process so far, in MB.

    From /proc where there is one: what `getrusage` says starts, in a new process, at its parent's peak.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
