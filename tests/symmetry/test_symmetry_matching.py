"""Weight matching: optimal where that can be checked, monotone everywhere, and planted permutations found again."""

import itertools
import math
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from symmetry_nets import CASES
from torch import Tensor, tensor

from asym.models import build
from asym.seeds import torch_generator
from asym.symmetry import (
    PermutationSpec,
    identity,
    permutation_spec,
    permute,
    random_permutations,
    weight_matching,
)
from asym.symmetry.cluster import Cluster, propose
from asym.symmetry.layout import Concat, Fixed, Permuted, Product
from asym.symmetry.matching import Problem, check_tensors
from asym.symmetry.similarity import BlockSimilarity, make_terms
from benchmarks.matching import plain_weight_matching

State = dict[str, Tensor]


@cache
def spec_of(name: str) -> PermutationSpec:
    return permutation_spec(CASES[name].model(), CASES[name].input(), prove=False)


def network(name: str, seed: int) -> tuple[PermutationSpec, State]:
    """The spec of a network of the table, and generic float64 parameters."""
    case, spec = CASES[name], spec_of(name)
    generator = torch.Generator().manual_seed(seed)
    state = {
        k: torch.randn(t.shape, generator=generator, dtype=torch.float64) if t.is_floating_point() else t
        for k, t in case.model().state_dict().items()
    }
    return spec, state | {alias: state[first] for alias, first in spec.tied.items()}


def inner(spec: PermutationSpec, a: State, b: State) -> float:
    """The inner product of all parameters."""
    names = [name for name in spec.tensors if name not in spec.buffers and name not in spec.tied]
    return sum(float((a[name] * b[name]).sum()) for name in names)


def same(a: State, b: State) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


# By hand and by trying all permutations

ONE = PermutationSpec({"w": (Permuted("h", 2), Fixed(2)), "v": (Fixed(1), Permuted("h", 2))}, {"h": None})


def test_two_units_by_hand() -> None:
    a = {"w": tensor([[1.0, 0.0], [0.0, 1.0]]), "v": tensor([[1.0, -1.0]])}
    b = {"w": tensor([[0.0, 2.0], [1.0, 0.0]]), "v": tensor([[-3.0, 1.0]])}
    # As they stand: w gives 0, v gives -3 - 1. Changed over: w gives 1 + 2, v gives 1 + 3.
    match = weight_matching(ONE, a, b, restarts=1)
    assert match.perms["h"].tolist() == [1, 0]
    assert match.objective == 7.0
    assert match.history == (-4.0, 7.0)
    assert match.starts == ("identity",)


def everything(spec: PermutationSpec):
    """All permutations of a small spec."""
    choices = []
    for name, group in spec.groups.items():
        rows = list(itertools.permutations(range(group.size)))
        if group.parent is not None:
            rows = list(itertools.product(rows, repeat=spec.groups[group.parent].size))
        choices.append([(name, tensor(row)) for row in rows])
    return (dict(choice) for choice in itertools.product(*choices))


@pytest.mark.parametrize("name", ["mlp-plain", "mlp-blocks", "depthwise", "einsum"])
def test_the_best_of_several_starts_is_the_optimum(name: str) -> None:
    spec, a = network(name, 0)
    _, b = network(name, 1)
    best = max(inner(spec, a, permute(spec, perms, b)) for perms in everything(spec))
    assert weight_matching(spec, a, b, restarts=20).objective == pytest.approx(best, rel=1e-12)


def test_two_families_of_one_parent_in_a_parameter() -> None:
    """A grouped convolution alone: 2 groups, 2 channels in, 2 out; 2 · 2² · 2² choices."""
    spec = PermutationSpec(
        {
            "w": (Product((Permuted("p", 2), Permuted("o", 2))), Permuted("i", 2), Fixed(2)),
            "into": (Product((Permuted("p", 2), Permuted("i", 2))), Fixed(1)),
        },
        {"p": None, "o": "p", "i": "p"},
    )
    for seed in range(5):
        a, b = (random_tensors(spec, s) for s in (seed, seed + 100))
        best = max(inner(spec, a, permute(spec, perms, b)) for perms in everything(spec))
        assert weight_matching(spec, a, b, restarts=20).objective == pytest.approx(best, rel=1e-12)


def random_tensors(spec: PermutationSpec, seed: int) -> State:
    """Generic float64 tensors of a spec."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn([axis.size for axis in axes], generator=generator, dtype=torch.float64)
        for name, axes in spec.tensors.items()
    }


def test_one_step_with_families_is_optimal() -> None:
    """Heads and the features inside them together: all 2 · 6² · 6² choices."""
    spec = PermutationSpec(
        {
            "q": (Product((Permuted("p", 2), Permuted("c", 3))), Fixed(4)),
            "v": (Product((Permuted("p", 2), Permuted("d", 3))), Fixed(2)),
            "table": (Permuted("p", 2),),
        },
        {"p": None, "c": "p", "d": "p"},
    )
    for seed in range(2):
        a, b = (random_tensors(spec, s) for s in (seed, seed + 100))
        best = max(inner(spec, a, permute(spec, perms, b)) for perms in everything(spec))
        assert weight_matching(spec, a, b, restarts=1).objective == pytest.approx(best, rel=1e-12)


def test_propose_without_similarity_is_none() -> None:
    assert propose(("h",), {"h": tensor([0, 1])}, {}) is None


# What holds for every network


@pytest.mark.parametrize("name", CASES)
def test_objectives_are_inner_products_and_never_fall(name: str) -> None:
    spec, a = network(name, 0)
    _, b = network(name, 1)
    match = weight_matching(spec, a, b, restarts=4, seed=3)
    assert match.objective == pytest.approx(inner(spec, a, permute(spec, match.perms, b)), rel=1e-10)
    assert match.objective == max(match.objectives) == match.history[-1]
    assert match.starts == ("identity", "greedy", "random", "random")
    assert len(match.objectives) == len(match.sweeps) == 4
    steps = [late - early for early, late in itertools.pairwise(match.history)]
    assert all(step >= -1e-9 for step in steps)
    first = weight_matching(spec, a, b, restarts=1).history[0]
    assert first == pytest.approx(inner(spec, a, b), rel=1e-9)


@pytest.mark.parametrize("name", ["mlp-layer", "resnet-group", "transformer", "grouped"])
def test_more_restarts_never_lower_the_objective_and_repeat_the_first(name: str) -> None:
    spec, a = network(name, 0)
    _, b = network(name, 1)
    found = [weight_matching(spec, a, b, restarts=n, seed=7) for n in (1, 2, 3, 6)]
    for fewer, more in itertools.pairwise(found):
        assert more.objectives[: len(fewer.objectives)] == pytest.approx(fewer.objectives, rel=1e-12)
        assert more.objective >= fewer.objective - 1e-9
    again = weight_matching(spec, a, b, restarts=6, seed=7)
    assert again.objectives == found[-1].objectives
    assert same(again.perms, found[-1].perms)


@pytest.mark.parametrize("name", CASES)
def test_equal_networks_stay_in_place(name: str) -> None:
    spec, a = network(name, 0)
    match = weight_matching(spec, a, a, restarts=2)
    assert same(match.perms, identity(spec))
    assert match.objective == pytest.approx(inner(spec, a, a), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_planted_permutations_are_found_by_the_greedy_start(name: str) -> None:
    spec, b = network(name, 0)
    for seed in range(5):
        planted = random_permutations(spec, torch_generator(seed, "planted"))
        a = permute(spec, planted, b)
        match = weight_matching(spec, a, b, restarts=2)
        assert match.objective == pytest.approx(inner(spec, a, a), rel=1e-10)
        assert same(permute(spec, match.perms, b), a)


def test_descent_takes_the_steps_of_the_plain_version() -> None:
    """Kept products, partial updates and skipped groups change the work, not the result."""
    spec = permutation_spec(build("resnet8", input_shape=(1, 8, 8), classes=10), torch.zeros(2, 1, 8, 8), prove=False)
    a, b = (
        dict(build("resnet8", input_shape=(1, 8, 8), classes=10, seed=seed).double().state_dict()) for seed in (0, 1)
    )
    match = weight_matching(spec, a, b, restarts=1)
    plain = plain_weight_matching(spec, a, b)
    assert same(match.perms, plain)
    assert match.sweeps[0] > 2


# The parts


@given(st.lists(st.permutations(range(6)), min_size=1, max_size=4), st.booleans())
def test_similarities_are_the_same_updated_and_anew(moves, first: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(4, 6, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    spec = PermutationSpec({"w": (Permuted("g", 4), Permuted("h", 6), Fixed(3))}, {"g": None, "h": None})
    (term,) = make_terms(spec, {"w": a}, {"w": b}, {"w": 1.0})
    kept = BlockSimilarity(term, (0,) if first else (1,), spec.parents)
    for move in moves:
        perms = {"g": tensor([2, 0, 1, 3]), "h": tensor(move)}
        if first:
            expected = torch.einsum("iof,jof->ij", a, b[:, perms["h"]])
        else:
            perms["g"] = tensor(move)[tensor(move) < 4]
            expected = torch.einsum("oif,ojf->ij", a, b[perms["g"]])
        torch.testing.assert_close(kept.value(perms), expected, rtol=1e-12, atol=1e-12)
        assert kept.is_current(perms)
        moved = b[perms["g"]][:, perms["h"]]
        assert kept.inner(perms) == pytest.approx(float((a * moved).sum()), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["loop", "grouped"])
def test_steps_that_are_not_exact_report_the_true_gain(name: str) -> None:
    """A group on both axes of a parameter, or two families of one parent in a parameter."""
    spec, a = network(name, 0)
    _, b = network(name, 1)
    problem = Problem(spec, a, b, check_tensors(spec, a, b))
    assert not all(cluster.exact for cluster in problem.clusters)
    for seed in range(10):
        perms = random_permutations(spec, torch.Generator().manual_seed(seed))
        for cluster in problem.clusters:
            step, gain = cluster.improve(perms)
            before, after = (inner(spec, a, permute(spec, p, b)) for p in (perms, perms | step))
            assert gain == pytest.approx(after - before, abs=1e-9)
            assert gain >= 0


def test_units_are_roots_with_their_families() -> None:
    spec, a = network("transformer", 0)
    problem = Problem(spec, a, a, check_tensors(spec, a, a))
    assert [c.names for c in problem.clusters] == [
        ("patch",),
        ("qkv.heads", "qkv.query_key", "qkv.value"),
        ("up",),
    ]
    heads: Cluster = problem.clusters[1]
    assert heads.exact
    assert heads.others == {"patch"}


# Input


def test_bad_tensors_are_named_before_any_work() -> None:
    good = {"w": torch.eye(2), "v": torch.ones(1, 2)}
    cases = [
        ({"w": torch.eye(2)}, "tensor 'v' is missing"),
        ({**good, "v": torch.ones(2, 1)}, r"tensor 'v' has shape \(2, 1\), the spec says \(1, 2\)"),
        ({**good, "w": tensor([[1.0, math.nan], [0.0, 1.0]])}, "tensor 'w' has entries that are NaN or infinite"),
        ({**good, "w": tensor([[1.0, -math.inf], [0.0, 1.0]])}, "tensor 'w' has entries that are NaN or infinite"),
        ({**good, "w": torch.full((2, 2), 1e30)}, "tensor 'w' has entries .* too large to square"),
    ]
    for bad, message in cases:
        with pytest.raises(ValueError, match=f"^a: {message}"):
            weight_matching(ONE, bad, good)
        with pytest.raises(ValueError, match=f"^b: {message}"):
            weight_matching(ONE, good, bad)
    for argument in ("restarts", "max_sweeps"):
        with pytest.raises(ValueError, match=f"{argument}: 0; must be at least 1"):
            weight_matching(ONE, good, good, **{argument: 0})


def test_buffers_and_unknown_tensors_are_not_looked_at() -> None:
    spec, a = network("mlp-batch", 0)
    _, b = network("mlp-batch", 1)
    expected = weight_matching(spec, a, b)
    a["1.running_mean"].fill_(math.nan)
    a["note"] = tensor(math.nan)
    del b["1.running_var"]
    assert same(weight_matching(spec, a, b).perms, expected.perms)


def test_narrow_types_are_summed_in_float32() -> None:
    spec, a = network("mlp-layer", 0)
    _, b = network("mlp-layer", 1)
    half = [{k: t.bfloat16() for k, t in state.items()} for state in (a, b)]
    exact = [{k: t.double() for k, t in state.items()} for state in half]
    found, expected = weight_matching(spec, *half), weight_matching(spec, *exact)
    assert same(found.perms, expected.perms)
    assert found.objective == pytest.approx(expected.objective, rel=1e-6)


def test_parameters_that_require_gradients_are_welcome() -> None:
    model = CASES["mlp-layer"].model()
    match = weight_matching(spec_of("mlp-layer"), dict(model.named_parameters()), dict(model.named_parameters()))
    assert not any(perm.requires_grad for perm in match.perms.values())


def test_inputs_are_not_changed() -> None:
    spec, a = network("transformer", 0)
    _, b = network("transformer", 1)
    before = [{k: t.clone() for k, t in state.items()} for state in (a, b)]
    weight_matching(spec, a, b)
    assert same(a, before[0])
    assert same(b, before[1])


def test_pieces_of_one_axis_are_matched_apart() -> None:
    spec = PermutationSpec({"w": (Concat((Permuted("a", 3), Permuted("b", 3))),)}, {"a": None, "b": None})
    a = {"w": tensor([1.0, 2.0, 3.0, 30.0, 20.0, 10.0])}
    b = {"w": tensor([3.0, 1.0, 2.0, 10.0, 30.0, 20.0])}
    match = weight_matching(spec, a, b)
    assert torch.equal(permute(spec, match.perms, b)["w"], a["w"])


# Trained networks


def trained(arch: str, *, epochs: int, lr: float) -> State:
    """A network after some epochs on the digits."""
    pixels, targets = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 8 - 1, torch.tensor(targets)
    model = build(arch, input_shape=(1, 8, 8), classes=10, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for batch in torch.arange(len(images)).split(128):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert float(loss.detach()) < 1.5
    return {name: t.detach() for name, t in model.state_dict().items()}


@pytest.mark.parametrize(("arch", "epochs", "lr"), [("mlp", 3, 1e-3), ("resnet20", 3, 3e-3)])
def test_planted_permutations_of_trained_networks(arch: str, epochs: int, lr: float) -> None:
    b = trained(arch, epochs=epochs, lr=lr)
    model = build(arch, input_shape=(1, 8, 8), classes=10)
    spec = permutation_spec(model, torch.zeros(2, 1, 8, 8))
    for trial in range(10):
        a = permute(spec, random_permutations(spec, torch_generator(trial, "planted")), b)
        match = weight_matching(spec, a, b, restarts=2)
        assert same(permute(spec, match.perms, b), a)
