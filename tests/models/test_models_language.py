"""Comparison models: causal, sized as asked for, started from a generator."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from asym.models.language import Decoder, FeedForwardLM, LstmLM, matched, parameters
from asym.models.output import output_loss
from asym.seeds import torch_generator

MAKERS = {
    "decoder": lambda: Decoder(20, 8, 6, blocks=2),
    "decoder with labels": lambda: Decoder(20, 8, 6, labels=5),
    "lstm": lambda: LstmLM(20, 8),
    "feed-forward": lambda: FeedForwardLM(20, 8, 3, 7),
}


def _made(kind, seed=0):
    net = MAKERS[kind]()
    net.reset_parameters(torch_generator(seed, "test"))
    return net


@pytest.mark.parametrize("kind", ["decoder", "decoder with labels", "lstm"])
def test_no_place_sees_what_follows(kind):
    net = _made(kind)
    x = torch.randint(0, 20, (2, 6), generator=torch_generator(0, "x"))
    other = x.clone()
    other[:, 4:] = (other[:, 4:] + 1) % 20
    a, b = net(x), net(other)
    assert a.shape == (2, 6, 20)
    torch.testing.assert_close(a[:, :4], b[:, :4])
    assert not torch.allclose(a[:, 4:], b[:, 4:])


def test_the_feed_forward_model_sees_its_radius_alone():
    net = _made("feed-forward")
    x = torch.tensor([[1, 9, 9, 1, 2, -1]])
    torch.testing.assert_close(net(x), net(torch.tensor([[3, 4, 5, 1, 2, -1]])))
    assert not torch.allclose(net(x), net(torch.tensor([[1, 9, 9, 1, 2, 0]])))


@pytest.mark.parametrize("kind", list(MAKERS))
def test_starts_come_from_the_seed(kind):
    a, b, c = (_made(kind, seed) for seed in (0, 0, 1))
    for (name, p), (_, q) in zip(a.named_parameters(), b.named_parameters()):
        assert torch.equal(p, q), name
    assert any(not torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters()))


@pytest.mark.parametrize("kind", ["decoder", "decoder with labels", "feed-forward"])
def test_operations_are_those_that_a_counter_finds(kind):
    net = _made(kind)
    x = torch.zeros((4, 6), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        net(x)
    tokens = 4 if kind == "feed-forward" else 24
    assert counter.get_total_flops() / tokens == net.flops(6)


def test_sizes_are_matched():
    width = matched(lambda d: Decoder(20, d, 6), parameters, 5000, 2)
    near = {d: abs(parameters(Decoder(20, d, 6)) - 5000) for d in (width - 2, width, width + 2)}
    assert min(near, key=lambda d: near[d]) == width
    with pytest.raises(ValueError, match="multiple of 2"):
        Decoder(20, 7, 6)


def test_the_output_loss_is_cross_entropy_and_so_are_its_gradients():
    g = torch_generator(0, "loss")
    h, weight = (
        torch.randn(*shape, generator=g, dtype=torch.float64, requires_grad=True) for shape in ((6, 4), (4, 9))
    )
    y = torch.randint(0, 9, (6,), generator=g)
    expected = torch.nn.functional.cross_entropy(h @ weight, y)
    found = output_loss(h, weight, y)
    torch.testing.assert_close(found, expected)
    for a, b in zip(torch.autograd.grad(2 * found, (h, weight)), torch.autograd.grad(2 * expected, (h, weight))):
        torch.testing.assert_close(a, b)
    assert torch.isfinite(output_loss(1e4 * h, weight, y))
