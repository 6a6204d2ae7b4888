"""SAFFU by its definition, its symmetries, its gradients, its audit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.data.contexts import Reach, contexts
from asym.data.text import Stream
from asym.explicit.cipher import cipher_vectors
from asym.models.saffu import SaffuLayer, SaffuLM
from asym.seeds import torch_generator
from asym.symmetry.audit import continuous_symmetries

STREAM = Stream(
    np.array([5, 1, 2, 3, 4, 0, 6, 7, 8, 9, 2], dtype=np.int32), np.array([0, 6]), np.array([0, 0], dtype=np.int32), 1
)


def model(reach=Reach(4, 3, 5), seed=0, dim=5, hidden=4, double=True, **options):  # noqa: B008
    embedding = torch.from_numpy(cipher_vectors(np.arange(10, 0, -1), dim))
    net = SaffuLM(embedding, hidden, reach, **options)
    net = net.double() if double else net.float()
    net.reset_parameters(torch_generator(seed, "test"))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name != "embedding":
                parameter *= 3
    return net


def rows(reach, places=None):
    return contexts(STREAM, STREAM.targets if places is None else np.array(places), reach)


def test_contexts_by_hand():
    reach = Reach(3, 2, 4)
    assert reach.columns == 10
    found = rows(reach, [1, 4, 5, 8]).tolist()
    assert found[0] == [5, 5, -1, -1, 5, -1, 5, -1, -1, -1]
    assert found[1] == [3, 3, -1, -1, 3, 2, 3, 2, 1, 5]
    assert found[2] == [4, 3, 4, -1, 4, 3, 4, 3, 2, 1]
    assert found[3] == [7, 6, 7, -1, 7, 6, 7, 6, -1, -1]
    stacked = rows(Reach(0, 2, 0, (3,)), [2, 8])
    assert stacked.tolist() == [[[1, 1, 5], [5, 5, -1], [-1, -1, -1]], [[7, 7, 6], [6, 6, -1], [-1, -1, -1]]]


@pytest.mark.parametrize("sizes", [(0, 0, 0), (-1, 3, 0)])
def test_contexts_that_cannot_be(sizes):
    with pytest.raises(ValueError, match="not all 0"):
        Reach(*sizes)


@pytest.mark.parametrize("reading", ["slots", "features"])
@pytest.mark.parametrize("log_attention", [False, True])
def test_the_model_is_its_formula(reading, log_attention):
    reach = Reach(4, 3, 5)
    net = model(reach, reading=reading, log_attention=log_attention)
    x, e = rows(reach), net.embedding.detach()
    logits = net(x).detach()
    net.requires_grad_(False)
    for row, found in zip(x.tolist(), logits):
        pivot, at, hs = row[0], 1, []
        for name, size in reach.slots.items():
            layer, ids = net.layers[name], row[at : at + size]
            at += size
            there = [k for k in range(size) if ids[k] >= 0]
            if name == "document":
                a = {k: 1 / len(there) for k in there}
            else:
                if reading == "slots":
                    c = [float(e[pivot] @ e[i]) if i >= 0 else 0.0 for i in ids]
                    s = torch.tensor(c, dtype=torch.float64) @ layer.weight
                else:
                    s = torch.stack([e[pivot] @ layer.weight @ e[max(i, 0)] for i in ids])
                shares = torch.stack([s[k] for k in there]).log_softmax(0)
                a = {k: (-share if log_attention else share.exp()) for k, share in zip(there, shares)}
            z = sum(a[k] * e[ids[k]] for k in there)
            if not log_attention:
                assert float(z.sum()) == pytest.approx(1)
            hs.append((z @ layer.hidden).softmax(0))
        torch.testing.assert_close(found, torch.cat(hs) @ net.output, rtol=1e-9, atol=1e-9)


def test_without_attention_weights_are_equal_and_empty_slots_have_none():
    net = model()
    with torch.no_grad():
        net.layers["block"].weight.zero_()
    pivot, pieces = net.split(rows(net.reach))
    for name in ("block", "radius"):
        a, present = net.attention(name, pivot, pieces[name]), pieces[name] >= 0
        assert (a[~present] == 0).all()
        torch.testing.assert_close(a.sum(1), torch.ones(len(a), dtype=torch.float64))
        if name == "block":
            torch.testing.assert_close(a, present / present.sum(1, keepdim=True).double())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_shifts_and_permutations_leave_the_function(seed, features):
    net = model(seed=seed, reading="features" if features else "slots")
    x, before = rows(net.reach), None
    g = torch_generator(seed, "moves")
    with torch.no_grad():
        before = net(x).log_softmax(1)
        for layer in net.layers.values():
            if layer.weight is not None and not features:
                layer.weight += torch.randn(len(layer.weight), 1, generator=g, dtype=torch.float64)
            layer.hidden += torch.randn(len(layer.hidden), 1, generator=g, dtype=torch.float64)
        net.output += torch.randn(len(net.output), 1, generator=g, dtype=torch.float64)
        shift = torch.randn(10, generator=g, dtype=torch.float64)
        net.output[:4] += shift
        net.output[4:8] -= shift
        for i, layer in enumerate(net.layers.values()):
            order = torch.randperm(4, generator=g)
            layer.hidden.copy_(layer.hidden[:, order])
            net.output[4 * i : 4 * i + 4] = net.output[4 * i : 4 * i + 4][order]
        assert (net(x).log_softmax(1) - before).abs().max() < 1e-6
        net.fix_gauge()
        if not features:
            assert (net(x).log_softmax(1) - before).abs().max() < 1e-6
            assert net.layers["radius"].weight.mean(1).abs().max() < 1e-12
        net.layers["radius"].hidden += torch.randn(1, 4, generator=g, dtype=torch.float64)  # a bias, no symmetry
        assert (net(x).log_softmax(1) - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    "options", [{}, {"train_embedding": True}, {"reading": "features"}, {"log_attention": True},
                {"reach": Reach(0, 3, 0, (2,))}, {"reach": Reach(3, 0, 0, (2, 2))}]
)  # fmt: skip
def test_gradients_are_those_of_finite_differences(options):
    net = model(**options)
    x, y = rows(net.reach), torch.from_numpy(STREAM.ids[STREAM.targets].astype(np.int64))
    names = [name for name, p in net.named_parameters() if p.requires_grad]

    def loss(*values):
        logits = torch.func.functional_call(net, dict(zip(names, values)), (x,))
        return torch.nn.functional.cross_entropy(logits, y)

    values = [dict(net.named_parameters())[name].detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(loss, values, atol=1e-7, fast_mode=True)


def test_looked_up_comparisons_follow_the_embedding():
    net = model()
    x = rows(net.reach)
    with torch.no_grad():
        first = net(x)
        assert net.comparisons_table() is net.comparisons_table()
        net.embedding.copy_(net.embedding.flip(0))
        moved = net(x)
        net.embedding.requires_grad_(True)
        assert net.comparisons_table() is None
        torch.testing.assert_close(net(x), moved)
    assert (moved - first).abs().max() > 1e-3


def test_the_layer_alone_and_in_the_model_agree():
    net = model(Reach(0, 3, 0))
    x = rows(net.reach, [4, 5, 10])
    layer = net.layers["radius"]
    torch.testing.assert_close(layer(net.embedding[x[:, 1:]]), net.read(x))
    with pytest.raises(ValueError, match="slots, features"):
        SaffuLayer(2, 2, 2, reading="both")


def test_a_fixed_output_stays():
    net = model(Reach(0, 3, 0))
    mask = torch.ones_like(net.output, dtype=torch.bool)
    mask[:, :6] = False
    net.fix_output(torch.full_like(net.output.detach(), 0.5), mask)
    loss = torch.nn.functional.cross_entropy(net(rows(net.reach)), torch.zeros(9, dtype=torch.int64))
    loss.backward()
    assert (net.output.grad[:, :6] == 0).all()
    assert (net.output.grad[:, 6:] != 0).any()
    assert (net.effective_output[:, :6] == 0.5).all()


class Pair(torch.nn.Module):
    """Two layers side by side on vectors `[n, slots, dim]`, and an output."""

    def __init__(self, branches):
        super().__init__()
        self.layers = torch.nn.ModuleList(SaffuLayer(3, 4, 3) for _ in range(branches))
        self.output = torch.nn.Parameter(torch.zeros(3 * branches, 5))
        g = torch_generator(0, "pair")
        for layer in self.layers:
            layer.reset_parameters(g)
        torch.nn.init.normal_(self.output, generator=g)

    def forward(self, x):
        h = torch.cat([layer(x.flip(1) if i else x) for i, layer in enumerate(self.layers)], -1)
        return (h @ self.output).log_softmax(-1)


@pytest.mark.parametrize("branches", [1, 2])
def test_its_continuous_symmetries_are_shifts(branches):
    """Row shifts of W (K each), U (D each) and O (ΣH); opposite shifts of O's branches ((C − 1)(V − 1) further)."""

    def draw(n, generator):
        return torch.rand(n, 3, 4, generator=generator, dtype=torch.float64).softmax(-1)

    found = continuous_symmetries(Pair(branches), draw)
    expected = branches * (3 + 4 + 3) + (branches - 1) * (5 - 1)
    assert found.rank.gap > 1e3
    assert found.found == expected


def test_operations_are_counted_as_in_the_formula():
    net = model(Reach(4, 3, 0), dim=5, hidden=4)
    body = sum(2 * k * 5 + 2 * k * k + 2 * 5 * 4 for k in (4, 3))
    assert net.flops() == body + 2 * 8 * 10
    assert net.flops(cached=False) == net.flops() + 2 * 7 * 5
