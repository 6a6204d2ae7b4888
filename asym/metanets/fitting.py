"""The one protocol by which every reader is trained, so that readers differ in what they are and in nothing else.

AdamW, the rate rising linearly over the first tenth of all steps and falling to 0 along half a cosine, gradients
clipped by their joint norm; after each of `checks` equal parts of the training the validation networks are read, and
the weights with the best score are kept. Networks come in an order of their own for each epoch, drawn from (seed,
epoch). A reader that is not trained by gradients is fitted once. Test networks are none of this file's business:
predict them once, with `predict`, after training.

Published trainings of such readers use a constant rate after 1,000 steps of warm-up (Kalogeropoulos et al. 2024) or a
constant one throughout (Lim et al. 2024), and hundreds of epochs; a falling rate reaches the same in fewer.

Accuracies are learnt through `Scale`: the logit (or the accuracy itself) in standard units of the training networks,
so that mean squared error is of order 1 whatever the zoo, and predictions are turned back into accuracies.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from asym.metanets.reader import Reader, choose
from asym.metanets.stack import Stacks, as_list, take
from asym.metanets.step import Call, accumulate, numbers, predict
from asym.seeds import numpy_generator

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs `k …`, targets `k …`) → the mean loss of k networks."""
SCALES = ("logit", "plain")


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How a reader is trained; plain data.

    Raises:
        ValueError: naming the field, for a number out of range.
    """

    epochs: int = 50
    """Passes over the training networks."""
    lr: float = 1e-3
    """Peak rate."""
    batch: int = 64
    """Networks a step."""
    weight_decay: float = 1e-2
    """Of AdamW."""
    warmup: float = 0.1
    """Share of all steps in which the rate rises."""
    clip: float = 10.0
    """Largest joint norm of gradients."""
    checks: int = 25
    """How often the validation networks are read, at most once an epoch; the last check is at the end."""
    piece: int = 32
    """Networks that are held in memory together."""

    def __post_init__(self) -> None:
        for field in ("epochs", "batch", "checks", "piece"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: {getattr(self, field)}; must be at least 1")
        for field in ("lr", "clip"):
            if not 0 < getattr(self, field) < math.inf:
                raise ValueError(f"{field}: {getattr(self, field)}; must be a positive number")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup: {self.warmup}; must be at least 0 and below 1")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay: {self.weight_decay}; must be zero or positive")

    def lr_at(self, step: int, steps: int) -> float:
        """The rate at step 0 … steps − 1."""
        rise = max(1, round(self.warmup * steps))
        if step < rise:
            return self.lr * (step + 1) / rise
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


@dataclasses.dataclass
class Fit:
    """What came of a training; the reader itself holds the chosen weights."""

    score: float
    """Best validation score; NaN if there was none."""
    epoch: int
    """Epoch of the chosen weights, counted from 1; 0 for a reader that is not trained by gradients, or if none had a
    score."""
    diverged: int
    """Epoch in which a loss was not finite, where training stopped; 0 if there was none."""
    history: list[dict[str, float]]
    """`epoch, train_loss, val_score` at each check."""
    epoch_s: float
    """Seconds of an epoch, checks not counted (of the whole fit where there are no epochs)."""


def fit(
    reader: Reader,
    stacks: Stacks,
    targets: Tensor,
    train: Int[Tensor, " t"],
    val: Int[Tensor, " v"],
    protocol: Protocol,
    *,
    seed: int,
    loss: Loss | None = None,
    score: Callable[[Tensor, Tensor], float] | None = None,
    call: Call = numbers,
    on_epoch: Callable[[], None] = lambda: None,
) -> Fit:
    """Train a reader in place and leave it in evaluation mode with the weights that read the validation networks best.

    Args:
        reader: freshly built.
        stacks: all networks, on the device and in the type to compute with.
        targets: `n …`, one row a network in the stacks' order.
        train: places of the training networks.
        val: places of the validation networks.
        protocol: numbers of the training.
        seed: of the order of networks; the reader has start values of its own.
        loss: mean squared error if not given.
        score: (outputs, targets) of the validation networks → larger is better; minus the loss if not given.
        call: what is asked of the reader, its own numbers if not given.
        on_epoch: called after each epoch.

    Raises:
        ValueError: if places repeat, are in both parts or are none, or targets do not fit.
    """
    listed = as_list(stacks)
    total = sum(map(len, listed))
    if len(targets) != total:
        raise ValueError(f"targets: {len(targets)} for {total} networks")
    if not len(train) or not len(val):
        raise ValueError(f"train, val: {len(train)} and {len(val)} networks; both need at least one")
    both = torch.cat([train, val])
    if len(both.unique()) < len(both):
        raise ValueError("train, val: a network occurs twice; one that is trained on must not choose the weights")
    measure = loss or torch.nn.functional.mse_loss
    if reader.by_gradient:
        listed = [reader.ahead(stack) for stack in listed]
    chosen, order = take(listed, train)
    reader.observe(chosen)
    judged, judged_order = take(listed, val)
    judged_targets = targets[val[judged_order]]

    finite = True

    def judge() -> float:
        nonlocal finite
        outputs = predict(reader, judged, piece=4 * protocol.piece, call=call)
        finite = bool(torch.isfinite(outputs).all())
        value = score(outputs, judged_targets) if score else -float(measure(outputs, judged_targets))
        return float(value)

    start = time.perf_counter()
    if not reader.by_gradient:
        cast(Any, reader).fit(chosen, targets[train[order]], val=(judged, judged_targets))
        spent = time.perf_counter() - start
        on_epoch()
        return Fit(judge(), 0, 0, [], spent)

    # One call for all tensors: the same bits as tensor by tensor, at a third of the time.
    optimiser = torch.optim.AdamW(reader.parameters(), lr=protocol.lr, weight_decay=protocol.weight_decay, foreach=True)
    per_epoch = math.ceil(len(train) / protocol.batch)
    steps = per_epoch * protocol.epochs
    checks = {math.ceil((k + 1) * protocol.epochs / protocol.checks) for k in range(protocol.checks)}
    best: tuple[float, int, dict[str, Any] | None] = (-math.inf, 0, None)
    history: list[dict[str, float]] = []
    spent, diverged = 0.0, 0
    for epoch in range(protocol.epochs):
        start = time.perf_counter()
        mean = _epoch(reader, listed, targets, train, protocol, optimiser, measure, call, seed, epoch, steps)
        spent += time.perf_counter() - start
        on_epoch()
        if not math.isfinite(mean):
            diverged = epoch + 1
            break
        if epoch + 1 in checks:
            value = judge()
            history.append({"epoch": epoch + 1, "train_loss": mean, "val_score": value})
            if value > best[0]:
                best = (value, epoch + 1, copy.deepcopy(reader.state_dict()))
    if best[2] is not None:
        reader.load_state_dict(best[2])
    elif not finite and not diverged:
        diverged = protocol.epochs
    reader.eval()
    found = best[0] if best[2] is not None else math.nan
    return Fit(found, best[1], diverged, history, spent / (diverged or protocol.epochs))


def _epoch(
    reader: Reader,
    stacks: Stacks,
    targets: Tensor,
    train: Tensor,
    protocol: Protocol,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    call: Call,
    seed: int,
    epoch: int,
    steps: int,
) -> float:
    """One pass over the training networks; the mean loss, NaN as soon as one is not finite."""
    reader.train()
    shuffled = numpy_generator(seed, "metanets", "order", epoch).permutation(len(train))
    index = train[torch.from_numpy(shuffled)]
    per_epoch = math.ceil(len(train) / protocol.batch)
    parameters = list(reader.parameters())
    mean = 0.0
    for i, places in enumerate(index.split(protocol.batch)):
        for group in optimiser.param_groups:
            group["lr"] = protocol.lr_at(epoch * per_epoch + i, steps)
        optimiser.zero_grad(set_to_none=True)
        batch, order = take(stacks, places)
        value = accumulate(reader, batch, targets[places[order]], loss, piece=protocol.piece, call=call)
        if not math.isfinite(value):
            return math.nan
        torch.nn.utils.clip_grad_norm_(parameters, protocol.clip, foreach=True)
        optimiser.step()
        mean += value * len(places) / len(train)
    return mean


@dataclasses.dataclass(frozen=True)
class Scale:
    """Accuracies in the units that readers learn, and back.

        z = (g(a) − m) / s,    g(a) = log((a + ε) / (1 − a + ε)) or a,    ε = 1 / (2 · images)

    with m and s the mean and deviation of g over the training networks.
    """

    kind: str
    mean: float
    deviation: float
    images: int

    @classmethod
    def of(cls, accuracies: Float[Tensor, " n"], *, kind: str = "logit", images: int) -> Scale:
        """From the training networks' accuracies, fractions measured on so many images.

        Raises:
            ValueError: for an unknown kind, accuracies outside [0, 1], or none.
        """
        choose("kind", kind, SCALES)
        if images < 1:
            raise ValueError(f"images: {images}; must be at least 1")
        if not len(accuracies) or not ((accuracies >= 0) & (accuracies <= 1)).all():
            raise ValueError("accuracies: want fractions in [0, 1], at least one")
        raw = cls(kind, 0.0, 1.0, images).to_units(accuracies)
        deviation = float(raw.std()) if len(raw) > 1 else 0.0
        return cls(kind, float(raw.mean()), deviation if deviation > 0 else 1.0, images)

    def to_units(self, accuracies: Tensor) -> Tensor:
        """Accuracies → standard units, same shape."""
        a = accuracies.double()
        half = 0.5 / self.images
        g = ((a + half) / (1 - a + half)).log() if self.kind == "logit" else a
        return ((g - self.mean) / self.deviation).to(accuracies.dtype)

    def to_accuracies(self, units: Tensor) -> Tensor:
        """Standard units → accuracies, cut to [0, 1]; the order of networks is kept up to that cut."""
        g = units.double() * self.deviation + self.mean
        if self.kind == "logit":
            half = 0.5 / self.images
            p = g.sigmoid()
            g = p * (1 + 2 * half) - half
        return g.clamp(0, 1).to(units.dtype)


__all__ = ["SCALES", "Fit", "Loss", "Protocol", "Scale", "fit"]
