"""Readers of residual networks keep the laws of streams, before and after training; the wrong group is seen."""

import pytest
import torch
from chain_nets import chain, train
from chain_nets import random_stack as random_chains
from residual_nets import NETS, SHAPE, batch_network, network, random_stack, resnet8

from asym.metanets import NFN, ScaleGMN, Stack, build, matched_width, predict, residual_of
from asym.metanets.scale_gmn.normed import relative
from asym.models import build as build_network
from asym.seeds import torch_generator
from asym.symmetry.chain import chain_of
from asym.symmetry.residual_actions import scale_before_norms
from asym.symmetry.scaling import permute_units, random_factors, random_orders, scale_units

LIMIT = 1e-6
SHORT = {"rounds": 2, "readout": "full"}


def make(name, width=6, seed=0, **options):
    torch.manual_seed(seed)
    return ScaleGMN(network(name), width=width, **options).double().eval()


def moved(stack, *, permute=True, scale=True, seed=3):
    residual, lead, generator = stack.chain, (len(stack),), torch_generator(seed, "act")
    tensors = stack.tensors
    if scale:
        tensors = scale_units(residual, random_factors(residual, lead, generator, ratio=64.0), tensors)
    if permute:
        tensors = permute_units(residual, random_orders(residual, lead, generator), tensors)
    return stack.replace(tensors)


@torch.no_grad()
def error(model, stack, after):
    """Largest change of an output, divided by the spread of outputs over networks."""
    a, b = predict(model, stack), predict(model, after)
    spread = a.std(0)
    assert (spread > 1e-8 * a.abs().max()).all()
    return float(((a - b).abs().max(0).values / spread).max())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_invariance_before_and_after_training(name, direction):
    model, stack = make(name, direction=direction, **SHORT), random_stack(name)
    for _ in range(2):
        assert error(model, stack, moved(stack)) < LIMIT
        train(model, stack, steps=2)
    assert error(model, stack, moved(stack, permute=False)) < LIMIT


def test_as_many_rounds_as_layers_reach_the_output():
    model, stack = make("resnet8"), random_stack("resnet8")
    assert len(model.rounds) == 8
    assert error(model, stack, moved(stack)) < LIMIT


@pytest.mark.parametrize(
    "options",
    [
        {"readout": "full", "receiver": True, "rounds": 2},
        {"readout": "mean", "mean": True, "projection": "shared", "rounds": 2},
        {"readout": "full", "edge_updates": False, "skip": False, "norm": False, "rounds": 2},
        {"direction": "bidirectional", "squash": True, "sign": "canonicalise", "readout": "mean", "rounds": 2},
    ],
)
@pytest.mark.parametrize("name", ["resnet8", "mixed"])
def test_every_option_keeps_the_law(options, name):
    model, stack = make(name, **options), random_stack(name)
    assert error(model, stack, moved(stack)) < LIMIT


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_permutations_alone(name, direction):
    model, stack = make(name, law="permutation", direction=direction, **SHORT), random_stack(name)
    for _ in range(2):
        assert error(model, stack, moved(stack, scale=False)) < LIMIT
        assert error(model, stack, moved(stack, permute=False)) > 1e-2
        train(model, stack, steps=2)


@pytest.mark.parametrize("name", ["gmn", "stats", "flat", "deepsets", "nfn-hnp"])
def test_the_gauge_makes_every_reader_forget_factors(name):
    stack = random_stack("resnet8")
    options = {"width": 6} if name in ("gmn", "nfn-hnp") else {}
    reader = build(name, stack.chain, gauge=True, **options).double()
    whole = stack.rows(torch.tensor([0, 3, 4, 5]))
    assert error(reader, whole, moved(whole, permute=False)) < LIMIT
    assert error(build(name, stack.chain, **options).double(), whole, moved(whole, permute=False)) > 1e-3


@pytest.mark.parametrize("group", ["np", "hnp"])
@pytest.mark.parametrize("name", ["resnet8", "folded"])
def test_neural_functionals_of_streams(name, group):
    stack = random_stack(name)
    torch.manual_seed(0)
    model = NFN(stack.chain, group=group, channels=(3, 2), width=8).double()
    assert error(model, stack, moved(stack, scale=False)) < LIMIT
    assert error(model, stack, moved(stack, permute=False)) > 1e-3
    # channels of one layer of a stream alone may not move
    (write,) = stack.chain.nodes[3].writes
    keys = [key for key in (write.layer.weight, write.layer.bias, write.gain, write.shift) if key]
    turned = stack.replace(dict(stack.tensors) | {key: stack.tensors[key].flip(1) for key in keys})
    assert error(model, stack, turned) > 1e-3


def test_neural_functionals_refuse_a_layer_within_a_stream():
    with pytest.raises(ValueError, match="'d' reads the stream that it writes to"):
        NFN(network("mixed"))


@pytest.mark.parametrize("name", ["resnet8", "folded"])
def test_must_fail_what_ties_a_stream_together(name):
    stack = random_stack(name)
    (write,) = stack.chain.nodes[3].writes
    keys = [key for key in (write.gain, write.shift) if key] or [write.layer.weight, write.layer.bias]
    doubled = stack.replace(dict(stack.tensors) | {key: 2 * stack.tensors[key] for key in keys})
    rows = [*keys, write.layer.weight] if write.gain else keys
    turned = stack.replace(dict(stack.tensors) | {key: stack.tensors[key].flip(1) for key in rows})
    model = make(name, **SHORT)
    assert error(model, stack, doubled) > 1e-3
    assert error(model, stack, turned) > 1e-3
    assert error(make(name, law="permutation", **SHORT), stack, turned) > 1e-3


def test_must_fail_rows_before_a_norm_and_a_whole_layer_does_not():
    stack, residual = random_stack("resnet8"), network("resnet8")
    model, weight = make("resnet8", **SHORT), residual.layers[1].weight
    one = dict(stack.tensors)
    one[weight] = one[weight] * torch.tensor([2.0, 1.0])[:, None, None, None]
    assert error(model, stack, stack.replace(one)) > 1e-3
    c = torch.rand(6, generator=torch_generator(0, "c"), dtype=torch.float64) * 60 + 0.02
    whole = scale_before_norms(residual, {weight: c}, stack.tensors)
    assert error(model, stack, stack.replace(whole)) < LIMIT
    assert error(make("resnet8", direction="bidirectional", **SHORT), stack, stack.replace(whole)) < LIMIT
    assert error(make("resnet8", law="permutation", **SHORT), stack, stack.replace(whole)) > 1e-3


def test_shifts_of_two_writes_count_as_their_sum():
    stack = random_stack("resnet8")
    a, b = (write.shift for write in stack.chain.nodes[5].writes)
    t = dict(stack.tensors)
    t[a], t[b] = t[a] + 0.7, t[b] - 0.7
    for law in ("scale", "permutation"):
        model = make("resnet8", law=law, **SHORT)
        assert error(model, stack, stack.replace(t)) < LIMIT
        assert error(model, stack, stack.replace(dict(stack.tensors) | {a: t[a]})) > 1e-3


@torch.no_grad()
def test_states_scale_with_their_streams():
    model, stack = make("mixed", **SHORT), random_stack("mixed")
    factors = random_factors(stack.chain, (6,), torch_generator(5, "q"), ratio=16.0)
    of_stream = dict(zip(stack.chain.streams, factors))
    before, after = (
        model.states(s)[0] for s in (stack, stack.replace(scale_units(stack.chain, factors, stack.tensors)))
    )
    for node, h, g in zip(stack.chain.hidden, before[1:-1], after[1:-1]):
        expected = h * of_stream[node.stream].t()[..., None]
        torch.testing.assert_close(g, expected, rtol=1e-9, atol=1e-12 * float(expected.abs().max()))


def test_a_chain_read_as_a_residual_network_gives_the_same_bits():
    module = build_network("small-cnn", input_shape=SHAPE, classes=3, width=0.25)
    as_chain, as_residual = (read(module, torch.zeros(2, *SHAPE)) for read in (chain_of, residual_of))
    tensors = random_chains(as_chain, dtype=torch.float32).tensors
    for name in ("gmn", "scale-gmn", "scale-gmn-b", "nfn-np"):
        one, two = (build(name, frame, width=6) for frame in (as_chain, as_residual))
        assert torch.equal(one(Stack(as_chain, tensors)), two(Stack(as_residual, tensors)))


@torch.no_grad()
def test_one_batch_of_chains_and_residual_networks():
    frames = [network("resnet8"), chain("relu cnn"), network("mixed"), chain("siren"), network("folded")]
    stacks = [random_stack(n, 3) if n else random_chains(f, 3) for n, f in
              zip(("resnet8", None, "mixed", None, "folded"), frames)]  # fmt: skip
    for law in ("scale", "permutation"):
        torch.manual_seed(0)
        model = ScaleGMN(frames, width=6, rounds=3, law=law).double().eval()
        together = model(stacks)
        assert torch.equal(together, torch.cat([model(stack) for stack in stacks]))
        after = model([moved(stack, scale=law == "scale") for stack in stacks])
        assert float((after - together).abs().max() / together.std()) < LIMIT


def test_relative_by_hand():
    x = torch.tensor([[[3.0, 0.0]], [[0.0, 4.0]]])  # two units, one network, two channels: norms 3 and 4
    assert torch.allclose(relative(x), x / (25 / 2) ** 0.5)
    assert torch.equal(relative(torch.zeros(2, 1, 3)), torch.zeros(2, 1, 3))


def test_equal_parameters_and_what_cannot_be():
    residual = residual_of(resnet8(width=1.0), torch.zeros(2, *SHAPE))
    options = {"rounds": 3, "readout": "full"}
    with torch.device("meta"):
        wanted = sum(p.numel() for p in ScaleGMN(residual, width=16, **options).parameters())
        width = matched_width(residual, wanted, law="permutation", **options)
        plain = ScaleGMN(residual, width=width, law="permutation", **options)
    assert sum(p.numel() for p in plain.parameters()) == pytest.approx(wanted, rel=0.05)
    with pytest.raises(ValueError, match="output: 'weights' writes chains of layers only"):
        ScaleGMN(residual, output="weights")
    with pytest.raises(ValueError, match="backward: 'pinv' reads chains of layers only"):
        ScaleGMN(residual, direction="bidirectional", backward="pinv")
    with pytest.raises(ValueError, match="fold_batch_norms first"):
        ScaleGMN(batch_network())
