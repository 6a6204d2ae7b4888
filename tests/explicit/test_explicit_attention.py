"""Attention's identities against autodiff, and its solutions on two toys whose informative slot is known."""

import pytest
import torch
from torch.nn import functional

from asym.explicit.attention import attention_gradient, hidden_targets, slot_scores, solve_attention, token_scores
from asym.explicit.softmax import outer_sums, solve_softmax

SLOTS, TOKENS, CLASSES = 6, 30, 10


def toy(kind, samples=12000, seed=0):
    """One slot tells the class, the others are noise: always slot 3, or the one after the slot that repeats slot 0."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, TOKENS, (samples, SLOTS), generator=g)
    if kind == "content":
        ids[:, 1:] = torch.where(ids[:, 1:] == ids[:, :1], (ids[:, 1:] + 1) % TOKENS, ids[:, 1:])
        at = torch.randint(1, SLOTS - 1, (samples,), generator=g)
        ids[torch.arange(samples), at] = ids[:, 0]
        told = ids[torch.arange(samples), at + 1]
    else:
        told = ids[:, 3]
    y = torch.where(
        torch.rand(samples, generator=g) < 0.8, told % CLASSES, torch.randint(0, CLASSES, (samples,), generator=g)
    )
    return torch.eye(TOKENS, dtype=torch.float64)[ids], y


def _loss(x, c, weight, hidden, y):
    z = torch.einsum("mk,mkd->md", (c @ weight).softmax(1), x)
    return float(functional.cross_entropy(z @ hidden, y))


def _best_hidden(x, c, weight, y):
    z = torch.einsum("mk,mkd->md", (c @ weight).softmax(1), x)
    sums = outer_sums(z, y, CLASSES)
    tried = [solve_softmax(sums, priming=k) for k in (1.0, 2.0, 4.0, 8.0)]
    return min(tried, key=lambda hidden: _loss(x, c, weight, hidden, y))


@pytest.mark.parametrize("kind", ["position", "content"])
def test_both_solutions_beat_uniform_attention_by_half_a_nat(kind):
    x, y = toy(kind)
    c = torch.einsum("mkd,md->mk", x, x[:, 0])
    target = functional.one_hot(y, CLASSES).double()
    present = torch.ones(x.shape[:2], dtype=torch.bool)
    zero = torch.zeros(SLOTS, SLOTS, dtype=torch.float64)
    hidden = _best_hidden(x, c, zero, y)
    uniform = _loss(x, c, zero, hidden, y)
    assert uniform < 2.303
    v = hidden_targets(slot_scores(x, hidden, target), present, 8.0)
    solved = solve_attention(c.T @ v, float(c.sum(1).mean()))
    explicit = _loss(x, c, solved, _best_hidden(x, c, solved, y), y)
    gradient = attention_gradient(x, c, present, hidden, target)
    one_step = min(_loss(x, c, t * gradient, _best_hidden(x, c, t * gradient, y), y) for t in (30.0, 100.0, 300.0))
    assert explicit < uniform - 0.5
    assert one_step < uniform - 0.5
    wrong = solve_attention((c.T @ v).roll(1, 1), float(c.sum(1).mean()))
    assert _loss(x, c, wrong, _best_hidden(x, c, wrong, y), y) > explicit + 0.3


def test_the_gradient_is_that_of_autodiff():
    g = torch.Generator().manual_seed(0)
    x = torch.rand(7, 4, 5, generator=g, dtype=torch.float64)
    present = torch.rand(7, 4, generator=g) < 0.7
    present[:, 0] = True
    c = torch.einsum("mkd,md->mk", x, x[:, 0]) * present
    hidden = torch.randn(5, 3, generator=g, dtype=torch.float64)
    target = torch.rand(7, 3, generator=g, dtype=torch.float64).softmax(1)
    weight = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    a = (c @ weight).masked_fill(~present, -torch.inf).softmax(1)
    loss = -(target * (torch.einsum("mk,mkd->md", a, x) @ hidden).log_softmax(1)).sum(1).mean()
    (expected,) = torch.autograd.grad(loss, weight)
    assert (attention_gradient(x, c, present, hidden, target) + expected).abs().max() < 1e-12


def test_scores_of_tokens_are_those_of_their_vectors():
    g = torch.Generator().manual_seed(0)
    vectors, hidden = torch.rand(9, 5, generator=g), torch.randn(5, 3, generator=g)
    labels = torch.rand(9, 3, generator=g).softmax(1)
    ids, y = torch.randint(0, 9, (20, 4), generator=g), torch.randint(0, 9, (20,), generator=g)
    table = token_scores(vectors, hidden, labels)
    torch.testing.assert_close(table[ids, y[:, None]], slot_scores(vectors[ids], hidden, labels[y]))


def test_hidden_targets_by_hand():
    present = torch.tensor([[True, True, False], [False, False, False]])
    v = hidden_targets(torch.tensor([[0.0, 3.0, 9.0], [1.0, 1.0, 1.0]]).log(), present, 1.0)
    torch.testing.assert_close(v, torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    v = hidden_targets(torch.tensor([[1.0, 3.0, 9.0]]).log(), present[:1], 2.0)
    torch.testing.assert_close(v, torch.tensor([[0.1, 0.9, 0.0]]))
    with pytest.raises(ValueError, match="sharpness: got 0"):
        hidden_targets(torch.zeros(1, 3), present[:1], 0.0)
