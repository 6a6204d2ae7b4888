"""Union-find over the axes of tensors: which axes of a network must be permuted together.

Every axis of every parameter starts as a *free* axis of its own. Tracing the network then says what must
agree:

    unify(a, b)            a and b carry the same positions (element-wise operations, the two sides of a
    contraction) pin(a)                 nothing may move (inputs, outputs, spatial positions, constants)
    split_product(a, n)    a is a row-major product: a reshape of one axis into several split_concat(a, n)
    a is made of pieces: slices, chunks, torch.cat

Structure is only ever refined, in place, so that every tensor that shares an axis sees it. When an axis is
split into [outer, inner], the inner part is a *family*: it may have a permutation for every index of the
outer part (heads and the features inside a head). Splitting the outer axis into pieces splits its families
into *branches*, one for each piece, so that query, key and value cut from one projection go separate ways.

Where structures do not fit, axes are pinned: a smaller group is always correct.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from asym.symmetry.factoring import common_factors, consecutive_runs, piece_ends, piece_sizes
from asym.symmetry.nodes import BRANCHES, CONCAT, FREE, PINNED, PRODUCT, Node, Nodes


class Axes(Nodes):
    """The account of which axes of one network agree."""

    # Saying what must agree

    def pin(self, node: Node) -> None:
        """Nothing inside the axis may move."""
        for leaf in list(self.leaves(node)):
            leaf.kind = PINNED

    def hint(self, node: Node, hint: str) -> None:
        """Say what the axis is, unless something has been said before."""
        node = self.find(node)
        if node.kind == FREE and not node.hint:
            node.hint = hint

    def collapse(self, node: Node) -> None:
        """All branches of an axis agree."""
        node = self.find(node)
        first, *rest = node.parts
        node.link = first
        for part in rest:
            self.unify(first, part)

    def unify(self, a: Node, b: Node) -> None:
        """Both axes carry the same positions.

        Raises:
            ValueError: if they differ in size.
        """
        a, b = self.find(a), self.find(b)
        if a is b:
            return
        if a.size != b.size:
            raise ValueError(f"axes of {a.size} and {b.size} positions cannot agree")
        if self.is_pinned(a) or self.is_pinned(b):
            self.pin(a)
            self.pin(b)
        elif b.kind == FREE:
            self._link(b, a)
        elif a.kind == FREE:
            self._link(a, b)
        elif BRANCHES in (a.kind, b.kind):
            self._unify_branches(a, b)
        elif len(pieces_a := self.pieces(a)) > 1 or len(self.pieces(b)) > 1:
            ends = {end for pieces in (pieces_a, self.pieces(b)) for end in piece_ends([p.size for p in pieces])}
            self._unify_parts(a, b, piece_sizes(sorted(ends)), self.split_concat)
            a, b = self.find(a), self.find(b)
            if a.kind == b.kind == CONCAT and [p.size for p in a.parts] == [p.size for p in b.parts]:
                b.link = a  # so that families over a and over b meet
        else:
            sizes = common_factors([f.size for f in self.factors(a)], [f.size for f in self.factors(b)])
            if sizes is None:
                self.pin(a)
                self.pin(b)
            else:
                self._unify_parts(a, b, sizes, self.split_product)

    def _unify_parts(self, a: Node, b: Node, sizes: list[int], split) -> None:
        for part_a, part_b in zip(split(a, sizes), split(b, sizes)):
            self.unify(part_a, part_b)

    def _unify_branches(self, a: Node, b: Node) -> None:
        if a.kind != BRANCHES:
            a, b = b, a
        if b.kind == BRANCHES:
            if self._selector(a) is self._selector(b):
                for part_a, part_b in zip(a.parts, b.parts):
                    self.unify(part_a, part_b)
            else:
                self.collapse(a)
                self.collapse(b)
                self.unify(a, b)
        elif len(pieces := self.pieces(b)) > 1:
            self._unify_parts(a, b, [piece.size for piece in pieces], self.split_concat)
        else:
            self._unify_parts(a, b, [f.size for f in self.factors(b)], self.split_product)

    def _selector(self, node: Node) -> Node | None:
        return None if node.selector is None else self.find(node.selector)

    def _link(self, free: Node, target: Node) -> None:
        """Replace a free axis by another one."""
        if free in self.leaves(target):  # an axis and branches that hold it
            self.collapse(target)
            return
        free.link = target
        self._free.remove(free)
        self._add_parents(target, free.parents)
        if target.kind == FREE:
            target.hint = target.hint or free.hint
        elif target.kind == CONCAT:
            self._explode(target, free)

    def _add_parents(self, node: Node, parents: Sequence[Node]) -> None:
        node = self.find(node)
        if node.kind == FREE:
            node.parents += [parent for parent in parents if self.find(parent) is not node]
        elif node.kind == PRODUCT:
            factors = self.factors(node)
            for factor in factors:
                if not any(self.find(parent) in factors for parent in factor.parents):
                    self._add_parents(factor, parents)
        else:
            for part in node.parts:
                self._add_parents(part, parents)

    # Taking axes apart

    def split_product(self, node: Node, sizes: Sequence[int]) -> list[Node]:
        """The axis as a row-major product of axes of these sizes; pinned where that does not fit its
        structure.
        """
        node = self.find(node)
        wanted = [size for size in sizes if size > 1]
        parts = [node] if len(wanted) == 1 else self._split_product(node, wanted)
        if parts is None:
            self.pin(node)
            parts = [self.pinned(size) for size in wanted]
        queue = iter(parts)
        return [next(queue) if size > 1 else self.pinned(1) for size in sizes]

    def _split_product(self, node: Node, sizes: list[int]) -> list[Node] | None:
        if self.is_pinned(node) and node.kind != PRODUCT:
            return [self.pinned(size) for size in sizes]
        if node.kind == FREE:
            parts: list[Node] = []
            for size in sizes:
                parts.append(self.free(size, parts[-1:] or node.parents))
            self._free.remove(node)
            node.kind, node.parts, node.parents = PRODUCT, list(parts), []
            return parts
        if node.kind == BRANCHES and node.selector is not None:
            split = [self.split_product(part, sizes) for part in node.parts]
            return [self.branches(node.selector, column) for column in zip(*split)]
        if node.kind == CONCAT:
            inner = math.prod(sizes[1:])
            if any(piece.size % inner for piece in self.pieces(node)):
                return None
            split = [self.split_product(piece, [piece.size // inner, *sizes[1:]]) for piece in self.pieces(node)]
            outer = Node(sizes[0], CONCAT, [column[0] for column in split])
            return [outer, *(self.branches(outer, column) for column in zip(*(s[1:] for s in split)))]
        queue, result, current, need = self.factors(node), [], [], iter(sizes)
        missing = next(need)
        while queue:
            factor = queue.pop(0)
            if missing % factor.size:
                if factor.size % missing:
                    return None
                factor, rest = self.split_product(factor, [missing, factor.size // missing])
                queue.insert(0, rest)
            current.append(factor)
            missing //= factor.size
            if missing == 1:
                result.append(self.product(current))
                current, missing = [], next(need, 0)
        return result

    def split_concat(self, node: Node, sizes: Sequence[int]) -> list[Node]:
        """The axis as pieces of these sizes laid end to end; pinned where that does not fit its structure."""
        node = self.find(node)
        if len(sizes) == 1:
            return [node]
        if node.kind in (FREE, PINNED):
            families = self._families(node)
            if node.kind == PINNED and not families:
                return [self.pinned(size) for size in sizes]
            if node.kind == FREE:
                self._free.remove(node)
            make = self.free if node.kind == FREE else lambda size, _: self.pinned(size)
            node.kind, node.parts = CONCAT, [make(size, node.parents) for size in sizes]
            self._explode(node, node)
            return list(node.parts)
        if node.kind == BRANCHES and node.selector is not None:
            split = [self.split_concat(part, sizes) for part in node.parts]
            return [self.branches(node.selector, column) for column in zip(*split)]
        if node.kind == PRODUCT:
            first, *rest = self.factors(node)
            inner = node.size // first.size
            if not any(size % inner for size in sizes):
                parts = self.split_concat(first, [size // inner for size in sizes])
                selector = self.find(first)
                if selector.kind != CONCAT:
                    return [self.product([part, *rest]) for part in parts]
                groups = consecutive_runs([p.size for p in selector.parts], [part.size for part in parts])
                if groups is not None:
                    return [
                        self.product([part, *(self.restrict(f, selector, keep, part) for f in rest)])
                        for part, keep in zip(parts, groups)
                    ]
            self.pin(node)
            return [self.pinned(size) for size in sizes]
        return self._regroup(node, sizes)

    def _regroup(self, node: Node, sizes: Sequence[int]) -> list[Node]:
        """Cut an axis that has pieces already into pieces of other sizes."""
        queue, result, current, need = list(node.parts), [], [], iter(sizes)
        missing = next(need)
        while queue:
            piece = self.find(queue.pop(0))
            if piece.size > missing:
                piece, rest = self.split_concat(piece, [missing, piece.size - missing])
                queue.insert(0, rest)
            current.append(piece)
            missing -= piece.size
            if missing == 0:
                result.append(self.concat(current))
                current, missing = [], next(need, 0)
        return result

    def narrow(self, dims: Sequence[Node], dim: int, sizes: Sequence[int]) -> list[list[Node]]:
        """Cut a tensor with axes `dims` along `dim` into tensors of these sizes."""
        parts = self.split_concat(dims[dim], sizes)
        selector = self.find(dims[dim])
        keeps = None
        if selector.kind == CONCAT:
            keeps = consecutive_runs([p.size for p in selector.parts], list(sizes))
        result = []
        for i, part in enumerate(parts):
            others = [d if keeps is None else self.restrict(d, selector, keeps[i], part) for d in dims]
            others[dim] = part
            result.append(others)
        return result

    def has_families(self, node: Node) -> bool:
        """Whether other axes are families over this one."""
        return bool(self._families(self.find(node)))

    def _families(self, node: Node) -> list[Node]:
        return [f for f in self._free if any(self.find(parent) is node for parent in f.parents)]

    def _explode(self, selector: Node, old: Node) -> None:
        """`old` has become the pieces of `selector`: its families become branches."""
        for family in [f for f in self._free if any(self.find(p) in (selector, old) for p in f.parents)]:
            above = [p for p in family.parents if self.find(p) not in (selector, old)]
            self._branch(family, selector, [[*above, piece] for piece in selector.parts])

    def _branch(self, node: Node, selector: Node, parents: Sequence[Sequence[Node]]) -> None:
        families = self._families(node)
        self._free.remove(node)
        parts = [self.free(node.size, [p for p in above if p.size > 1], node.hint) for above in parents]
        node.kind, node.selector, node.parts, node.parents = BRANCHES, selector, list(parts), []
        for family in families:
            self._branch(family, selector, [[part] for part in parts])
