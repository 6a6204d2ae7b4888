"""Activation matching, and statistics of BatchNorm after weights have moved.

For every group, S[i, j] is the correlation, over samples and positions, between channel i of network a and channel j
of network b; one linear assignment per group maximises Σ_i S[i, π(i)]. Source: Ainsworth, Hayase, Srinivasa, "Git
Re-Basin" (2022), section 3.1, which maximises inner products; correlations (inner products of z-scored activations) do
not depend on a channel's scale, as in Li et al., "Convergent Learning" (2016).

Where: at every activation that an operation mixes over the group (the input of a linear layer, a convolution, or a
product of queries and keys), hence after the nonlinearity. A residual stream is read by many layers; its S is the mean
over all of them. A channel that is constant on the data correlates with nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves, tree_map

from asym.symmetry.actions import identity
from asym.symmetry.cluster import propose
from asym.symmetry.layout import permute_block, tensor_blocks
from asym.symmetry.matching import Matching, check_tensors
from asym.symmetry.spec import PermutationSpec
from asym.symmetry.trace import Trace, trace

Dims = tuple[tuple[str | None, int], ...]


@torch.no_grad()
def activation_matching(
    model: nn.Module,
    spec: PermutationSpec,
    a: Mapping[str, Tensor],
    b: Mapping[str, Tensor],
    batches: Iterable[Any],
) -> Matching:
    """Permutations of b whose channels correlate best with those of a.

    Args:
        model: the network that both are parameters of; it is not changed. Buffers that a and b lack are taken from it.
        spec: its permutation symmetries.
        a: name to tensor, every parameter.
        b: likewise.
        batches: inputs (tensors with the batch axis first, or graphs); they are read once, or once more for every level
            of groups that appear only together with others (token and channel axes of a mixer).

    Returns:
        One assignment a group; the objective is the sum of matched mean correlations.

    Raises:
        ValueError: if a tensor is missing, misshapen or not finite, naming it; if there is no batch.
    """
    check_tensors(spec, a, b)
    batches = list(batches)
    if not batches:
        raise ValueError("batches: there is none")
    recorder = _Recorder(model, spec, a, b)
    perms, known, total = identity(spec), set[str](), 0.0
    waiting = [
        (root, *(g for g, parent in spec.parents.items() if parent == root))
        for root, above in spec.parents.items()
        if above is None
    ]
    while waiting:
        found = recorder.similarity(batches, waiting, perms, known)
        ready = [unit for unit in waiting if set(unit) & set(found)]
        if not ready:  # only shown together with groups that wait too, or not at all: those stay as they are
            found = recorder.similarity(batches, waiting[:1], perms, set(spec.parents))
            ready = waiting[:1]
        for unit in ready:
            proposal = propose(unit, perms, {name: found[name] for name in unit if name in found})
            if proposal is not None:
                perms |= proposal.perms
                total += proposal.value
        known |= {name for unit in ready for name in unit}
        waiting = [unit for unit in waiting if unit not in ready]
    return Matching(perms, total, (total,), ("activations",), (1,), (total,))


class _Correlation:
    """Correlations between the rows of two matrices that arrive in pieces [rows, samples]."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._shift = [t.mean(1, keepdim=True) for t in (x, y)]  # so that sums of squares lose no digits
        self._sums = [torch.zeros(len(x), dtype=torch.float64) for _ in range(4)]
        self._products = torch.zeros(len(x), len(y), dtype=torch.float64)
        self._count = 0

    def add(self, x: Tensor, y: Tensor) -> None:
        """More samples."""
        x, y = x - self._shift[0], y - self._shift[1]
        self._count += x.shape[1]
        for kept, new in zip(self._sums, (x.sum(1), y.sum(1), x.square().sum(1), y.square().sum(1))):
            kept += new.cpu()
        self._products += (x @ y.T).cpu()

    def value(self) -> np.ndarray:
        """Correlation coefficients in [−1, 1]; 0 for a row that is constant."""
        n = self._count
        mean_x, mean_y, square_x, square_y = (s / n for s in self._sums)
        covariance = self._products / n - mean_x[:, None] * mean_y
        variances = (square_x - mean_x**2)[:, None] * (square_y - mean_y**2)
        alive = ((square_x > 0)[:, None] & (square_y > 0)) & (variances > 0)
        return torch.where(alive, covariance / variances.clamp(min=1e-300).sqrt(), 0.0).clamp(-1, 1).numpy()


class _Recorder:
    """Runs both networks and correlates their activations."""

    def __init__(
        self, model: nn.Module, spec: PermutationSpec, a: Mapping[str, Tensor], b: Mapping[str, Tensor]
    ) -> None:
        self._model, self._spec = model, spec
        self._device = next(model.parameters()).device
        own = dict(model.named_buffers())
        self._states = [
            {name: t.detach().to(self._device) for name, t in {**own, **tensors}.items()} for tensors in (a, b)
        ]
        self._traces: dict[tuple[torch.Size | None, ...], Trace] = {}

    def similarity(
        self,
        batches: Iterable[Any],
        units: Iterable[tuple[str, ...]],
        perms: Mapping[str, Tensor],
        known: Collection[str],
    ) -> dict[str, np.ndarray]:
        """S by group, for the units that some activation shows with groups in `known` alone."""
        sums: dict[tuple[str, str, int], _Correlation] = {}
        for batch in batches:
            graph = self._trace(batch)
            x, y = (self._record(graph, state, batch) for state in self._states)
            for site in graph.sites:
                for k, block in enumerate(tensor_blocks(site.axes)):
                    dims = tuple((g if g in self._spec.parents else None, size) for g, size in block.dims)
                    for unit in units:
                        rows = _rows(dims, unit, known)
                        if rows is None:
                            continue
                        key = (dims[rows[-1]][0] or "", site.node, k)
                        parts = [block.take(x[site.node]), block.take(y[site.node])]
                        rest = {g for d, (g, _) in enumerate(dims) if g is not None and d not in rows}
                        parts[1] = permute_block(parts[1], dims, {g: perms[g] for g in rest}, self._spec.parents)
                        pair = [t.movedim(rows, tuple(range(len(rows)))).flatten(len(rows)) for t in parts]
                        pair = [t.flatten(0, -2) for t in pair]
                        sums.setdefault(key, _Correlation(*pair)).add(*pair)
        found: dict[str, list[np.ndarray]] = {}
        for (group, _, _), correlation in sums.items():
            found.setdefault(group, []).append(correlation.value())
        return {group: np.mean(values, axis=0) for group, values in found.items()}

    def _trace(self, batch: Any) -> Trace:
        shapes = tuple(getattr(leaf, "shape", None) for leaf in tree_leaves(batch))
        if shapes not in self._traces:
            graph = trace(self._model, self._placed(batch))
            missing = set(self._spec.parents) - set(graph.parents)
            if missing:
                raise ValueError(f"spec: the model has no group {sorted(missing)[0]!r}; derive the spec from it")
            graph.sites = list({site.node: site for site in graph.sites}.values())
            self._traces[shapes] = graph
        return self._traces[shapes]

    def _placed(self, batch: Any) -> Any:
        return tree_map(lambda leaf: leaf.to(self._device) if isinstance(leaf, Tensor) else leaf, batch)

    def _record(self, graph: Trace, state: Mapping[str, Tensor], batch: Any) -> dict[str, Tensor]:
        values: list[Any] = []
        given = iter(tree_leaves(self._placed(batch)))
        for source in graph.inputs:
            name = self._spec.tied.get(source, source) if isinstance(source, str) else None
            values.append(state[name] if name is not None else next(given) if source is None else source)
        keeper = _Keeper(graph.module, {site.node for site in graph.sites})
        keeper.run(*values)
        return keeper.kept


class _Keeper(fx.Interpreter):
    """Runs a graph and keeps copies of some values (copies, since later operations may work in place)."""

    def __init__(self, module: fx.GraphModule, wanted: Collection[str]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node."""
        value = super().run_node(n)
        if n.name in self._wanted:
            self.kept[n.name] = value.detach().clone()
        return value


def _rows(dims: Dims, unit: tuple[str, ...], known: Collection[str]) -> tuple[int, ...] | None:
    """The axes of a unit in a block, root first; None if the block does not show it, or not clearly."""
    names = [group for group, _ in dims]
    rows = tuple(names.index(name) for name in unit if name in names)
    others = [name for d, name in enumerate(names) if name is not None and d not in rows]
    clear = 0 < len(rows) <= 2 and names[rows[0]] == unit[0] and set(others) <= set(known)
    return rows if clear else None


@torch.no_grad()
def reestimate_batchnorm(
    model: nn.Module, params: Mapping[str, Tensor], batches: Iterable[Tensor]
) -> dict[str, Tensor]:
    """The same network with BatchNorm statistics of its own.

    Averaged or permuted weights give other activations than those whose statistics were kept in training (Jordan et
    al., "REPAIR", 2023). Every BatchNorm's running mean and variance become the averages of those of the batches, each
    batch counting once; everything else runs in evaluation mode.

    Args:
        model: the network that `params` are parameters of; it is not changed.
        params: name to tensor; buffers that it lacks are taken from the model.
        batches: inputs, with the batch axis first.

    Returns:
        A new dict: `params` with new running statistics (on the model's device); without BatchNorm, a plain copy.

    Raises:
        ValueError: if there is no batch.
    """
    model = copy.deepcopy(model).eval()
    norms = {name: m for name, m in model.named_modules() if isinstance(m, _BatchNorm) and m.track_running_stats}
    if not norms:
        return dict(params)
    model.load_state_dict(dict(params), strict=False)
    for norm in norms.values():
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over batches
        norm.train()
    count = 0
    for batch in batches:
        model(batch.to(next(model.parameters()).device))
        count += 1
    if count == 0:
        raise ValueError("batches: there is none")
    result = dict(params)
    for name, norm in norms.items():
        for what in ("running_mean", "running_var"):
            result[f"{name}.{what}" if name else what] = norm.get_buffer(what).clone()
    return result
