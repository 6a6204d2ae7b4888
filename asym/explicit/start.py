"""The explicit start of a SAFFU language model, from the bottom up, in two passes over contexts and one over O.

1. For every context c: W_c from hidden targets, or from one gradient, or zero (`attention.py`), then U_c = U(K_U) from
   F = Σ z ⊗ η̂(y): the hidden layer has no target of its own and takes the label code of the next token.
2. A stacked layer likewise, on the outputs of the layer below.
3. O = U(K_O) from F = Σ h ⊗ onehot(y), inputs of norm C (one unit for every context).
4. Row means are taken off W, U and O (no effect on the function).

Attention, hidden layers and output are solved apart: what is not asked for stays as it is, so that every partial start
can be had. Label codes name the hidden units: two networks with the same codes have the same one of all H! orders of
units, whatever text each has counted. Sums are taken in float64 over batches; their size changes nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from asym.explicit.attention import (
    attention_gradient,
    hidden_targets,
    slot_scores,
    solve_attention,
    token_scores,
)
from asym.explicit.softmax import SMOOTHING, Choice, choose_priming, outer_sums, solve_softmax
from asym.models.saffu import SaffuLayer, SaffuLM

ATTENTIONS = ("hidden-targets", "one-gradient", "uniform")
PARTS = ("attention", "hidden", "output")
BATCH = 4096
RATES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""τ that the one-gradient start tries, by the loss of the label code on the contexts themselves."""


@dataclass(frozen=True)
class Solution:
    """How to solve.

    Attributes:
        parts: which of `PARTS` to solve; the others keep their values.
        priming: K_U of the hidden layers, whose inputs have norm 1.
        output_priming: K_O; None is C, the norm of O's input.
        attention: how W is found.
        sharpness: β of the hidden targets.
        smoothing: ε of every table.
    """

    parts: tuple[str, ...] = PARTS
    priming: float = 4.0
    output_priming: float | None = None
    attention: str = "hidden-targets"
    sharpness: float = 1.0
    smoothing: float = SMOOTHING

    def __post_init__(self) -> None:
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown or not self.parts:
            raise ValueError(f"parts: unknown {unknown or 'none given'}; valid: {', '.join(PARTS)}")
        if self.attention not in ATTENTIONS:
            raise ValueError(f"attention: unknown {self.attention!r}; valid: {', '.join(ATTENTIONS)}")


@torch.no_grad()
def solve(
    model: SaffuLM,
    x: Int[Tensor, "m ..."],
    y: Int[Tensor, " m"],
    labels: Float[Tensor, "v h"],
    solution: Solution = Solution(),
    *,
    batch: int = BATCH,
) -> None:
    """Put the explicit solution into a model.

    Args:
        model: any start; changed in place.
        x: contexts.
        y: the tokens that follow them.
        labels: label code of every token, rows of unit sum.
        solution: what to solve, and how.
        batch: contexts at a time.

    Raises:
        ValueError: no contexts; labels of another shape or not of unit sum; hidden targets for the D × D reading.
    """
    if len(x) == 0:
        raise ValueError("x: no contexts to count")
    if labels.shape != (model.vocabulary, model.width):
        raise ValueError(f"labels: shape {tuple(labels.shape)}, want {(model.vocabulary, model.width)}")
    if not torch.allclose(labels.sum(1), labels.new_ones(len(labels)), atol=1e-4) or bool((labels < 0).any()):
        raise ValueError("labels: rows must be distributions")
    wants_attention = "attention" in solution.parts
    if wants_attention and solution.attention != "uniform" and any(
        layer.reading == "features" for layer in [*model.layers.values(), *model.upper]  # type: ignore[union-attr]
    ):  # fmt: skip
        raise ValueError("attention: hidden targets and one gradient are for reading slots; take uniform")
    for level in range(len(model.upper) + 1):
        for name in model.layers if level == 0 else [""]:
            layer: SaffuLayer = model.layers[name] if level == 0 else model.upper[level - 1]  # type: ignore[assignment]
            source = _Source(model, layer, level, name, labels, x, y, batch)
            if wants_attention and layer.weight is not None:
                layer.weight.copy_(_attention(source, solution))
            if "hidden" in solution.parts:
                layer.hidden.copy_(_hidden(source, solution, uniform=False))
    if "output" in solution.parts:
        solve_output(model, x, y, solution, batch=batch)


@torch.no_grad()
def solve_output(
    model: SaffuLM, x: Int[Tensor, "m ..."], y: Int[Tensor, " m"], solution: Solution, *, batch: int = BATCH
) -> None:
    """O alone, from whatever the layers below give."""
    sums = torch.zeros_like(model.output, dtype=torch.float64)
    for rows, targets in _batches(x, y, batch):
        sums += outer_sums(model.read(rows), targets, model.vocabulary)
    output = solve_softmax(sums, norm=float(model.parts), priming=solution.output_priming, smoothing=solution.smoothing)
    model.output.copy_(_centred(output))


@torch.no_grad()
def add_unigram_bias(model: SaffuLM, counts: Int[Tensor, " v"], smoothing: float = 1.0) -> None:
    """Add the log frequencies of tokens to every row of O, shared among the C units of its input's norm."""
    share = (counts + smoothing).double()
    model.output.add_(((share / share.sum()).log() / model.parts).to(model.output.dtype))


def search(
    model: SaffuLM,
    train: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    labels: Float[Tensor, "v h"],
    solution: Solution,
    *,
    priming: Sequence[float],
    output_priming: Sequence[float],
) -> tuple[Solution, Choice, Choice]:
    """Choose K_U, then K_O, by the loss on held-out contexts; the model is left at the choice.

    Args:
        model: changed in place.
        train: contexts and next tokens to count; a few thousand do.
        held_out: others, to choose by.
        labels: label codes.
        solution: the rest of how to solve.
        priming: candidates for K_U.
        output_priming: candidates for K_O.
    """

    def hidden_loss(value: float) -> float:
        solve(model, *train, labels, replace(solution, priming=value))
        return mean_loss(model, *held_out)

    first = choose_priming(hidden_loss, priming)
    solution = replace(solution, priming=first.value)
    solve(model, *train, labels, solution)

    def output_loss(value: float) -> float:
        solve_output(model, *train, replace(solution, output_priming=value))
        return mean_loss(model, *held_out)

    second = choose_priming(output_loss, output_priming)
    solution = replace(solution, output_priming=second.value)
    solve_output(model, *train, solution)
    return solution, first, second


@torch.no_grad()
def mean_loss(model: SaffuLM, x: Tensor, y: Tensor, batch: int = BATCH) -> float:
    """Mean cross-entropy in nats."""
    total = sum(float(functional.cross_entropy(model(rows), t, reduction="sum")) for rows, t in _batches(x, y, batch))
    return total / len(x)


class _Batch(NamedTuple):
    """Inputs of a layer: pivots, comparisons `[m, K]`, which slots are there, what they hold, next tokens."""

    pivot: Tensor
    comparisons: Tensor
    present: Tensor
    slots: Tensor
    y: Tensor


@dataclass(frozen=True)
class _Source:
    """Where a layer's inputs come from: slots hold token numbers below, vectors in a stack."""

    model: SaffuLM
    layer: SaffuLayer
    level: int
    name: str
    labels: Tensor
    x: Tensor
    y: Tensor
    batch: int

    def __iter__(self) -> Iterator[_Batch]:
        x = self.x
        for _ in range(self.level, len(self.model.upper)):
            x = x[:, 0]  # layers below learn what follows the last place alone
        for rows, y in _batches(x, self.y, self.batch):
            if self.level == 0:
                pivot, pieces = self.model.split(rows)
                ids = pieces[self.name]
                yield _Batch(pivot, self.model.compare(pivot, ids), ids >= 0, ids, y)
            else:
                z, present = self.model.lower(rows, self.level)
                yield _Batch(z[:, 0], (z @ z[:, 0, :, None])[..., 0] * present, present, z, y)

    def attend(self, batch: _Batch) -> Tensor:
        """a of the layer as it is."""
        if self.level == 0:
            return self.model.attention(self.name, batch.pivot, batch.slots)
        if self.layer.weight is None or self.layer.reading == "slots":
            return self.layer.attend(batch.comparisons, batch.present)
        query = batch.pivot @ self.layer.weight
        return self.layer.attend(None, batch.present, (batch.slots @ query[:, :, None])[..., 0])

    def aggregate(self, batch: _Batch, a: Tensor) -> Tensor:
        """z."""
        return self.model.aggregate(batch.slots, a) if self.level == 0 else (a[:, None, :] @ batch.slots)[:, 0]

    def vectors(self, batch: _Batch) -> Tensor:
        """What the slots hold, as vectors."""
        if self.level:
            return batch.slots
        return self.model.embedding[batch.slots.clamp(min=0)] * batch.present[..., None]

    def scores(self, hidden: Tensor) -> Callable[[_Batch], Tensor]:
        """A function that gives ℓ; by a table over tokens where slots hold tokens."""
        if self.level:
            return lambda batch: slot_scores(batch.slots, hidden, self.labels[batch.y])
        table = token_scores(self.model.embedding, hidden, self.labels).view(-1)
        size = self.model.vocabulary
        return lambda batch: table[batch.slots.clamp(min=0) * size + batch.y[:, None]]


def _hidden(source: _Source, solution: Solution, *, uniform: bool) -> Tensor:
    """U from the layer's attention, or from a plain mean."""
    layer = source.layer
    sums, norm, count = torch.zeros_like(layer.hidden, dtype=torch.float64), 0.0, 0
    for batch in source:
        there = batch.present.to(layer.hidden.dtype)
        a = there / there.sum(1, keepdim=True).clamp(min=1) if uniform else source.attend(batch)
        z = source.aggregate(batch, a)
        sums += outer_sums(z, source.labels[batch.y], source.model.width)
        norm, count = norm + float(z.sum()), count + len(z)
    scale = norm / count or 1.0  # 1 for soft-max attention where every context has a token
    weight = solve_softmax(sums, norm=scale, priming=solution.priming * scale, smoothing=solution.smoothing)
    return _centred(weight).to(layer.hidden.dtype)


def _attention(source: _Source, solution: Solution) -> Tensor:
    weight = source.layer.weight
    assert weight is not None
    if solution.attention == "uniform":
        return torch.zeros_like(weight)
    provisional = _hidden(source, solution, uniform=True)
    sums, norm, count = torch.zeros_like(weight, dtype=torch.float64), 0.0, 0
    if solution.attention == "hidden-targets":
        scores = source.scores(provisional)
        for batch in source:
            sums += batch.comparisons.T @ hidden_targets(scores(batch), batch.present, solution.sharpness)
            norm, count = norm + float(batch.comparisons.sum()), count + len(batch.y)
        return solve_attention(sums, max(norm / count, 1e-12), smoothing=solution.smoothing).to(weight.dtype)
    for batch in source:
        rows, target = source.vectors(batch), source.labels[batch.y]
        sums += len(target) * attention_gradient(rows, batch.comparisons, batch.present, provisional, target)
        count += len(target)
    direction = _centred(sums / count).to(weight.dtype)

    def loss(rate: float) -> float:
        weight.copy_(rate * direction)
        total = 0.0
        for batch in source:
            z = source.aggregate(batch, source.attend(batch))
            total -= float((source.labels[batch.y] * (z @ provisional).log_softmax(-1)).sum())
        return total

    return choose_priming(loss, RATES).value * direction


def _centred(weight: Tensor) -> Tensor:
    return weight - weight.mean(1, keepdim=True)


def _batches(x: Tensor, y: Tensor, batch: int) -> Iterable[tuple[Tensor, Tensor]]:
    return zip(x.split(batch), y.split(batch))
