"""Architectures from elsewhere: a module of one's own, timm."""

import hashlib
import sys

import pytest
import torch
from torch import nn

from asym.models import build, count, plan
from asym.nn import FiGLU, Variant, count_trainable

SMALL = {"input_shape": (1, 8, 8), "classes": 10}


def factory(input_shape, classes):
    """What a user writes; named on the command line as module:factory."""
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0] * 64, 30), nn.ReLU(), nn.Linear(30, classes))


def wrong_size(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 1))


def wrong_kind(input_shape, classes):
    return classes


@pytest.fixture
def own_module(monkeypatch):
    import types

    module = types.ModuleType("own_networks")
    module.factory, module.wrong_size, module.wrong_kind = factory, wrong_size, wrong_kind
    monkeypatch.setitem(sys.modules, "own_networks", module)


@pytest.mark.usefixtures("own_module")
def test_a_factory_of_ones_own():
    standard = build("own_networks:factory", seed=3, **SMALL)
    masked = build("own_networks:factory", seed=3, variant=Variant("w"), **SMALL)
    assert torch.equal(masked[1].weight[masked[1].mask], standard[1].weight[masked[1].mask])
    assert not torch.equal(standard[1].weight, build("own_networks:factory", seed=4, **SMALL)[1].weight)
    assert isinstance(build("own_networks:factory", variant=Variant("sigma"), **SMALL)[2], FiGLU)
    plans = plan("own_networks:factory", variant=Variant("w"), **SMALL)
    assert {name: p.n_fix for name, p in plans.items()} == {"1": 8, "3": 4}
    assert count("own_networks:factory", variant=Variant("w"), **SMALL)[0] == count_trainable(masked)


@pytest.mark.usefixtures("own_module")
def test_a_factory_with_the_wrong_output_is_an_error():
    with pytest.raises(ValueError, match=r"gives \(2, 11\) for 2 images and 10 classes, not \(2, 10\)"):
        build("own_networks:wrong_size", **SMALL)
    with pytest.raises(ValueError, match="returned a int, not a torch"):
        build("own_networks:wrong_kind", **SMALL)
    with pytest.raises(ValueError, match="cannot process it"):
        build("own_networks:factory", input_shape=(1, 9, 9), classes=10)


def test_timm_networks():
    options = {"input_shape": (3, 32, 32), "classes": 5}
    for variant in ("standard", "w", "sigma", "bias", "w-init"):
        model = build("timm/resnet10t", variant=Variant(variant), seed=1, **options)
        assert model(torch.randn(2, 3, 32, 32)).shape == (2, 5)
        assert count("timm/resnet10t", variant=Variant(variant), **options)[0] == count_trainable(model)
    vit = build("timm/vit_tiny_patch16_224", **options)
    assert vit.patch_embed.img_size == (32, 32)
    with pytest.raises(ValueError, match="cannot"):
        build("timm/vit_tiny_patch16_224", input_shape=(3, 8, 8), classes=5)


def test_gray_timm_network_from_a_seed():
    a, b, c = (build("timm/resnet10t", input_shape=(1, 32, 32), classes=5, seed=s) for s in (0, 0, 1))
    digest = [hashlib.sha256(m.conv1[0].weight.detach().numpy().tobytes()).digest() for m in (a, b, c)]
    assert digest[0] == digest[1] != digest[2]
