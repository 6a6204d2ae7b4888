"""Training the language models of the SAFFU study, and where they are kept.

All are trained with Adam (β = 0.9, 0.999) on batches of random places of the training text, the rate falling to zero
as a cosine; sequence models have AdamW's weight decay of 0.01, a linear warm-up over a twentieth of the steps and as
many tokens a step. A trained embedding has a tenth of the rate. Seconds are without those of evaluation; the explicit
solve is counted as time before the first step.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from asym.data.text import Stream, TextData
from asym.models.language import parameters
from asym.models.output import output_loss
from asym.populations import tick
from asym.populations.runs import cached
from asym.seeds import numpy_generator
from asym.store import Run, Store
from studies.saffu_begin import Clock, at_places, begin
from studies.saffu_nets import Net, Sizes, TextArgs
from studies.saffu_windows import Windows, sequences, windows

KIND = "language-model"
EMBEDDING_RATE = 0.1
WEIGHT_DECAY = 0.01
WARMUP = 0.05
EVALUATE_AT = (0, 3, 10, 30, 100, 200, 300, 500, 1000, 1500, 2000, 3000, 5000, 10_000, 20_000, 50_000)
CHUNK = 2048


class Examples:
    """Evaluates models of both kinds on the same tokens of a split: those that windows of it score."""

    def __init__(self, stream: Stream, sizes: Sizes, count: int | None, device: str) -> None:
        self.found: Windows = windows(stream, sizes.length, count)
        self.rows = at_places(stream, self.found.places, sizes.reach, device)
        self.sequences = tuple(part.to(device) for part in self.found.tensors(stream))

    @torch.no_grad()
    def loss(self, model: nn.Module) -> float:
        """Mean loss in nats."""
        model.eval()
        total = 0.0
        for h, y in self._read(model):
            total += float(output_loss(h, model.effective_output, y)) * len(y)  # type: ignore[arg-type]
        return total / len(self.found.places)

    def _read(self, model: nn.Module) -> Any:
        if model.reads == "contexts":
            for x, y in zip(self.rows[0].split(CHUNK), self.rows[1].split(CHUNK)):
                yield model.read(x), y  # type: ignore[operator]
        else:
            x, y, scored = self.sequences
            size = max(1, CHUNK // x.shape[1])
            for a, b, s in zip(x.split(size), y.split(size), scored.split(size)):
                yield model.read(a)[s], b[s]  # type: ignore[operator]


@functools.lru_cache(maxsize=16)
def examples(stream: Stream, sizes: Sizes, count: int | None, device: str) -> Examples:
    """The examples of a split, made once a process."""
    return Examples(stream, sizes, count, device)


def evaluate_at(steps: int) -> list[int]:
    """Steps after which a network is evaluated."""
    return [*(step for step in EVALUATE_AT if step < steps), steps] if steps else [0]


def train(net: Net, data: TextData, device: str, evaluate: int) -> tuple[nn.Module, pd.DataFrame, dict[str, Any]]:
    """Start and train a network.

    Returns:
        The network, its losses on the way (step, tokens, seconds, val_loss, test_loss), further facts.
    """
    model, solve_s = begin(net, data, device)
    stream = net.part.of(data.train)
    held_out = [net.part.held_out(split) for split in (data.val, data.test)]
    val, test = (examples(split, net.sizes, evaluate, device) for split in held_out)
    groups = [
        {"params": [p], "lr": net.lr * (EMBEDDING_RATE if name == "embedding" else 1.0)}
        for name, p in model.named_parameters()
        if p.requires_grad
    ]
    plain = model.reads == "contexts"
    make = torch.optim.Adam if plain else functools.partial(torch.optim.AdamW, weight_decay=WEIGHT_DECAY)
    optimizer = make(groups, lr=net.lr, fused=device == "cpu" or device.startswith("cuda"))
    base = [group["lr"] for group in groups]
    draw = numpy_generator(net.order_seed, "saffu", "order")
    length = net.sizes.length
    warm = 0 if plain else max(1, round(WARMUP * net.steps))
    ahead, lines, diverged = evaluate_at(net.steps), [], 0
    clock = Clock(device)
    for step in range(net.steps + 1):
        if step in ahead:
            spent = clock.seconds()
            losses = {"val_loss": val.loss(model), "test_loss": test.loss(model)}
            lines.append({"step": step, "tokens": step * net.batch, "seconds": solve_s + spent, **losses})
            model.train()
            clock.resume()
        if step == net.steps:
            break
        if plain:
            x, y = at_places(stream, draw.choice(stream.targets, net.batch), net.sizes.reach, device)
            h = model.read(x)  # type: ignore[operator]
        else:
            x, y, there = sequences(stream, draw, max(1, net.batch // length), length)
            h, y = model.read(x.to(device))[there.to(device)], y[there].to(device)  # type: ignore[operator]
        factor = min(1.0, (step + 1) / warm) if warm else 1.0
        factor *= 0.5 * (1 + math.cos(math.pi * step / net.steps))
        for group, rate in zip(optimizer.param_groups, base):
            group["lr"] = rate * factor
        loss = output_loss(h, model.effective_output, y)  # type: ignore[arg-type]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            tick(50)
            if not math.isfinite(float(loss.detach())):
                diverged = step + 1
                break
    facts = {"solve_s": solve_s, "train_s": clock.seconds(), "diverged": diverged, "params": parameters(model)}
    return model, pd.DataFrame(lines), facts


def trained(store: Store, net: Net, args: TextArgs, device: str, evaluate: int) -> Run:
    """The store's finished run of a network, trained now if it is not there."""
    data = args.load()

    def compute() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        begun = time.perf_counter()
        model, curve, facts = train(net, data, device, evaluate)
        tensors = {name: p.detach().cpu() for name, p in model.named_parameters() if p.requires_grad}
        return tensors, {"curve": curve}, facts | {"wall_s": time.perf_counter() - begun}

    return cached(store, KIND, net.config(data.fingerprint, evaluate), compute)


def restore(run: Run, net: Net, data: TextData, device: str) -> nn.Module:
    """The trained network of a run."""
    start = dataclasses.replace(net.start, explicit=(), bias=False, permute=False, noise=0.0)
    model, _ = begin(dataclasses.replace(net, start=start), data, device)
    load(model, run.tensors())
    return model


@torch.no_grad()
def load(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put trained parameters into a network of the same kind."""
    own = dict(model.named_parameters())
    for name, tensor in tensors.items():
        own[name].copy_(tensor)
