"""Implicit networks: published sizes and start values, the formula, the symmetry of sines."""

import math

import pytest
import torch

from asym.models import build, count
from asym.models.siren import Siren, grid
from asym.nn import Variant
from asym.populations import Layout
from asym.symmetry.chain import chain_of
from asym.symmetry.scaling import gauge_fix, permute_units, random_factors, random_orders, scale_units


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_published_sizes():
    assert count("siren", input_shape=(2,), classes=1) == (1_185, 1_185)
    assert count("siren", input_shape=(2,), classes=3) == (1_251, 1_251)


def test_the_formula_by_hand():
    network = Siren(2, 1, width=1, depth=2, omega=2.0, first_omega=3.0, shift=0.25)
    for layer, (weight, bias) in zip(network.layers, (([[0.5, -1.0]], 0.1), ([[0.7]], -0.2), ([[2.0]], 0.3))):
        layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor([bias])
    first = math.sin(3 * (0.5 * 0.4 - 0.6 + 0.1))
    expected = 2 * math.sin(2 * (0.7 * first - 0.2)) + 0.3 + 0.25
    assert network(torch.tensor([0.4, 0.6])).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("start", ["paper", "smooth"])
def test_start_values_fill_their_range(start):
    network = Siren(width=400, start=start)
    waves, last = math.sqrt(6 / 400) / 30, 1 / 20
    wanted = {
        "paper": [(1 / 2, 1 / math.sqrt(2)), (waves, last), (waves, last)],
        "smooth": [(math.sqrt(3) / 30, 0.0), (waves, 0.0), (last, last)],
    }[start]
    for layer, (weight, bias) in zip(network.layers, wanted):
        assert 0.95 * weight < float(layer.weight.detach().abs().max()) <= weight * (1 + 1e-6)
        assert float(layer.bias.detach().abs().max()) <= bias * (1 + 1e-6)
    assert float(network.layers[1].bias.detach().abs().max()) >= 0.95 * wanted[1][1]


def test_hidden_values_keep_their_spread_with_depth():
    """The paper's claim: inputs of sines are about normal with deviation 1, values have variance 1/2, at any depth."""
    network = Siren(width=256, depth=5, omega=30.0)
    network.reset_parameters(_generator())
    x = grid(20, 20)
    for omega, layer in zip(network.omegas, network.layers):
        x = torch.sin(omega * layer(x)).detach()
        assert 0.4 < float(x.square().mean()) < 0.6


def test_one_seed_one_network():
    first, second, other = (build("siren", input_shape=(2,), classes=1, seed=s) for s in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


def test_many_networks_at_once_are_each_alone():
    networks = [Siren(2, 3, width=5, depth=3, omega=4.0, first_omega=7.0) for _ in range(4)]
    layout, x = Layout.trainable(networks[0]), grid(3, 4)
    rows = torch.stack([layout.flatten(dict(n.named_parameters())) for n in networks])
    together = networks[0].stacked(layout.views(rows), x)
    assert together.shape == (4, 3, 12)
    for values, network in zip(together, networks):
        torch.testing.assert_close(values.t(), network(x))


def test_pixels_run_row_by_row():
    assert grid(2, 3).tolist() == [[-1, -1], [-1, 0], [-1, 1], [1, -1], [1, 0], [1, 1]]
    with pytest.raises(ValueError, match="at least 2 pixels"):
        grid(1, 3)


def test_units_have_signs_and_phases_and_nothing_more():
    """The action on the weights leaves the image as it is; a positive factor, which sines do not allow, does not."""
    network = Siren(width=6, omega=30.0).double()
    chain, x = chain_of(network, torch.zeros(2, 2, dtype=torch.float64)), grid(8, 8).double()
    assert chain.symmetries == ("sign", "sign")
    assert [layer.omega for layer in chain.layers] == [30.0, 30.0, 1.0]
    tensors = {name: p.detach()[None] for name, p in network.named_parameters()}
    image = network.stacked(tensors, x)
    signs = random_factors(chain, (1,), _generator())
    assert any((q < 0).any() for q in signs)
    moved = permute_units(chain, random_orders(chain, (1,), _generator()), scale_units(chain, signs, tensors))
    assert float((network.stacked(moved, x) - image).abs().max()) < 1e-12
    fixed = gauge_fix(chain, moved)
    assert float((network.stacked(fixed, x) - image).abs().max()) < 1e-12
    assert all(float(fixed[layer.bias].abs().max()) <= math.pi / 60 + 1e-12 for layer in chain.hidden)
    with pytest.raises(ValueError, match="not all factors"):
        scale_units(chain, [torch.full_like(q, 2.0) for q in signs], tensors)
    doubled = dict(tensors)
    doubled["layers.0.weight"], doubled["layers.0.bias"] = 2 * tensors["layers.0.weight"], 2 * tensors["layers.0.bias"]
    doubled["layers.1.weight"] = tensors["layers.1.weight"] / 2
    assert float((network.stacked(doubled, x) - image).abs().max()) > 1e-2


def test_variants():
    """Masks fit the layers with enough inputs; a sine has no gate."""
    masked = build("siren", input_shape=(2,), classes=1, variant=Variant("w"))
    assert count("siren", input_shape=(2,), classes=1, variant=Variant("w"))[0] < 1_185
    assert torch.isfinite(masked(grid(4, 4))).all()
    with pytest.raises(ValueError, match="activation"):
        build("siren", input_shape=(2,), classes=1, variant=Variant("sigma"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width: 0; must be at least 1"),
        ({"depth": 0}, "depth: 0"),
        ({"outputs": 0}, "outputs: 0"),
        ({"omega": 0.0}, "omega: 0.0"),
        ({"first_omega": math.inf}, "first_omega: inf"),
        ({"start": "zero"}, "start: 'zero'; choose from paper, smooth"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Siren(**options)


def test_coordinates_are_no_images():
    with pytest.raises(ValueError, match=r"must be \(coordinates\)"):
        build("siren", input_shape=(1, 8, 8), classes=1)
