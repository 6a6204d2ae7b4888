"""What every data set offers to those who train and evaluate on it, images and graphs alike.

`ImageData` and `GraphData` satisfy `Data`; whoever loops over one sees items, batches and inputs, and hands the input
to the network as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor


@runtime_checkable
class Items(Protocol):
    """A split: items with labels."""

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The class of each item."""
        ...

    def __len__(self) -> int: ...

    def take(self, index: Int[Tensor, " k"]) -> Any:
        """The items at these places."""
        ...

    def to(self, device: torch.device | str) -> Any:
        """The items on a device."""
        ...

    def parts(self, size: int) -> list[Any]:
        """The items in their order, cut into pieces that one pass takes: `size` of them, or all where a pass over a
        graph answers for all of them at once.
        """
        ...


@runtime_checkable
class Batches(Protocol):
    """Training batches of several networks."""

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        ...

    def epoch(self, rows: list[int], epoch: int) -> Iterator[tuple[Any, Int[Tensor, "k b"]]]:
        """Yield (inputs, labels) of the networks `rows`; `inputs[i]` is the input of the i-th of them."""
        ...


@runtime_checkable
class Data(Protocol):
    """A data set. `domain` is `images` or `graph`, `input_shape` the shape of one item's features."""

    domain: ClassVar[str]

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def classes(self) -> int: ...  # noqa: D102
    @property
    def input_shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def train(self) -> Items: ...  # noqa: D102
    @property
    def val(self) -> Items: ...  # noqa: D102
    @property
    def test(self) -> Items: ...  # noqa: D102

    def with_train(self, train: Any) -> Any:
        """The data with other training items, and a fingerprint of its own."""
        ...

    def inputs(self, items: Any) -> Any:
        """What a network is called with to answer for these items, on their device."""
        ...

    def example(self) -> Any:
        """A small input, to trace a network with."""
        ...

    def batches(self, seeds: Sequence[int], batch_size: int, augment: str, device: torch.device) -> Batches:
        """Training batches for networks with these seeds."""
        ...
