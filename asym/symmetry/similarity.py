"""How similar two networks are as a function of the permutations, with everything that can be kept between
steps kept.

The objective of weight matching is the inner product of all parameters,

    f(π) = Σ_w ⟨a_w, π(b_w)⟩,

which up to constants is minus half the squared distance. Parameters are cut into blocks with plain axes
(`layout.py`). For one group, with all others held, f is linear in its permutation matrix: f = Σ_i S[i, π(i)]
+ constant, where S is a sum of products of matrices, one for each block that has the group,

    S[i, j] = Σ_(o, f) a[i, o, f] b[j, π'(o), f].

Such a product changes only if the permutation π' of its other axis does. `BlockSimilarity` keeps it, recomputes it
only then, and where few positions of π' changed, by their columns alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from asym.symmetry.layout import permute_block, tensor_blocks
from asym.symmetry.spec import PermutationSpec

Dims = tuple[tuple[str | None, int], ...]


@dataclass(frozen=True)
class Term:
    """One block of one parameter in both networks, its fixed axes flattened into the last one.

    Attributes:
        dims: (group, size) per axis; (None, size) for the last.
        a, b: the block in the two networks.
        scale: what its part of the objective cannot exceed, |a| |b| of the whole parameter.
    """

    dims: Dims
    a: Tensor
    b: Tensor
    scale: float

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups of the axes, repeated where one has several."""
        return tuple(group for group, _ in self.dims if group is not None)

    def inner(self, perms: Mapping[str, Tensor], parents: Mapping[str, str | None]) -> float:
        """Its part of the objective, ⟨a, π(b)⟩, summed in float64."""
        b = permute_block(self.b, self.dims, {g: perms[g] for g in set(self.groups)}, parents)
        return float((self.a * b).sum(dtype=torch.float64))


def make_terms(
    spec: PermutationSpec, a: Mapping[str, Tensor], b: Mapping[str, Tensor], scales: Mapping[str, float]
) -> list[Term]:
    """The blocks of the tensors in `scales` (|a| |b| by name), in float32 or better."""
    terms = []
    for name, scale in scales.items():
        x, y = (_accurate(tensors[name]) for tensors in (a, b))
        for block in tensor_blocks(spec.tensors[name]):
            order = sorted(range(len(block.dims)), key=lambda d: block.dims[d][0] is None)
            moving = [block.dims[d] for d in order if block.dims[d][0] is not None]
            shape = [size for _, size in moving]
            parts = [block.take(t).permute(order).reshape([*shape, -1]) for t in (x, y)]
            terms.append(Term((*moving, (None, parts[0].shape[-1])), parts[0], parts[1], scale))
    return terms


def _accurate(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor if tensor.dtype == torch.float64 else tensor.float()


class BlockSimilarity:
    """S for one block and one group: rows and columns are positions of `rows`, one axis or [parent, child] flattened.

    Args:
        term: the block.
        rows: the axes of the block that S is about.
        parents: group to parent.
    """

    def __init__(self, term: Term, rows: tuple[int, ...], parents: Mapping[str, str | None]) -> None:
        self.term, self.rows, self._parents = term, rows, parents
        names = [group for group, _ in term.dims]
        rest = [d for d in range(len(names)) if d not in rows]
        self.others = tuple(name for d in rest if (name := names[d]) is not None)
        self._simple = len(self.others) == 1 and parents[self.others[0]] is None
        self._used: dict[str, Tensor] = {}
        self._value: Tensor | None = None
        # Rows in front cost no copy if they are there already; otherwise they go last, so that choosing positions of
        # another axis copies long runs.
        self._first = rows == tuple(range(len(rows)))
        self._dims = tuple(term.dims[d] for d in rest)
        if self._first:
            self._a, self._b = (t.flatten(0, len(rows) - 1) for t in (term.a, term.b))
        else:
            self._a, self._b = (t.permute(*rest, *rows).flatten(len(rest)).contiguous() for t in (term.a, term.b))

    def is_current(self, perms: Mapping[str, Tensor]) -> bool:
        """Whether S is known under these permutations of the other axes."""
        if self._value is None:
            return False
        return all((old := self._used[g]) is perms[g] or torch.equal(old, perms[g]) for g in self.others)

    def value(self, perms: Mapping[str, Tensor]) -> Tensor:
        """S under the current permutations of the other axes."""
        if self._value is None or not self.is_current(perms):
            self._value = self._compute(perms)
            self._used = {g: perms[g] for g in self.others}
        return self._value

    def inner(self, perms: Mapping[str, Tensor]) -> float:
        """The block's part of the objective: Σ S[i, π(i)], π the permutation of the rows."""
        names = [self.term.dims[d][0] for d in self.rows]
        columns = perms[names[0] or ""]
        if len(names) == 2:
            child = perms[names[1] or ""]
            columns = (columns[:, None] * child.shape[1] + child).ravel()
        s = self.value(perms)
        return float(s[torch.arange(len(s), device=s.device), columns.to(s.device)].sum(dtype=torch.float64))

    def _compute(self, perms: Mapping[str, Tensor]) -> Tensor:
        if not self._simple:
            dims = ((None, self._b.shape[0]), *self._dims) if self._first else (*self._dims, (None, self._b.shape[-1]))
            b = permute_block(self._b, dims, {g: perms[g] for g in self.others}, self._parents)
            return self._gram(self._a, b)
        new = perms[self.others[0]]
        if self._value is not None:
            old = self._used[self.others[0]]
            changed = torch.nonzero(old != new).ravel()
            if 2 * len(changed) < len(new):
                b = self._chosen(self._b, new[changed]) - self._chosen(self._b, old[changed])
                return self._value + self._gram(self._chosen(self._a, changed), b)
        b = self._b if torch.equal(new, torch.arange(len(new))) else self._chosen(self._b, new)
        return self._gram(self._a, b)

    def _chosen(self, tensor: Tensor, positions: Tensor) -> Tensor:
        """Positions of the one other axis."""
        return tensor.index_select(1 if self._first else 0, positions.to(tensor.device))

    def _gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ over all axes but the rows."""
        if self._first:
            return a.flatten(1) @ b.flatten(1).T
        return a.flatten(0, -2).T @ b.flatten(0, -2)
