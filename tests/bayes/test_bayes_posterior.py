"""Posteriors over networks: gradients, masks, stacking, local reparametrisation, agreement with pyro."""

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO

from asym.bayes import Gaussian, Guide, Posterior, PriorRule, log_mean_exp, predict
from asym.bayes.local import LocalLinear
from asym.bayes.pyro_model import pyro_guide, pyro_model
from asym.models import build
from asym.nn import Variant

RULES = (PriorRule("*", 1.0),)
GUIDES = {
    "lowrank": Guide("lowrank", log_variance=-3.0),
    "lowrank-learned": Guide("lowrank", diagonal="learned", log_variance=-3.0),
    "lowrank-local": Guide("lowrank", local=True, log_variance=-3.0),
    "normal": Guide("normal", log_variance=-3.0),
    "normal-weights": Guide("normal", local=False, log_variance=-3.0),
    "last": Guide("last", rank=2, log_variance=-3.0),
}


def _networks(variant="standard", n=2, arch="mlp", **options):
    shape = {"input_shape": (1, 4, 4), "classes": 3, "width": 10 / 512 if arch == "mlp" else 0.5}
    return [build(arch, **shape | options, variant=Variant(variant, mask_seed=i), seed=i).double() for i in range(n)]


def _batch(family, n=2, b=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, b, 1, 4, 4, generator=g, dtype=torch.float64)
    noise = torch.randn(n, family.noise_size(b), generator=g, dtype=torch.float64)
    return x, torch.randint(0, 3, (n, b), generator=g), noise


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("variant", ["standard", "w"])
@pytest.mark.parametrize("n", [1, 2])
def test_closed_form_gradients_are_those_of_autograd(guide, variant, n):
    networks = _networks(variant, n)
    family = Posterior(networks, RULES, GUIDES[guide])
    theta = family.initial(networks, range(n)).requires_grad_()
    x, y, noise = _batch(family, n)
    nll, kl = family.elbo(theta, x, y, noise)
    (want,) = torch.autograd.grad((nll + 0.02 * kl).sum(), theta)
    got = torch.full_like(want, torch.nan)
    nll_2, kl_2 = family.gradient(theta.detach(), x, y, noise, 0.02, got)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close((nll_2, kl_2), (nll.detach(), kl.detach()))
    assert want.abs().max() > 1e-3


def test_convolutions_and_batch_norm_too():
    networks = _networks("w", 1, "resnet20", norm="batch")
    family = Posterior(networks, RULES, Guide("lowrank", log_variance=-6.0))
    theta = family.initial(networks, [0]).requires_grad_()
    x, y, noise = _batch(family, 1)
    statistics = family.running.flatten(dict(networks[0].named_buffers()))[None].double()
    before = statistics.clone()
    nll, kl = family.elbo(theta, x, y, noise, statistics)
    assert not torch.equal(before, statistics)  # running statistics are handed in and updated in place
    (want,) = torch.autograd.grad((nll + 0.02 * kl).sum(), theta)
    got = torch.empty_like(want)
    family.gradient(theta.detach(), x, y, noise, 0.02, got, statistics)
    torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-10)
    with pytest.raises(ValueError, match="BatchNorm"):
        family.forward({}, x.expand(2, -1, -1, -1, -1))


@pytest.mark.parametrize("guide", GUIDES)
def test_fixed_entries_are_no_random_variables(guide):
    networks = _networks("w")
    family = Posterior(networks, RULES, GUIDES[guide])
    theta = family.initial(networks, [0, 1])
    x, y, noise = _batch(family)
    gradient = torch.full_like(theta, torch.nan)
    family.gradient(theta, x, y, noise, 0.02, gradient)
    for layer, mask in zip(family.layers, family.masks):
        for name, value in family.layout.views(gradient).items():
            if name.endswith(f"/{layer.name}"):
                outside = ~mask if value.dim() == 2 else ~mask[:, None].expand_as(value)
                assert outside.any()
                assert (value[outside] == 0).all()
        assert layer.entries == int(mask[0].sum())
    # Whatever noise falls on a fixed place changes nothing.
    if not any(family.local):
        other, at = noise.clone(), len(family.layers) * family.guide.factors
        for layer, mask in zip(family.layers, family.masks):
            other[:, at : at + layer.size][~mask] += 100.0
            at += layer.size
        assert not torch.equal(other, noise)
        assert torch.equal(family.elbo(theta, x, y, other)[0], family.elbo(theta, x, y, noise)[0])


def test_networks_are_not_changed_and_rows_stand_alone():
    networks = _networks("w", 3)
    before = [{k: v.clone() for k, v in n.state_dict().items()} for n in networks]
    family = Posterior(networks, RULES, GUIDES["normal"])
    theta = family.initial(networks, range(3))
    x, y, noise = _batch(family, 3)
    together = family.elbo(theta, x, y, noise)
    for i in range(3):
        alone = family.rows([i]).elbo(theta[i : i + 1], x[i : i + 1], y[i : i + 1], noise[i : i + 1])
        torch.testing.assert_close([v[i : i + 1] for v in together], list(alone))
    for network, state in zip(networks, before):
        assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


def test_local_outputs_have_the_distribution_of_drawn_weights():
    g = torch.Generator().manual_seed(0)
    x, count = torch.tensor([[0.7, -1.3, 0.0]]), 100_000
    mean, variance = torch.randn(2, 3, generator=g), torch.rand(2, 3, generator=g)
    bias, bias_variance = torch.randn(2, generator=g), torch.rand(2, generator=g)
    layer = LocalLinear()
    handed = {"weight": mean, "variance": variance, "bias": bias, "bias_variance": bias_variance,
              "noise": torch.randn(count, 2, generator=g)}  # fmt: skip
    local = torch.func.functional_call(layer, handed, (x.expand(count, 3),))
    weights = mean + variance.sqrt() * torch.randn(count, 2, 3, generator=g)
    drawn = (weights @ x[0]) + bias + bias_variance.sqrt() * torch.randn(count, 2, generator=g)
    for moment in (lambda v: v.mean(0), lambda v: v.var(0), lambda v: v.T.cov()[0, 1]):
        torch.testing.assert_close(moment(local), moment(drawn), atol=0.03, rtol=0.03)


@pytest.mark.parametrize("guide", ["lowrank", "lowrank-learned", "normal-weights", "last"])
@pytest.mark.parametrize("variant", ["standard", "w"])
def test_elbo_is_pyros(guide, variant):
    networks = _networks(variant, 1)
    family = Posterior(networks, RULES, GUIDES[guide])
    theta = family.initial(networks, [0])
    x, y, _ = _batch(family, 1, b=6)
    weight, draws = 0.125, 400
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    model = pyro_model(networks[0], RULES, kl_weight=weight, last_only=family.guide.last_only)
    guide_ = pyro_guide(family, theta[0], networks[0], kl_weight=weight)
    losses = torch.tensor([-Trace_ELBO().loss(model, guide_, x[0], y[0]) for _ in range(80)])
    noise = torch.randn(draws, family.noise_size(6), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        many = theta.expand(draws, -1), x.expand(draws, *x.shape[1:]), y.expand(draws, -1)
        nll, kl = family.elbo(*many, noise)
    ours = -(6 * nll + weight * kl)
    spread = (losses.var() / len(losses) + ours.var() / len(ours)).sqrt()
    assert abs(losses.mean() - ours.mean()) < 5 * spread
    assert (1 - weight) * kl[0] > 10 * spread  # an ELBO with another weight of its KL would be off by far more
    pyro.clear_param_store()


def test_pyro_sites_are_the_trainable_entries():
    network = _networks("w", 1)[0].float()
    model = pyro_model(network, RULES)
    trace = poutine.trace(model).get_trace(torch.randn(4, 1, 4, 4))
    sizes = {name: site["value"].numel() for name, site in trace.nodes.items()
             if site["type"] == "sample" and name not in ("data", "target")}  # fmt: skip
    want = {m.name: m.n_trainable + m.bias.numel() for m in network.modules() if hasattr(m, "n_trainable")}
    assert sizes == want
    pyro.clear_param_store()


def test_predictive_averages_probabilities():
    log_p = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    torch.testing.assert_close(log_mean_exp(log_p).exp(), torch.tensor([0.55, 0.45]))
    torch.testing.assert_close(log_mean_exp(torch.full((3, 1), -1000.0)), torch.tensor([-1000.0]))


@pytest.mark.parametrize("guide", ["lowrank", "normal"])
def test_predictions_do_not_depend_on_company_and_average_samples(guide):
    networks = _networks("w", 2)
    family = Posterior(networks, RULES, GUIDES[guide])
    theta = family.initial(networks, [0, 1])
    x = _batch(family, 1, b=260)[0][0]  # more than one batch of inputs
    both = predict(family, theta, x, 3, [5, 6], "t")
    alone = predict(family.rows([1]), theta[1:], x, 3, [6], "t")
    torch.testing.assert_close(both[1:], alone)
    torch.testing.assert_close(both.exp().sum(-1), torch.ones(2, 260, dtype=torch.float64))
    with pytest.raises(ValueError, match="samples"):
        predict(family, theta, x, 0, [5, 6], "t")


def test_gaussian_likelihood_by_hand():
    nll = Gaussian(2.0).nll(torch.tensor([[1.0]]), torch.tensor([3.0]))
    assert nll.item() == pytest.approx(0.5 + 0.6931472 + 0.9189385)
    with pytest.raises(ValueError, match="scale"):
        Gaussian(0.0)
