"""Published tree baselines: the number of trees is chosen on validation networks; networks too few give their mean."""

import math

import pytest
import torch

from asym.metanets import Protocol, build, fit, predict
from asym.metanets.stack import Stack
from asym.metanets.transformer_nfn.baselines import TRANSFORMER_READERS
from asym.models import build as build_network
from asym.rank_metrics import kendall
from asym.seeds import torch_generator
from asym.symmetry.encoder import encoder_of

NAMES = ["xgboost", "lightgbm", "lightgbm-forest"]


def networks(n: int) -> tuple[Stack, torch.Tensor]:
    """Random transformers, and a number that few of their weights tell."""
    network = build_network("transformer-plain", input_shape=(1, 8, 8), classes=3, width=0.125)
    encoder = encoder_of(dict(network.named_parameters()), 2)
    generator = torch_generator(0, "published trees")
    stack = Stack(encoder, {k: torch.randn(n, *shape, generator=generator) for k, shape in encoder.shapes.items()})
    return stack, stack.tensors["head.2.bias"].sum(1, keepdim=True)


def trees(reader) -> int:
    """Trees that predictions use."""
    model = reader.models[0]
    return model.best_iteration + (type(model).__name__ == "XGBRegressor")


@pytest.mark.parametrize("name", NAMES)
def test_they_learn_and_stop_by_validation_networks(name):
    stack, targets = networks(600)
    reader = build(name, stack.chain, among=TRANSFORMER_READERS, seed=1, iterations=60)
    train, val, test = torch.arange(400), torch.arange(400, 500), torch.arange(500, 600)
    found = fit(reader, stack, targets, train, val, Protocol(), seed=0)
    assert found.epoch == 0
    assert found.score < 0
    assert 1 <= trees(reader) <= 60
    answers = predict(reader, stack.rows(test))
    assert answers.shape == (100, 1)
    assert torch.corrcoef(torch.cat([answers, targets[test]], 1).T)[0, 1] > 0.2


@pytest.mark.parametrize("name", NAMES)
def test_noise_keeps_few_trees(name):
    stack, _ = networks(300)
    noise = torch.randn(300, 1, generator=torch_generator(0, "noise"))
    reader = build(name, stack.chain, among=TRANSFORMER_READERS, iterations=50)
    reader.fit(stack.rows(torch.arange(200)), noise[:200], val=(stack.rows(torch.arange(200, 300)), noise[200:]))
    assert trees(reader) < 50


@pytest.mark.parametrize("name", NAMES)
def test_too_few_networks_are_their_mean(name):
    stack, targets = networks(80)
    reader = build(name, stack.chain, among=TRANSFORMER_READERS, iterations=5)
    reader.fit(stack, targets)
    answers = predict(reader, stack)
    assert float(answers.std()) < 1e-6
    assert math.isnan(kendall(targets[:, 0], answers[:, 0]))  # not 0: a constant ranks nothing
    # Each tree sees four fifths of the networks.
    assert abs(float(answers[0] - targets.mean())) < 0.5 * float(targets.std()) / 80**0.5


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_trees(name):
    stack, targets = networks(200)
    answers = []
    for seed in (5, 5, 6):
        reader = build(name, stack.chain, among=TRANSFORMER_READERS, seed=seed, iterations=5)
        reader.fit(stack, targets)
        answers.append(predict(reader, stack))
    assert torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[2])
