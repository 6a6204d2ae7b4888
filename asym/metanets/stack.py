"""What a metanetwork reads: a stack of networks of one chain, or of one architecture of transformers.

A `Stack` holds n networks as tensors name → `n *shape`, with the `Chain` that says how they hang together. Readers that
can mix architectures take a list of stacks; `take` picks networks from such a list by their place in it and says in
which order they came out, so that a batch may hold networks of different depth, width, kernels and activations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from asym.populations.layout import Layout
from asym.symmetry.chain import Frame, check_tensors


@dataclasses.dataclass(frozen=True)
class Bag:
    """The tensors of networks of unknown structure: all that readers that are blind to it need of them. Other readers
    refuse it.

    Raises:
        ValueError: if there are no tensors.
    """

    members: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of each tensor."""

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("members: got no tensor")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Entries of each tensor; nothing is known of units."""
        return tuple(torch.Size(shape).numel() for _, shape in self.members)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name to shape."""
        return dict(self.members)


@dataclasses.dataclass(frozen=True)
class Stack:
    """Networks of one chain, with what a study knows of each.

    Raises:
        ValueError: if a tensor is missing or has another shape than the chain says, or holds NaN or infinite entries.
    """

    chain: Frame
    tensors: Mapping[str, Tensor]
    """Name to `n *shape`, all tensors of the chain."""
    masks: Mapping[str, Tensor] | None = None
    """Name to booleans `*shape`: entries that are trained, the same for all networks; readers that are blind to
    structure (flat, DMC, DeepSets, statistics) read only those. Missing names are trained as a whole."""
    hyper: Float[Tensor, "n h"] | None = None
    """Hyper-parameters as numbers, for the control that reads nothing else."""
    features: Float[Tensor, "n f"] | None = None
    """What a reader has worked out of the networks beforehand (`Reader.ahead`); gone with `replace`."""
    alive: tuple[Tensor, ...] | None = None
    """Of padded networks (`padding.py`): for each node layer `n units`, true where there is a unit."""
    checked: bool = False
    """Whether the tensors were checked already; set by `rows` and `to`."""

    def __post_init__(self) -> None:
        if self.checked:
            return
        (n,) = check_tensors(self.chain, self.tensors, lead=1, finite=True)
        if self.hyper is not None and len(self.hyper) != n:
            raise ValueError(f"hyper: {len(self.hyper)} rows for {n} networks")
        for name, mask in (self.masks or {}).items():
            if name not in self.chain.shapes or tuple(mask.shape) != self.chain.shapes[name]:
                raise ValueError(f"masks: {name!r} has shape {tuple(mask.shape)}, which is no tensor of the chain")
        object.__setattr__(self, "checked", True)

    @classmethod
    def from_rows(cls, chain: Frame, layout: Layout, rows: Float[Tensor, "n p"], **options) -> Stack:
        """The stack of a population's matrix.

        Raises:
            ValueError: if the layout lacks a tensor of the chain, or as the constructor.
        """
        if rows.shape[-1] != layout.size:
            raise ValueError(f"rows: {rows.shape[-1]} entries each, the layout has {layout.size}")
        views = layout.views(rows)
        return cls(chain, {name: views[name] for name in chain.shapes if name in views}, **options)

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    @property
    def like(self) -> Tensor:
        """One of the tensors, for its device and dtype."""
        return next(iter(self.tensors.values()))

    def rows(self, index: Tensor | slice) -> Stack:
        """The networks at these places."""
        tensors = {name: tensor[index] for name, tensor in self.tensors.items()}
        hyper, features = (None if x is None else x[index] for x in (self.hyper, self.features))
        alive = None if self.alive is None else tuple(a[index] for a in self.alive)
        return dataclasses.replace(self, tensors=tensors, hyper=hyper, features=features, alive=alive)

    def masked_units(self) -> list[Tensor | None]:
        """For each node layer 1 for units and 0 for padding, `units n 1`; None where nothing is padded."""
        if self.alive is None:
            return [None] * len(self.chain.sizes)
        return [a.t()[..., None].to(self.like) for a in self.alive]

    def to(self, *args, **options) -> Stack:
        """On another device or in another floating-point type."""
        tensors = {name: tensor.to(*args, **options) for name, tensor in self.tensors.items()}
        hyper, features = (None if x is None else x.to(*args, **options) for x in (self.hyper, self.features))
        device = next(iter(tensors.values())).device
        alive = None if self.alive is None else tuple(a.to(device) for a in self.alive)
        return dataclasses.replace(self, tensors=tensors, hyper=hyper, features=features, alive=alive)

    def replace(self, tensors: Mapping[str, Tensor]) -> Stack:
        """The same networks with other weights, which are not checked again."""
        return dataclasses.replace(self, tensors=tensors, features=None)

    def trained(self, name: str) -> Float[Tensor, "n p"]:
        """The trained entries of a tensor as rows."""
        rows = self.tensors[name].flatten(1)
        mask = (self.masks or {}).get(name)
        return rows if mask is None else rows[:, mask.flatten().to(rows.device)]

    def flat(self) -> Float[Tensor, "n p"]:
        """All trained entries as rows."""
        return torch.cat([self.trained(name) for name in self.chain.shapes], 1)


Stacks = Stack | Sequence[Stack]


def without_subnormal(x: Tensor) -> Tensor:
    """x with 0 in place of entries below the smallest normal number.

    Weight decay leaves networks with many such weights, on which processors compute up to a hundred times slower. For a
    reader that adds a bias to what it makes of a weight they are 0 in any case, to the last bit.
    """
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, torch.zeros((), dtype=x.dtype, device=x.device), x)


def as_list(stacks: Stacks) -> list[Stack]:
    """One stack or several as a list."""
    return [stacks] if isinstance(stacks, Stack) else list(stacks)


def count(stacks: Stacks) -> int:
    """Number of networks."""
    return sum(map(len, as_list(stacks)))


def take(stacks: Stacks, index: Tensor) -> tuple[list[Stack], Tensor]:
    """Networks by their place in the list of all, a stack for each chain that occurs.

    Returns:
        The stacks, and `order` such that `read(stacks)` has in row k the network `index[order[k]]`.
    """
    found, orders, start = [], [], 0
    for stack in as_list(stacks):
        here = ((index >= start) & (index < start + len(stack))).nonzero()[:, 0]
        if len(here):
            found.append(stack.rows(index[here] - start))
            orders.append(here)
        start += len(stack)
    if sum(map(len, orders)) != len(index):
        raise ValueError(f"index: places must be in 0 … {start - 1}, got {int(index.min())} … {int(index.max())}")
    return found, torch.cat(orders)
