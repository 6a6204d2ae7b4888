import pytest
import torch
from torch import nn

from asym.models import build
from asym.nn import Variant
from asym.populations import Layout
from asym.populations.layout import channels_last


def _net(variant="standard", norm=None):
    return build("resnet8", input_shape=(3, 8, 8), classes=5, norm=norm, variant=Variant(variant))


def test_a_row_and_its_views_hold_the_same_numbers():
    network = _net()
    layout = Layout.trainable(network)
    assert layout.size == sum(p.numel() for p in network.parameters())
    row = layout.flatten(network.state_dict())
    for name, view in layout.views(row).items():
        assert torch.equal(view, network.get_parameter(name))
        assert view.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()


def test_views_of_a_matrix_keep_the_network_axis():
    layout = Layout.of([("a", torch.zeros(2, 3)), ("b", torch.zeros(4))])
    rows = torch.arange(20.0).reshape(2, 10)
    views = layout.views(rows)
    assert views["a"].shape == (2, 2, 3)
    assert views["b"].tolist() == [[6, 7, 8, 9], [16, 17, 18, 19]]


def test_load_is_the_inverse_of_flatten():
    one, other = build("mlp", input_shape=(1, 4, 4), classes=3, seed=1), build("mlp", input_shape=(1, 4, 4), classes=3)
    layout = Layout.full(one)
    layout.load_(other, layout.flatten(one.state_dict()))
    x = torch.randn(2, 1, 4, 4)
    assert torch.equal(one(x), other(x))


def test_masks_fixed_values_and_counters_belong_to_no_row():
    for variant in ("w", "sigma"):
        assert not [n for n in Layout.full(_net(variant)).names if n.endswith((".mask", ".fixed"))]
    names = Layout.full(_net(norm="batch")).names
    assert [n for n in names if n.endswith("running_var")]
    assert not [n for n in names if n.endswith("num_batches_tracked")]
    assert not [n for n in Layout.trainable(_net(norm="batch")).names if "running" in n]


def test_frozen_parameters_are_full_but_not_trainable():
    network = _net("bias")
    frozen = {n for n, p in network.named_parameters() if not p.requires_grad}
    assert frozen
    assert frozen.isdisjoint(Layout.trainable(network).names)
    assert frozen <= set(Layout.full(network).names)


def test_a_wrong_tensor_is_named():
    layout = Layout.of([("weight", torch.zeros(2, 3))])
    with pytest.raises(ValueError, match="weight must have shape"):
        layout.flatten({"weight": torch.zeros(3, 2)})
    with pytest.raises(ValueError, match=r"weight must have shape .* got nothing"):
        layout.flatten({})


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_reaches_the_output_of_a_convolution(channels):
    images = torch.randn(4, channels, 6, 6)
    conv = nn.Conv2d(channels, 8, 3, padding=1)
    turned = channels_last(images)
    assert torch.equal(turned, images)
    assert conv(turned).stride() == (8 * 36, 1, 6 * 8, 8)
    assert conv(images).stride() == (8 * 36, 36, 6, 1)
