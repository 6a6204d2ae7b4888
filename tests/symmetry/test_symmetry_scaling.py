"""Scalings, signs and permutations of hidden units leave functions as they are, and are removed by the gauge."""

import math

import pytest
import torch
from chain_nets import nets, random_stack, run
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.metanets import chain_of
from asym.seeds import torch_generator
from asym.symmetry.scaling import gauge_fix, permute_units, random_factors, random_orders, scale_units

NAMES = tuple(nets())
LIMIT = 1e-12


def set_up(name, n=5):
    network, shape = nets()[name]
    network = network.double()
    chain = chain_of(network, torch.zeros(2, *shape, dtype=torch.float64))
    x = torch.randn(4, *shape, generator=torch_generator(1, "x"), dtype=torch.float64)
    return network, chain, random_stack(chain, n), x


def change(network, before, after, x, n=5):
    """Largest change of an output relative to the largest output."""
    outputs = [(run(network, before, i, x), run(network, after, i, x)) for i in range(n)]
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in outputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ratio", [2.0, 64.0])
def test_factors_and_orders_keep_the_function(name, ratio):
    network, chain, stack, x = set_up(name)
    generator = torch_generator(0, name)
    factors = random_factors(chain, (5,), generator, ratio=ratio)
    scaled = scale_units(chain, factors, stack.tensors)
    assert any(not torch.equal(scaled[key], stack.tensors[key]) for key in chain.shapes)
    assert change(network, stack.tensors, scaled, x) < LIMIT
    moved = permute_units(chain, random_orders(chain, (5,), generator), stack.tensors)
    assert any(not torch.equal(moved[key], stack.tensors[key]) for key in chain.shapes)
    assert change(network, stack.tensors, moved, x) < LIMIT


@pytest.mark.parametrize(("name", "layer"), [("tanh cnn", 0), ("mixed", 2), ("siren", 1)])
def test_a_factor_that_the_activation_does_not_allow_changes_the_function(name, layer):
    network, chain, stack, x = set_up(name)
    relabelled = chain.with_activations("relu")
    factors = [torch.ones(5, layer.outputs, dtype=torch.float64) for layer in chain.hidden]
    factors[layer] += 1
    assert change(network, stack.tensors, scale_units(relabelled, factors, stack.tensors), x) > 1e-3
    with pytest.raises(ValueError, match=r"not all factors of .* are allowed"):
        scale_units(chain, factors, stack.tensors)


def test_by_hand():
    network = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    chain = chain_of(network, torch.zeros(2, 1))
    tensors = {
        "0.weight": torch.tensor([[[3.0], [5.0]]]),
        "0.bias": torch.tensor([[4.0, 12.0]]),
        "2.weight": torch.tensor([[[2.0, 7.0]]]),
        "2.bias": torch.tensor([[1.0]]),
    }
    out = scale_units(chain, [torch.tensor([[2.0, 0.5]])], tensors)
    assert out["0.weight"].tolist() == [[[6.0], [2.5]]]
    assert out["0.bias"].tolist() == [[8.0, 6.0]]
    assert out["2.weight"].tolist() == [[[1.0, 14.0]]]
    assert out["2.bias"].tolist() == [[1.0]]
    out = permute_units(chain, [torch.tensor([[1, 0]])], tensors)
    assert out["0.weight"].tolist() == [[[5.0], [3.0]]]
    assert out["2.weight"].tolist() == [[[7.0, 2.0]]]
    fixed = gauge_fix(chain, tensors)  # norms 5 and 13
    torch.testing.assert_close(fixed["0.weight"], torch.tensor([[[3 / 5], [5 / 13]]]))
    torch.testing.assert_close(fixed["0.bias"], torch.tensor([[4 / 5, 12 / 13]]))
    torch.testing.assert_close(fixed["2.weight"], torch.tensor([[[10.0, 91.0]]]))


def test_units_that_weight_decay_has_all_but_erased_have_a_gauge():
    network = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1)).double()
    chain = chain_of(network, torch.zeros(2, 1, dtype=torch.float64))
    tensors = {
        "0.weight": torch.tensor([[[3e-40], [3.0]]]),  # 1 / 5e-40 is not finite in float32
        "0.bias": torch.tensor([[4e-40, 4.0]]),
        "2.weight": torch.tensor([[[2.0, 7.0]]]),
        "2.bias": torch.tensor([[1.0]]),
    }
    assert tensors["0.weight"].dtype == torch.float32
    fixed = gauge_fix(chain, tensors)
    torch.testing.assert_close(fixed["0.weight"], torch.tensor([[[0.6], [0.6]]]), rtol=1e-4, atol=0.0)
    torch.testing.assert_close(fixed["0.bias"], torch.tensor([[0.8, 0.8]]), rtol=1e-4, atol=0.0)
    torch.testing.assert_close(fixed["2.weight"], torch.tensor([[[0.0, 35.0]]]))


@pytest.mark.parametrize("name", NAMES)
def test_the_gauge_keeps_the_function_and_forgets_the_factors(name):
    network, chain, stack, x = set_up(name)
    fixed = gauge_fix(chain, stack.tensors)
    assert change(network, stack.tensors, fixed, x) < LIMIT
    scaled = scale_units(chain, random_factors(chain, (5,), torch_generator(2, name), ratio=64.0), stack.tensors)
    again = gauge_fix(chain, scaled)
    for key in chain.shapes:
        torch.testing.assert_close(again[key], fixed[key], rtol=1e-11, atol=1e-13)
    twice = gauge_fix(chain, fixed)
    for key in chain.shapes:
        torch.testing.assert_close(twice[key], fixed[key], rtol=1e-11, atol=1e-13)


@settings(max_examples=10, deadline=None)
@given(turns=st.integers(-5, 5), start=st.floats(-0.05, 0.05))
def test_phases_of_sine_units_are_removed(turns, start):
    network, chain, stack, x = set_up("siren", 3)
    tensors = {key: value.clone() for key, value in stack.tensors.items()}
    tensors["a.bias"][:] = start
    shifted = {key: value.clone() for key, value in tensors.items()}
    shifted["a.bias"] += turns * math.pi / 30
    if turns % 2:
        shifted["b.weight"] *= -1
    assert change(network, tensors, shifted, x, 3) < 1e-9
    fixed, other = gauge_fix(chain, tensors), gauge_fix(chain, shifted)
    assert float(fixed["a.bias"].abs().max()) <= math.pi / 60 + 1e-12
    for key in chain.shapes:
        torch.testing.assert_close(other[key], fixed[key], rtol=1e-9, atol=1e-12)
    # The released code's step of π in the raw bias is fifteen half turns here, so the function changes its sign:
    raw = {key: value.clone() for key, value in tensors.items()}
    raw["a.bias"] += 2 * math.pi
    assert change(network, tensors, raw, x, 3) < 1e-9
    raw["b.weight"] *= -1
    assert change(network, tensors, raw, x, 3) > 1e-3


def test_random_factors_follow_the_symmetry():
    _, chain, _, _ = set_up("mixed")
    factors = random_factors(chain, (200,), torch_generator(0, "f"), ratio=8.0)
    by = dict(zip(("relu", "tanh", "gelu"), factors))
    assert by["relu"].min() >= 1 / 8
    assert by["relu"].max() <= 8
    assert abs(float(by["relu"].log().mean())) < 0.2
    assert set(by["tanh"].unique().tolist()) == {-1.0, 1.0}
    assert set(by["gelu"].unique().tolist()) == {1.0}
    with pytest.raises(ValueError, match=r"ratio: 0\.5"):
        random_factors(chain, (1,), torch_generator(0, "f"), ratio=0.5)


def test_bad_shapes_are_refused():
    _, chain, stack, _ = set_up("relu cnn")
    ones = [torch.ones(5, layer.outputs, dtype=torch.float64) for layer in chain.hidden]
    with pytest.raises(ValueError, match="2 for 3 hidden layers"):
        scale_units(chain, ones[:2], stack.tensors)
    with pytest.raises(ValueError, match=r"has shape \(5, 3\)"):
        scale_units(chain, [ones[0][:, :3], *ones[1:]], stack.tensors)
    with pytest.raises(ValueError, match="not a permutation"):
        permute_units(chain, [torch.zeros(5, 4, dtype=torch.long) for _ in chain.hidden], stack.tensors)
