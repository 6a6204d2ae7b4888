"""Activation sites: widths and axes off a forward pass."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from asym.nn.sites import Site, activation_sites, called_modules, is_activation, run_once


class ChannelsLastBlock(nn.Module):
    """As in ConvNeXt: a convolution, then a perceptron on n × h × w × c."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, 6, 3), nn.ReLU()
        self.up, self.gelu, self.down = nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 6)

    def forward(self, x):
        x = self.act(self.conv(x)).permute(0, 2, 3, 1)
        return self.down(self.gelu(self.up(x)))


def test_axes_follow_the_layer_before():
    sites = activation_sites(ChannelsLastBlock(), torch.zeros(2, 3, 8, 8))
    assert sites == [Site("act", 6, 1), Site("gelu", 24, -1)]


def test_vectors_tokens_and_signals():
    vectors = nn.Sequential(nn.Linear(5, 7), nn.ReLU())
    assert activation_sites(vectors, torch.zeros(2, 5)) == [Site("1", 7, -1)]
    assert activation_sites(vectors, torch.zeros(2, 9, 5)) == [Site("1", 7, -1)]
    signals = nn.Sequential(nn.Conv1d(5, 7, 3), nn.ReLU())
    assert activation_sites(signals, torch.zeros(2, 5, 9)) == [Site("1", 7, 1)]
    tokens = nn.Sequential(nn.Conv2d(3, 6, 4, 4), nn.Flatten(2), nn.Unflatten(2, (1, 4)), nn.Flatten(2), nn.ReLU())
    assert activation_sites(tokens, torch.zeros(2, 3, 8, 8)) == [Site("4", 4, -1)]


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5)).train()
    model[3].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    activation_sites(model, torch.randn(2, 3, 8, 8))
    assert [m.training for m in model] == [True, True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Twice(nn.Module):
    def __init__(self, b: int) -> None:
        super().__init__()
        self.a, self.b, self.act = nn.Linear(4, 6), nn.Linear(6, b), nn.ReLU()

    def forward(self, x):
        return self.act(self.b(self.act(self.a(x))))


def test_one_module_at_two_places():
    assert activation_sites(Twice(6), torch.zeros(2, 4)) == [Site("act", 6, -1)]
    message = "activation 'act' is called with 6 features on axis -1 and with 5 on axis -1; give each place"
    with pytest.raises(ValueError, match=message):
        activation_sites(Twice(5), torch.zeros(2, 4))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.spare = nn.Linear(4, 6), nn.ReLU()

    def forward(self, x):
        return F.relu(self.a(x))


def test_missing_and_idle_activations_are_errors():
    with pytest.raises(ValueError, match=r"Linear has no activation module to replace; .* have to be modules"):
        activation_sites(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="activation 'spare' is not called for this example_input"):
        activation_sites(Functional(), torch.zeros(1, 4))


def test_an_input_that_does_not_fit_is_an_error_that_says_so():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    with pytest.raises(ValueError, match="example_input: Sequential cannot process it"):
        activation_sites(model, torch.zeros(1, 3))
    assert not model[1]._forward_pre_hooks
    assert run_once(model, (torch.zeros(1, 4),)).shape == (1, 6)


def test_gates_are_not_activations():
    assert not is_activation(nn.Sigmoid())
    assert not is_activation(nn.Softmax(-1))
    from timm.layers import activations

    assert is_activation(activations.Swish())
    assert is_activation(activations.GELUTanh())
    assert not is_activation(activations.HardSigmoid())


def test_activations_that_are_read_and_not_called_are_errors():
    """In evaluation PyTorch's encoder layer computes a ReLU or GELU of its own in the place of its child."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation=nn.ReLU(), batch_first=True)
    with pytest.raises(ValueError, match="TransformerEncoderLayer uses 'activation' past its forward"):
        activation_sites(layer, torch.zeros(1, 3, 8))
    hooked = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    hooked[1].register_forward_hook(lambda module, args, output: None)
    with pytest.raises(ValueError, match="'1' has hooks"):
        activation_sites(hooked, torch.zeros(1, 2))


def test_called_modules():
    assert called_modules(Functional(), torch.zeros(1, 4)) == {"", "a"}
