"""Inference in the loop: it learns, resumes to the same bits, marks what diverges, and keeps rows apart."""

import pytest
import torch

from asym.bayes import Guide, Inference, Posterior, PriorRule, infer_chunk
from asym.data import load
from asym.nn import Variant
from asym.populations import Architecture, Member, Plan, Recipe
from asym.store import Store

PLAN = Plan(2, "float32", False)
RULES = (PriorRule("*", 0.01),)


@pytest.fixture(scope="module")
def data():
    return load("digits", train_size=200)


def _run(data, *, variant="w", epochs=3, seeds=(0, 1), lr=3e-3, guide=None, **options):
    architecture = Architecture("mlp-8", data.input_shape, data.classes, 0.1, None, Variant(variant))
    recipe = Recipe("adam", lr=lr, epochs=epochs, batch_size=50)
    members = [Member(seed, seed, recipe) for seed in seeds]
    inference = Inference(guide or Guide("lowrank"), RULES, 0.125)
    return infer_chunk(architecture, members, data, inference, PLAN, **options)


def test_it_learns_and_fixed_places_stay_zero(data):
    result = _run(data, epochs=40)
    losses = [h["train_nll"] for h in result.history if h["network"] == 0]
    assert losses[-1] < 0.7 * losses[0]
    assert result.diverged == [0, 0]
    architecture = Architecture("mlp-8", data.input_shape, data.classes, 0.1, None, Variant("w"))
    family = Posterior([architecture.build(s, s) for s in (0, 1)], RULES, Guide("lowrank"))
    views = family.layout.views(result.theta)
    for layer, mask in zip(family.layers, family.masks):
        assert (views[f"mean/{layer.name}"][~mask] == 0).all()
        assert (views[f"factor/{layer.name}"].transpose(1, 2)[~mask] == 0).all()
        assert (views[f"mean/{layer.name}"][mask] != 0).any()


class _Stop(Exception):
    pass


@pytest.mark.parametrize("guide", [Guide("lowrank"), Guide("normal")])
def test_an_interrupted_run_ends_with_the_same_bits(data, tmp_path, guide):
    whole = _run(data, guide=guide)
    run, seen = Store(tmp_path).run("posterior", {"a": 1}), []

    def stop(networks):
        seen.append(networks)
        if len(seen) == 3:
            raise _Stop

    with pytest.raises(_Stop):
        _run(data, guide=guide, checkpoint=run, checkpoint_every_s=0.0, on_epoch=stop)
    resumed = _run(data, guide=guide, checkpoint=run)
    assert torch.equal(whole.theta, resumed.theta)
    assert whole.history == resumed.history


def test_a_network_gets_the_same_alone(data):
    both = _run(data)
    alone = _run(data, seeds=(1,))
    torch.testing.assert_close(both.theta[1:], alone.theta, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(both.theta[:1], alone.theta, rtol=1e-3, atol=1e-4)


def test_what_diverges_is_marked_and_the_others_go_on(data):
    healthy = _run(data)
    original = Posterior.initial

    def poisoned(self, networks, seeds):
        theta = original(self, networks, seeds)
        theta[0, 0] = float("nan")
        return theta

    try:
        Posterior.initial = poisoned
        result = _run(data)
    finally:
        Posterior.initial = original
    assert result.diverged == [1, 0]
    assert {h["epoch"] for h in result.history if h["network"] == 0} == {1}
    torch.testing.assert_close(result.theta[1], healthy.theta[1], rtol=1e-3, atol=1e-4)


def test_bad_recipes(data):
    architecture = Architecture("mlp-8", data.input_shape, data.classes, 0.1)
    inference = Inference(Guide("lowrank"), RULES)
    with pytest.raises(ValueError, match="adam"):
        infer_chunk(architecture, [Member(0, 0, Recipe("adamw"))], data, inference, PLAN)
    members = [Member(0, 0, Recipe("adam")), Member(1, 0, Recipe("adam", lr=1.0))]
    with pytest.raises(ValueError, match="share"):
        infer_chunk(architecture, members, data, inference, PLAN)
    with pytest.raises(ValueError, match="kl_weight"):
        Inference(Guide("lowrank"), RULES, -1.0)
