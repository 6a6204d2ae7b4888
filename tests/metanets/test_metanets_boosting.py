"""Readers without gradients: boosted trees on statistics, and on hyper-parameters alone."""

import sys

import numpy as np
import pytest
import torch
from chain_nets import chain, random_stack

from asym.metanets import build, predict
from asym.seeds import torch_generator
from asym.symmetry.scaling import permute_units, random_factors, random_orders, scale_units

CNN = chain("relu cnn")


def permuted(stack):
    orders = random_orders(stack.chain, (len(stack),), torch_generator(0, "act"))
    return permute_units(stack.chain, orders, stack.tensors)


def rescaled(stack):
    factors = random_factors(stack.chain, (len(stack),), torch_generator(0, "act"), ratio=64.0)
    return scale_units(stack.chain, factors, stack.tensors)


def change(reader, stack, move):
    """By how much a move changes predictions, in units of their spread over networks."""
    y = predict(reader, stack)
    return float((predict(reader, stack.replace(move(stack))) - y).abs().max() / y.std())


def test_boosting_forgets_order_and_scalings_as_its_statistics_do():
    stack = random_stack(CNN, 40)
    y = stack.tensors["head.bias"][:, :1]
    plain, fixed = build("stats-boost", CNN), build("stats-boost", CNN, gauge=True)
    for reader in (plain, fixed):
        reader.fit(stack, y)
        assert np.corrcoef(reader(stack)[:, 0], y[:, 0])[0, 1] > 0.5
        assert change(reader, stack, permuted) < 1e-6
    assert change(plain, stack, rescaled) > 1e-2
    assert change(fixed, stack, rescaled) < 1e-6
    with pytest.raises(ValueError, match=r"targets: shape \(40, 2\), expected \(40, 1\)"):
        plain.fit(stack, y.expand(40, 2))


def test_the_control_reads_nothing_but_hyper_parameters():
    hyper = torch.randn(60, 1, generator=torch_generator(0, "h"), dtype=torch.float64)
    stack = random_stack(CNN, 60, hyper=hyper)
    control = build("hyper-boost", CNN)
    control.fit(stack, hyper.sin())
    others = random_stack(CNN, 60, seed=9, hyper=hyper)
    assert torch.equal(control(stack), control(others))
    assert float((control(stack) - hyper.sin()).abs().mean()) < 0.2
    with pytest.raises(ValueError, match="no hyper-parameters"):
        control(random_stack(CNN, 60))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_missing_library_names_its_extra(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(ValueError, match=rf"{library} is not installed; pip install 'asym\[boost\]'"):
        build(f"stats-boost-{library}", CNN)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_other_libraries_fit_alike_and_repeat_themselves(library):
    stack = random_stack(CNN, 80)
    y = stack.tensors["head.bias"][:, :1]
    first, second, ours = (build(f"stats-boost{end}", CNN, seed=3) for end in (f"-{library}", f"-{library}", ""))
    for reader in (first, second, ours):
        reader.fit(stack, y)
    assert torch.equal(first(stack), second(stack))
    assert np.corrcoef(first(stack)[:, 0], y[:, 0])[0, 1] > 0.5
    assert np.corrcoef(first(stack)[:, 0], ours(stack)[:, 0])[0, 1] > 0.5
