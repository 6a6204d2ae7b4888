"""Stacks: what is known of networks beforehand, and weights that are too small to count."""

import dataclasses

import pytest
import torch
from chain_nets import chain, random_stack

from asym.metanets import Protocol, build, fit, predict
from asym.metanets.stack import without_subnormal

CNN = chain("relu cnn")


def subnormal(stack):
    """The stack with a tenth of its weights below the smallest normal number, and the same with zeros there."""
    few = {name: t.clone() for name, t in stack.tensors.items()}
    none = {name: t.clone() for name, t in stack.tensors.items()}
    for name in few:
        few[name].view(-1)[::10] *= 1e-40
        none[name].view(-1)[::10] = 0
    return stack.replace(few), stack.replace(none)


@torch.no_grad()
def test_weights_below_normal_numbers_are_zeros_to_the_last_bit_where_biases_are_added():
    few, none = subnormal(random_stack(CNN, dtype=torch.float32))
    assert not torch.equal(few.flat(), none.flat())
    assert torch.equal(without_subnormal(few.flat()), none.flat())
    for name in ("deepsets", "gmn", "gmn-b"):
        reader = build(name, CNN)
        assert torch.equal(reader(few), reader(none))
    # not so before the gauge is fixed, where a direction is one however small the vector
    first = (CNN.layers[0].weight, CNN.layers[0].bias)
    tiny = few.replace({name: 1e-39 * t if name in first else t for name, t in few.tensors.items()})
    gone = tiny.replace({name: without_subnormal(t) for name, t in tiny.tensors.items()})
    fixed = build("deepsets", CNN, gauge=True)
    assert float((fixed(tiny) - fixed(gone)).abs().max()) > 1e-4


@pytest.mark.parametrize("options", [{}, {"gauge": True}, {"augment": 4.0}])
def test_what_is_worked_out_ahead_changes_no_bit(options, monkeypatch):
    stack = random_stack(CNN, 40, dtype=torch.float32)
    target = stack.tensors["head.bias"][:, :1]
    found = []
    for ahead in (True, False):
        reader = build("stats", CNN, width=8, **options)
        if not ahead:
            monkeypatch.setattr(reader, "ahead", lambda stack: stack)
        fit(reader, stack, target, torch.arange(30), torch.arange(30, 40), Protocol(epochs=3, batch=8), seed=1)
        found.append(predict(reader, stack))
    assert torch.equal(*found)


def test_features_follow_their_networks_and_go_with_their_weights():
    reader = build("stats", CNN, width=8)
    stack = random_stack(CNN, dtype=torch.float32)
    known = reader.ahead(stack)
    assert known.features is not None
    assert torch.equal(predict(reader, known), predict(reader, stack))
    assert torch.equal(known.rows(slice(2, 4)).features, reader.features(stack.rows(slice(2, 4))))
    assert known.to(torch.float64).features.dtype == torch.float64
    doubled = {name: 2 * t for name, t in stack.tensors.items()}
    assert known.replace(doubled).features is None
    wrong = dataclasses.replace(known, features=known.features + 1)
    assert not torch.equal(predict(reader, wrong), predict(reader, stack))
