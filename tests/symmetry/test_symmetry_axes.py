"""The account of axes: what agrees, what is split, and what gives way when structures do not fit."""

import pytest

from asym.symmetry.axes import Axes
from asym.symmetry.nodes import BRANCHES, CONCAT, FREE, PRODUCT, Node


def sizes(axes: Axes, node: Node) -> list[int]:
    """Sizes of the free axes inside an axis."""
    return [leaf.size for leaf in axes.leaves(node)]


def test_axes_that_agree_are_one() -> None:
    axes = Axes()
    a, b, c = axes.free(4), axes.free(4), axes.free(4)
    axes.unify(a, b)
    assert axes.find(a) is axes.find(b)
    assert axes.find(a) is not axes.find(c)
    axes.unify(c, b)
    axes.pin(a)
    assert all(axes.is_pinned(node) for node in (a, b, c))


def test_an_axis_that_meets_a_pinned_one_is_pinned() -> None:
    axes = Axes()
    a = axes.free(4)
    axes.unify(a, axes.pinned(4))
    assert axes.is_pinned(a)
    assert axes.is_pinned(axes.free(1))


def test_axes_of_different_sizes_cannot_agree() -> None:
    axes = Axes()
    with pytest.raises(ValueError, match="axes of 4 and 3 positions cannot agree"):
        axes.unify(axes.free(4), axes.free(3))


def test_a_split_is_seen_everywhere() -> None:
    axes = Axes()
    weight, bias = axes.free(6), axes.free(6)
    axes.unify(weight, bias)
    outer, inner = axes.split_product(weight, [2, 3])
    assert axes.find(bias).kind == PRODUCT
    assert axes.factors(bias) == [outer, inner]
    assert inner.parents == [outer]


def test_flattened_channels_refine_the_axis_that_reads_them() -> None:
    axes = Axes()
    channels, reader = axes.free(3), axes.free(12)
    axes.unify(axes.product([channels, axes.pinned(4)]), reader)
    assert list(axes.leaves(reader)) == [channels]
    other = axes.free(12)
    first, second = axes.split_product(other, [6, 2])
    axes.unify(reader, other)
    assert not axes.is_pinned(first)
    assert axes.is_pinned(second)
    assert sizes(axes, reader) == [3]


def test_products_without_a_common_refinement_are_pinned() -> None:
    axes = Axes()
    a, b = axes.product([axes.free(2), axes.free(3)]), axes.product([axes.free(3), axes.free(2)])
    axes.unify(a, b)
    assert axes.is_pinned(a)
    assert axes.is_pinned(b)
    c = axes.product([axes.free(4), axes.free(3)])
    assert all(axes.is_pinned(part) for part in axes.split_product(c, [3, 4]))
    assert axes.is_pinned(c)


def test_pieces_with_other_boundaries_are_cut_finer() -> None:
    axes = Axes()
    a, b = axes.free(6), axes.free(6)
    axes.split_concat(a, [2, 4])
    axes.split_concat(b, [3, 3])
    axes.unify(a, b)
    assert [piece.size for piece in axes.pieces(a)] == [2, 1, 3]
    assert sizes(axes, a) == [2, 3]  # one position alone has nowhere to go
    assert list(axes.leaves(a)) == list(axes.leaves(b))


def test_query_key_and_value_go_separate_ways() -> None:
    """[3, heads, features] cut along its first axis: the families of heads and features become branches."""
    axes = Axes()
    fused = axes.free(3 * 2 * 5)
    which, heads, features = axes.split_product(fused, [3, 2, 5])
    query, key, value = axes.narrow([which, heads, features], 0, [1, 1, 1])
    assert axes.find(which).kind == CONCAT
    assert axes.find(heads).kind == axes.find(features).kind == BRANCHES
    axes.unify(query[1], key[1])
    axes.unify(key[1], value[1])
    axes.unify(query[2], key[2])
    assert axes.find(query[2]) is not axes.find(value[2])
    assert [piece.size for piece in axes.pieces(fused)] == [10, 10, 10]
    leaves = [list(axes.leaves(piece)) for piece in axes.pieces(fused)]
    assert leaves[0] == leaves[1]
    assert leaves[0][0] is leaves[2][0]
    assert leaves[0][1] is not leaves[2][1]


def test_contexts_list_what_meets_in_one_entry() -> None:
    axes = Axes()
    a, b, c = axes.free(2), axes.free(3), axes.free(4)
    assert axes.contexts([axes.concat([a, b]), c]) == {(a, c), (b, c)}
    assert axes.contexts([axes.product([a, b]), axes.pinned(2)]) == {(a, b)}


def test_collapsing_makes_branches_agree() -> None:
    axes = Axes()
    outer, inner = axes.split_product(axes.free(6), [2, 3])
    axes.split_concat(outer, [1, 1])
    first, second = axes.parts(inner)
    assert first is not second
    axes.collapse(inner)
    assert axes.find(first) is axes.find(second)
    assert axes.find(inner).kind == FREE
