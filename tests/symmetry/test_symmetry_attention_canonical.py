"""Representatives of orbits: the same for every network of an orbit, and of the same function."""

import pytest
import torch

from asym.models.transformer import Transformer
from asym.symmetry.attention_canonical import KEPT, canonical
from asym.symmetry.attention_more import NAMES, transform
from asym.symmetry.encoder import Sizes, encoder_of, join, split

SIZES = [Sizes(6, 2, 3, 3, 8), Sizes(5, 3, 2, 4, 7), Sizes(3, 2, 4, 4, 5)]


def network(size):
    torch.manual_seed(0)
    net = Transformer(
        (1, 8, 8), 3, blocks=2, heads=size.heads, dim=size.dim, hidden=size.hidden, residual=False, affine=False,
        activation="relu", head_layers=2, key_dim=size.key, value_dim=size.value,
    ).double()  # fmt: skip
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.7)
    for module in net.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 0.0
    return net.requires_grad_(False)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_for_each_orbit_and_of_the_same_function(size):
    net = network(size)
    encoder = encoder_of(dict(net.named_parameters()), size.heads)
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64)
    blocks = split(encoder, net.state_dict())
    ours = canonical(blocks)
    out = torch.func.functional_call(net, join(encoder, ours), (x,))
    # P_O orders columns of O and rows of A: the function stays; the rest is exact
    torch.testing.assert_close(out, net(x))
    for name in NAMES:
        other = canonical(transform(name, blocks, torch.Generator().manual_seed(1)))
        same = all(torch.allclose(a[s], b[s], atol=1e-8) for a, b in zip(ours, other) for s in a)
        assert same == (name not in KEPT), name


def test_stacks_are_done_as_each_alone():
    size = SIZES[0]
    many = {s: torch.randn(3, *shape, dtype=torch.float64) for s, shape in size.shapes.items()}
    (whole,) = canonical([many])
    for n in range(3):
        (alone,) = canonical([{s: t[n] for s, t in many.items()}])
        assert all(torch.allclose(alone[s], whole[s][n]) for s in alone)


def test_a_dead_block_stays_finite():
    zero = {s: torch.zeros(shape, dtype=torch.float64) for s, shape in SIZES[0].shapes.items()}
    assert all(t.isfinite().all() for t in canonical([zero])[0].values())
