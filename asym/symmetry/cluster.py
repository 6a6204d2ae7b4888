"""The unit of matching: one group, or a group together with the families under it (attention heads and the
features inside them), and the best permutations of a unit while all other units are held.

Without families this is one linear assignment on S (`similarity.py`). With families, for positions i of
network a and j of network b of the parent,

    value(i, j) = R[i, j] + Σ_c max_τ Σ_k S_c[i, k, j, τ(k)],

one small assignment for each child c and pair (i, j), and then one assignment of i to j. Both are exact. Two
things make a step inexact: a parameter with two axes of the unit's own group, where f is quadratic, and one
with two families of the same parent (grouped convolutions), whose best τ depend on each other. There the same
step is a proposal, taken only if f grows, followed by one family at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from asym.symmetry.layout import permute_block
from asym.symmetry.similarity import BlockSimilarity, Term

Perms = dict[str, Tensor]


def assign(similarity: np.ndarray) -> np.ndarray:
    """The permutation π that maximises Σ_i similarity[i, π(i)].

    Rows and columns are reduced first, which the solver does not do: a third of the time at 512 units.
    """
    cost = similarity.max(1, keepdims=True) - similarity
    cost -= cost.min(0)
    return linear_sum_assignment(cost)[1]


class Proposal(NamedTuple):
    """Permutations of one unit, their value Σ S[i, π(i)], and how much more that is than before."""

    perms: Perms
    value: float
    gain: float


def propose(names: Sequence[str], perms: Mapping[str, Tensor], similarity: Mapping[str, np.ndarray]) -> Proposal | None:
    """The best permutations of one unit, and how much better they are than the current ones.

    Args:
        names: the unit's root [n] and its children [n, m].
        perms: current permutations.
        similarity: S of the root [n, n] and of each child [n·m, n·m]; what is missing counts for nothing.

    Returns:
        The best permutations, or None without any similarity.
    """
    root, *children = names
    if not similarity:
        return None
    old = perms[root].numpy()
    size = len(old)
    every = np.arange(size)
    scores = similarity[root].copy() if root in similarity else np.zeros((size, size))
    before = scores[every, old].sum()
    choices: dict[str, np.ndarray] = {}
    for child in children:
        tau = perms[child].numpy()
        if child not in similarity:
            choices[child] = np.broadcast_to(tau[:, None], (size, *tau.shape))
            continue
        s = _pairs(similarity[child], *tau.shape)
        choices[child] = np.array([[assign(s[i, j]) for j in range(size)] for i in range(size)])
        scores += np.take_along_axis(s, choices[child][..., None], -1)[..., 0].sum(-1)
        before += np.take_along_axis(s[every, old], tau[..., None], -1).sum()
    new = assign(scores)
    proposal = {root: torch.from_numpy(new)}
    for child, choice in choices.items():
        proposal[child] = torch.from_numpy(choice[every, new].copy())
    value = float(scores[every, new].sum())
    return Proposal(proposal, value, value - float(before))


def _pairs(s: np.ndarray, size: int, inner: int) -> np.ndarray:
    """[(parent, child), (parent, child)] as [parent, parent, child, child]."""
    return s.reshape(size, inner, size, inner).transpose(0, 2, 1, 3)


class Cluster:
    """One unit of matching.

    Args:
        root: its group without parent.
        children: the groups under it.
        terms: all blocks of the two networks.
        parents: group to parent.
    """

    def __init__(
        self, root: str, children: Sequence[str], terms: Sequence[Term], parents: Mapping[str, str | None]
    ) -> None:
        self.root, self.children, self._parents = root, tuple(children), parents
        self.names = (root, *children)
        self.terms = [term for term in terms if set(term.groups) & set(self.names)]
        self.others = {g for term in self.terms for g in term.groups} - set(self.names)
        # What rounding can make of a gain of zero.
        self.tolerance = sum(torch.finfo(term.a.dtype).eps * term.scale for term in self.terms)
        self._products: dict[str, list[BlockSimilarity]] = {name: [] for name in self.names}
        self._coupled: list[Term] = []
        self.exact = True
        for term in self.terms:
            own = [(d, g) for d, (g, _) in enumerate(term.dims) if g in self.names]
            roots, families = [d for d, g in own if g == root], [(d, g) for d, g in own if g != root]
            if len(families) > 1:
                self._coupled.append(term)
                self.exact = False
            elif families:
                (place, child), (top,) = families[0], roots
                self._products[child].append(BlockSimilarity(term, (top, place), parents))
            else:
                self._products[root] += [BlockSimilarity(term, (d,), parents) for d in roots]
                self.exact &= len(roots) == 1

    @property
    def products(self) -> list[BlockSimilarity]:
        """All products of matrices of the unit."""
        return [product for products in self._products.values() for product in products]

    def reaches(self, known: Collection[str]) -> bool:
        """Whether a block ties this unit to the inputs, or to units that are matched."""
        return any(set(product.others) <= set(known) for product in self.products)

    def improve(self, perms: Mapping[str, Tensor]) -> tuple[Perms, float]:
        """Better permutations of this unit, and by how much the objective grows; none and 0 if it does not."""
        best, total = dict(perms), 0.0
        found = propose(self.names, perms, self.similarity(perms))
        if found is not None:
            gain = found.gain if self.exact else self._gain(best, found.perms)
            if gain > self.tolerance:
                best, total = best | found.perms, gain
        for child in self.children if self._coupled else ():
            step = self._improve_child(child, best)
            if (gain := self._gain(best, step)) > self.tolerance:
                best, total = best | step, total + gain
        return ({name: best[name] for name in self.names}, total) if total else ({}, 0.0)

    def greedy(self, perms: Mapping[str, Tensor], known: Collection[str]) -> Perms:
        """The best permutations of this unit on the blocks whose other groups are all in `known`."""
        found = propose(self.names, perms, self.similarity(perms, known))
        return {} if found is None else found.perms

    def similarity(self, perms: Mapping[str, Tensor], known: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """S by group, from the blocks whose other groups are all in `known` (None: all blocks)."""
        result = {}
        for name, products in self._products.items():
            values = [p.value(perms) for p in products if known is None or set(p.others) <= set(known)]
            if values:
                total = values[0].clone()
                for value in values[1:]:
                    total += value
                result[name] = total.cpu().numpy().astype(np.float64)
        return result

    def _gain(self, perms: Mapping[str, Tensor], step: Perms) -> float:
        moved = {**perms, **step}
        return sum(term.inner(moved, self._parents) - term.inner(perms, self._parents) for term in self.terms)

    def _improve_child(self, child: str, perms: Mapping[str, Tensor]) -> Perms:
        """The best permutations of one family, all else held, blocks with two families included."""
        size, inner = perms[child].shape
        total = np.zeros((size, inner, inner))
        s = self.similarity(perms)
        if child in s:
            total += _pairs(s[child], size, inner)[np.arange(size), perms[self.root].numpy()]
        for term in self._coupled:
            names = [group for group, _ in term.dims]
            if child not in names:
                continue
            top, place = names.index(self.root), names.index(child)
            held = tuple((None, n) if d == place else (group, n) for d, (group, n) in enumerate(term.dims))
            b = permute_block(term.b, held, {g: perms[g] for g in set(term.groups)}, self._parents)
            x, y = (t.movedim((top, place), (0, 1)).flatten(2) for t in (term.a, b))
            total += torch.bmm(x, y.transpose(1, 2)).cpu().numpy()
        return {child: torch.from_numpy(np.array([assign(block) for block in total]))}
