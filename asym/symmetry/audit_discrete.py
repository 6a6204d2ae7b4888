"""Which discrete symmetries does a network have left? Permutations and signs, by trying them.

Permutations: for every group of a network's *plain* form (masks and constants dropped) the exchange of each two units
is tried. It is a symmetry of the network itself if the function stays, and if the exchanged weights are weights that
the network can have: constants of masked layers have to meet equal constants. The group of a layer with m units is
predicted to be all m! permutations where the network's own spec has it (`permutation_spec`), and the identity
elsewhere.

Signs: walking through the graph with odd activations in the place of ReLU (`audit_walk.Walk`, odd) gives the units
whose incoming and outgoing weights may change sign together: 2^m for m of them.

Automorphisms: permutations of hidden units that keep the masks of a multi-layer perceptron, inputs and outputs fixed,
counted by trying all of them (Lim et al. 2024, theorem on W-Asymmetric networks: the identity alone, if the rows of
each mask are distinct and not zero, and the constants are zero).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from asym.nn.convert import to_plain
from asym.nn.masked import MaskedLayer
from asym.seeds import torch_generator
from asym.symmetry.actions import identity, permute
from asym.symmetry.audit import Draw, audited_copy, export, generic_point, normal_inputs, walk_through
from asym.symmetry.audit_walk import trainable_sources
from asym.symmetry.spec import PermutationSpec, permutation_spec

SAME = 1e-9
"""Outputs that differ by less, relative to their largest, are the same."""
MOST_EXCHANGES = 400
"""Exchanges that are tried in one group; beyond, a random choice of so many."""


@dataclass(frozen=True)
class Exchanges:
    """What exchanging two units of a group does.

    Attributes:
        group: name of the group.
        size: its number of units.
        predicted: exchanges that the network's own spec allows: all of them or none.
        found: exchanges after which the network is one of its kind and has the same function.
        tried: exchanges tried.
    """

    group: str
    size: int
    predicted: int
    found: int
    tried: int

    @property
    def predicted_log10(self) -> float:
        """Predicted size of the group of permutations, as log10."""
        return math.lgamma(self.size + 1) / math.log(10) if self.predicted else 0.0


class Exchanger:
    """Exchanges units of a network in its plain form and brings the result back to the network's kind.

    Args:
        model: the network.
        draw: see `continuous_symmetries`.
        reference: a network with the same parameters whose groups are tried, such as the standard variant; the plain
            form if not given.
        seed: of the inputs.
        state: parameters and buffers; a generic point if not given.
        examples: inputs on which functions are compared.
    """

    def __init__(
        self,
        model: nn.Module,
        draw: Sequence[int] | Draw,
        *,
        reference: nn.Module | None = None,
        seed: int = 0,
        state: dict[str, Tensor] | None = None,
        examples: int = 128,
    ) -> None:
        self.model = audited_copy(model, batch_statistics=True)
        self.state = state or generic_point(self.model, seed)
        sample = draw if callable(draw) else normal_inputs(draw)
        self.x: Any = sample(examples, torch_generator(seed, "audit", "exchange"))
        self.masked = {name: module for name, module in self.model.named_modules() if isinstance(module, MaskedLayer)}
        self.model.load_state_dict({k: v for k, v in self.state.items() if k in self.model.state_dict()})
        plain = to_plain(self.model)
        known = plain if reference is None else audited_copy(reference)
        self.spec: PermutationSpec = permutation_spec(known, (self.x,), prove=False)
        self.plain = {
            name: tensor.detach()
            for name, tensor in [*plain.named_parameters(), *plain.named_buffers()]
            if name in self.spec.tensors
        }
        self.before = self.output(self.state)

    @torch.no_grad()
    def output(self, state: dict[str, Tensor]) -> Tensor:
        """Outputs of the network with these parameters and buffers."""
        return functional_call(self.model, state, (self.x,))

    def exchanged(self, group: str, i: int, j: int) -> tuple[dict[str, Tensor], bool]:
        """The network after an exchange, constants put back, and whether they had to be."""
        perms = identity(self.spec)
        perm = perms[group].clone()
        perm[..., i], perm[..., j] = perms[group][..., j], perms[group][..., i]
        moved = permute(self.spec, {group: perm}, self.plain)
        state, kept = dict(self.state), True
        for name, value in moved.items():
            if name not in state:
                continue
            layer = self.masked.get(name.rpartition(".")[0])
            if layer is not None and name.endswith("weight"):
                kept = kept and bool(torch.equal(value[~layer.mask], layer.fixed[~layer.mask]))
            state[name] = value
        return state, kept

    def cost(self, group: str, i: int, j: int) -> tuple[float, bool]:
        """Change of the function by an exchange, over its spread, and whether constants stayed.

        √( E |f' − f|² / E |f − E f|² ),   E over inputs
        """
        state, kept = self.exchanged(group, i, j)
        after = self.output(state)
        spread = (self.before - self.before.mean(0)).pow(2).sum().clamp(min=1e-300)
        return float(((after - self.before).pow(2).sum() / spread).sqrt()), kept

    def pairs(self, group: str, seed: int, most: int = MOST_EXCHANGES) -> list[tuple[int, int]]:
        """The pairs of units of a group, or a random choice of `most`."""
        size = self.spec.groups[group].size
        found = list(itertools.combinations(range(size), 2))
        if len(found) > most:
            chosen = torch.randperm(len(found), generator=torch_generator(seed, "audit", "pairs", group))[:most]
            found = [found[k] for k in sorted(chosen.tolist())]
        return found


def exchanges(
    model: nn.Module, draw: Sequence[int] | Draw, *, reference: nn.Module | None = None, seed: int = 0
) -> list[Exchanges]:
    """Try the exchange of units in every group of the network's plain form, or of a reference.

    Args:
        model: a network that can be traced for permutations; not changed.
        draw: see `continuous_symmetries`.
        reference: see `Exchanger`.
        seed: of point and inputs.

    Raises:
        UnknownOperationError, ValueError: if the network cannot be traced.
    """
    trial = Exchanger(model, draw, reference=reference, seed=seed)
    own = permutation_spec(trial.model, (trial.x,), prove=False).groups
    found = []
    for name, group in trial.spec.groups.items():
        pairs = trial.pairs(name, seed)
        scale = float(trial.before.abs().max())
        same = 0
        for i, j in pairs:
            state, kept = trial.exchanged(name, i, j)
            same += kept and float((trial.output(state) - trial.before).abs().max()) <= SAME * scale
        predicted = len(pairs) if name in own and own[name].size == group.size else 0
        found.append(Exchanges(name, group.size, predicted, same, len(pairs)))
    return found


def sign_flips(model: nn.Module, draw: Sequence[int] | Draw, *, seed: int = 0) -> tuple[int, int]:
    """Independent sign flips of units: how many the graph predicts, and how many keep the function when tried.

    Args:
        model: a module that `torch.export` can read; not changed.
        draw: see `continuous_symmetries`.
        seed: of point and inputs.
    """
    model = audited_copy(model)
    sources, total = trainable_sources(model)
    state = generic_point(model, seed)
    program, x = export(model, draw if callable(draw) else normal_inputs(draw), seed)
    walk = walk_through(model, program, state, sources, x, odd=True)
    walk.system.tags = [tag or "linear GL" for tag in walk.system.tags]
    vectors = walk.tangents(walk.system.solve(["unit scaling"]), total)
    theta = torch.zeros(total, dtype=torch.float64)
    for name, source in sources.items():
        theta[source[source >= 0]] = state[name][source >= 0]
    with torch.no_grad():
        before = functional_call(model, state, (x,))
        kept = 0
        for vector in vectors:
            power = torch.where(theta != 0, vector / theta, 0.0).round()
            flipped = theta * torch.where(power.abs() % 2 == 1, -1.0, 1.0)
            after = functional_call(model, _filled(state, sources, flipped), (x,))
            kept += float((after - before).abs().max()) <= SAME * float(before.abs().max())
    return len(vectors), kept


def _filled(state: dict[str, Tensor], sources: dict[str, Tensor], theta: Tensor) -> dict[str, Tensor]:
    out = dict(state)
    for name, source in sources.items():
        out[name] = torch.where(source >= 0, theta[source.clamp(min=0)], state[name])
    return out


def automorphisms(masks: Sequence[Tensor], *, most: int = 200_000) -> Iterator[tuple[tuple[int, ...], ...]]:
    """The automorphisms of a masked multi-layer perceptron: permutations of hidden units that keep every edge.

    Args:
        masks: `[out, in]` of each layer, True where there is an edge; the outputs of one are the inputs of the next.
        most: permutations that may be tried.

    Yields:
        One permutation for each hidden layer.

    Raises:
        ValueError: if masks do not fit or there are too many permutations to try.
    """
    for first, then in itertools.pairwise(masks):
        if first.shape[0] != then.shape[1]:
            raise ValueError(f"masks: {tuple(first.shape)} is followed by {tuple(then.shape)}")
    sizes = [mask.shape[0] for mask in masks[:-1]]
    number = math.prod(math.factorial(size) for size in sizes)
    if number > most:
        raise ValueError(f"masks: {number} permutations of hidden layers of {sizes}, more than {most}")
    for choice in itertools.product(*(itertools.permutations(range(size)) for size in sizes)):
        before = [list(range(masks[0].shape[1])), *map(list, choice)]
        after = [*map(list, choice), list(range(masks[-1].shape[0]))]
        if all(torch.equal(mask[rows][:, columns], mask) for mask, columns, rows in zip(masks, before, after)):
            yield choice
