"""Conversion of networks that others wrote, with timm's ResNet, ViT and ConvNeXt."""

import pytest
import timm
import torch
from torch import nn

from asym.nn import FiGLU, LayerRule, MaskedLayer, Variant, asymmetrize, check_fixed, count_trainable, to_plain

MODELS = {
    "resnet18": {"num_classes": 7},
    "vit_tiny_patch16_224": {"num_classes": 7, "img_size": 32, "depth": 2, "embed_dim": 48},
    "convnext_atto": {
        "num_classes": 7,
        "depths": (1, 1, 1, 1),
        "dims": (8, 16, 24, 32),
        "ls_init_value": 1.0,
    },  # 1 × 1 convolutions
    "convnext_tiny": {
        "num_classes": 7,
        "depths": (1, 1, 1, 1),
        "dims": (8, 16, 24, 32),
        "ls_init_value": 1.0,
    },  # linear layers on NHWC
}
"""Small copies of timm models; vision transformers get two blocks."""


def load(name: str) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False, **MODELS[name]).eval()


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return load(request.param)


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_w_masks_every_layer_that_it_can(model, images):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    masked = asymmetrize(model, "w", example_input=images, mask_seed=3, kappa=0.2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    layers = [name for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    plain = [name for name in layers if not isinstance(masked.get_submodule(name), MaskedLayer)]
    assert plain == []
    assert check_fixed(masked) == len(layers)
    assert count_trainable(masked) < count_trainable(model)
    for name in layers:
        layer, old = masked.get_submodule(name), model.get_submodule(name)
        assert torch.equal(layer.weight[layer.mask], old.weight[layer.mask])
        assert (layer.seed, layer.kappa, layer.name) == (3, 0.2, name)


def test_to_plain_gives_the_same_outputs(model, images):
    masked = asymmetrize(model, "w", kappa=0.2)
    plain = to_plain(masked)
    assert not any(isinstance(m, MaskedLayer) for m in plain.modules())
    assert set(plain.state_dict()) == set(model.state_dict())
    with torch.no_grad():
        expected = masked(images)
        assert expected.isfinite().all()
        assert torch.equal(plain(images), expected)
        assert not torch.allclose(model(images), expected)
    assert count_trainable(plain) == count_trainable(model)
    assert check_fixed(masked) > 0  # the masked one is still there


def test_w_zero_of_a_scaled_mask_approaches_the_model(model, images):
    """Dropping single entries changes a function less than dropping many: the values really come from the model."""
    with torch.no_grad():
        few, many = (asymmetrize(model, "w-zero", n_fix_scale=s)(images) - model(images) for s in (0.01, 1.5))
    assert 0 < few.norm() < many.norm()


def test_w_init_keeps_ordinary_layers(model, images):
    started, masked = asymmetrize(model, "w-init", kappa=0.2), asymmetrize(model, "w", kappa=0.2)
    with torch.no_grad():
        assert torch.equal(started(images), masked(images))
    assert count_trainable(started) == count_trainable(model)


AXES = {
    "resnet18": {1},
    "vit_tiny_patch16_224": {-1},
    "convnext_atto": {1},
    "convnext_tiny": {-1},
}


@pytest.mark.parametrize("name", MODELS)
def test_sigma_gates_every_activation(name, images):
    model = load(name)
    gated = asymmetrize(model, "sigma", example_input=images)
    sites = {n: m for n, m in gated.named_modules() if isinstance(m, FiGLU)}
    acts = [n for n, m in model.named_modules() if type(m).__name__ in ("ReLU", "GELU")]
    assert sorted(sites) == sorted(acts)
    assert {m.channel_dim for m in sites.values()} == AXES[name]
    assert all(m.name == n for n, m in sites.items())
    assert count_trainable(gated) == count_trainable(model)
    with torch.no_grad():
        output = gated(images)
        assert not torch.allclose(output, model(images))
        # FiGLU stays: nothing ordinary computes it
        assert torch.equal(to_plain(gated)(images), output)
    assert sum(isinstance(m, FiGLU) for m in to_plain(gated).modules()) == len(sites)


def test_widths_of_the_vit_are_those_of_its_hidden_layers(images):
    gated = asymmetrize(load("vit_tiny_patch16_224"), "sigma", example_input=images)
    assert gated.blocks[1].mlp.act.width == 4 * 48


def test_converted_networks_train(images):
    for variant in ("w", "sigma"):
        model = asymmetrize(load("resnet18"), variant, example_input=images, kappa=0.2).train()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        model(images).square().mean().backward()
        optimizer.step()
        assert check_fixed(model) == (21 if variant == "w" else 0)


def test_rules_and_variant_objects(images):
    model = load("resnet18")
    rules = [LayerRule("fc", n_fix=0), LayerRule("layer*.conv?", 10, 0.3), LayerRule("*", None, 0.1)]
    masked = asymmetrize(model, Variant("w", mask_seed=1), rules=rules)
    assert type(masked.fc) is nn.Linear
    assert (masked.layer2[0].conv1.n_fix, masked.layer2[0].conv1.kappa) == (10, 0.3)
    assert masked.layer2[0].downsample[0].kappa == 0.1
    with pytest.raises(ValueError, match="kappa: is a field of the variant"):
        asymmetrize(model, Variant("w"), kappa=1.0)
    with pytest.raises(ValueError, match="variant: 'omega'"):
        asymmetrize(model, "omega")
    with pytest.raises(ValueError, match="example_input: None"):
        asymmetrize(model, "sigma")


def test_timm_layers_that_read_weights_past_their_forward_are_found(images):
    model = timm.create_model("beit_base_patch16_224", img_size=32, depth=1, embed_dim=48, num_heads=3)
    with pytest.raises(ValueError, match=r"'blocks.0.attn.qkv' is not called for this example_input"):
        asymmetrize(model, "w", example_input=images)
    rules = [LayerRule("blocks.*.attn.qkv", n_fix=0)]
    assert check_fixed(asymmetrize(model, "w", example_input=images, rules=rules)) > 0


def test_a_layer_alone():
    layer = asymmetrize(nn.Linear(20, 8), "w")
    assert isinstance(layer, MaskedLayer)
    plain = to_plain(layer.double().eval())
    assert type(plain) is nn.Linear
    assert plain.weight.dtype == torch.float64
    assert not plain.training
    x = torch.randn(3, 20).double()
    assert torch.equal(plain(x), layer(x))


def test_to_plain_of_a_plain_network_is_a_copy():
    model = nn.Sequential(nn.Linear(3, 3))
    copied = to_plain(model)
    assert copied is not model
    assert torch.equal(copied[0].weight, model[0].weight)


def test_to_plain_does_not_share_memory():
    masked = asymmetrize(nn.Sequential(nn.Linear(20, 8)), "w")
    plain, before = to_plain(masked), masked[0].weight.clone()
    with torch.no_grad():
        plain[0].weight.add_(1)
        plain[0].bias.add_(1)
    assert torch.equal(masked[0].weight, before)
    assert check_fixed(masked) == 1
