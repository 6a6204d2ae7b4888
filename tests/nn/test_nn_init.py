"""Initialisation by name: distributions, and values that depend on (seed, name) alone."""

import math

import pytest
import torch
from torch import nn

from asym.nn.init import initial_values, initialise
from asym.nn.w_asym import WAsymLinear


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(20, 50, 3)
        self.norm = nn.BatchNorm2d(50)
        self.head = nn.Linear(500, 200)


def test_default_scheme_is_pytorchs():
    net = initialise(Net(), 0)
    for weight, fan_in in ((net.conv.weight, 180), (net.head.weight, 500)):
        bound = 1 / math.sqrt(fan_in)
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.99 * bound
        assert abs(weight.std() / bound * math.sqrt(3) - 1) < 0.02
    assert net.head.bias.abs().max() <= 1 / math.sqrt(500)
    assert (net.norm.weight == 1).all()
    assert (net.norm.bias == 0).all()


def test_kaiming_scheme_has_variance_two_over_fan_in():
    values = initial_values(Net(), 0, "kaiming")
    assert abs(values["conv.weight"].std() * math.sqrt(180 / 2) - 1) < 0.03
    assert abs(values["head.weight"].std() * math.sqrt(500 / 2) - 1) < 0.03
    assert torch.equal(values["head.bias"], initial_values(Net(), 0)["head.bias"])
    # √6 between the schemes: the confound that the variant w-scale removes
    ratio = values["head.weight"].std() / initial_values(Net(), 0)["head.weight"].std()
    assert abs(ratio / math.sqrt(6) - 1) < 0.02


def test_values_depend_on_seed_and_name_alone():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    a, b = initial_values(Net(), 3), initial_values(nn.ModuleDict({"head": nn.Linear(500, 200)}), 3)
    assert torch.equal(a["head.weight"], b["head.weight"])
    c = initial_values(nn.ModuleDict({"tail": nn.Linear(500, 200)}), 3)
    assert not torch.equal(a["head.weight"], c["tail.weight"])
    assert not torch.equal(a["head.weight"], initial_values(Net(), 4)["head.weight"])
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), state)


def test_dtype_is_kept_and_the_numbers_are_the_same():
    double = initial_values(Net().double(), 0)
    assert all(value.dtype == torch.float64 for value in double.values())
    assert torch.equal(double["head.weight"].float(), initial_values(Net(), 0)["head.weight"])


def test_masked_weights_get_the_plain_values_where_trainable_and_zeros_elsewhere():
    plain = nn.ModuleDict({"a": nn.Linear(6, 8)})
    masked = nn.ModuleDict({"a": WAsymLinear(6, 8, n_fix=2, kappa=1.0, seed=0, name="a")})
    values, mask = initial_values(masked, 1)["a.weight"], masked["a"].mask
    assert torch.equal(values[mask], initial_values(plain, 1)["a.weight"][mask])
    assert (values[~mask] == 0).all()


def test_frozen_parameters_keep_their_values():
    net = Net()
    net.norm.bias.requires_grad_(False).fill_(7.0)
    initialise(net, 0)
    assert (net.norm.bias == 7).all()


def test_running_statistics_start_again():
    net = Net()
    net.norm(torch.randn(4, 50, 2, 2))
    assert net.norm.num_batches_tracked == 1
    initialise(net, 0)
    assert net.norm.num_batches_tracked == 0
    assert (net.norm.running_mean == 0).all()


def test_unknown_schemes_and_parameters_are_errors():
    with pytest.raises(ValueError, match="scheme: 'xavier'; choose from default, kaiming"):
        initialise(Net(), 0, "xavier")
    with pytest.raises(ValueError, match=r"no rule for the initial values of '0.weight' of Embedding"):
        initialise(nn.Sequential(nn.Embedding(3, 4)), 0)
