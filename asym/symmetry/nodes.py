"""The axes of tensors as small trees, and how to make and read them. `axes.py` says what they mean and changes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

FREE, PINNED, PRODUCT, CONCAT, BRANCHES = "free", "pinned", "product", "concat", "branches"


class Node:
    """One axis, or part of one.

    Attributes:
        size: number of positions.
        kind: free, pinned, product, concat, or branches (one part for each piece of `selector`, all of this
            size).
        parents: axes that this one is a family over; empty as long as nothing is known.
        hint: what the axis is, for its name ("heads").
    """

    __slots__ = ("hint", "kind", "link", "parents", "parts", "selector", "size")

    def __init__(self, size: int, kind: str = FREE, parts: Sequence[Node] = (), hint: str = "") -> None:
        self.size, self.kind, self.parts, self.hint = size, kind, list(parts), hint
        self.parents: list[Node] = []
        self.selector: Node | None = None
        self.link: Node | None = None


class Nodes:
    """All axes of one network."""

    def __init__(self) -> None:
        self._free: list[Node] = []

    # Making axes

    def free(self, size: int, parents: Iterable[Node] = (), hint: str = "") -> Node:
        """A new axis that may be permuted (an axis of one position is pinned: there is nothing to
        permute).
        """
        node = Node(size, FREE if size > 1 else PINNED, hint=hint)
        node.parents = list(parents)
        if size > 1:
            self._free.append(node)
        return node

    def pinned(self, size: int) -> Node:
        """A new axis that never moves."""
        return Node(size, PINNED)

    def product(self, nodes: Sequence[Node]) -> Node:
        """The row-major product of axes, as when neighbouring axes are flattened."""
        factors = [f for node in nodes for f in self.factors(node) if f.size > 1]
        if len(factors) == 1:
            return factors[0]
        size = math.prod(node.size for node in nodes)
        return Node(size, PRODUCT, factors) if factors else Node(size, PINNED)

    def concat(self, nodes: Sequence[Node]) -> Node:
        """Axes laid end to end."""
        return nodes[0] if len(nodes) == 1 else Node(sum(node.size for node in nodes), CONCAT, nodes)

    def branches(self, selector: Node, parts: Sequence[Node]) -> Node:
        """One axis for each piece of `selector`."""
        if len(parts) == 1:
            return parts[0]
        node = Node(parts[0].size, BRANCHES, parts)
        node.selector = selector
        return node

    # Reading axes

    def find(self, node: Node) -> Node:
        """The representative of an axis."""
        while node.link is not None:
            node = node.link
        return node

    def parts(self, node: Node) -> list[Node]:
        """The representatives of an axis's parts."""
        return [self.find(part) for part in self.find(node).parts]

    def leaves(self, node: Node) -> Iterator[Node]:
        """The free axes inside an axis."""
        node = self.find(node)
        if node.kind == FREE:
            yield node
        for part in node.parts:
            yield from self.leaves(part)

    def is_pinned(self, node: Node) -> bool:
        """Whether nothing inside the axis moves."""
        return next(self.leaves(node), None) is None

    def contains(self, node: Node, wanted: Node) -> bool:
        """Whether `wanted` is the axis or a part of it."""
        node, wanted = self.find(node), self.find(wanted)
        return node is wanted or any(self.contains(part, wanted) for part in node.parts)

    def factors(self, node: Node) -> list[Node]:
        """An axis as a flat list of factors."""
        node = self.find(node)
        return [f for part in node.parts for f in self.factors(part)] if node.kind == PRODUCT else [node]

    def pieces(self, node: Node) -> list[Node]:
        """An axis as a flat list of pieces; a product whose first factor has pieces is cut along them."""
        node = self.find(node)
        if node.kind == CONCAT:
            return [piece for part in node.parts for piece in self.pieces(part)]
        if node.kind == PRODUCT:
            first, *rest = self.factors(node)
            if first.kind == CONCAT:
                return [
                    piece
                    for i, part in enumerate(first.parts)
                    for piece in self.pieces(self.product([part, *(self.restrict(f, first, [i]) for f in rest)]))
                ]
        return [node]

    def restrict(self, node: Node, selector: Node, keep: Sequence[int], new_selector: Node | None = None) -> Node:
        """The axis where only the pieces `keep` of `selector` remain."""
        node = self.find(node)
        if node.kind == BRANCHES and node.selector is not None and self.find(node.selector) is selector:
            return self.branches(new_selector or selector, [node.parts[i] for i in keep])
        if node.kind == PRODUCT:
            return self.product([self.restrict(part, selector, keep, new_selector) for part in node.parts])
        return node

    def contexts(self, dims: Sequence[Node]) -> set[tuple[Node, ...]]:
        """The sets of free axes that meet in one entry of a tensor with axes `dims`, over all its entries."""
        selector = next((s for node in dims if (s := self._first_selector(node)) is not None), None)
        if selector is not None:
            found: set[tuple[Node, ...]] = set()
            for i in range(len(selector.parts)):
                found |= self.contexts([self._choose(node, selector, i) for node in dims])
            return found
        return {sum(choice, ()) for choice in product(*(self._alternatives(node) for node in dims))}

    def _first_selector(self, node: Node) -> Node | None:
        node = self.find(node)
        if node.selector is not None:
            return self.find(node.selector)
        return next((s for part in node.parts if (s := self._first_selector(part)) is not None), None)

    def _choose(self, node: Node, selector: Node, i: int) -> Node:
        node = self.find(node)
        if node is selector or (node.selector is not None and self.find(node.selector) is selector):
            return node.parts[i]
        if node.kind in (FREE, PINNED):
            return node
        chosen = Node(node.size, node.kind, [self._choose(part, selector, i) for part in node.parts])
        chosen.selector = node.selector
        return chosen

    def _alternatives(self, node: Node) -> set[tuple[Node, ...]]:
        node = self.find(node)
        if node.kind == FREE:
            return {(node,)}
        if node.kind == CONCAT:
            return {leaves for part in node.parts for leaves in self._alternatives(part)}
        return {sum(choice, ()) for choice in product(*(self._alternatives(part) for part in node.parts))}
