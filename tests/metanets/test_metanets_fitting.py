"""The common training: what it learns, what it keeps, what it refuses."""

import math

import pytest
import torch
from chain_nets import chain, random_stack
from torch import nn

from asym.metanets import Protocol, Scale, build, fit, predict
from asym.metanets.fitting import SCALES

CNN = chain("relu cnn")
SHORT = Protocol(epochs=20, lr=3e-3, batch=8, checks=5)


def task(n=48):
    """Networks whose target is the mean of their first kernel, which statistics show."""
    stack = random_stack(CNN, n, dtype=torch.float32)
    mean = stack.tensors[CNN.layers[0].weight].flatten(1).mean(1, keepdim=True)
    target = (mean - mean.mean()) / mean.std()
    return stack, target, torch.arange(0, 32), torch.arange(32, n)


def test_a_reader_learns_and_keeps_the_weights_that_were_best_on_validation():
    stack, target, train, val = task()
    reader = build("stats", CNN, width=16)
    before = float(nn.functional.mse_loss(predict(reader, stack)[val], target[val]))
    found = fit(reader, stack, target, train, val, SHORT, seed=1)
    assert not reader.training
    assert len(found.history) == 5
    assert found.score == max(entry["val_score"] for entry in found.history)
    after = float(nn.functional.mse_loss(predict(reader, stack)[val], target[val]))
    assert after == pytest.approx(-found.score, rel=1e-5)
    assert after < before / 2
    assert found.diverged == 0


def test_same_seed_same_bits_and_another_order_other_bits():
    stack, target, train, val = task()

    def once(seed):
        reader = build("flat", CNN, width=4)
        fit(reader, stack, target, train, val, Protocol(epochs=3, batch=8), seed=seed)
        return predict(reader, stack)

    assert torch.equal(once(1), once(1))
    assert not torch.equal(once(1), once(2))


def test_an_early_choice_is_not_the_last_epoch_if_that_reads_worse():
    stack, target, train, val = task()
    values = iter([1.0, 3.0, 2.0, math.nan, 0.0])
    found = fit(build("flat", CNN), stack, target, train, val, SHORT, seed=0, score=lambda o, t: next(values))
    assert (found.score, found.epoch) == (3.0, 8)


def test_trees_are_fitted_once():
    stack, target, train, val = task()
    found = fit(build("stats-boost", CNN, iterations=20), stack, target, train, val, SHORT, seed=0)
    assert found.history == []
    assert math.isfinite(found.score)


def test_classes_and_other_outputs_than_the_readers_own():
    stack, target, train, val = task()
    labels = (target[:, 0] > 0).long()

    def double(reader, part):
        return 2 * reader(part)

    def right(outputs, labels):
        return float((outputs.argmax(1) == labels).float().mean())

    reader = build("stats", CNN, width=16, out=2)
    loss = nn.functional.cross_entropy
    found = fit(reader, stack, labels, train, val, SHORT, seed=0, loss=loss, score=right, call=double)
    assert found.score == right(predict(reader, stack.rows(val)), labels[val])
    assert right(predict(reader, stack.rows(train)), labels[train]) > 0.9
    assert torch.equal(predict(reader, stack, call=double), 2 * predict(reader, stack))


def test_a_loss_that_is_not_finite_ends_training_and_says_when():
    stack, target, train, val = task()
    count = iter(range(1000))
    loss = lambda o, t: ((o - t) ** 2).mean() * (math.nan if next(count) >= 10 else 1.0)  # noqa: E731
    found = fit(build("flat", CNN), stack, target, train, val, Protocol(epochs=9, batch=8, checks=9), seed=0,
                loss=loss, score=lambda o, t: 0.0)  # fmt: skip
    assert found.diverged == 3
    assert found.epoch == 1


def test_rates_rise_and_fall():
    protocol = Protocol(lr=1.0, warmup=0.1)
    rates = [protocol.lr_at(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1
    assert rates[55] == pytest.approx(0.5)
    assert rates[-1] < 1e-3


@pytest.mark.parametrize("field", ["epochs", "batch", "checks", "piece", "lr", "clip"])
def test_numbers_out_of_range_are_named(field):
    with pytest.raises(ValueError, match=field):
        Protocol(**{field: 0})


def test_a_network_may_not_be_trained_on_and_judged_by():
    stack, target, train, _ = task()
    with pytest.raises(ValueError, match="twice"):
        fit(build("flat", CNN), stack, target, train, train[:3], SHORT, seed=0)
    with pytest.raises(ValueError, match="targets: 3"):
        fit(build("flat", CNN), stack, target[:3], train, torch.tensor([40]), SHORT, seed=0)


@pytest.mark.parametrize("kind", SCALES)
def test_scales_go_and_come_back_and_keep_the_order(kind):
    accuracies = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0], dtype=torch.float64)
    scale = Scale.of(accuracies, kind=kind, images=10)
    units = scale.to_units(accuracies)
    assert torch.allclose(scale.to_accuracies(units), accuracies, atol=1e-12)
    assert (units.diff() > 0).all()
    assert float(units.mean()) == pytest.approx(0, abs=1e-12)
    assert float(units.std()) == pytest.approx(1)


def test_logits_by_hand_and_a_constant_zoo():
    scale = Scale("logit", 0.0, 1.0, 10)
    # (0 + 1/20) / (1 + 1/20) = 1/21
    assert float(scale.to_units(torch.tensor([0.0]))) == pytest.approx(-math.log(21), rel=1e-6)
    assert Scale.of(torch.full((3,), 0.5), images=10).deviation == 1
    with pytest.raises(ValueError, match="fractions"):
        Scale.of(torch.tensor([73.8]), images=10)
