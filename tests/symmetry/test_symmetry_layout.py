"""Axes as trees: hand-worked permutations, and every tensor covered once by its blocks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from asym.symmetry.layout import Concat, Fixed, Permuted, Product, groups_of, permute_tensor, tensor_blocks

PLAIN = {"g": None, "h": None}


def test_rows_and_columns() -> None:
    matrix = tensor([[1, 2, 3], [4, 5, 6]])
    perms = {"g": tensor([1, 0]), "h": tensor([2, 0, 1])}
    moved = permute_tensor(matrix, (Permuted("g", 2), Permuted("h", 3)), perms, PLAIN)
    assert moved.tolist() == [[6, 4, 5], [3, 1, 2]]


def test_a_flattened_axis_moves_in_blocks() -> None:
    """Two channels of three pixels."""
    axis = Product((Permuted("g", 2), Fixed(3)))
    assert permute_tensor(torch.arange(6), (axis,), {"g": tensor([1, 0])}, PLAIN).tolist() == [3, 4, 5, 0, 1, 2]
    last = Product((Fixed(3), Permuted("g", 2)))
    assert permute_tensor(torch.arange(6), (last,), {"g": tensor([1, 0])}, PLAIN).tolist() == [1, 0, 3, 2, 5, 4]


def test_pieces_move_apart() -> None:
    axis = Concat((Fixed(1), Permuted("g", 2), Permuted("h", 3)))
    perms = {"g": tensor([1, 0]), "h": tensor([1, 2, 0])}
    assert permute_tensor(torch.arange(6), (axis,), perms, PLAIN).tolist() == [0, 2, 1, 4, 5, 3]


def test_a_family_moves_inside_its_parent() -> None:
    """new[i, j] = old[σ(i), τ_i(j)]: heads change places, then features inside the head's new place."""
    heads = Product((Permuted("p", 2), Permuted("c", 3)))
    perms = {"p": tensor([1, 0]), "c": tensor([[0, 1, 2], [2, 0, 1]])}
    assert permute_tensor(torch.arange(6), (heads,), perms, {"p": None, "c": "p"}).tolist() == [3, 4, 5, 2, 0, 1]


def test_a_family_across_axes() -> None:
    """As in a grouped convolution: groups on axis 0, channels inside the group on axis 1."""
    weight = tensor([[1, 2], [3, 4], [5, 6]])
    perms = {"p": tensor([2, 0, 1]), "c": tensor([[1, 0], [0, 1], [1, 0]])}
    moved = permute_tensor(weight, (Permuted("p", 3), Permuted("c", 2)), perms, {"p": None, "c": "p"})
    assert moved.tolist() == [[6, 5], [1, 2], [4, 3]]


def test_groups_without_a_permutation_stay_and_nothing_is_copied() -> None:
    vector = torch.arange(3)
    assert permute_tensor(vector, (Permuted("g", 3),), {}, PLAIN) is vector
    assert permute_tensor(vector, (Fixed(3),), {"g": tensor([1, 0])}, PLAIN) is vector


@st.composite
def axes(draw, depth: int = 2):
    kind = draw(st.sampled_from(["fixed", "permuted", "product", "concat"][: 4 if depth else 2]))
    if kind == "fixed":
        return Fixed(draw(st.integers(1, 3)))
    if kind == "permuted":
        size = draw(st.integers(2, 3))
        return Permuted(f"g{size}", size)
    parts = tuple(draw(st.lists(axes(depth=depth - 1), min_size=1, max_size=3)))
    return Product(parts) if kind == "product" else Concat(parts)


@given(st.lists(axes(), min_size=1, max_size=2))
def test_blocks_cover_every_entry_once(dims) -> None:
    dims = tuple(dims)
    shape = [axis.size for axis in dims]
    count, copy = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    whole = torch.arange(count.numel()).reshape(shape)
    for block in tensor_blocks(dims):
        part = block.take(whole)
        assert list(part.shape) == [size for _, size in block.dims]
        ones = torch.zeros(shape, dtype=torch.long)
        block.put(ones, torch.ones_like(part))
        count += ones
        block.put(copy, part)
    assert bool((count == 1).all())
    assert torch.equal(copy, whole)


@given(st.lists(axes(), min_size=1, max_size=2), st.permutations(range(2)), st.permutations(range(3)))
def test_permuting_is_a_bijection_of_entries(dims, two, three) -> None:
    dims = tuple(dims)
    whole = torch.arange(torch.Size([axis.size for axis in dims]).numel()).reshape([axis.size for axis in dims])
    perms = {"g2": tensor(two), "g3": tensor(three)}
    moved = permute_tensor(whole, dims, perms, {"g2": None, "g3": None})
    assert torch.equal(moved.ravel().sort().values, whole.ravel())
    back = permute_tensor(moved, dims, {g: p.argsort() for g, p in perms.items()}, {"g2": None, "g3": None})
    assert torch.equal(back, whole)


def test_sizes_and_groups_of_a_tree() -> None:
    axis = Concat((Product((Permuted("a", 2), Permuted("b", 3))), Permuted("a", 2), Fixed(4)))
    assert axis.size == 12
    assert groups_of(axis) == ("a", "b")
    with pytest.raises(AttributeError):
        axis.size = 3  # pyright: ignore[reportAttributeAccessIssue]
