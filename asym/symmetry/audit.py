"""Which continuous symmetries does a network have left? Predicted from its graph, and counted in its Jacobian.

    found      = number of trainable parameters − rank of J at a generic point      (`audit_rank.py`)
    predicted  = rank of the tangent vectors that its graph gives                   (`audit_walk.py`, `audit_rules.py`)
    unexplained = found − predicted that J confirms

Every predicted tangent v is checked: J v = 0. Families overlap (the scale of a layer before a norm may also be the
scale of a unit), so that their dimensions need not add up; `predicted` is the rank of all of them together.

Sources of single families: Godfrey et al. 2022 (scaling of ReLU units), Lim et al. 2024, section on symmetries
(norms), the functional equivalence of attention (GL on query and key, value and output). Soft-max ignores what is the
same for all keys, hence a key's bias; a norm ignores the mean, hence the shift of everything that only norms read.

Norms are audited with ε = 10⁻²⁰: with the usual ε = 10⁻⁵ a scale before a norm is a symmetry only up to a share ε / σ²,
which is no exact null direction. BatchNorm uses the batch's own statistics unless told otherwise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from asym.nn.masked import MaskedLayer
from asym.seeds import torch_generator
from asym.symmetry.audit_graph import kinks, run_graph
from asym.symmetry.audit_rank import Rank, jacobian, shares_statistics, spectral_rank
from asym.symmetry.audit_walk import Walk, trainable_sources

FAMILIES = (
    "unit scaling",
    "norm scale",
    "norm shift",
    "norm rotation",
    "affine scale",
    "affine shift",
    "query-key GL",
    "key shift",
    "value-output GL",
    "value shift",
    "linear GL",
    "dependent inputs",
)
"""Families of continuous symmetries.

unit scaling: a unit's incoming weights times s > 0, its outgoing ones divided by s. norm scale, shift, rotation: what a
norm removes (BatchNorm: of each channel), and rotations of what one norm reads that another layer undoes. affine scale,
shift: a norm's own scale and shift moved into the next layer. query-key GL, value-output GL: invertible maps in each
head; key shift: a bias that soft-max ignores; value shift: a bias moved behind the attention. linear GL: maps between
layers with nothing in between. dependent inputs: weights on inputs that depend on each other, such as what a norm gives
or what is always zero.
"""
Draw = Callable[[int, torch.Generator], Any]
"""Number of examples, generator → what a module is called with."""
EPS = 1e-20
GROUP = 24
"""Examples that go through a network together where they meet (batch statistics, a graph's nodes)."""
CONFIRMED = 1e-7
TRIES = 40
"""Points that are drawn in search of one where every unit of every ReLU is sometimes on and sometimes off."""


@dataclass(frozen=True)
class Family:
    """One family at one point: dimension predicted, and how much of it the Jacobian confirms."""

    name: str
    predicted: int
    confirmed: int


@dataclass(frozen=True)
class Continuous:
    """The continuous symmetries at one point of parameter space.

    Attributes:
        params: trainable parameters.
        predicted: rank of all predicted tangents.
        confirmed: of that, what the Jacobian confirms; less than `predicted` would mean a wrong rule.
        found: dimension of the Jacobian's null space.
        rank: how clear its rank is.
        families: the families that have members here; "several at once" needs more than one family.
        dead: units of ReLUs that are never on at the inputs used; each adds null directions of its own.
        linear: units of ReLUs that are never off.
        untraced: operations without a rule that a symmetry may have moved through.
    """

    params: int
    predicted: int
    confirmed: int
    found: int
    rank: Rank
    families: tuple[Family, ...]
    dead: int
    linear: int
    untraced: tuple[str, ...]

    @property
    def unexplained(self) -> int:
        """Null directions that no confirmed prediction accounts for."""
        return self.found - self.confirmed


def audited_copy(model: nn.Module, *, batch_statistics: bool = True) -> nn.Module:
    """A float64 copy in evaluation mode with ε of norms at `EPS`, BatchNorm on the batch's statistics if wanted."""
    model = copy.deepcopy(model).cpu().double().eval()
    for module in model.modules():
        if hasattr(module, "eps") and isinstance(module.eps, float):
            module.__dict__["eps"] = EPS
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and batch_statistics:
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return model


def generic_point(model: nn.Module, seed: int, attempt: int = 0) -> dict[str, Tensor]:
    """Parameters and buffers with noise on whatever is a parameter or a running statistic; float64.

    Noise is N(0, 0.3²) on vectors and N(0, 1 / fan-in) on matrices; entries under a constant of a masked layer and
    parameters without gradient stay.
    """
    generator = torch_generator(seed, "audit", "point", attempt)
    masks = {id(m.weight): m.mask for m in model.modules() if isinstance(m, MaskedLayer)}
    state: dict[str, Tensor] = {}
    made: dict[int, Tensor] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in made:
            value = parameter.detach().clone()
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            size = 0.3 if value.ndim < 2 else value[0].numel() ** -0.5
            mask = masks.get(id(parameter), torch.ones_like(value)) * parameter.requires_grad
            made[id(parameter)] = value + size * noise * mask
        state[name] = made[id(parameter)]
    for name, buffer in model.named_buffers(remove_duplicate=False):
        state[name] = buffer.detach().clone()
        if name.endswith(("running_mean", "running_var")):
            noise = torch.randn(buffer.shape, generator=generator, dtype=torch.float64)
            state[name] = buffer + 0.3 * noise if name.endswith("mean") else buffer * (0.3 * noise).exp()
    return state


def continuous_symmetries(
    model: nn.Module,
    draw: Sequence[int] | Draw,
    *,
    seed: int = 0,
    batch_statistics: bool = True,
    most_rows: float = 16.0,
) -> Continuous:
    """Predict and count the continuous symmetries of a network at a generic point.

    Args:
        model: a module that `torch.export` can read; it is not changed.
        draw: shape of one input, for a module that maps `[n, *shape]` to `[n, …]`; or a function of (number of
            examples, generator) that gives what the module is called with, for one whose examples meet (a graph).
        seed: of the point and of the inputs.
        batch_statistics: whether BatchNorm uses the batch's own statistics (training) or running ones (evaluation).
        most_rows: rows of the Jacobian for each parameter, at most; they start at 2 and double until that changes
            nothing.

    Raises:
        ValueError: if the network has no trainable parameter, cannot be read, or its outputs are not finite.
    """
    if most_rows < 4:
        raise ValueError(f"most_rows: got {most_rows}, must be at least 4 for each parameter")
    model = audited_copy(model, batch_statistics=batch_statistics)
    sources, total = trainable_sources(model)
    if total == 0:
        raise ValueError("model: has no trainable parameter")
    joint, sample = shares_statistics(model) or callable(draw), draw if callable(draw) else normal_inputs(draw)
    program, x = export(model, sample, seed)
    state, (dead, linear, uneven) = generic_point(model, seed), (0, 0, float("inf"))
    for attempt in range(
        TRIES if tensors_of(x)[0].numel() < 100_000 else TRIES // 5
    ):  # where every ReLU has a kink that inputs see: a unit that is never on has no scale
        trial = generic_point(model, seed, attempt)
        found = kinks(run_graph(program, trial, tensors_of(x)))
        if found[2] < uneven:
            state, (dead, linear, uneven) = trial, found
        if uneven == 0:
            break
    with torch.no_grad():
        answer = torch.func.functional_call(model, state, (x,), tie_weights=False)
    if not isinstance(answer, Tensor) or answer.ndim == 0:
        raise ValueError("model: its output is not one tensor with a row for each example")
    outputs = max(1, answer[0].numel())
    used: list[Tensor] = []

    def blocks() -> Iterator[Tensor]:
        generator = torch_generator(seed, "audit", "inputs")
        done, wanted = 0, max(2 * total + 8, 0 if joint else len(x) * outputs)
        most = max(most_rows * total, 2 * wanted)
        while done < most:
            parts: list[Tensor] = []
            while sum(map(len, parts)) < wanted - done:
                inputs = sample(GROUP if joint else (wanted - done) // outputs + 1, generator)
                used.extend(() if joint else (inputs,))
                parts.append(jacobian(model, state, sources, total, inputs, joint))
            block = torch.cat(parts)
            if not bool(block.isfinite().all()):
                raise ValueError("model: the Jacobian is not finite at a generic point")
            yield block
            done, wanted = done + len(block), 2 * (done + len(block))

    rank, j = spectral_rank(blocks())
    if used:  # what is always zero, say, is always zero at the inputs of the Jacobian
        x = torch.cat(used)
        program = torch.export.export(model, (x,), strict=False)
    walk = walk_through(model, program, state, sources, x)
    unused = [entry for entry in range(total) if entry not in walk.owner]
    extra = torch.eye(total, dtype=torch.float64)[unused]
    walk.system.tags = [tag or "linear GL" for tag in walk.system.tags]
    tangents = {name: _tangents(walk, total, [name]) for name in FAMILIES if name in set(walk.system.tags)}
    families, scale = [], float(torch.linalg.matrix_norm(j, 2))
    for name, vectors in tangents.items():
        if len(vectors):
            families.append(Family(name, len(vectors), _confirmed(j, vectors, scale)))
    if unused:
        families.append(Family("unused parameters", len(unused), _confirmed(j, extra, scale)))
    everything = _orthonormal(torch.cat([_tangents(walk, total, None), extra]))
    apart = _orthonormal(torch.cat([*tangents.values(), extra]))
    if len(everything) > len(apart):
        families.append(Family("several at once", len(everything) - len(apart), len(everything) - len(apart)))
    return Continuous(
        params=total,
        predicted=len(everything),
        confirmed=_confirmed(j, everything, scale),
        found=rank.nullity,
        rank=rank,
        families=tuple(families),
        dead=dead,
        linear=linear,
        untraced=tuple(sorted(walk.untraced)),
    )


def normal_inputs(shape: Sequence[int]) -> Draw:
    """Standard normal inputs, each times its own factor e^(N(0, ½²)), so that small and large ones occur."""

    def draw(n: int, generator: torch.Generator) -> Tensor:
        x = torch.randn((n, *shape), generator=generator, dtype=torch.float64)
        size = torch.randn((n, *[1] * len(shape)), generator=generator, dtype=torch.float64)
        return x * (0.5 * size).exp()

    return draw


def tensors_of(x: Any) -> tuple[Tensor, ...]:
    """The tensors of what a module is called with, in the order in which a graph takes them."""
    return tuple(leaf for leaf in tree_leaves(x) if isinstance(leaf, Tensor))


def export(model: nn.Module, sample: Draw, seed: int) -> tuple[ExportedProgram, Any]:
    """The graph of an audited copy, and inputs enough to see which inputs of its layers depend on each other."""
    fan_in = max((p[0].numel() for p in model.parameters() if p.ndim >= 2), default=1)
    x = sample(max(256, 2 * fan_in), torch_generator(seed, "audit", "examples"))
    return torch.export.export(model, (x,), strict=False), x


@torch.no_grad()
def walk_through(
    model: nn.Module,
    program: ExportedProgram,
    state: dict[str, Tensor],
    sources: dict[str, Tensor],
    x: Any,
    *,
    odd: bool = False,
) -> Walk:
    """Walk through the graph of an audited copy (`Walk`), and check that the graph computes what the copy does."""
    walk = Walk(program, state, sources, tensors_of(x), odd=odd)
    expected = torch.func.functional_call(model, state, (x,), tie_weights=False)
    if not isinstance(expected, Tensor) or not torch.allclose(walk.output, expected, rtol=1e-8, atol=1e-8):
        raise ValueError(
            "model: its graph does not compute what it computes; several outputs, or state that it changes"
        )
    return walk


def _tangents(walk: Walk, total: int, only: Sequence[str] | None) -> Tensor:
    return _orthonormal(walk.tangents(walk.system.solve(only), total))


def _orthonormal(vectors: Tensor) -> Tensor:
    """An orthonormal basis of the rows' span, `[rank, n]`."""
    norms = vectors.norm(dim=1)
    vectors = vectors[norms > 1e-12] / norms[norms > 1e-12, None]
    if len(vectors) == 0:
        return vectors
    _, values, basis = torch.linalg.svd(vectors, full_matrices=False)
    return basis[values > 1e-8 * values[0]]


def _confirmed(j: Tensor, vectors: Tensor, scale: float) -> int:
    """Dimension of the part of the span of orthonormal `vectors` that the Jacobian maps to zero."""
    if len(vectors) == 0:
        return 0
    values = torch.linalg.svdvals(j @ vectors.T)
    return int((values <= CONFIRMED * scale).sum()) + max(0, len(vectors) - len(values))
