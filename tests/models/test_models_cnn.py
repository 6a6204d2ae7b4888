"""The Small CNN Zoo network: size, padding, function."""

import pytest
import torch
from torch import nn

from asym.models import build, plan
from asym.nn import Variant


def test_layout():
    model = build("small-cnn", input_shape=(1, 28, 28), classes=10)
    assert [tuple(m.weight.shape) for m in model.convs] == [(16, 1, 3, 3), (16, 16, 3, 3), (16, 16, 3, 3)]
    assert all(m.stride == (2, 2) and m.bias is not None for m in model.convs)
    assert sum(p.numel() for p in model.parameters()) == 4_970


@pytest.mark.parametrize(("size", "padding", "last"), [(8, 1, 1), (14, 1, 2), (15, 0, 1), (28, 0, 2), (32, 0, 3)])
def test_padding_for_small_images(size, padding, last):
    model = build("small-cnn", input_shape=(1, size, size), classes=10)
    assert {m.padding for m in model.convs} == {(padding, padding)}
    x = torch.zeros(2, 1, size, size)
    for conv in model.convs:
        x = conv(x)
    assert x.shape == (2, 16, last, last)


@pytest.mark.parametrize(("size", "depth", "padding"), [(8, 2, 0), (6, 2, 1), (8, 4, 1), (30, 4, 1), (31, 4, 0)])
def test_depth_is_the_number_of_convolutions(size, depth, padding):
    model = build("small-cnn", input_shape=(1, size, size), classes=10, depth=depth)
    assert [m.in_channels for m in model.convs] == [1, *[16] * (depth - 1)]
    assert {m.padding for m in model.convs} == {(padding, padding)}
    assert model(torch.zeros(2, 1, size, size)).shape == (2, 10)


def test_the_function_is_that_of_the_formula():
    model = build("small-cnn", input_shape=(3, 32, 32), classes=10).double()
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    h = x
    for conv in model.convs:
        h = nn.functional.conv2d(h, conv.weight, conv.bias, stride=2).relu()
    torch.testing.assert_close(model(x), model.head(h.mean((2, 3))))


def test_width_and_rule_of_thumb():
    model = build("small-cnn", input_shape=(1, 8, 8), classes=10, width=2.0)
    assert model.head.in_features == 32
    plans = plan("small-cnn", input_shape=(1, 8, 8), classes=10, variant=Variant("w"))
    assert {name: p.n_fix for name, p in plans.items()} == {"convs.0": 2, "convs.1": 18, "convs.2": 18, "head": 4}
    assert {p.kappa for p in plans.values()} == {0.5}
