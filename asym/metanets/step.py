"""A training step of a reader in pieces: same gradient, less memory.

Networks of a batch do not meet inside a graph reader or an MLP, so the gradient of a mean loss over the batch is the
sum of those over its pieces. Activations of one piece are held at a time. Readers with batch norm (DMC) see the piece's
statistics, and are best given the batch as one piece.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from asym.metanets.reader import Reader
from asym.metanets.stack import Stack, Stacks, as_list

Call = Callable[[Reader, Stack], Tensor]
"""(reader, stack of k networks) → `k …`: what is asked of a reader where its own numbers are not it, such as the images
that edited networks give."""


def numbers(reader: Reader, stack: Stack) -> Tensor:
    """The reader's own numbers, `k out`."""
    return reader(stack)


def accumulate(
    reader: Reader,
    stacks: Stacks,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    piece: int = 32,
    call: Call = numbers,
) -> float:
    """Add the gradient of the mean loss over all networks to the reader's parameters.

    Args:
        reader: in training mode.
        stacks: the batch.
        targets: `n …`, one row a network in the stacks' order.
        loss: (outputs `k out`, targets `k …`) → the mean loss of k networks.
        piece: largest number of networks that are read together.
        call: what is asked of the reader.

    Returns:
        The mean loss.

    Raises:
        ValueError: if piece is below 1, or there are not as many targets as networks.
    """
    listed = as_list(stacks)
    total = sum(map(len, listed))
    if piece < 1:
        raise ValueError(f"piece: {piece}; must be at least 1")
    if len(targets) != total:
        raise ValueError(f"targets: {len(targets)} for {total} networks")
    start, mean = 0, 0.0
    for stack in listed:
        for first in range(0, len(stack), piece):
            part = stack.rows(slice(first, first + piece))
            share = loss(call(reader, part), targets[start : start + len(part)]) * (len(part) / total)
            share.backward()
            start, mean = start + len(part), mean + float(share.detach())
    return mean


@torch.no_grad()
def predict(reader: Reader, stacks: Stacks, *, piece: int = 256, call: Call = numbers) -> Tensor:
    """`n out` (or what `call` gives) in evaluation mode, in pieces; the reader's mode stays as it was."""
    training = reader.training
    reader.eval()
    try:
        parts = [
            call(reader, stack.rows(slice(first, first + piece)))
            for stack in as_list(stacks)
            for first in range(0, len(stack), piece)
        ]
    finally:
        reader.train(training)
    return torch.cat(parts)
