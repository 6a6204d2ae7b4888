"""Dropout by masks from outside: exact entries, where they act and where they do not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from asym.models import build
from asym.nn.dropout import Dropout, dropout_shapes, keep_mask, keeping


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.0, 0.99), st.integers(0, 2**31))
def test_a_mask_is_the_uniform_numbers_against_the_rate(rate, seed):
    mask, u = keep_mask(50, rate, generator(seed)), torch.rand(50, generator=generator(seed))
    expected = torch.tensor([0.0 if x < torch.tensor(rate) else 1 / (1 - rate) for x in u])
    torch.testing.assert_close(mask, expected)
    lower = keep_mask(50, rate / 2, generator(seed))
    assert (mask[lower == 0] == 0).all()  # what is dropped at one rate is dropped at every higher one


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.7])
def test_the_share_that_is_kept_and_the_mean(rate):
    n = 200_000
    mask = keep_mask(n, rate, generator())
    kept = int((mask > 0).sum())
    assert abs(kept - n * (1 - rate)) < 5 * (n * rate * (1 - rate)) ** 0.5
    assert mask.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])
    assert float(mask.mean()) == pytest.approx(1.0, abs=0.02)


def test_rate_zero_keeps_every_bit_and_bad_rates_are_refused():
    assert (keep_mask(1000, 0.0, generator()) == 1).all()
    for rate in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="rate: got"):
            keep_mask(3, rate, generator())


def test_it_multiplies_in_training_alone_and_leaves_no_trace():
    drop, x = Dropout(), torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    assert drop(x) is x
    assert not list(drop.parameters()) + list(drop.buffers()) + list(drop.state_dict())
    mask = torch.tensor([2.0, 0.0, 2.0])
    with keeping(drop, {"keep": mask}):
        y = drop(x)
        assert drop.eval()(x) is x
        drop.train()
    assert y.tolist() == [2.0, 0.0, 6.0]
    assert torch.autograd.grad(y.sum(), x)[0].equal(mask)  # the mask may be gone before the backward pass
    assert drop(x) is x


def test_masks_are_taken_back_after_an_error():
    model = nn.Sequential(Dropout())
    with pytest.raises(RuntimeError, match="must match"), keeping(model, {"0.keep": torch.ones(3)}):
        model(torch.ones(2))
    assert model[0].keep is None


def test_a_mask_without_its_place_is_named_with_the_places_there_are():
    model = nn.Sequential(Dropout(), Dropout())
    masks = {"0.keep": torch.ones(2), "2.keep": torch.ones(2)}
    with pytest.raises(ValueError, match=r"no place '2\.keep'; valid: 0\.keep, 1\.keep$"), keeping(model, masks):
        pass
    assert model[0].keep is None
    with pytest.raises(ValueError, match="valid: none, Linear has no dropout"), keeping(nn.Linear(1, 1), masks):
        pass


def test_lower_precision_is_rounded_once():
    drop, rate = Dropout(), 0.3
    x, mask = torch.linspace(0.1, 7, 999).bfloat16(), torch.full((999,), 1 / (1 - rate))
    with keeping(drop, {"keep": mask}):
        y = drop(x)
    assert y.dtype == torch.bfloat16
    assert y.equal((x.double() / (1 - rate)).bfloat16())
    assert not y.equal(x * mask.bfloat16())  # a rounded mask would be off by the same factor everywhere


def test_each_of_many_networks_gets_its_own():
    model, x, masks = nn.Sequential(nn.Identity(), Dropout()), torch.ones(2, 3), torch.rand(4, 2, 3)

    def call(own):
        return torch.func.functional_call(model, own, (x,))

    assert torch.func.vmap(call)({"1.keep": masks}).equal(masks)
    assert model[1].keep is None


def test_places_of_the_published_networks():
    cnn = build("small-cnn", input_shape=(1, 28, 28), classes=10)
    assert dropout_shapes(cnn, torch.zeros(2, 1, 28, 28)) == {
        "drops.0.keep": (16, 13, 13), "drops.1.keep": (16, 6, 6), "drops.2.keep": (16, 2, 2),
    }  # fmt: skip
    encoder = build("transformer-plain", input_shape=(1, 8, 8), classes=10, width=0.5)
    names = ["blocks.0.drop1", "blocks.0.drop2", "blocks.1.drop1", "blocks.1.drop2", "drop"]
    shapes = dropout_shapes(encoder, torch.zeros(3, 1, 8, 8))
    assert shapes == {f"{name}.keep": (16, 16) for name in names}
    assert encoder.training
    assert dropout_shapes(build("mlp", input_shape=(1, 8, 8), classes=10), torch.zeros(1, 1, 8, 8)) == {}


def test_a_place_that_is_reached_twice_or_never_is_refused():
    class Odd(nn.Module):
        def __init__(self, times):
            super().__init__()
            self.drop, self.times = Dropout(), times

        def forward(self, x):
            for _ in range(self.times):
                x = self.drop(x)
            return x

    assert dropout_shapes(Odd(1), torch.zeros(2, 5)) == {"drop.keep": (5,)}
    for times in (0, 2):
        with pytest.raises(ValueError, match="model: Odd does not reach each of its 1 dropouts once"):
            dropout_shapes(Odd(times), torch.zeros(2, 5))


@pytest.mark.parametrize("arch", ["small-cnn", "transformer", "transformer-plain"])
def test_masks_act_after_what_is_published(arch):
    """The formulas of the models, by hand."""
    model = build(arch, input_shape=(1, 8, 8), classes=3, width=0.5).double()
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64, generator=generator(1))
    shapes = dropout_shapes(model, x)
    u = generator(2)
    masks = {key: (torch.rand(4, *shape, generator=u) >= 0.4).double() / 0.6 for key, shape in shapes.items()}
    with keeping(model, masks):
        found = model(x)
        quiet = model.eval()(x)
        model.train()
    if arch == "small-cnn":
        h = x
        for i, conv in enumerate(model.convs):
            h = conv(h).relu() * masks[f"drops.{i}.keep"]
        expected = model.head(h.mean((2, 3)))
    else:
        h = (model.embed(x).flatten(2).transpose(1, 2) + model.positions) * masks["drop.keep"]
        for i, block in enumerate(model.blocks):
            y = block.attention(block.norm1(h)) * masks[f"blocks.{i}.drop1.keep"]
            h = h * block.residual + y
            y = block.down(block.act(block.up(block.norm2(h)))) * masks[f"blocks.{i}.drop2.keep"]
            h = h * block.residual + y
        expected = model.head(model.norm(h).mean(1))
    torch.testing.assert_close(found, expected)
    assert quiet.equal(model(x))  # evaluation has none, and neither has training without masks
    assert not torch.allclose(found, quiet)
