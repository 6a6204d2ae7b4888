"""How a population is computed: how many networks take a step together, in which precision and memory layout.

The plan follows from the work alone, by rules found by measuring (`python -m benchmarks population epoch`), never from
a timing at run time: the same configuration gets the same plan and so the same bits. It is part of a run's hash.

On a CPU, one thread, a stacked step (one batched kernel for many networks) saves the fixed cost of launching each
operation and loses the cache: it pays while the step of one network is a few million multiply-adds and its activations
fit the cache, and costs up to twice the time beyond. On an accelerator stacking pays until memory ends.

bfloat16 autocast with channels-last layout is used for image networks whose images have at least 16 × 16 pixels, on
processors with bfloat16 instructions; below that size the gain is within the noise and float32 keeps the bits
comparable between machines. Weights, optimiser state and every evaluation stay float32.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import sys

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

STACK_CPU = 32
STACK_CPU_MAX_FLOP = 4e7
STACK_GPU = 256
AUTOCAST_MIN_SIDE = 16


@dataclasses.dataclass(frozen=True)
class Plan:
    """Numerical choices of a training run."""

    chunk: int
    """Networks that take a step together."""
    dtype: str
    """`float32`, or `bfloat16` for autocast in forward and backward."""
    channels_last: bool
    """Whether images and convolutions use the channels-last layout."""


def make_plan(network: nn.Module, input_shape: tuple[int, ...], batch_size: int, device: torch.device) -> Plan:
    """The plan for networks like `network` on inputs of `input_shape` (without the batch axis)."""
    if len(input_shape) == 1:  # a graph: each step is the whole of it, in products that cannot be stacked
        return Plan(1, "float32", channels_last=False)
    has_running = any(name.endswith("running_mean") for name, _ in network.named_buffers())
    spatial = any(isinstance(m, nn.Conv2d) for m in network.modules())
    flop = forward_flop(network, input_shape) * batch_size
    if has_running:  # statistics are updated in place, which a stacked step cannot do
        chunk = 1
    elif device.type == "cpu":
        chunk = STACK_CPU if flop <= STACK_CPU_MAX_FLOP else 1
    else:
        chunk = STACK_GPU if flop <= 1e10 else 1
    wide = len(input_shape) == 3 and min(input_shape[1:]) >= AUTOCAST_MIN_SIDE
    dtype = "bfloat16" if spatial and wide and supports_bfloat16(device) else "float32"
    return Plan(chunk, dtype, channels_last=spatial and chunk == 1)


def forward_flop(network: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Floating-point operations of one forward pass of one input (a multiply-add counts twice)."""
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(torch.zeros(1, *input_shape, device=next(network.parameters()).device))
    finally:
        network.train(was_training)
    return counter.get_total_flops()


def supports_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 arithmetic is native, not emulated."""
    if device.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    probes = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(probe() for probe in probes if probe is not None)


@functools.cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep freed blocks for reuse; returns whether it could.

    Training allocates and frees the same activations at each step. By default glibc hands blocks of over 32 MiB back
    to the system and faults them in again, page by page, at the next step: on small images a fifth to a half of the
    time. Affects this process alone, and no result.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a C library other than glibc
        return False
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(mmap_threshold, 2**30) and mallopt(trim_threshold, 2**31 - 1))
