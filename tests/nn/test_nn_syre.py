"""SyRe: the network computes with θ + θ₀, keeps its names, and weight decay pulls towards θ₀."""

import copy

import pytest
import torch
from torch import nn

from asym.models import build
from asym.nn import ShiftedLayer, Variant, apply_variant, to_plain
from asym.nn.syre import shift_parameters

X = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
SMALL = {"input_shape": (1, 8, 8), "classes": 10, "width": 0.125}


def _net(arch="resnet8", variant="syre", norm=None, **options):
    return build(arch, variant=Variant(variant, **options), norm=norm, seed=1, **SMALL)


@pytest.mark.parametrize(("arch", "norm"), [("resnet8", "group"), ("resnet8", "batch"), ("mlp", "layer")])
def test_the_function_is_that_of_the_shifted_parameters(arch, norm):
    net, plain = _net(arch, norm=norm, syre_scale=0.1), _net(arch, "standard", norm)
    buffers = dict(net.named_buffers())
    assert [n for n, _ in net.named_parameters()] == [n for n, _ in plain.named_parameters()]
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            shift = buffers[f"{name}_fixed"]
            assert shift.std() > 0.03 or shift.numel() < 4
            parameter += shift
    for mode in (True, False):
        assert torch.equal(net.train(mode)(X), plain.train(mode)(X))


def test_every_gradient_reaches_theta_and_nothing_is_left_behind():
    net = _net()
    net(X).logsumexp(1).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    for module in net.modules():
        assert not {"weight", "bias"} & set(vars(module))
    with pytest.raises((RuntimeError, ValueError)):
        net(X[:, :, 0])
    assert all(not {"weight", "bias"} & set(vars(module)) for module in net.modules())


def test_sizes_of_the_shifts():
    net = build("mlp", variant=Variant("syre"), **SMALL | {"width": 1.0})
    buffers = dict(net.named_buffers())
    for name, d in (("hidden.1.linear.weight", 512), ("hidden.0.linear.bias", 64), ("hidden.2.norm.weight", 512)):
        assert buffers[f"{name}_fixed"].std().item() == pytest.approx(0.01 / d**0.5, rel=0.15)
    twice = build("mlp", variant=Variant("syre", syre_scale="0.02/sqrt(d)"), **SMALL | {"width": 1.0})
    torch.testing.assert_close(
        dict(twice.named_buffers())["head.weight_fixed"], 2 * buffers["head.weight_fixed"], rtol=1e-6, atol=0
    )


def test_networks_of_one_mask_seed_share_theta_0():
    def of(mask_seed, seed):
        return dict(build("mlp", variant=Variant("syre", mask_seed), seed=seed, **SMALL).named_buffers())

    assert all(torch.equal(a, b) for a, b in zip(of(0, 1).values(), of(0, 2).values(), strict=True))
    assert not torch.equal(of(0, 1)["head.weight_fixed"], of(1, 1)["head.weight_fixed"])


def test_plain_form_and_copies():
    net = _net(syre_scale=0.1)
    plain = to_plain(net)
    assert not any(isinstance(m, ShiftedLayer) for m in plain.modules())
    assert list(plain.state_dict()) == list(_net(variant="standard").state_dict())
    assert torch.equal(plain.eval()(X), net.eval()(X))
    again = copy.deepcopy(net)
    assert torch.equal(again(X), net(X))
    assert isinstance(again.head, nn.Linear)
    again.load_state_dict(net.state_dict())


def test_vmap_over_stacked_networks():
    nets = [_net("mlp", syre_scale=0.1), build("mlp", variant=Variant("syre", syre_scale=0.1), seed=7, **SMALL)]
    stacked = {n: torch.stack([dict(m.named_parameters())[n] for m in nets]) for n, _ in nets[0].named_parameters()}
    out = torch.func.vmap(lambda p: torch.func.functional_call(nets[0], p, (X,)))(stacked)
    torch.testing.assert_close(out, torch.stack([net(X) for net in nets]))


def _swap(module):
    """The first two hidden units of Linear → ReLU → Linear exchanged."""
    order = torch.tensor([1, 0, 2, 3])
    with torch.no_grad():
        for key, index in (("0.weight", (order,)), ("0.bias", (order,)), ("2.weight", (slice(None), order))):
            parameter = module.get_parameter(key)
            parameter.copy_(parameter[index].clone())
    return module


@pytest.mark.parametrize("scale", [0.3, None])
def test_the_penalty_loses_the_symmetry_and_the_function_keeps_it(scale):
    """‖Pφ − θ₀‖² − ‖φ − θ₀‖² = 2⟨φ, θ₀ − Pᵀθ₀⟩; with θ₀ = 0 it is zero."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    swapped = _swap(copy.deepcopy(plain))
    torch.testing.assert_close(swapped(x), plain(x))
    shifts = {n: torch.zeros_like(p) for n, p in plain.named_parameters()}
    if scale is not None:
        shifted = apply_variant(copy.deepcopy(plain), Variant("syre", syre_scale=scale))
        shifts = {n.removesuffix("_fixed"): b for n, b in shifted.named_buffers()}

    def penalty(net):
        return sum(((p - shifts[n]) ** 2).sum() for n, p in net.named_parameters())

    difference = (penalty(swapped) - penalty(plain)).item()
    turned = dict(_swap(_filled(plain, shifts)).named_parameters())
    expected = 2 * sum((p * (shifts[n] - turned[n])).sum() for n, p in plain.named_parameters())
    assert difference == pytest.approx(expected.item(), abs=1e-12)
    assert (abs(difference) > 1e-2) == (scale is not None)


def _filled(plain, values):
    other = copy.deepcopy(plain)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(values[name])
    return other


def test_a_step_with_weight_decay_is_one_towards_theta_0():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    net = apply_variant(copy.deepcopy(plain), Variant("syre", syre_scale=0.3))
    start = to_plain(net)
    x, lr, decay = torch.randn(6, 3, dtype=torch.float64), 0.1, 0.5
    optimizer = torch.optim.SGD(net.parameters(), lr, weight_decay=decay)
    net(x).pow(2).sum().backward()
    optimizer.step()
    start(x).pow(2).sum().backward()
    shifts, after = dict(net.named_buffers()), dict(to_plain(net).named_parameters())
    for name, phi in start.named_parameters():
        expected = phi - lr * (phi.grad + decay * (phi - shifts[f"{name}_fixed"]))
        torch.testing.assert_close(after[name], expected)


def test_what_cannot_be_shifted_is_refused():
    with pytest.raises(ValueError, match="shifted already"):
        shift_parameters(_net(), lambda d: 0.1, 0)
    with pytest.raises(ValueError, match="MultiheadAttention"):
        shift_parameters(nn.Sequential(nn.MultiheadAttention(4, 2)), lambda d: 0.1, 0)
    with pytest.raises(ValueError, match="syre_scale"):
        Variant("syre", syre_scale="1/d")
