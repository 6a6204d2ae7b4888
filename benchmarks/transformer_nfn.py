"""Transformer-NFN against its plain form: a training step on 16 transformers of D = 32, and what D costs.

Same weights, same outputs, Adam, one thread, encoders alone. The plain form (`transformer_nfn_reference.py`) carries
the head axis through a product for each term; the published code's `einsum` sums over heads inside, and is timed too.
Seconds are those of the processor, since a busy machine stretches the clock's. The curve compares, at each D, the
published form, the one that sums over heads first, and the low-rank one: h = 2 heads and D_A = 2 D as in the published
zoo. A form whose weights, gradients and moments would not fit in `MEMORY_GB` is left out: at D = 768 the whole layers
of one block have 9.1·10⁹ weights.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from asym.metanets import Stack
from asym.metanets.transformer_nfn import TransformerNFN, count
from asym.populations.plan import keep_freed_memory
from asym.seeds import torch_generator
from asym.symmetry.encoder import SCHEMES, Encoder, Sizes
from benchmarks.harness import single_thread
from benchmarks.transformer_nfn_reference import PlainTransformerNFN

BATCH, RANK, TARGET = 16, 8, 3.0
DIMS = (16, 32, 64, 128, 256, 768)
MEMORY_GB = 4.0
BLOCKS = 2


def encoder_of_size(dim: int, heads: int = 2, blocks: int = BLOCKS) -> Encoder:
    """An encoder of the published proportions: d_k = d_v = D / h, D_A = 2 D."""
    size = Sizes(dim, heads, dim // heads, dim // heads, 2 * dim)
    names = tuple({s: f"blocks.{i}.{inner}" for s, inner in SCHEMES["blocks"].items()} for i in range(blocks))
    matrix = {"Q": (dim, dim), "K": (dim, dim), "V": (dim, dim), "O": (dim, dim), "A": (2 * dim, dim), "a": (2 * dim,),
              "B": (dim, 2 * dim), "b": (dim,)}  # fmt: skip
    return Encoder(size, names, {name: matrix[s] for block in names for s, name in block.items()})


def transformers(encoder: Encoder, n: int, dtype: torch.dtype = torch.float32) -> Stack:
    """Random weights of the size of trained ones."""
    generator = torch_generator(0, "benchmark", "transformers")
    tensors = {name: (torch.randn(n, *s, generator=generator) / 4).to(dtype) for name, s in encoder.shapes.items()}
    return Stack(encoder, tensors)


def reader(encoder: Encoder, rank: int | None = None) -> TransformerNFN:
    """The published reader of encoders, or its low-rank form."""
    torch.manual_seed(0)
    return TransformerNFN(encoder, rank=rank, parts=("encoder",))


def step_of(model: nn.Module, stack: Stack) -> Callable[[], Any]:
    """A training step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    targets = torch.zeros(len(stack), 1)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(stack), targets).backward()
        optimizer.step()

    return step


def seconds(steps: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median processor seconds of each, in turns, after a warm-up of each."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, step in steps.items():
            start = time.process_time()
            step()
            if turn:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def run(repeats: int = 15) -> list[dict[str, Any]]:
    """The step at D = 32: whole layers and their low-rank form, each against both plain forms."""
    single_thread()
    keep_freed_memory()
    encoder = encoder_of_size(32)
    stack, model = transformers(encoder, BATCH), reader(encoder)
    ours = {"whole": model, "low rank": reader(encoder, RANK)}
    plain = {
        "head axis in the contractions": PlainTransformerNFN(model),
        "published products": PlainTransformerNFN(model, literal=False),
    }
    times = seconds({name: step_of(m, stack) for name, m in {**ours, **plain}.items()}, repeats)
    return [
        {
            "name": f"step of Transformer-NFN, {name}, D = 32, against {reference}",
            "ratio": times[reference] / times[name],
            "target": TARGET if reference.startswith("head") else 0.0,
            "ours_s": times[name],
            "reference_s": times[reference],
            "note": f"{BATCH} networks, processor seconds, {sum(p.numel() for p in m.parameters()):,} weights",
        }
        for name, m in ours.items()
        for reference in plain
    ]


def curve(repeats: int = 5) -> list[dict[str, Any]]:
    """For each D and form: weights of an equivariant layer, seconds of a training step against the published form."""
    single_thread()
    keep_freed_memory()
    rows = []
    for dim in DIMS:
        encoder = encoder_of_size(dim)
        whole = sum(count(encoder.size, 1, 10).values())
        fits = 16 * BLOCKS * whole < MEMORY_GB * 1e9  # weight, gradient and two moments of four bytes
        stack = transformers(encoder, BATCH)
        low = reader(encoder, RANK)
        models: dict[str, nn.Module] = {"low rank": low}
        thin = sum(p.numel() for p in low.each_block()[0].layers.parameters())
        if fits:
            models["whole"] = reader(encoder)
            models["published"] = PlainTransformerNFN(models["whole"], literal=False)  # type: ignore[arg-type]
        times = seconds({name: step_of(m, stack) for name, m in models.items()}, repeats if dim < 128 else 1)
        for form in ("published", "whole", "low rank"):
            weights = thin if form == "low rank" else whole
            rows.append(
                {
                    "name": f"D = {dim}, {form}",
                    "ratio": times.get("published", float("nan")) / times.get(form, float("nan")),
                    "target": 0.0,
                    "ours_s": times.get(form, float("nan")),
                    "reference_s": times.get("published", float("nan")),
                    "note": f"{weights:,} weights in an equivariant layer",
                    "dim": dim,
                    "form": form,
                    "weights": weights,
                }
            )
    return rows
