"""The theorem on permutations, checked by brute force on tiny networks.

A permutation of hidden neurons is a symmetry of a masked network if it maps trainable entries to trainable entries and
constants to equal constants: then permuting the trainable values along with it gives the same function.
"""

import itertools
import math

import pytest
import torch
from torch import nn

from asym.nn import Variant, WAsymLinear, apply_variant

M = 5


def mlp(variant: str | None, *, n_fix: int = 2, kappa: float | None = None, seed: int = 0) -> nn.Sequential:
    """4-5-5-3 with tanh in float64."""
    sizes = (4, M, M, 3)
    if variant is None:
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    else:
        layers = [
            WAsymLinear(a, b, n_fix=n_fix, kappa=kappa or 0.0, seed=seed, name=str(i))
            for i, (a, b) in enumerate(itertools.pairwise(sizes))
        ]
    generator = torch.Generator().manual_seed(1)
    for layer in layers:
        layer.reset_parameters() if variant is None else layer.reset_parameters(generator)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2]).double()


def automorphisms(layers: list[nn.Linear]) -> list[tuple]:
    """All pairs of permutations of the two hidden layers that keep masks and constants, inputs and outputs fixed."""
    found = []
    for p in itertools.permutations(range(M)):
        for q in itertools.permutations(range(M)):
            rows, columns = (p, q, range(3)), (range(4), p, q)
            if all(keeps(layer, list(r), list(c)) for layer, r, c in zip(layers, rows, columns, strict=True)):
                found.append((p, q))
    return found


def keeps(layer: nn.Linear, rows: list[int], columns: list[int]) -> bool:
    if not isinstance(layer, WAsymLinear):
        return True
    constants = torch.where(layer.mask, 0, layer.fixed)
    return torch.equal(layer.mask[rows][:, columns], layer.mask) and torch.equal(constants[rows][:, columns], constants)


@pytest.mark.parametrize("kappa", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_masked_network_has_the_identity_alone(kappa, seed):
    model = mlp("w", kappa=kappa, seed=seed)
    identity = tuple(range(M))
    assert automorphisms([model[0], model[2], model[4]]) == [(identity, identity)]


def test_a_plain_network_has_all_permutations():
    model = mlp(None)
    assert len(automorphisms([model[0], model[2], model[4]])) == math.factorial(M) ** 2


def test_equal_rows_leave_the_swap_of_their_neurons():
    """The premise that rows are distinct is needed: two equal rows whose later columns agree can be swapped."""
    model = mlp("w", kappa=0.0)
    model[0].mask[1] = model[0].mask[0]
    model[2].mask[:, 1] = model[2].mask[:, 0]
    swapped, identity = (1, 0, 2, 3, 4), tuple(range(M))
    assert (swapped, identity) in automorphisms([model[0], model[2], model[4]])


def permuted(model: nn.Sequential, p: list[int]) -> nn.Sequential:
    """The first hidden layer permuted: parameters only, as an optimiser or an averager sees them."""
    other = mlp("w" if isinstance(model[0], WAsymLinear) else None, kappa=getattr(model[0], "kappa", None))
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other[0].weight.copy_(model[0].weight[p])
        other[0].bias.copy_(model[0].bias[p])
        other[2].weight.copy_(model[2].weight[:, p])
    return other


@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_permuting_parameters_changes_a_masked_network_and_not_a_plain_one(kappa):
    x = torch.randn(50, 4, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    plain, masked = mlp(None), mlp("w", kappa=kappa)
    for p in itertools.permutations(range(M)):
        change_plain = (permuted(plain, list(p))(x) - plain(x)).abs().max()
        change_masked = (permuted(masked, list(p))(x) - masked(x)).abs().max()
        assert change_plain < 1e-12
        assert (change_masked < 1e-12) == (p == tuple(range(M)))
        if p != tuple(range(M)):
            assert change_masked > 1e-4


def test_sigma_networks_change_under_permutations_and_scalings():
    model = apply_variant(
        nn.Sequential(nn.Linear(4, M), nn.ReLU(), nn.Linear(M, 3)).double(),
        Variant("sigma", figlu_scale=1.0),
        example_input=torch.zeros(1, 4).double(),
    )
    x = torch.randn(50, 4, dtype=torch.double, generator=torch.Generator().manual_seed(2))

    def changed(matrix: torch.Tensor) -> float:
        first = nn.functional.linear(x, matrix @ model[0].weight, matrix @ model[0].bias)
        second = nn.functional.linear(model[1](first), model[2].weight @ matrix.inverse(), model[2].bias)
        return float((second - model(x)).detach().abs().max())

    eye = torch.eye(M, dtype=torch.double)
    assert changed(eye) < 1e-12
    for p in itertools.permutations(range(M)):
        if p != tuple(range(M)):
            assert changed(eye[list(p)]) > 1e-4
    assert changed(2 * eye) > 1e-3
    assert changed(torch.diag(torch.tensor([1, 1, 3, 1, 1.0]).double())) > 1e-3
