"""Activation matching and BatchNorm statistics."""

import math

import numpy as np
import pytest
import torch
from symmetry_nets import CASES
from torch import Tensor, nn, tensor

from asym.seeds import torch_generator
from asym.symmetry import activation_matching, permutation_spec, permute, random_permutations, reestimate_batchnorm
from asym.symmetry.activations import _Correlation
from asym.symmetry.trace import trace

State = dict[str, Tensor]
SMOOTH = [
    "mlp-layer",
    "mlp-batch",
    "mlp-blocks",
    "dense",
    "loop",
    "transformer",
    "transformer-written-out",
    "mixer",
    "language",
]
"""Networks of the table without units that can die."""


def same(a: State, b: State) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def generic(name: str, seed: int) -> State:
    """Parameters that are all random, statistics as at the start."""
    model, generator = CASES[name].model(), torch.Generator().manual_seed(seed)
    state = dict(model.state_dict())
    for key, parameter in model.named_parameters(remove_duplicate=False):
        state[key] = torch.randn(parameter.shape, generator=generator)
    return state


@pytest.mark.parametrize("name", SMOOTH)
def test_planted_permutations_are_found(name: str) -> None:
    case = CASES[name]
    model = case.model()
    spec = permutation_spec(model, case.input(), prove=False)
    b = generic(name, 0)
    b |= {alias: b[first] for alias, first in spec.tied.items()}
    batches = [case.input(40), case.input(30)]
    for seed in range(2):
        a = permute(spec, random_permutations(spec, torch_generator(seed, "planted")), b)
        match = activation_matching(model, spec, a, b, batches)
        assert same(permute(spec, match.perms, b), a)
        positions = sum(math.prod(spec.shape(g)) for g in spec.groups)
        roots = {p for p in spec.parents.values() if p}
        bare = sum(spec.groups[g].size for g in roots)
        assert match.objective == pytest.approx(positions - bare, rel=1e-4)  # every match correlates fully


def test_two_units_by_hand() -> None:
    """Hidden units x and -x; network b has them in the other order and at another scale."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Identity(), nn.Linear(2, 1, bias=False))
    spec = permutation_spec(model, torch.randn(2, 1))
    a = {"0.weight": tensor([[1.0], [-1.0]]), "2.weight": tensor([[1.0, 1.0]])}
    b = {"0.weight": tensor([[-5.0], [0.1]]), "2.weight": tensor([[1.0, 1.0]])}
    match = activation_matching(model, spec, a, b, [tensor([[1.0], [2.0], [4.0]])])
    assert match.perms["0"].tolist() == [1, 0]
    assert match.objective == pytest.approx(2.0)


def test_a_constant_unit_correlates_with_nothing() -> None:
    x, y = tensor([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]), tensor([[3.0, 2.0, 1.0], [0.0, 1.0, 0.0]])
    found = _Correlation(x, y)
    found.add(x, y)
    np.testing.assert_allclose(found.value(), [[-1.0, 0.0], [0.0, 0.0]], atol=1e-12)


def test_correlations_in_pieces_are_those_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(3, 50, generator=generator, dtype=torch.float64) + 1000 for _ in range(2))
    found = _Correlation(x[:, :7], y[:, :7])
    for part in (slice(0, 7), slice(7, 30), slice(30, 50)):
        found.add(x[:, part], y[:, part])
    np.testing.assert_allclose(found.value(), np.corrcoef(x, y)[:3, 3:], rtol=1e-9)


def test_groups_that_only_appear_together_do_not_wait_for_each_other() -> None:
    """Equal networks of two such groups: each is matched with the other in place."""
    case = CASES["einsum"]
    spec, state = permutation_spec(case.model(), case.input()), generic("einsum", 0)
    match = activation_matching(case.model(), spec, state, state, [case.input(50)])
    assert same(permute(spec, match.perms, state), state)
    assert match.objective == pytest.approx(2 + 4, rel=1e-4)


def test_sites_are_behind_the_nonlinearity() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    assert [site.node for site in trace(model, torch.randn(2, 3)).sites] == ["relu", "tanh"]


def test_in_place_activations_are_read_in_time() -> None:
    """A residual stream that a later addition overwrites."""

    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.one(x)
            h = self.two(x).tanh()
            x += 100 * h
            return self.three(x)

    model, generator = InPlace(), torch.Generator().manual_seed(0)
    spec = permutation_spec(model, torch.randn(2, 3))
    b = {k: torch.randn(t.shape, generator=generator) for k, t in model.state_dict().items()}
    a = permute(spec, random_permutations(spec, generator), b)
    match = activation_matching(model, spec, a, b, [torch.randn(64, 3, generator=generator)])
    assert same(permute(spec, match.perms, b), a)


def test_bad_input_is_named() -> None:
    model, x = CASES["mlp-layer"].model(), CASES["mlp-layer"].input()
    spec, state = permutation_spec(model, x), dict(CASES["mlp-layer"].model().state_dict())
    with pytest.raises(ValueError, match="batches: there is none"):
        activation_matching(model, spec, state, state, [])
    with pytest.raises(ValueError, match=r"^b: tensor '0\.bias' has entries that are NaN"):
        activation_matching(model, spec, state, {**state, "0.bias": torch.full((5,), math.nan)}, [x])
    with pytest.raises(ValueError, match=r"^a: tensor '0\.bias' is missing"):
        activation_matching(model, spec, {k: t for k, t in state.items() if k != "0.bias"}, state, [x])
    other = permutation_spec(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), x)
    plain = dict(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).state_dict())
    with pytest.raises(ValueError, match="spec: the model has no group '0'"):
        activation_matching(nn.Sequential(nn.Flatten(), nn.Linear(3, 5), nn.Linear(5, 2)), other, plain, plain, [x])


def test_batchnorm_statistics_are_those_of_the_batches() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2)).eval()
    params = {k: t.clone() for k, t in model.state_dict().items()}
    params["0.weight"] = tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    params["0.bias"] = tensor([0.0, 1.0, 0.0])
    batches = [tensor([[0.0, 1.0], [2.0, 3.0]]), tensor([[4.0, 0.0], [8.0, 0.0]])]
    found = reestimate_batchnorm(model, params, batches)
    # Hidden units: (0, 2) and (4, 8); (3, 7) and (1, 1); (1, 5) and (4, 8). Means and unbiased variances of each.
    torch.testing.assert_close(found["1.running_mean"], tensor([(1 + 6) / 2, (5 + 1) / 2, (3 + 6) / 2]))
    torch.testing.assert_close(found["1.running_var"], tensor([(2 + 8) / 2, (8 + 0) / 2, (8 + 8) / 2]))
    assert found["0.weight"] is params["0.weight"]
    assert torch.equal(model[1].running_mean, torch.zeros(3))
    assert model[1].momentum == 0.1
    assert not model.training


def test_batchnorm_statistics_move_with_the_channels() -> None:
    case = CASES["resnet-batch"]
    model, spec = case.model().double(), permutation_spec(case.model(), case.input())
    state = {k: t.double() if t.is_floating_point() else t for k, t in generic("resnet-batch", 0).items()}
    perms = random_permutations(spec, torch.Generator().manual_seed(1))
    batches = [case.input(8).double(), case.input(8).double()]
    one = permute(spec, perms, reestimate_batchnorm(model, state, batches))
    two = reestimate_batchnorm(model, permute(spec, perms, state), batches)
    assert all(torch.allclose(one[k], two[k], rtol=1e-12, atol=1e-12) for k in one)


def test_reestimating_without_batchnorm_is_a_copy() -> None:
    params = {"weight": torch.ones(2, 2), "bias": torch.ones(2)}
    found = reestimate_batchnorm(nn.Linear(2, 2), params, [])
    assert found == params
    assert found is not params
    with pytest.raises(ValueError, match="batches: there is none"):
        reestimate_batchnorm(nn.BatchNorm1d(2), {}, [])
