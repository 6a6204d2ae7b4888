"""From the account of axes at the end of a trace to a permutation spec: consistency, names, and layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from asym.symmetry import layout
from asym.symmetry.axes import Axes
from asym.symmetry.nodes import BRANCHES, CONCAT, FREE, PRODUCT, Node
from asym.symmetry.rules import Dims, Value


def settle(axes: Axes, states: Sequence[Value], values: Sequence[Dims]) -> None:
    """Keep families and branches only where every tensor shows the axis that they depend on.

    Args:
        axes: the account, changed in place.
        states: parameters and buffers.
        values: the axes of all other tensors.
    """
    changed = True
    while changed:
        changed = False
        for dims, is_state in [(value.dims, True) for value in states] + [(dims, False) for dims in values]:
            for node in [n for axis in dims for n in _tree(axes, axis)]:
                node = axes.find(node)
                if node.kind == BRANCHES and not _selected(axes, dims, node, is_state):
                    axes.collapse(node)
                    changed = True
            if not any(leaf.parents for axis in dims for leaf in axes.leaves(axis)):
                continue
            for leaves in axes.contexts(dims):
                for leaf in leaves:
                    parents = {axes.find(parent) for parent in leaf.parents}
                    parent = next(iter(parents), None)
                    if parent is None:
                        continue
                    if len(parents) > 1 or leaves.count(parent) != 1:
                        leaf.parents, changed = [], True
                    elif parent.parents:
                        parent.parents, changed = [], True


def _selected(axes: Axes, dims: Dims, branches: Node, is_state: bool) -> bool:
    """Whether a tensor shows the axis whose pieces `branches` follows; in a parameter, in front of it in a
    product.
    """
    selector = branches.selector
    if selector is None:
        return False
    selector = axes.find(selector)
    if not is_state:
        return any(axes.contains(axis, selector) for axis in dims)
    for axis in dims:
        factors = axes.factors(axis)
        if branches in factors and selector in factors[: factors.index(branches)]:
            return True
    return False


def _tree(axes: Axes, node: Node) -> Iterator[Node]:
    node = axes.find(node)
    yield node
    for part in node.parts:
        yield from _tree(axes, part)


def name_groups(
    axes: Axes, producers: Sequence[tuple[str, Node]], states: dict[str, Value], values: Sequence[Value]
) -> dict[Node, str]:
    """A name for every free axis of a parameter, in the order in which the network makes them.

    The name is that of the first module that produces the axis, or else of the first parameter that has it.
    """
    sources: dict[Node, str] = {}
    for name, axis in [*producers, *((name, axis) for name, value in states.items() for axis in value.dims)]:
        for leaf in axes.leaves(axis):
            sources.setdefault(leaf, name)
    held = {leaf for value in states.values() for axis in value.dims for leaf in axes.leaves(axis)}
    order = dict.fromkeys(leaf for value in values for axis in value.dims for leaf in axes.leaves(axis))
    order = [leaf for leaf in [*order, *(leaf for leaf in sources if leaf not in order)] if leaf in held]
    names: dict[Node, str] = {}
    for leaf in order:
        base = sources[leaf].removesuffix(".weight").removesuffix("_weight")
        name = f"{base}.{leaf.hint}" if leaf.hint else base
        count = sum(other.split("#")[0] == name for other in names.values())
        names[leaf] = f"{name}#{count + 1}" if count else name
    return names


def axis_layout(axes: Axes, node: Node, names: dict[Node, str]) -> layout.Axis:
    """An axis in the form that acting on tensors uses."""
    node = axes.find(node)
    if axes.is_pinned(node) or (node.kind == FREE and node not in names):
        return layout.Fixed(node.size)
    if node.kind == FREE:
        return layout.Permuted(names[node], node.size)
    if node.kind == CONCAT:
        return _concat([axis_layout(axes, piece, names) for piece in axes.pieces(node)])
    if node.kind == PRODUCT:
        factors = axes.factors(node)
        selectors = [axes.find(f.selector) for f in factors if f.kind == BRANCHES and f.selector is not None]
        at = next((i for i, factor in enumerate(factors) if factor in selectors), None)
        if at is None:
            return _product([axis_layout(axes, factor, names) for factor in factors])
        selector, rest = factors[at], factors[at + 1 :]
        pieces = [
            axis_layout(axes, axes.product([part, *(axes.restrict(f, selector, [i]) for f in rest)]), names)
            for i, part in enumerate(selector.parts)
        ]
        return _product([*(axis_layout(axes, factor, names) for factor in factors[:at]), _concat(pieces)])
    return layout.Fixed(node.size)  # branches that only an activation has


def _concat(pieces: list[layout.Axis]) -> layout.Axis:
    result: list[layout.Axis] = []
    for piece in pieces:
        if result and isinstance(piece, layout.Fixed) and isinstance(result[-1], layout.Fixed):
            piece = layout.Fixed(result.pop().size + piece.size)
        result.append(piece)
    return result[0] if len(result) == 1 else layout.Concat(tuple(result))


def _product(factors: list[layout.Axis]) -> layout.Axis:
    result: list[layout.Axis] = []
    for factor in factors:
        if factor.size == 1:
            continue
        if result and isinstance(factor, layout.Fixed) and isinstance(result[-1], layout.Fixed):
            factor = layout.Fixed(result.pop().size * factor.size)
        result.append(factor)
    return result[0] if len(result) == 1 else layout.Product(tuple(result))
