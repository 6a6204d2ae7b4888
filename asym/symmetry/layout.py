"""How the axes of a tensor are made of permutation groups, and how a permutation acts on such a tensor.

An axis is described by a small tree:

    Fixed(n)              n positions that never move (inputs, outputs, kernel positions, tokens)
    Permuted(group, n)    n positions that move with a permutation group
    Product(factors)      row-major product: a flattened [channels, height * width] axis, or [heads, features]
    Concat(pieces)        pieces laid end to end, as after torch.cat or in a fused query-key-value projection

A group may belong to a *parent* group: then it has one permutation for every index of the parent, and the two
act as blocks (a wreath product): with σ the parent's permutation and τ_i the child's under index i,

    new[i, j] = old[σ(i), τ_i(j)].

This is what permuting attention heads, the groups of a grouped convolution, or of a GroupNorm amounts to.

`tensor_blocks` cuts a tensor into blocks whose axes are plain groups; everything that acts on tensors
(permuting, matching) works on blocks alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Fixed:
    """`size` positions that never move."""

    size: int


@dataclass(frozen=True)
class Permuted:
    """`size` positions that the group named `group` permutes."""

    group: str
    size: int


@dataclass(frozen=True)
class Product:
    """The row-major product of its factors, the first one outermost."""

    factors: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of positions."""
        return math.prod(factor.size for factor in self.factors)


@dataclass(frozen=True)
class Concat:
    """Its pieces laid end to end."""

    pieces: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of positions."""
        return sum(piece.size for piece in self.pieces)


Axis = Fixed | Permuted | Product | Concat


@dataclass(frozen=True)
class Block:
    """A part of a tensor whose axes are plain groups.

    Attributes:
        index: per axis of the tensor, the positions that the block takes, or None for all of them in order.
        dims: the block's own axes as (group or None, size), those of the tensor's axes one after another.
    """

    index: tuple[tuple[int, ...] | None, ...]
    dims: tuple[tuple[str | None, int], ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the block's axes, in order, repeated where a group has several axes."""
        return tuple(group for group, _ in self.dims if group is not None)

    def take(self, tensor: Tensor) -> Tensor:
        """The block of `tensor`, shaped as `dims` (a view where the block is the whole tensor)."""
        for axis, positions in enumerate(self.index):
            if positions is not None:
                tensor = tensor.index_select(axis, torch.tensor(positions, device=tensor.device))
        return tensor.reshape([size for _, size in self.dims])

    def put(self, tensor: Tensor, block: Tensor) -> None:
        """Write `block` (shaped as `dims`) to its place in `tensor`."""
        positions = [
            torch.arange(size) if index is None else torch.tensor(index)
            for size, index in zip(tensor.shape, self.index)
        ]
        grid = torch.meshgrid(*(p.to(tensor.device) for p in positions), indexing="ij")
        tensor[grid] = block.reshape([len(p) for p in positions])


def groups_of(axis: Axis) -> tuple[str, ...]:
    """The groups of one axis, outermost and first piece first, without repetition."""
    match axis:
        case Permuted(group):
            return (group,)
        case Product(parts) | Concat(parts):
            return tuple(dict.fromkeys(group for part in parts for group in groups_of(part)))
    return ()


def _axis_pieces(axis: Axis) -> list[tuple[np.ndarray, tuple[tuple[str | None, int], ...]]]:
    """Positions and plain dims of each piece of an axis."""
    match axis:
        case Fixed(size):
            return [(np.arange(size), ((None, size),))]
        case Permuted(group, size):
            return [(np.arange(size), ((group, size),))]
        case Concat(pieces):
            offsets = np.cumsum([0] + [piece.size for piece in pieces])
            return [
                (start + positions, dims)
                for start, piece in zip(offsets, pieces)
                for positions, dims in _axis_pieces(piece)
            ]
        case Product(factors):
            result: list[tuple[np.ndarray, tuple[tuple[str | None, int], ...]]] = [(np.zeros(1, int), ())]
            for factor in factors:
                result = [
                    ((outer[:, None] * factor.size + inner).ravel(), dims + inner_dims)
                    for outer, dims in result
                    for inner, inner_dims in _axis_pieces(factor)
                ]
            return result


@cache
def tensor_blocks(axes: tuple[Axis, ...]) -> tuple[Block, ...]:
    """The blocks of a tensor with these axes; together they cover it exactly once."""
    pieces = [_axis_pieces(axis) for axis in axes]
    blocks = []
    for choice in product(*pieces):
        index = tuple(
            None if len(choices) == 1 and np.array_equal(positions, np.arange(axis.size)) else tuple(positions.tolist())
            for choices, axis, (positions, _) in zip(pieces, axes, choice)
        )
        blocks.append(Block(index, tuple(dim for _, dims in choice for dim in dims)))
    return tuple(blocks)


def permute_block(
    block: Tensor,
    dims: tuple[tuple[str | None, int], ...],
    perms: Mapping[str, Tensor],
    parents: Mapping[str, str | None],
) -> Tensor:
    """Act with `perms` on a block with axes `dims`; groups that are not in `perms` stay.

    Args:
        block: a tensor shaped as `dims`.
        dims: (group or None, size) per axis.
        perms: group to permutation, shape [size] or, for a group with a parent, [parent's size, size].
        parents: group to parent or None.
    """
    names = [group for group, _ in dims]
    moved_dims = [(axis, group) for axis, group in enumerate(names) if group is not None and group in perms]
    for axis, group in moved_dims:
        if parents[group] is None:
            block = block.index_select(axis, perms[group].to(block.device))
    for axis, group in moved_dims:
        if (parent := parents[group]) is None:
            continue
        outer, inner = perms[group].shape
        rows = (torch.arange(outer)[:, None] * inner + perms[group].cpu()).ravel().to(block.device)
        front = block.movedim((names.index(parent), axis), (0, 1))
        moved = front.reshape(outer * inner, -1).index_select(0, rows).reshape(front.shape)
        block = moved.movedim((0, 1), (names.index(parent), axis))
    return block


def permute_tensor(
    tensor: Tensor, axes: tuple[Axis, ...], perms: Mapping[str, Tensor], parents: Mapping[str, str | None]
) -> Tensor:
    """Act with `perms` on a tensor with these axes. Returns a new tensor, or `tensor` itself if nothing
    moves.
    """
    blocks = tensor_blocks(axes)
    if not any(group in perms for block in blocks for group in block.groups):
        return tensor
    if len(blocks) == 1 and all(index is None for index in blocks[0].index):
        return permute_block(blocks[0].take(tensor), blocks[0].dims, perms, parents).reshape(tensor.shape)
    result = torch.empty_like(tensor)
    for block in blocks:
        block.put(result, permute_block(block.take(tensor), block.dims, perms, parents))
    return result
