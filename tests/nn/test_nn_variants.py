"""Variants: what each of them changes in a network, and what it leaves."""

import copy
import math

import pytest
import torch
from torch import nn

from asym.names import VARIANTS
from asym.nn import (
    FiGLU,
    LayerRule,
    MaskedLayer,
    Variant,
    WAsymConv2d,
    WAsymLinear,
    apply_variant,
    check_fixed,
    count_trainable,
    plan_layers,
    sample_fixed,
    sample_mask,
)
from asym.nn.swap import replace_modules
from asym.nn.variants import resolve_scale

RULES = (LayerRule("conv", 9, 2.0), LayerRule("head", 3, 0.5))
X = torch.zeros(2, 3, 6, 6)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 8, 3), nn.GroupNorm(1, 8), nn.ReLU()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.act(self.norm(self.conv(x))).mean((2, 3)))


def variant_of(net: nn.Module, name: str, **options) -> nn.Module:
    return apply_variant(copy.deepcopy(net), Variant(name, **options), rules=RULES, example_input=X)


def same_parameters(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_trains_and_keeps_parameter_names(name):
    net = Net()
    model = variant_of(net, name)
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in net.named_parameters()]
    model(torch.randn(2, 3, 6, 6)).sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())


def test_standard_and_w_scale_change_nothing():
    net = Net()
    for name in ("standard", "w-scale"):
        model = variant_of(net, name)
        assert same_parameters(model, net)
        assert [type(m) for m in model.modules()] == [type(m) for m in net.modules()]


def test_w_masks_linear_and_convolution_and_keeps_trainable_values():
    net = Net()
    model = variant_of(net, "w", mask_seed=4)
    assert isinstance(model.conv, WAsymConv2d)
    assert isinstance(model.head, WAsymLinear)
    assert (model.conv.n_fix, model.conv.kappa, model.head.n_fix, model.head.kappa) == (9, 2.0, 3, 0.5)
    assert (model.conv.name, model.conv.seed) == ("conv", 4)
    assert torch.equal(model.conv.weight[model.conv.mask], net.conv.weight[model.conv.mask])
    assert torch.equal(model.conv.mask, sample_mask((8, 3, 3, 3), 9, seed=4, name="conv"))
    assert torch.equal(model.head.fixed, sample_fixed((4, 8), 0.5, seed=4, name="head"))
    assert check_fixed(model) == 2
    assert isinstance(model.act, nn.ReLU)
    assert count_trainable(model) == count_trainable(net) - 8 * 9 - 4 * 3


def test_w_zero_has_the_masks_of_w_and_no_constants():
    model, w = variant_of(Net(), "w-zero"), variant_of(Net(), "w")
    assert torch.equal(model.conv.mask, w.conv.mask)
    assert not model.conv.fixed.any()
    assert (model.conv.effective_weight[~model.conv.mask] == 0).all()


def test_w_init_starts_where_w_starts_and_can_move_everything():
    net = Net()
    model, w = variant_of(net, "w-init", mask_seed=2), variant_of(net, "w", mask_seed=2)
    assert type(model.conv) is nn.Conv2d
    assert torch.equal(model.conv.weight, w.conv.effective_weight)
    assert torch.equal(model.head.weight, w.head.effective_weight)
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(model(x), w(x))
    assert count_trainable(model) == count_trainable(net)


def test_sigma_replaces_activations_only():
    net = Net()
    model = variant_of(net, "sigma", mask_seed=3)
    assert isinstance(model.act, FiGLU)
    assert (model.act.width, model.act.channel_dim, model.act.seed, model.act.name) == (8, 1, 3, "act")
    assert model.act.scale == pytest.approx(1 / math.sqrt(8))
    assert same_parameters(model, net)
    assert count_trainable(model) == count_trainable(net)
    assert variant_of(net, "sigma", figlu_scale=2.0, gate="cosine").act.scale == 2.0


def test_w_sigma_is_both_with_the_constants_of_each():
    net = Net()
    both, masked, gated = (variant_of(copy.deepcopy(net), name, mask_seed=3) for name in ("w-sigma", "w", "sigma"))
    assert isinstance(both.act, FiGLU)
    assert torch.equal(both.act.fixed, gated.act.fixed)
    for name, module in masked.named_modules():
        if isinstance(module, MaskedLayer):
            twin = both.get_submodule(name)
            assert torch.equal(twin.mask, module.mask)
            assert torch.equal(twin.effective_weight, module.effective_weight)
    assert count_trainable(both) == count_trainable(masked)


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(9, 4)), nn.Sequential(nn.ReLU())])
def test_w_sigma_needs_layers_and_activations_and_leaves_a_refused_model_as_it_was(model):
    before = list(model)
    with pytest.raises(ValueError, match=r"has no (activation module|nn\.Linear)"):
        apply_variant(model, Variant("w-sigma"), example_input=torch.zeros(2, 9))
    assert all(a is b for a, b in zip(before, model, strict=True))


def test_sigma_follows_dtype_and_device_of_the_model():
    model = apply_variant(Net().double(), Variant("sigma"), example_input=X.double())
    assert model.act.fixed.dtype == torch.float64
    assert model(torch.zeros(1, 3, 6, 6).double()).dtype == torch.float64
    with torch.device("meta"):
        model = apply_variant(Net(), Variant("sigma"), example_input=torch.zeros(2, 3, 6, 6))
    assert model.act.fixed.is_meta


def test_bias_fixes_the_shifts_of_norms_within_the_range():
    net = Net()
    a, b = variant_of(net, "bias", bias_range=9.0), variant_of(Net(), "bias", bias_range=9.0)
    assert torch.equal(a.norm.bias, b.norm.bias)
    assert a.norm.bias.abs().max() <= 9
    assert a.norm.bias.abs().max() > 3
    assert not a.norm.bias.requires_grad
    assert a.norm.weight.requires_grad
    assert not torch.equal(a.norm.bias, variant_of(net, "bias", bias_range=9.0, mask_seed=1).norm.bias)
    assert count_trainable(a) == count_trainable(net) - 8
    assert torch.equal(a.head.weight, net.head.weight)


def test_bias_needs_norms():
    with pytest.raises(ValueError, match="'bias' fixes the shifts of norms, and Sequential has none"):
        apply_variant(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2, bias=False)), Variant("bias"))


def test_kappa_and_scale_of_the_variant_override_the_rules():
    model = variant_of(Net(), "w", kappa=7.0, n_fix_scale=2.0)
    assert (model.conv.n_fix, model.conv.kappa, model.head.n_fix, model.head.kappa) == (18, 7.0, 6, 7.0)


def test_networks_of_one_mask_seed_share_every_constant():
    a, b, c = (variant_of(Net(), "w", mask_seed=s) for s in (1, 1, 2))
    for name in ("conv", "head"):
        assert torch.equal(a.get_submodule(name).mask, b.get_submodule(name).mask)
        assert torch.equal(a.get_submodule(name).fixed, b.get_submodule(name).fixed)
        assert not torch.equal(a.get_submodule(name).mask, c.get_submodule(name).mask)


def test_layers_of_one_shape_have_constants_of_their_own():
    model = apply_variant(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), Variant("w"))
    assert not torch.equal(model[0].mask, model[1].mask)
    assert not torch.equal(model[0].fixed, model[1].fixed)


def test_plans_are_empty_for_variants_without_masks_and_tell_what_is_built():
    for name in ("standard", "sigma", "w-scale", "bias"):
        assert plan_layers(Net(), Variant(name), RULES) == {}
    with torch.device("meta"):
        light = Net()
    for name, kappa in (("w", 2.0), ("w-init", 2.0), ("w-zero", 0.0)):
        plans = plan_layers(light, Variant(name), RULES)
        assert list(plans) == ["conv", "head"]
        assert (plans["conv"].n_fix, plans["conv"].kappa, plans["conv"].fan_in) == (9, kappa, 27)
    model = variant_of(Net(), "w")
    assert plans["conv"].trainable == model.conv.n_trainable


def test_sigma_without_an_input_is_an_error():
    with pytest.raises(ValueError, match="example_input: None; 'sigma' reads the widths"):
        apply_variant(Net(), Variant("sigma"))


def test_a_masked_network_is_not_masked_again():
    with pytest.raises(ValueError, match="'conv' is masked already"):
        apply_variant(variant_of(Net(), "w"), Variant("w"), rules=RULES)


def test_shared_weights_are_refused():
    tied = nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 9, bias=False))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="'0' and '1' share a weight"):
        apply_variant(tied, Variant("w"))


class Bypassing(nn.Module):
    """Reads the weight of a layer without calling it, as some attention layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(9, 9), nn.Linear(9, 4)

    def forward(self, x):
        return self.b(nn.functional.linear(x, self.a.weight))


def test_a_layer_whose_weight_is_read_past_its_forward_is_found_by_an_example():
    with pytest.raises(ValueError, match="'a' is not called for this example_input"):
        apply_variant(Bypassing(), Variant("w"), example_input=torch.zeros(1, 9))
    model = apply_variant(Bypassing(), Variant("w"), rules=[LayerRule("a", n_fix=0)], example_input=torch.zeros(1, 9))
    assert isinstance(model.b, MaskedLayer)
    assert not isinstance(model.a, MaskedLayer)


def test_a_refused_model_is_unchanged():
    model = Bypassing()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="'a'"):
        apply_variant(model, Variant("w-init"), example_input=torch.zeros(1, 9))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_one_module_at_two_names_is_replaced_at_both():
    shared = nn.Linear(9, 9)
    model = apply_variant(nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)}), Variant("w"))
    assert model["a"] is model["b"][0]
    assert isinstance(model["a"], WAsymLinear)
    assert count_trainable(model) == model["a"].n_trainable + 9


def test_the_root_itself_can_be_replaced():
    model = apply_variant(nn.Linear(9, 4), Variant("w"))
    assert isinstance(model, WAsymLinear)
    assert replace_modules(model, {"": nn.Identity()}).__class__ is nn.Identity


def test_count_leaves_out_what_is_frozen():
    model = variant_of(Net(), "w")
    total = count_trainable(model)
    model.head.weight.requires_grad_(False)
    assert count_trainable(model) == total - model.head.n_trainable
    assert count_trainable(nn.ReLU()) == 0


@pytest.mark.parametrize(
    ("scale", "width", "expected"),
    [(1.0, 9, 1.0), ("1", 9, 1.0), ("1/sqrt(d)", 16, 0.25), (".01 / sqrt(d)", 4, 0.005), ("3/sqrt(d)", 9, 1.0)],
)
def test_scales(scale, width, expected):
    assert resolve_scale(scale, width) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "v"}, "variant: 'v'; choose from standard, w, sigma, w-zero, w-init, w-scale, bias"),
        ({"kappa": -1.0}, "kappa: -1.0"),
        ({"kappa": math.nan}, "kappa: nan"),
        ({"name": "w-zero", "kappa": 1.0}, "kappa: 1 contradicts variant w-zero"),
        ({"n_fix_scale": 0.0}, "n_fix_scale: 0.0"),
        ({"n_fix_scale": math.inf}, "n_fix_scale: inf"),
        ({"bias_range": 0.0}, "bias_range: 0.0"),
        ({"gate": "relu"}, "gate: 'relu'; choose from sigmoid, cosine"),
        ({"figlu_scale": "1/d"}, "figlu_scale: '1/d'; must be a number above 0 or of the form"),
        ({"figlu_scale": 0.0}, "figlu_scale: 0.0"),
    ],
)
def test_variants_check_their_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        Variant(**fields)
