"""Masked layers: the function they compute, and everything that must not move their constants."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from asym.nn.masked import MaskedLayer, check_fixed
from asym.nn.w_asym import WAsymConv2d, WAsymLinear


def linear(seed: int = 0, **options) -> WAsymLinear:
    return WAsymLinear(6, 8, **({"n_fix": 2, "kappa": 1.5, "seed": seed, "name": "linear"} | options))


def conv(seed: int = 0, **options) -> WAsymConv2d:
    return WAsymConv2d(3, 8, 3, **({"n_fix": 7, "kappa": 1.5, "seed": seed, "name": "conv", "padding": 1} | options))


def network(seed: int = 0) -> nn.Sequential:
    """A masked convolution and a masked linear layer, 3 × 5 × 5 → 4."""
    return nn.Sequential(
        conv(seed), nn.ReLU(), nn.Flatten(), WAsymLinear(200, 4, n_fix=50, kappa=2.0, seed=seed, name="head")
    )


def constants(model: nn.Module) -> list[torch.Tensor]:
    """The effective weights at the fixed entries."""
    return [m.effective_weight.detach()[~m.mask] for m in model.modules() if isinstance(m, MaskedLayer)]


def assert_same_constants(model: nn.Module, before: list[torch.Tensor]) -> None:
    after = constants(model)
    assert len(after) == len(before) > 0
    assert all(torch.equal(a, b) for a, b in zip(after, before))
    assert check_fixed(model) == len(before)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        x = torch.randn(8, 3, 5, 5, generator=generator)
        y = torch.randint(4, (8,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


# --- the function


def test_a_layer_worked_by_hand():
    layer = WAsymLinear(2, 2, n_fix=1, kappa=1.0, seed=0, name="hand")
    layer.mask.copy_(torch.tensor([[True, False], [False, True]]))
    layer.fixed.copy_(torch.tensor([[9.0, 5.0], [7.0, 9.0]]))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 100.0], [100.0, 2.0]]))
        layer.bias.copy_(torch.tensor([10.0, 20.0]))
    assert torch.equal(layer.effective_weight, torch.tensor([[1.0, 5.0], [7.0, 2.0]]))
    # (1·3 + 5·4 + 10, 7·3 + 2·4 + 20)
    assert torch.equal(layer(torch.tensor([[3.0, 4.0]])), torch.tensor([[33.0, 49.0]]))


def test_the_convolution_equals_a_plain_one_with_the_effective_weight():
    x = torch.randn(2, 4, 9, 9)
    for options in (
        {},
        {"stride": 2, "padding": 1},
        {"groups": 2, "bias": False},
        {"padding": 2, "padding_mode": "reflect", "dilation": 2},
        {"padding": "same"},
    ):
        layer = WAsymConv2d(4, 6, 3, n_fix=5, kappa=1.0, seed=0, name="c", **options)
        plain = nn.Conv2d(4, 6, 3, **options)
        with torch.no_grad():
            plain.weight.copy_(layer.effective_weight)
            if plain.bias is not None:
                plain.bias.copy_(layer.bias)
        assert torch.equal(layer(x), plain(x))
        assert torch.equal(layer.to_plain()(x), plain(x))


def test_the_gradient_is_that_of_the_plain_layer_at_trainable_entries_and_zero_elsewhere():
    layer = linear()
    x, target = torch.randn(10, 6), torch.randn(10, 8)
    F.mse_loss(layer(x), target).backward()
    weight = layer.effective_weight.detach().requires_grad_()
    F.mse_loss(F.linear(x, weight, layer.bias), target).backward()
    assert torch.equal(layer.weight.grad[layer.mask], weight.grad[layer.mask])
    assert weight.grad[~layer.mask].abs().min() > 0
    assert torch.equal(layer.weight.grad[~layer.mask], torch.zeros(16))


def test_double_backward():
    layer = linear().double()
    x = torch.randn(3, 6, dtype=torch.double)

    def function(weight):
        return functional_call(layer, {"weight": weight}, (x,)).tanh().sum()

    assert torch.autograd.gradgradcheck(function, (torch.randn(8, 6, dtype=torch.double, requires_grad=True),))


def test_names_and_counts():
    layer = linear()
    assert set(layer.state_dict()) == {"weight", "bias", "mask", "fixed"}
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert layer.n_trainable == 8 * 4
    assert repr(layer) == ("WAsymLinear(in_features=6, out_features=8, bias=True, n_fix=2, kappa=1.5, trainable=32/48)")
    wide = WAsymConv2d(6, 8, 3, n_fix=2, kappa=1.0, seed=0, name="c", granularity="channel", bias=False)
    assert "n_fix=2 channels, kappa=1, trainable=288/432" in repr(wide)
    assert wide.bias is None


def test_modes_reach_the_mask():
    assert linear(n_fix=0, mode="fewest").n_trainable == 48 - 6 - 2  # one full row, six 1-subsets, one 2-subset
    assert linear(n_fix=1, mode="at-least").n_trainable == 48 - 6 - 4


@pytest.mark.parametrize("options", [{"n_fix": 6}, {"n_fix": 0}, {"kappa": -1.0}, {"mode": "x"}])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bad_arguments_are_errors_on_every_device(options, device):
    with pytest.raises(ValueError, match=next(iter(options))):
        linear(**options, device=device)


# --- start values


def test_start_values_are_pytorchs_with_zeros_under_the_constants():
    layer = WAsymLinear(400, 500, n_fix=100, kappa=3.0, seed=0, name="a")
    values = layer.weight.detach()[layer.mask]
    assert values.abs().max() <= 1 / 20
    assert abs(values.std() - 1 / 20 / 3**0.5) < 1e-4
    assert (layer.weight[~layer.mask] == 0).all()
    assert layer.bias.abs().max() <= 1 / 20


def test_reset_parameters_draws_from_the_generator_it_is_given():
    a, b = linear(), linear()
    assert not torch.equal(a.weight, b.weight)
    for layer in (a, b):
        layer.reset_parameters(torch.Generator().manual_seed(3))
    assert torch.equal(a.weight, b.weight)
    assert torch.equal(a.bias, b.bias)
    state = torch.get_rng_state()
    a.reset_parameters(torch.Generator().manual_seed(4))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(a.weight, b.weight)


def test_from_plain_keeps_trainable_values_and_settings():
    state = torch.get_rng_state()
    plain = nn.Conv2d(4, 6, (3, 1), stride=2, padding="valid", groups=2, bias=False).eval()
    torch.set_rng_state(state)
    plain.weight.requires_grad_(False)
    layer = WAsymConv2d.from_plain(plain, n_fix=2, kappa=1.0, seed=0, name="x")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(layer.weight[layer.mask], plain.weight[layer.mask])
    assert (layer.stride, layer.padding, layer.groups, layer.bias) == (plain.stride, plain.padding, 2, None)
    assert not layer.weight.requires_grad
    assert not layer.training
    half = WAsymLinear.from_plain(nn.Linear(9, 4).bfloat16(), n_fix=2, kappa=1.0, seed=0, name="x")
    assert half.fixed.dtype == half.weight.dtype == torch.bfloat16


# --- nothing moves the constants


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.5),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.5),
        lambda p: torch.optim.RMSprop(p, 0.01, weight_decay=0.5, momentum=0.9),
    ],
    ids=["sgd", "nesterov", "adamw", "adam", "rmsprop"],
)
def test_optimisers(make):
    model = network()
    before, start = constants(model), copy.deepcopy(model)
    trained(model, make(model.parameters()))
    assert_same_constants(model, before)
    for old, new in zip(start, model):
        if isinstance(new, MaskedLayer):
            assert (new.weight[new.mask] != old.weight[old.mask]).all()
            # raw entries under a constant stay zero, so norms of parameters count trainable entries alone
            assert (new.weight[~new.mask] == 0).all()


def test_noise_on_every_parameter_reaches_no_constant():
    model = network()
    before = constants(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert_same_constants(model, before)


def test_a_layer_that_overwrites_its_weight_would_fail_the_same_check():
    model = network()
    before = constants(model)
    model[0].mask.fill_(True)  # the constants now count as trainable
    trained(model, torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1))
    with pytest.raises(AssertionError):
        assert_same_constants(model, before)


def test_deepcopy_then_training():
    model = network()
    before = constants(model)
    copied = copy.deepcopy(model)
    trained(copied, torch.optim.SGD(copied.parameters(), 0.1, momentum=0.9, weight_decay=0.1))
    assert_same_constants(copied, before)
    assert_same_constants(model, before)
    assert copied[0].mask.data_ptr() != model[0].mask.data_ptr()


def test_autocast_to_bfloat16():
    model = network()
    before = constants(model)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(torch.randn(4, 3, 5, 5))
    assert output.dtype == torch.bfloat16
    output.float().square().mean().backward()
    optimizer.step()
    assert model[0].weight.grad.dtype == torch.float32
    assert_same_constants(model, before)


def test_state_dict_round_trip_takes_over_mask_and_constants():
    source, target = network(seed=0), network(seed=1)
    assert not torch.equal(source[0].mask, target[0].mask)
    target.load_state_dict(copy.deepcopy(source.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(constants(source), constants(target)))
    x = torch.randn(2, 3, 5, 5)
    assert torch.equal(source(x), target(x))
    before = constants(source)
    trained(target, torch.optim.SGD(target.parameters(), 0.1, weight_decay=0.1))
    assert all(torch.equal(a, b) for a, b in zip(constants(target), before))
    with pytest.raises(ValueError, match="mask is not what seed 1"):
        check_fixed(target)


def test_the_state_dict_of_the_plain_layer_fits():
    plain, layer = nn.Linear(6, 8), linear()
    before = constants(layer)
    missing = layer.load_state_dict(plain.state_dict(), strict=False)
    assert set(missing.missing_keys) == {"mask", "fixed"}
    assert missing.unexpected_keys == []
    assert torch.equal(layer.effective_weight[layer.mask], plain.weight[layer.mask])
    assert_same_constants(layer, before)


def test_meta_device_then_to_empty_then_reset():
    before = constants(network())
    with torch.device("meta"):
        model = network()
    assert model[0].mask.is_meta
    assert model[0].fixed.is_meta
    assert model[0].n_trainable == network()[0].n_trainable
    assert "trainable=160/216" in repr(model)
    model.to_empty(device="cpu")
    for layer in (model[0], model[3]):
        layer.mask.zero_()
        layer.reset_parameters(torch.Generator().manual_seed(0))
    assert_same_constants(model, before)
    assert (model[0].weight[model[0].mask] != 0).all()


def test_dtypes():
    model = network()
    before = constants(model)
    model.to(torch.float64)
    assert model[0].mask.dtype == torch.bool
    assert all(torch.equal(a, b.double()) for a, b in zip(constants(model), before))
    assert check_fixed(model) == 2
    model.to(torch.bfloat16)
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(constants(model), before))
    assert check_fixed(model) == 2
    # built in a dtype or moved to it: the same constants
    built = linear(dtype=torch.float64)
    assert torch.equal(built.fixed, linear().double().fixed)


def test_channels_last():
    model, x = network(), torch.randn(2, 3, 5, 5)
    before, expected = constants(model), model(x)
    model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), expected)
    assert_same_constants(model, before)


def test_functional_call_and_vmap_over_stacked_networks():
    models = [network() for _ in range(3)]
    before = constants(models[0])
    parameters, buffers = stack_module_state(models)
    shared = {name: value[0] for name, value in buffers.items()}
    base = copy.deepcopy(models[0]).to("meta")
    x, y = torch.randn(5, 3, 5, 5), torch.randint(4, (5,))

    def loss(parameters):
        return F.cross_entropy(functional_call(base, (parameters, shared), (x,)), y)

    gradients = vmap(grad(loss))(parameters)
    for i, model in enumerate(models):
        F.cross_entropy(model(x), y).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name][i], parameter.grad, rtol=1e-4, atol=1e-6)
    assert (gradients["0.weight"][:, ~models[0][0].mask] == 0).all()
    stepped = {name: value - 0.1 * (gradients[name] + 0.1 * value) for name, value in parameters.items()}
    for i in range(3):
        models[i].load_state_dict({name: value[i] for name, value in stepped.items()}, strict=False)
        assert_same_constants(models[i], before)


def test_vmap_over_masks_too():
    """Networks with masks of their own can be stacked as well."""
    layers = [linear(seed) for seed in range(4)]
    parameters, buffers = stack_module_state(layers)
    x = torch.randn(7, 6)
    outputs = vmap(lambda p, b: functional_call(layers[0], (p, b), (x,)))(parameters, buffers)
    for output, layer in zip(outputs, layers):
        torch.testing.assert_close(output, layer(x))


def test_check_fixed_names_the_layer_that_was_written_to():
    model = network()
    assert check_fixed(model) == 2
    model[3].fixed[0, 0] += 1e-7
    with pytest.raises(ValueError, match=r"3: fixed is not what seed 0, name 'head' give"):
        check_fixed(model)
    model[3].reset_constants()
    assert check_fixed(model) == 2
    model[0].mask[0, 0, 0, 0] ^= True
    with pytest.raises(ValueError, match="0: mask"):
        check_fixed(model)
    assert check_fixed(nn.Linear(2, 2)) == 0
