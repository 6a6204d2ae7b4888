"""Readers of transformers: invariant, and able or not to see which heads belong together."""

import itertools

import pytest
import torch
from torch.nn import functional as F
from transformer_nets import CASES, deviation, made, randn, weights

from asym.metanets import Stack, predict
from asym.metanets.transformer_nfn import (
    HeadReadout,
    InvariantLayer,
    TransformerNFN,
    merge_heads,
    separate_heads,
)
from asym.metanets.transformer_nfn.units import UnitReader
from asym.models import build
from asym.symmetry.attention import FACTORS
from asym.symmetry.attention_more import transform
from asym.symmetry.encoder import Sizes, encoder_of, join, split


def zoo(n=24, *, heads=2, width=0.25, seed=0, dtype=torch.float64):
    """A stack of transformers with random weights, and its encoder."""
    net = build("transformer-plain", input_shape=(1, 8, 8), classes=3, width=width)
    shapes = {name: p.shape for name, p in net.named_parameters()}
    encoder = encoder_of(dict(net.named_parameters()), heads)
    tensors = {name: randn(n, *shape, seed=seed + k).to(dtype) / 2 for k, (name, shape) in enumerate(shapes.items())}
    return encoder, Stack(encoder, tensors)


def changed(encoder, stack, name, seed=1):
    blocks = transform(name, split(encoder, stack.tensors), torch.Generator().manual_seed(seed))
    return stack.replace({**stack.tensors, **join(encoder, blocks)})


@pytest.mark.parametrize(
    "options", [{}, {"rank": 2}, {"probes": 4}, {"channels": (4, 3), "probes": 4}, {"channels": ()}]
)
def test_readers_are_invariant_before_and_after_training(options):
    encoder, stack = zoo()
    reader = made(TransformerNFN, encoder, **options)
    reader.observe(stack)
    optimiser = torch.optim.Adam(reader.parameters(), lr=1e-2)
    for _ in range(2):
        before = predict(reader, stack)
        assert before.std() > 1e-3
        for name in FACTORS:
            assert float((predict(reader, changed(encoder, stack, name)) - before).abs().max() / before.std()) < 1e-9
        assert deviation(predict(reader, changed(encoder, stack, "relu-scale")), before) > 1e-4
        optimiser.zero_grad()
        reader(stack).square().mean().backward()
        assert all(p.grad is not None for p in reader.parameters())
        optimiser.step()


def test_sets_of_units_know_permutations_alone():
    """Heads, hidden units, the output axis and inner units of a head may be exchanged; other elements of GL may not."""
    encoder, stack = zoo()
    reader = made(UnitReader, encoder)
    reader.observe(stack)
    before = predict(reader, stack)
    for name in FACTORS:
        change = float((predict(reader, changed(encoder, stack, name)) - before).abs().max() / before.std())
        assert change > 1e-3 if name in ("query-key", "value-out") else change < 1e-9
    blocks = split(encoder, stack.tensors)
    flipped = [{**b, **{s: b[s].flip(-1) for s in "QKV"}, "O": b["O"].flip(-2)} for b in blocks]
    assert deviation(predict(reader, stack.replace({**stack.tensors, **join(encoder, flipped)})), before) < 1e-12
    assert deviation(predict(reader, repaired(encoder, stack)), before) > 1e-3  # it sees which heads belong together
    reader(stack).square().mean().backward()
    assert all(p.grad is not None for p in reader.parameters())
    with pytest.raises(ValueError, match="hidden: 0"):
        UnitReader(encoder, hidden=0)


def repaired(encoder, stack):
    """Each head's values and outputs handed to the next head: another function, the same sums over heads."""
    blocks = split(encoder, stack.tensors)
    moved = [{**b, **{s: b[s].roll(1, -3) for s in "VO"}} for b in blocks]
    return stack.replace({**stack.tensors, **join(encoder, moved)})


def test_published_layers_cannot_see_the_pairing_of_heads():
    encoder, stack = zoo()
    other = repaired(encoder, stack)
    net = build("transformer-plain", input_shape=(1, 8, 8), classes=3, width=0.25).double()
    images = randn(5, 1, 8, 8)
    outs = [torch.func.functional_call(net, {k: v[0] for k, v in s.tensors.items()}, (images,)) for s in (stack, other)]
    assert deviation(*outs) > 1e-2  # another function
    blind = made(TransformerNFN, encoder, channels=(4, 4))
    assert deviation(predict(blind, other), predict(blind, stack)) < 1e-12
    aware = made(TransformerNFN, encoder, channels=(4,), probes=8)
    assert deviation(predict(aware, other), predict(aware, stack)) > 1e-3


def test_paired_or_not_is_learnt_by_the_head_aware_readout_alone():
    """Heads of strengths g and 1 / g, the same for both pairs of matrices; half of them get each other's values."""
    size, generator = Sizes(4, 2, 2, 2, 3), torch.Generator().manual_seed(0)
    base = {s: torch.randn(1, 1, *shape, generator=generator) for s, shape in size.shapes.items()}
    log = torch.randn(300, generator=generator)
    g = torch.stack([log, -log], 1).exp()[:, None, :, None, None]
    noise = {s: 0.1 * torch.randn(300, 1, *t.shape[2:], generator=generator) for s, t in base.items()}
    paired = {s: (t[:, :, :1].expand_as(t) if s in "QKVO" else t) + noise[s] for s, t in base.items()}
    paired |= {s: paired[s] * g for s in "QV"}
    other = {**paired, **{s: paired[s].roll(1, 2) for s in "VO"}}
    both = {s: torch.cat([paired[s], other[s]]) for s in paired}
    label = torch.arange(600) < 300
    train = torch.arange(600) % 300 < 200
    found = {}
    for kind in (InvariantLayer, HeadReadout):
        torch.manual_seed(0)
        layer = InvariantLayer(size, 1, 8) if kind is InvariantLayer else HeadReadout(size, 1, 4, 8, residual=False)
        model = torch.nn.Sequential(layer, torch.nn.ReLU(), torch.nn.Linear(8, 1))
        x = merge_heads(both)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(150):
            optimiser.zero_grad()
            logits = model(x)[:, 0]
            F.binary_cross_entropy_with_logits(logits[train], label[train].float()).backward()
            optimiser.step()
        found[kind] = float(((model(x)[:, 0] > 0) == label)[~train].double().mean())
    assert abs(found[InvariantLayer] - 0.5) < 0.02  # it gives both of a pair the same number, up to rounding
    assert found[HeadReadout] > 0.85


def test_bad_options_are_named():
    encoder, stack = zoo(2)
    for options, message in (
        ({"width": 0}, "width: 0"),
        ({"rank": 0}, "rank: 0"),
        ({"probes": -1}, "probes: -1"),
        ({"channels": (3, 0)}, "channels"),
        ({"parts": ("weights",)}, "parts: 'weights'; choose from encoder"),
        ({"parts": ()}, "leave nothing to read"),
        ({"gauge": True}, "gauge: acts on chains"),
    ):
        with pytest.raises(ValueError, match=message):
            TransformerNFN(encoder, **options)
    reader = TransformerNFN(encoder)
    with pytest.raises(ValueError, match="was made for"):
        reader(zoo(2, width=0.5, dtype=torch.float32)[1])
    broken = {name: t.clone() for name, t in stack.tensors.items()}
    broken["blocks.0.up.weight"][1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"'blocks\.0\.up\.weight' has NaN or infinite entries in 1 of 2 networks"):
        Stack(encoder, broken)


def test_heads_apart_and_beside():
    x = weights(CASES[1], 2, 3)
    back = separate_heads(merge_heads(x), 3)
    assert all(torch.equal(back[s], x[s]) for s in x)
    assert list(itertools.chain(back)) == list(x)
