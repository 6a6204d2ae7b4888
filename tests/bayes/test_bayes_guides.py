"""Families of posteriors: closed forms against torch's own distributions, bad input."""

import math

import pytest
import torch
from torch.distributions import Independent, LowRankMultivariateNormal, MultivariateNormal, Normal, kl_divergence

from asym.bayes import Guide, PriorRule
from asym.bayes.guides import draw, gram, kl_parts, log_det_one_plus
from asym.bayes.priors import prior_variance


def _case(n=3, k=2, d=7):
    g = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return normal(n, d), normal(n, k, d), normal(n, d)


def test_kl_of_low_rank_is_torchs():
    mean, factor, logvar = _case()
    g = gram(factor, logvar)
    ours = kl_parts(mean, factor, logvar, None, 7, 0.3, g) - 0.5 * log_det_one_plus(g)
    q = LowRankMultivariateNormal(mean, factor.mT / math.sqrt(2), logvar.exp())
    p = MultivariateNormal(torch.zeros(7, dtype=torch.float64), 0.3 * torch.eye(7, dtype=torch.float64))
    q_dense = MultivariateNormal(q.mean, q.covariance_matrix)
    torch.testing.assert_close(ours, kl_divergence(q_dense, p))


def test_kl_with_a_constant_diagonal_is_that_of_an_equal_learned_one():
    mean, factor, _ = _case()
    logvar = torch.full_like(mean, -1.5)
    a = kl_parts(mean, factor, -1.5, None, 7, 0.3, gram(factor, -1.5)) - 0.5 * log_det_one_plus(gram(factor, -1.5))
    b = kl_parts(mean, factor, logvar, None, 7, 0.3, None) - 0.5 * log_det_one_plus(gram(factor, logvar))
    torch.testing.assert_close(a, b)


def test_kl_of_mean_field_is_torchs_and_fixed_entries_cost_nothing():
    mean, _, logvar = _case()
    q = Independent(Normal(mean[:, :5], (0.5 * logvar[:, :5]).exp()), 1)
    p = Independent(Normal(torch.zeros(5, dtype=torch.float64), math.sqrt(0.3)), 1)
    mask = torch.tensor([[True] * 5 + [False] * 2])
    ours = kl_parts(mean * mask, None, logvar, mask, 5, 0.3, None)
    torch.testing.assert_close(ours, kl_divergence(q, p))


def test_draws_have_the_stated_covariance():
    _, factor, logvar = _case(n=1)
    count = 200_000
    g = torch.Generator().manual_seed(1)
    eps = torch.randn(count, 2, generator=g, dtype=torch.float64)
    xi = torch.randn(count, 7, generator=g, dtype=torch.float64)
    drawn = draw(
        torch.zeros(count, 7, dtype=torch.float64), factor.expand(count, -1, -1), logvar.expand(count, -1), eps, xi
    )
    want = torch.diag(logvar[0].exp()) + factor[0].T @ factor[0] / 2
    error = (drawn.T.cov() - want).abs().max()
    assert error < 0.03 * want.diagonal().max()
    assert (torch.diag(logvar[0].exp()) - want).abs().max() > 0.1  # the diagonal alone is another one


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"name": "fullrank"}, "guide"),
        ({"name": "lowrank", "rank": 0}, "rank"),
        ({"name": "normal", "rank": 2}, "rank"),
        ({"name": "normal", "diagonal": "constant"}, "diagonal"),
        ({"diagonal": "both"}, "diagonal"),
        ({"log_variance": float("nan")}, "log_variance"),
    ],
)
def test_bad_guides(options, word):
    with pytest.raises(ValueError, match=word):
        Guide(**options)


def test_priors_by_rule():
    linear, conv = torch.nn.Linear(5, 8), torch.nn.Conv2d(3, 6, 2)
    rules = (PriorRule("head", 0.01), PriorRule("stem", 2.0, "fan-in"), PriorRule("*.conv", 1.0))
    assert prior_variance("head", linear, rules) == pytest.approx(1 / (0.01 * 8))
    assert prior_variance("stem", conv, rules) == pytest.approx(1 / (2 * 12))
    assert prior_variance("a.conv", conv, rules) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="no rule matches layer 'other'"):
        prior_variance("other", linear, rules)
    with pytest.raises(ValueError, match="valid: published"):
        PriorRule(fan="wide")
    with pytest.raises(ValueError, match="precision"):
        PriorRule(precision=0.0)
