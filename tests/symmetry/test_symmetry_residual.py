"""Residual networks: what is read off a module, what keeps its function and what does not."""

import pytest
import torch
from residual_nets import NETS, SHAPE, Mixed, batch_network, function, network, random_stack, random_tensors, resnet8
from torch import nn

from asym.models import build
from asym.seeds import torch_generator
from asym.symmetry.chain import chain_of
from asym.symmetry.residual import Node, Residual, fold_batch_norms, wires_of
from asym.symmetry.residual_actions import permute_streams, scale_before_norms, scale_streams
from asym.symmetry.residual_trace import residual_of
from asym.symmetry.scaling import gauge_fix, permute_units, random_factors, random_orders, scale_units

X = torch.randn(3, *SHAPE, generator=torch_generator(0, "x"), dtype=torch.float64)


def change(name, before, after):
    """Largest change of the functions of a stack's networks, relative to their outputs."""
    found = []
    for i in range(len(next(iter(before.values())))):
        a, b = function(name, before, i, X), function(name, after, i, X)
        found.append(float((a - b).abs().max() / a.abs().max()))
    return max(found)


def test_a_resnet8_by_hand():
    found = network("resnet8")
    assert found.sizes == (1, 2, 2, 2, 4, 4, 8, 8, 3)
    assert found.streams == {1: 2, 2: 2, 4: 4, 5: 4, 6: 8, 7: 8}
    assert [node.skips for node in found.nodes] == [(), (), (), (1,), (), (), (), (), ()]
    assert [[w.source for w in node.writes] for node in found.nodes] == [
        [], [0], [1], [2], [3], [4, 3], [5], [6, 5], [7]
    ]  # fmt: skip
    assert found.nodes[5].writes[1].layer.weight == "stages.1.0.shortcut.conv.weight"
    assert list(found.shapes) == [name for name, _ in resnet8().named_parameters()]
    wires = wires_of(found)
    assert wires.depth == 8
    assert wires.skips == ((1, 3),)
    assert wires.biases[5] == ("stages.1.0.norm2.bias", "stages.1.0.shortcut.norm.bias")
    assert wires.gains[-1] is None
    assert wires.into(5) == [5, 6]
    assert wires.out_of(3) == [4, 6]


def test_streams_allow_what_all_their_activations_allow():
    found = network("mixed")
    kinds = {stream: found.nodes[stream].symmetry for stream in found.streams}
    # tanh with a norm; ReLU; the bias c with its ReLU and two sums; GELU
    assert list(kinds.values()) == ["sign", "scale", "scale", "none"]
    assert list(found.streams.values()) == [4, 3, 5, 2]


@pytest.mark.parametrize("name", NETS)
def test_the_group_keeps_the_function(name):
    stack, generator = random_stack(name), torch_generator(1, "act")
    residual, lead = stack.chain, (len(stack),)
    factors = random_factors(residual, lead, generator, ratio=64.0)
    scaled = scale_units(residual, factors, stack.tensors)
    assert change(name, stack.tensors, scaled) < 1e-12
    moved = permute_units(residual, random_orders(residual, lead, generator), scaled)
    assert change(name, stack.tensors, moved) < 1e-12
    assert any(not torch.equal(moved[key], scaled[key]) for key in moved)


@pytest.mark.parametrize("name", NETS)
def test_the_gauge_is_one_for_each_orbit(name):
    stack = random_stack(name)
    residual = stack.chain
    fixed = gauge_fix(residual, stack.tensors)
    assert change(name, stack.tensors, fixed) < 1e-12
    factors = random_factors(residual, (len(stack),), torch_generator(1, "act"), ratio=64.0)
    again = gauge_fix(residual, scale_units(residual, factors, stack.tensors))
    whole = [0, 3, 4, 5]  # a dead channel and a zero layer leave factors that nothing fixes
    for key, value in fixed.items():
        torch.testing.assert_close(again[key][whole], value[whole], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["resnet8", "folded"])
def test_must_fail_factors_of_one_layer_of_a_stream(name):
    stack = random_stack(name)
    residual = stack.chain
    lower, upper = residual.nodes[1], residual.nodes[3]
    assert lower.stream == upper.stream
    (write,) = upper.writes
    for key in (write.gain, write.shift) if write.norm == "group" else (write.layer.weight, write.layer.bias):
        changed = dict(stack.tensors)
        changed[key] = changed[key] * 2
        assert change(name, stack.tensors, changed) > 1e-2


def test_must_fail_rows_before_a_norm_have_no_factors_of_their_own():
    stack = random_stack("resnet8")
    changed = dict(stack.tensors)
    weight = stack.chain.layers[0].weight
    changed[weight] = changed[weight] * torch.tensor([2.0, 1.0])[:, None, None, None]
    assert change("resnet8", stack.tensors, changed) > 1e-2


def test_one_factor_for_a_whole_layer_before_a_norm_is_exact_without_epsilon(monkeypatch):
    stack = random_stack("resnet8")
    residual = stack.chain
    for key, t in stack.tensors.items():
        t[1:3] = t[:1]  # layers that are zero, or whose units are, have no direction
        if "norm" in key:
            t.abs_()
    names = [w.layer.weight for _, w in residual.writes if w.norm == "group"]
    c = {name: torch.rand(len(stack), generator=torch_generator(k, "c"), dtype=torch.float64) * 4 + 0.3
         for k, name in enumerate(names)}  # fmt: skip
    scaled = scale_before_norms(residual, c, stack.tensors)
    assert 1e-8 < change("resnet8", stack.tensors, scaled) < 0.05
    own = nn.functional.group_norm
    monkeypatch.setattr(nn.functional, "group_norm", lambda x, groups, w, b, eps: own(x, groups, w, b, 0.0))
    assert change("resnet8", stack.tensors, scaled) < 1e-12
    with pytest.raises(ValueError, match=r"'head.weight' has no norm behind it"):
        scale_before_norms(residual, {"head.weight": c[names[0]]}, stack.tensors)


def test_shifts_of_two_writes_to_one_layer_are_seen_as_a_sum():
    stack = random_stack("resnet8")
    a, b = wires_of(stack.chain).biases[5]
    t = dict(stack.tensors)
    t[a], t[b] = t[a] + 0.7, t[b] - 0.7
    assert change("resnet8", stack.tensors, t) < 1e-12


def test_batch_norm_is_folded_exactly_and_has_to_be():
    batch = batch_network()
    tensors = random_tensors(batch.shapes, 2)
    folded, plain = fold_batch_norms(batch, tensors)
    assert folded == network("folded")
    assert set(plain) == set(folded.shapes)
    module = resnet8("batch").double().eval()
    for i in range(2):
        own = torch.func.functional_call(module, {key: t[i] for key, t in tensors.items()}, (X,))
        torch.testing.assert_close(function("folded", plain, i, X), own, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="fold_batch_norms first"):
        wires_of(batch)
    with pytest.raises(ValueError, match="fold_batch_norms first"):
        gauge_fix(batch, tensors)


def test_a_chain_is_a_residual_network_with_the_same_actions():
    module = build("small-cnn", input_shape=SHAPE, classes=3, width=0.25)
    chain, residual = (read(module, torch.zeros(2, *SHAPE)) for read in (chain_of, residual_of))
    assert wires_of(chain) == wires_of(residual)
    assert chain.shapes == residual.shapes
    tensors, generator = random_tensors(chain.shapes, 3), torch_generator(0, "act")
    factors, orders = random_factors(chain, (3,), generator), random_orders(chain, (3,), generator)
    pairs = [
        (scale_units(chain, factors, tensors), scale_streams(residual, factors, tensors)),
        (permute_units(chain, orders, tensors), permute_streams(residual, orders, tensors)),
        (gauge_fix(chain, tensors), gauge_fix(residual, tensors)),
    ]
    for a, b in pairs:
        for key in a:
            torch.testing.assert_close(a[key], b[key], rtol=1e-12, atol=1e-14)


def test_what_does_not_fit_is_named():
    stack = random_stack("resnet8")
    residual, tensors = stack.chain, stack.tensors
    factors = random_factors(residual, (6,), torch_generator(0, "q"))
    orders = random_orders(residual, (6,), torch_generator(0, "p"))
    with pytest.raises(ValueError, match="factors: 5 for 6 hidden streams"):
        scale_streams(residual, factors[1:], tensors)
    with pytest.raises(ValueError, match=r"factors: stream 1 has shape \(6, 3\)"):
        scale_streams(residual, [torch.ones(6, 3), *factors[1:]], tensors)
    with pytest.raises(ValueError, match="not all factors of stream 1 are allowed by its symmetry 'scale'"):
        scale_streams(residual, [-factors[0], *factors[1:]], tensors)
    with pytest.raises(ValueError, match="perms: stream 1 has an entry that is not a permutation"):
        permute_streams(residual, [torch.zeros_like(orders[0]), *orders[1:]], tensors)
    with pytest.raises(ValueError, match="a skip to layer 1 does not fit"):
        Residual((Node(2), Node(3, skips=(0,))), ())
    with pytest.raises(ValueError, match="an input and an output"):
        Residual((Node(2),), ())


class Bad(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what
        self.conv, self.other = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2 if what == "groups" else 1, 4, affine=what != "affine")
        self.first, self.head = nn.Conv2d(1, 4, 1), nn.Linear(4, 3)

    def forward(self, x):
        h = self.first(x) if self.what == "input" else torch.relu(self.conv(x))
        match self.what:
            case "input":
                h = torch.relu(h) + x
            case "groups" | "affine":
                h = torch.relu(self.norm(self.other(h)))
            case "bias":
                h = torch.relu(self.norm(self.first(x)))
            case "norm":
                h = self.norm(h)
            case "twice":
                h = torch.relu(self.other(torch.relu(self.other(h))))
            case "softmax":
                h = self.other(h).softmax(1)
            case "product":
                h = h * self.other(h)
            case "shapes":
                h = h + self.head(h.mean((2, 3))).mean()
        h = self.head(h.mean((2, 3)))
        return torch.relu(h) if self.what == "end" else h


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("groups", "has 2 groups; norms of all channels at once"),
        ("affine", "has no weight and bias of its own"),
        ("bias", "'first' has a bias before a norm"),
        ("norm", "does not follow a layer"),
        ("twice", "'other.weight' is used twice"),
        ("softmax", "operation 'softmax' .* is unknown"),
        ("product", "operation 'mul' .* of 2 values is unknown"),
        ("end", "ends with an activation"),
        ("plain", "belongs to no layer or norm"),
        ("input", "adds 4 channels to 1"),
    ],
)
def test_networks_that_are_none_are_refused_in_a_line(what, message):
    with pytest.raises(ValueError, match=message) as error:
        residual_of(Bad(what), torch.zeros(2, *SHAPE))
    assert "\n" not in str(error.value)


def test_a_skip_of_the_input_leaves_no_group():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 1, 3, padding=1), nn.Linear(1, 3)

        def forward(self, x):
            return self.head((torch.relu(self.conv(x)) + x).mean((2, 3)))

    with pytest.raises(ValueError, match="joins hidden units with the input"):
        residual_of(Skip(), torch.zeros(2, *SHAPE))


def test_reading_a_module_leaves_its_mode():
    module = Mixed().train()
    residual_of(module, torch.zeros(2, *SHAPE))
    assert module.training
