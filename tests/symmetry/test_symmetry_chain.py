"""Chains are read off modules, and what is none is refused."""

import pytest
import torch
from torch import nn

from asym.models import build
from asym.nn import Variant
from asym.symmetry.chain import Chain, ChainLayer, chain_of, check_tensors


def read(*modules, shape=(2, 1, 6, 6)):
    return chain_of(nn.Sequential(*modules), torch.zeros(shape))


def test_the_small_cnn_in_full():
    network = build("small-cnn", input_shape=(1, 28, 28), classes=10)
    chain = chain_of(network, torch.zeros(2, 1, 28, 28))
    assert chain.sizes == (1, 16, 16, 16, 10)
    assert chain.symmetries == ("scale", "scale", "scale")
    assert chain.shapes == {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert [layer.taps for layer in chain.layers] == [9, 9, 9, 1]
    assert sum(torch.Size(shape).numel() for shape in chain.shapes.values()) == 4970


def test_an_mlp_reads_each_pixel_as_an_input():
    chain = chain_of(build("mlp", input_shape=(1, 4, 4), classes=3, width=1 / 64, norm="none"), torch.zeros(2, 1, 4, 4))
    assert chain.sizes == (16, 8, 8, 8, 3)
    assert chain.symmetries == ("none",) * 3  # GELU


def test_a_flattened_feature_map_is_a_kernel_of_positions():
    chain = read(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 2))
    assert chain.sizes == (1, 4, 2)
    assert chain.layers[1].positions == chain.layers[1].taps == 16
    assert chain.layers[1].shape == (2, 64)


@pytest.mark.parametrize(
    ("between", "symmetry"),
    [
        ([nn.ReLU()], "scale"),
        ([nn.LeakyReLU(0.1)], "scale"),
        ([nn.Tanh()], "sign"),
        ([nn.GELU()], "none"),
        ([nn.SiLU()], "none"),
        ([], "scale"),
        ([nn.ReLU(), nn.MaxPool2d(2)], "scale"),
        ([nn.Tanh(), nn.MaxPool2d(2)], "none"),
        ([nn.Tanh(), nn.AvgPool2d(2), nn.Dropout(0.5)], "sign"),
    ],
)
def test_what_follows_a_layer_decides_its_symmetry(between, symmetry):
    assert read(nn.Conv2d(1, 4, 3), *between, nn.Conv2d(4, 3, 2)).symmetries == (symmetry,)


def test_a_factor_in_front_of_the_activation_is_kept_and_a_shift_takes_the_symmetry():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.c(torch.tanh(self.b(torch.sin(30.0 * self.a(x))) + 1.0)) + 0.5

    chain = chain_of(Net(), torch.zeros(3, 2))
    assert chain.layers[0].omega == 30.0
    assert chain.symmetries == ("sign", "none")


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), "'layer_norm'.*unknown"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 2)), "'softmax'.*unknown"),
        (nn.Sequential(nn.Flatten()), "no linear"),
        (nn.Sequential(nn.ReLU(), nn.Linear(4, 4)), "does not follow a layer"),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 2)), "does not follow a layer"),
    ],
)
def test_what_is_no_chain_is_refused_by_name(network, message):
    with pytest.raises(ValueError, match=message):
        chain_of(network, torch.zeros(2, 4))


def test_branches_shared_weights_groups_and_computed_weights_are_refused():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(torch.relu(self.a(x)) + x)

    with pytest.raises(ValueError, match="branches"):
        chain_of(Skip(), torch.zeros(2, 4))
    layer = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="twice"):
        chain_of(nn.Sequential(layer, nn.ReLU(), layer), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="2 groups"):
        read(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 2, groups=2))
    masked = build("small-cnn", input_shape=(1, 8, 8), classes=3, variant=Variant("w"))
    with pytest.raises(ValueError, match=r"constant .* give the plain form"):
        chain_of(masked, torch.zeros(2, 1, 8, 8))


def test_the_mode_of_the_module_stays():
    network = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 2)).train()
    network[1].eval()
    chain_of(network, torch.zeros(2, 4))
    assert network.training
    assert not network[1].training


def test_chains_by_hand_are_checked():
    a, b = ChainLayer("a", "a.weight", None, "linear", 2, 3), ChainLayer("b", "b.weight", None, "linear", 4, 1)
    with pytest.raises(ValueError, match=r"'a' has 3 outputs, but 'b' reads 4"):
        Chain((a, b))
    with pytest.raises(ValueError, match="at least one"):
        Chain(())
    chain = Chain((a, ChainLayer("b", "b.weight", None, "linear", 3, 1)))
    assert chain.with_activations("tanh").symmetries == ("sign",)
    with pytest.raises(ValueError, match="choose from"):
        chain.with_activations("swish")
    with pytest.raises(ValueError, match="2 for 1"):
        chain.with_activations("tanh", "relu")


def test_tensors_are_checked_against_the_chain():
    chain = read(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 2))
    tensors = {name: torch.zeros(5, *shape) for name, shape in chain.shapes.items()}
    assert check_tensors(chain, tensors) == (5,)
    with pytest.raises(ValueError, match=r"'2.bias' is missing"):
        check_tensors(chain, {name: t for name, t in tensors.items() if name != "2.bias"})
    with pytest.raises(ValueError, match=r"'2.bias' has shape \(4, 3\)"):
        check_tensors(chain, tensors | {"2.bias": torch.zeros(4, 3)})
    with pytest.raises(ValueError, match="an axis of networks is missing"):
        check_tensors(chain, {name: t[0] for name, t in tensors.items()}, lead=1)
    tensors["2.weight"][3, 0, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"NaN.*1 of 5 networks, the first is network 3"):
        check_tensors(chain, tensors, finite=True)
