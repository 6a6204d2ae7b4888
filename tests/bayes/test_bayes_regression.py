"""Bayesian linear regression, whose posterior is known: variational families, NUTS and HMC must find it.

With inputs X (n × d, a column of ones for the bias), noise σ and prior variance s², the posterior is normal with
precision Λ = XᵀX/σ² + I/s² and mean Λ⁻¹ Xᵀy/σ².
"""

import pytest
import torch
from torch import nn

from asym.bayes import Gaussian, Guide, Posterior, PriorRule, Target, effective_size, run_chain, split_rhat
from asym.bayes.hmc import sample
from asym.nn import WAsymLinear

NOISE, PRECISION, N, D = 0.5, 2.0, 30, 4
RULES = (PriorRule("*", PRECISION, "unit"),)


@pytest.fixture(scope="module")
def problem():
    g = torch.Generator().manual_seed(3)
    mix = torch.eye(D) + 0.6 * torch.ones(D, D)  # correlated inputs, so that the diagonal family must differ
    x = torch.randn(N, D, generator=g) @ mix
    y = x @ torch.tensor([1.0, -0.5, 0.3, 0.0]) + 0.2 + NOISE * torch.randn(N, generator=g)
    full = torch.cat([x, torch.ones(N, 1)], dim=1).double()
    precision = full.T @ full / NOISE**2 + PRECISION * torch.eye(D + 1, dtype=torch.float64)
    covariance = torch.linalg.inv(precision)
    return x, y, covariance @ full.T @ y.double() / NOISE**2, covariance


def _fit(x, y, guide, networks=None, steps=700, samples=64):
    """Adam on the ELBO with many samples a step, so that few steps do."""
    networks = networks or [nn.Linear(D, 1)]
    family = Posterior(networks, RULES, guide, likelihood=Gaussian(NOISE))
    theta = nn.Parameter(family.initial(networks, [0]))
    adam = torch.optim.Adam([theta], lr=0.05)
    decay = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: max(1e-3, 1 - step / steps))
    g = torch.Generator().manual_seed(0)
    inputs, targets = x.expand(samples, *x.shape), y.expand(samples, -1)
    for _ in range(steps):
        noise = torch.randn(samples, family.noise_size(N), generator=g)
        nll, kl = family.elbo(theta.expand(samples, -1), inputs, targets, noise)
        (theta.grad,) = torch.autograd.grad(nll.mean() + kl.mean() / N, theta)
        adam.step()
        decay.step()
    return family, {k: v[0] for k, v in family.layout.views(theta.detach()).items()}


def test_low_rank_finds_mean_and_covariance(problem):
    x, y, mean, covariance = problem
    guide = Guide("lowrank", rank=D, diagonal="learned", log_variance=-4.0)  # rank d and a diagonal hold any covariance
    _, views = _fit(x, y, guide)
    v, logvar = views["factor/"], views["logvar/"]
    got = (torch.diag(logvar.exp()) + v.T @ v / D).double()
    scale = covariance.diagonal().sqrt()
    assert ((views["mean/"].double() - mean) / scale).abs().max() < 0.1
    assert ((got - covariance) / torch.outer(scale, scale)).abs().max() < 0.1
    diagonal = torch.diag(covariance.diagonal())
    assert ((diagonal - covariance) / torch.outer(scale, scale)).abs().max() > 0.3  # correlations that it had to find


@pytest.mark.parametrize("local", [True, False])
def test_mean_field_finds_mean_and_the_inverse_of_the_precisions_diagonal(problem, local):
    x, y, mean, covariance = problem
    _, views = _fit(x, y, Guide("normal", local=local, log_variance=-4.0))
    want = 1 / torch.linalg.inv(covariance).diagonal()
    scale = covariance.diagonal().sqrt()
    assert ((views["mean/"].double() - mean) / scale).abs().max() < 0.15
    assert (views["logvar/"].double() - want.log()).abs().max() < 0.1
    assert (covariance.diagonal().log() - want.log()).abs().max() > 0.5  # not the marginal variances


def test_a_masked_layer_is_regressed_on_what_is_left(problem):
    x, y, *_ = problem
    layer = WAsymLinear(D, 1, n_fix=2, kappa=1.0, seed=0, name="one")
    _, views = _fit(x, y, Guide("lowrank", rank=3, diagonal="learned", log_variance=-4.0), networks=[layer])
    mask, fixed = layer.mask[0], layer.fixed[0]
    full = torch.cat([x[:, mask], torch.ones(N, 1)], dim=1).double()
    rest = y.double() - x[:, ~mask].double() @ fixed[~mask].double()
    precision = full.T @ full / NOISE**2 + PRECISION * torch.eye(3, dtype=torch.float64)
    mean = torch.linalg.solve(precision, full.T @ rest / NOISE**2)
    own = views["mean/"][torch.cat([mask, torch.tensor([True])])].double()
    assert (own - mean).abs().max() < 0.1 * torch.linalg.inv(precision).diagonal().sqrt().min() + 0.02
    assert (views["mean/"][:-1][~mask] == 0).all()


def test_nuts_finds_it_and_says_so(problem):
    x, y, mean, covariance = problem
    target = Target(nn.Linear(D, 1), RULES, x, y, Gaussian(NOISE))
    chains = [run_chain(target, seed, warmup=80, draws=150, max_tree_depth=4) for seed in (0, 1)]
    draws = torch.stack([chain.draws for chain in chains]) * target.scale
    flat = draws.flatten(0, 1).double()
    scale = covariance.diagonal().sqrt()
    assert split_rhat(draws).max() < 1.1
    size = effective_size(draws).min().item()
    assert 30 < size <= 300
    assert ((flat.mean(0) - mean) / scale).abs().max() < 5 / size**0.5
    assert ((flat.T.cov() - covariance) / torch.outer(scale, scale)).abs().max() < 10 / size**0.5
    short = [run_chain(target, 0, warmup=4, draws=4, max_tree_depth=3) for _ in range(2)]
    assert torch.equal(short[0].draws, short[1].draws)


def test_many_chains_of_hmc_find_it(problem):
    x, y, mean, covariance = problem
    target = Target(nn.Linear(D, 1), RULES, x, y, Gaussian(NOISE))
    start = torch.stack([target.start(seed) for seed in range(64)])
    found = sample(torch.func.vmap(target.potential), start, 0, warmup=80, moves=60, leaps=15)
    flat = (found.draws * target.scale).flatten(0, 1).double()
    scale = covariance.diagonal().sqrt()
    assert 0.6 < found.acceptance < 0.97
    assert ((flat.mean(0) - mean) / scale).abs().max() < 0.12
    assert ((flat.T.cov() - covariance) / torch.outer(scale, scale)).abs().max() < 0.15


def test_pyro_and_the_potential_are_one_density(problem):
    from pyro import poutine

    from asym.bayes.pyro_model import pyro_model

    x, y, *_ = problem
    network = nn.Linear(D, 1)
    target = Target(network, RULES, x, y, Gaussian(NOISE))
    model = pyro_model(network, RULES, likelihood=Gaussian(NOISE))

    def log_density(z):
        held = poutine.condition(model, data=target.values(z))
        return poutine.trace(held).get_trace(x, y).log_prob_sum()

    a, b = target.start(0), target.start(1)
    ours = target.potential(a) - target.potential(b)
    torch.testing.assert_close(log_density(b) - log_density(a), ours, rtol=1e-4, atol=1e-3)


def test_bad_lengths(problem):
    x, y, *_ = problem
    target = Target(nn.Linear(D, 1), RULES, x, y, Gaussian(NOISE))
    for options, word in (({"warmup": 0}, "warmup"), ({"draws": 1}, "draws"), ({"max_tree_depth": 11}, "depth")):
        with pytest.raises(ValueError, match=word):
            run_chain(target, 0, **{"warmup": 5, "draws": 5} | options)
