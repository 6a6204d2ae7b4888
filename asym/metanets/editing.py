"""Networks that write networks: `editor.edit(stack)` → a stack with new weights, W' = W + s Δ(W).

Δ is what the network says of every weight and bias, s a number for each tensor that is learned and starts at 0.01, so
that an untrained editor hardly changes anything (the form of Zhou et al. 2023, arXiv 2302.14040, and of ScaleGMN's
released code). What the changed networks then do is the caller's business: for implicit networks the loss is that of
the images that they give, and with `asym.metanets.fit` the editor is trained by `call=lambda editor, part: image of
editor.edit(part)`.

    flat       all weights → linear → ReLU → LayerNorm → linear → all changes; knows no symmetry
    nfn-…      equivariant layers with ReLU between, down to one channel: permutations
    gmn…, scale-gmn…   the graph networks with `output="weights"` (`scale_gmn/readout.py`)

With `gauge` an editor changes the network in its gauge, which is the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from asym.metanets.blind import FlatMLP
from asym.metanets.nfn import NFN, EquivariantLayer
from asym.metanets.reader import Reader
from asym.metanets.registry import build
from asym.metanets.scale_gmn import ScaleGMN
from asym.metanets.stack import Stack
from asym.symmetry.chain import Chain

FIRST_STEP = 0.01


@runtime_checkable
class Editor(Protocol):
    """A reader that gives new weights."""

    def edit(self, stack: Stack) -> Stack:
        """The stack with new weights, in the reader's gauge."""
        ...


class FlatEditor(FlatMLP):
    """One hidden layer from all weights to changes of all weights; options are those of `FlatMLP` but `out`."""

    def __init__(self, chains: Chain | Sequence[Chain], **options) -> None:
        chain = chains[0] if isinstance(chains, Sequence) else chains
        sizes = [torch.Size(shape).numel() for shape in chain.shapes.values()]
        super().__init__(chains, out=sum(sizes), **options)
        self.steps = nn.Parameter(torch.full((len(sizes),), FIRST_STEP))

    def edit(self, stack: Stack) -> Stack:
        """The stack with new weights."""
        stack = self.prepare(stack)
        shapes = stack.chain.shapes
        parts = self.read(stack).split([torch.Size(shape).numel() for shape in shapes.values()], 1)
        return _changed(stack, self.steps, [part.unflatten(1, shape) for part, shape in zip(parts, shapes.values())])


class NFNEditor(NFN):
    """Equivariant layers that end in one channel for each weight.

    Args:
        chains: the architecture.
        channels: of the layers before the last.
        options: of `NFN` but `width` and `out`.
    """

    def __init__(
        self, chains: Chain | Sequence[Chain], *, group: str = "np", channels: Sequence[int] = (16, 16), **options
    ) -> None:
        super().__init__(chains, group=group, channels=channels, width=1, **options)
        self.head = nn.Sequential()
        self.last = EquivariantLayer(self.table, channels[-1], 1)
        self.steps = nn.Parameter(torch.full((len(self.table.names),), FIRST_STEP))

    def edit(self, stack: Stack) -> Stack:
        """The stack with new weights."""
        stack = self.prepare(stack)
        tensors = self.tensors(stack)
        for layer in self.layers:
            tensors = [x.relu() for x in layer(tensors)]
        found = dict(zip(self.table.names, self.last(tensors)))
        changes = [self.unfold(stack.chain, name, found[name]) for name in stack.chain.shapes]
        order = [self.table.names.index(name) for name in stack.chain.shapes]
        return _changed(stack, self.steps[order], changes)

    def read(self, stack: Stack) -> Tensor:
        """An editor has no numbers to give.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"{type(self).__name__} has no numbers to give; call `edit`")


EDITORS: dict[str, Callable[..., Reader]] = {
    "flat": FlatEditor,
    "nfn-np": partial(NFNEditor, group="np"),
    "nfn-hnp": partial(NFNEditor, group="hnp"),
    "gmn": partial(ScaleGMN, output="weights", law="permutation"),
    "gmn-b": partial(ScaleGMN, output="weights", law="permutation", direction="bidirectional"),
    "scale-gmn": partial(ScaleGMN, output="weights"),
    "scale-gmn-b": partial(ScaleGMN, output="weights", direction="bidirectional"),
}
"""Name to constructor; the names are those of the readers."""


def build_editor(name: str, chains: Chain | Sequence[Chain], *, seed: int = 0, **options) -> Any:
    """An editor with start values from `seed`; see `asym.metanets.build`.

    Raises:
        ValueError: for an unknown editor or option.
    """
    return build(name, chains, seed=seed, among=EDITORS, **options)


def _changed(stack: Stack, steps: Tensor, changes: Sequence[Tensor]) -> Stack:
    """θ + s Δ, tensor by tensor in the order of the chain."""
    new = dict(stack.tensors)
    for name, step, change in zip(stack.chain.shapes, steps, changes):
        new[name] = new[name] + step * change
    return stack.replace(new)


__all__ = ["EDITORS", "Editor", "FlatEditor", "NFNEditor", "build_editor"]
