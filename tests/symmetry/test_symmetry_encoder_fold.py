"""Ordinary transformers as blocks of theory: the same function, an exact group without P_O, readers that respect it."""

import pytest
import torch
from transformer_nets import deviation, made, randn

from asym.metanets import Stack, predict
from asym.metanets.transformer_nfn import EquivariantLayer, InvariantLayer, TransformerNFN, count
from asym.models import build
from asym.symmetry.attention import FACTORS, RESIDUAL_FACTORS
from asym.symmetry.attention_more import transform
from asym.symmetry.encoder import Sizes, encoder_of, join, split
from asym.symmetry.encoder_fold import folded, unfolded

EXACT = (*RESIDUAL_FACTORS, "norm-shift", "null-row", "next-shift")


@pytest.fixture(scope="module")
def networks():
    """The module, its encoder, and 8 random transformers as they are and folded."""
    module = build("transformer", input_shape=(1, 8, 8), classes=3, width=0.25).double()
    shapes = {name: p.shape for name, p in module.named_parameters()}
    raw = {name: randn(8, *shape, seed=k) / 2 for k, (name, shape) in enumerate(shapes.items())}
    return module, encoder_of(dict(module.named_parameters()), 2), raw, folded(raw)


def function(module, tensors):
    images = randn(5, 1, 8, 8, seed=99)
    rows = [{name: t[k] for name, t in tensors.items()} for k in range(len(next(iter(tensors.values()))))]
    return torch.stack([torch.func.functional_call(module, row, (images,)) for row in rows])


def test_folding_keeps_the_function(networks):
    module, encoder, raw, plain = networks
    assert encoder.size == Sizes(8, 2, 4, 4, 16, ordinary=True)
    assert {name: tuple(t.shape[1:]) for name, t in plain.items()} == dict(encoder.shapes)
    assert encoder_of({name: t[0] for name, t in plain.items()}, 2) == encoder
    back = unfolded(plain)
    assert {name: t.shape for name, t in back.items()} == {name: t.shape for name, t in raw.items()}
    assert deviation(function(module, back), function(module, raw)) < 1e-12
    published = dict(build("transformer-plain", input_shape=(1, 8, 8), classes=3, width=0.25).named_parameters())
    assert folded(published) == published
    assert not encoder_of(published, 2).size.ordinary
    with pytest.raises(ValueError, match=r"'blocks\.1\.norm2\.bias' is missing"):
        folded({name: t for name, t in raw.items() if name != "blocks.1.norm2.bias"})


def moved(encoder, plain, name):
    blocks = transform(name, split(encoder, plain), torch.Generator().manual_seed(3))
    return {**plain, **join(encoder, blocks)}


@pytest.mark.parametrize("name", [*EXACT, "out", "relu-scale", "norm-scale", "next-scale"])
def test_the_group_that_residual_connections_leave_is_exact(networks, name):
    """The published group's output permutation is no symmetry here; nor are scales of the stream, nor those of GELU."""
    module, encoder, _, plain = networks
    image = moved(encoder, plain, name)
    change = deviation(function(module, unfolded(image)), function(module, unfolded(plain)))
    assert change < 1e-12 if name in EXACT else change > 1e-3
    assert max(deviation(image[key], plain[key]) for key in plain) > 1e-3  # it did move them


@pytest.mark.parametrize("options", [{}, {"rank": 2, "probes": 3}, {"channels": (1, 3), "rank": 2}, {"channels": ()}])
def test_readers_choose_that_group(networks, options):
    _, encoder, _, plain = networks
    stack = Stack(encoder, plain)
    reader = made(TransformerNFN, encoder, **options)
    reader.observe(stack)
    before = predict(reader, stack)
    for name in FACTORS:
        change = float(
            (predict(reader, Stack(encoder, moved(encoder, plain, name))) - before).abs().max() / before.std()
        )
        assert change < 1e-9 if name in RESIDUAL_FACTORS else change > 1e-4
    bias = {**plain, "blocks.1.attention.out.bias": plain["blocks.1.attention.out.bias"].flip(-1)}
    assert deviation(predict(reader, Stack(encoder, bias)), before) > 1e-4
    reader(stack).square().mean().backward()
    assert all(p.grad is not None for p in reader.parameters())


def test_counts_of_layers():
    size = Sizes(4, 2, 2, 3, 5, ordinary=True)
    for first in (True, False):
        layer = EquivariantLayer(size, 2, 3, residual=True, first=first)
        counted = count(size, 2, 3, residual=True, first=first)
        assert sum(p.numel() for p in layer.parameters()) == sum(counted.values())
        assert counted["Q"] == 2 * 3 * 5**2
    sources = 5 * 5 + 5 * 4 + 4 + 1 + 4 + 4 + 4  # S, T, A, a, B, b, o
    invariant = InvariantLayer(size, 2, 3, residual=True)
    assert sum(p.numel() for p in invariant.parameters()) == 3 * (2 * sources + 1)
