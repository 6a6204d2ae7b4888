"""Weight matching: the permutations that bring one network's parameters closest to another's.

Maximise f(π) = Σ_w ⟨a_w, π(b_w)⟩ over the permutations of a spec, all parameters included, biases and norm
vectors too. Source: Ainsworth, Hayase, Srinivasa, "Git Re-Basin: Merging Models modulo Permutation
Symmetries" (2022), section
3.2: coordinate descent, one group at a time, each step a linear assignment.

Where this differs from the source: several starts (identity; greedy, from input to output, each group matched on the
blocks whose other groups are matched already; random) of which the best is returned; groups are visited from input to
output, only where a neighbour has changed, and after the first start earlier layers settle before later ones are
visited again; products of matrices are kept (`similarity.py`); heads and grouped channels are matched as blocks
(`cluster.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from asym.seeds import torch_generator
from asym.symmetry.actions import identity, random_permutations
from asym.symmetry.cluster import Cluster
from asym.symmetry.layout import groups_of
from asym.symmetry.similarity import BlockSimilarity, Term, make_terms
from asym.symmetry.spec import PermutationSpec

STARTS = ("identity", "greedy", "random")


@dataclass(frozen=True)
class Matching:
    """Permutations that bring network b towards network a: compare a with `permute(spec, perms, b)`.

    Attributes:
        perms: group to permutation.
        objective: the inner product of all parameters (weight matching), or the sum of matched similarities
            (activation matching).
        objectives: the objective of every restart.
        starts: how every restart began: "identity", "greedy" or "random".
        sweeps: the work of every restart: visits to groups, over the number of groups, rounded up.
        history: the objective at the start of the best restart and after each step that improved it.
    """

    perms: dict[str, Tensor]
    objective: float
    objectives: tuple[float, ...]
    starts: tuple[str, ...]
    sweeps: tuple[int, ...]
    history: tuple[float, ...]


@torch.no_grad()
def weight_matching(
    spec: PermutationSpec,
    a: Mapping[str, Tensor],
    b: Mapping[str, Tensor],
    *,
    restarts: int = 3,
    seed: int = 0,
    max_sweeps: int = 100,
) -> Matching:
    """Permutations of b that maximise the inner product with a.

    Args:
        spec: the permutation symmetries of both networks.
        a: name to tensor; every parameter of the spec. Further names and buffers are not looked at.
        b: likewise; moved to a's device.
        restarts: how many starts: the identity, then greedy, then random ones.
        seed: of the random starts.
        max_sweeps: longest descent, in visits to all groups.

    Returns:
        The best restart. Sums are in float32 for float32 and narrower tensors, in float64 for float64 ones.

    Raises:
        ValueError: before any work, if a tensor is missing, has another shape than the spec says, or has
            entries that are not finite, naming it; if restarts or max_sweeps is below 1.
    """
    for name, count in (("restarts", restarts), ("max_sweeps", max_sweeps)):
        if count < 1:
            raise ValueError(f"{name}: {count}; must be at least 1")
    scales = check_tensors(spec, a, b)
    problem = Problem(spec, a, {name: b[name].to(a[name].device) for name in scales}, scales)
    starts = tuple(STARTS[min(restart, 2)] for restart in range(restarts))
    ends = [problem.descend(start, seed, restart, max_sweeps) for restart, start in enumerate(starts)]
    objectives = tuple(end.history[-1] for end in ends)
    best = ends[objectives.index(max(objectives))]
    sweeps = tuple(math.ceil(end.visits / max(len(problem.clusters), 1)) for end in ends)
    return Matching(best.perms, max(objectives), objectives, starts, sweeps, best.history)


def check_tensors(spec: PermutationSpec, a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> dict[str, float]:
    """Check every parameter of two networks, each tensor under its first name.

    Returns:
        The product of the norms, |a| |b|, by name.

    Raises:
        ValueError: naming the first tensor of a or b that is missing, misshapen, or not finite.
    """
    scales = {name: 1.0 for name in spec.tensors if name not in spec.buffers and name not in spec.tied}
    for which, tensors in (("a", a), ("b", b)):
        for name in scales:
            if name not in tensors:
                raise ValueError(f"{which}: tensor {name!r} is missing")
            tensor, sizes = tensors[name].detach(), tuple(axis.size for axis in spec.tensors[name])
            if tuple(tensor.shape) != sizes:
                raise ValueError(f"{which}: tensor {name!r} has shape {tuple(tensor.shape)}, the spec says {sizes}")
            # A finite norm proves every entry finite, and costs a twentieth of looking at each.
            wide = torch.promote_types(tensor.dtype, torch.float32)
            norm = float(torch.linalg.vector_norm(tensor.to(wide)))
            if not math.isfinite(norm):
                raise ValueError(
                    f"{which}: tensor {name!r} has entries that are NaN or infinite, or too large to square"
                )
            scales[name] *= norm
    return scales


class Descent(NamedTuple):
    """Where one restart ended: permutations, the objective at the start and after every improvement, visits."""

    perms: dict[str, Tensor]
    history: tuple[float, ...]
    visits: int


class Problem:
    """Two networks, cut into blocks and units, with the products of matrices that descents share."""

    def __init__(
        self,
        spec: PermutationSpec,
        a: Mapping[str, Tensor],
        b: Mapping[str, Tensor],
        scales: Mapping[str, float],
    ) -> None:
        self.spec = spec
        moving = {name: s for name, s in scales.items() if any(groups_of(axis) for axis in spec.tensors[name])}
        self.constant = sum(float((a[n].double() * b[n].double()).sum()) for n in scales if n not in moving)
        self.terms: list[Term] = make_terms(spec, a, b, moving)
        parents = spec.parents
        self.clusters = [
            Cluster(root, [g for g, p in parents.items() if p == root], self.terms, parents)
            for root, parent in parents.items()
            if parent is None
        ]

        # A unit whose steps are not exact may find more to do after its own step.
        self.neighbours = [
            {j for j, other in enumerate(self.clusters) if other.others & set(cluster.names)}
            | (set() if cluster.exact else {i})
            for i, cluster in enumerate(self.clusters)
        ]

    def objective(self, perms: Mapping[str, Tensor]) -> float:
        """The inner product of all parameters, from products that are at hand where there are any."""
        known: dict[int, BlockSimilarity] = {}
        for cluster in self.clusters:
            known |= {id(product.term): product for product in cluster.products if product.is_current(perms)}
        return self.constant + sum(
            known[id(term)].inner(perms) if id(term) in known else term.inner(perms, self.spec.parents)
            for term in self.terms
        )

    def start(self, kind: str, generator: torch.Generator) -> dict[str, Tensor]:
        """Permutations to start from."""
        if kind == "random":
            return random_permutations(self.spec, generator)
        perms = identity(self.spec)
        if kind == "greedy":
            known: set[str] = set()
            waiting = list(self.clusters)
            while waiting:
                ready = next((c for c in waiting if c.reaches(known)), waiting[0])
                waiting.remove(ready)
                perms |= ready.greedy(perms, known)
                known |= set(ready.names)
        return perms

    def descend(self, start: str, seed: int, restart: int, max_sweeps: int) -> Descent:
        """Improve one unit after another until none improves.

        From the identity in sweeps from input to output. From other starts always the first unit, counted from the
        input, of which a neighbour has changed: later layers wait until earlier ones have settled, which ends higher.
        """
        perms = self.start(start, torch_generator(seed, "weight_matching", restart))
        waiting, sweep, history, visits = set(range(len(self.clusters))), [], [0.0], 0
        while waiting and visits < max_sweeps * len(self.clusters):
            sweep = sweep or sorted(waiting)
            i = sweep.pop(0) if start == "identity" else min(waiting)
            waiting.discard(i)
            visits += 1
            step, gain = self.clusters[i].improve(perms)
            if gain > 0:
                perms |= step
                history.append(history[-1] + gain)
                waiting |= self.neighbours[i]
        missing = self.objective(perms) - history[-1]
        return Descent(perms, tuple(value + missing for value in history), visits)
