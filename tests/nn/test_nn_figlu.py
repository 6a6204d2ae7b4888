"""FiGLU: values by hand, both axes, and the symmetries that it has and has not."""

import copy
import math

import pytest
import torch
from torch import nn

from asym.nn.figlu import FiGLU


def figlu(width: int = 4, **options) -> FiGLU:
    return FiGLU(width, **({"scale": 1.0, "seed": 0, "name": "site"} | options))


def test_a_unit_worked_by_hand():
    layer = figlu(2)
    layer.fixed.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))
    # F x = (3 + 8, -4); sigmoid ⊙ x
    expected = torch.tensor([3 / (1 + math.exp(-11)), 4 / (1 + math.exp(4))])
    torch.testing.assert_close(layer(torch.tensor([3.0, 4.0])), expected)
    layer.gate = "cosine"
    torch.testing.assert_close(layer(torch.tensor([3.0, 4.0])), torch.tensor([3 * math.cos(11), 4 * math.cos(4)]))


@pytest.mark.parametrize("shape", [(5, 4), (5, 7, 4), (2, 3, 5, 4)])
def test_last_axis(shape):
    layer, x = figlu(), torch.randn(shape)
    expected = torch.stack([layer(v) for v in x.flatten(0, -2)]).reshape(shape)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 7), (2, 4, 3, 5), (2, 4, 2, 3, 2)])
def test_channel_axis_gates_the_channel_vector_of_every_position(shape):
    layer, vectors, x = figlu(channel_dim=1), figlu(), torch.randn(shape)
    expected = vectors(x.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(layer(x), expected)


def test_f_is_a_persistent_buffer_of_the_asked_scale():
    layer = figlu(300, scale=1 / math.sqrt(300))
    assert set(layer.state_dict()) == {"fixed"}
    assert list(layer.parameters()) == []
    assert abs(layer.fixed.std() * math.sqrt(300) - 1) < 0.02
    assert torch.equal(figlu(5, scale=3.0).fixed, 3 * figlu(5).fixed)
    assert not torch.equal(figlu(5, name="other").fixed, figlu(5).fixed)
    assert not torch.equal(figlu(5, seed=1).fixed, figlu(5).fixed)
    assert repr(figlu(gate="cosine")) == "FiGLU(4, scale=1, gate=cosine, channel_dim=-1)"


def test_copies_training_and_meta_device_keep_f():
    model = nn.Sequential(nn.Linear(4, 4), figlu())
    before = model[1].fixed.clone()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=1.0)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    assert torch.equal(model[1].fixed, before)
    assert torch.equal(copy.deepcopy(model)[1].fixed, before)
    empty = figlu(device="meta").to_empty(device="cpu")
    empty.reset_parameters()
    assert torch.equal(empty.fixed, before)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.randn(3, 4)).isfinite().all()


def test_gradient_is_that_of_the_formula():
    assert torch.autograd.gradcheck(figlu().double(), torch.randn(3, 4, dtype=torch.double, requires_grad=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width: 0 at 'site'"),
        ({"scale": 0.0}, "scale: 0.0"),
        ({"scale": math.inf}, "scale: inf"),
        ({"gate": "tanh"}, "gate: 'tanh' at 'site'; choose from sigmoid, cosine"),
        ({"channel_dim": 2}, "channel_dim: 2 at 'site'; choose from -1, 1"),
    ],
)
def test_bad_arguments_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        figlu(**options)


# --- symmetries, in float64


def gap(layer: FiGLU, matrix: torch.Tensor) -> float:
    """The largest |f(A x) - A f(x)| over random x."""
    x = torch.randn(64, layer.width, dtype=torch.double, generator=torch.Generator().manual_seed(9))
    return float((layer(x @ matrix.T) - layer(x) @ matrix.T).abs().max())


def permutation_matrix(permutation) -> torch.Tensor:
    return torch.eye(len(permutation), dtype=torch.double)[list(permutation)]


@pytest.mark.parametrize("gate", ["sigmoid", "cosine"])
def test_no_permutation_commutes(gate):
    import itertools

    layer = figlu(gate=gate).double()
    for permutation in itertools.permutations(range(4)):
        if permutation == (0, 1, 2, 3):
            assert gap(layer, permutation_matrix(permutation)) == 0
        else:
            assert gap(layer, permutation_matrix(permutation)) > 1e-2


def test_no_diagonal_scaling_commutes():
    generator = torch.Generator().manual_seed(1)
    layer = figlu().double()
    for _ in range(20):
        scales = torch.empty(4, dtype=torch.double).uniform_(0.5, 2, generator=generator)
        assert gap(layer, torch.diag(scales)) > 1e-2
    assert gap(layer, 2 * torch.eye(4, dtype=torch.double)) > 1e-2
    assert gap(layer, -torch.eye(4, dtype=torch.double)) > 1e-2


def test_relu_does_commute_with_both():
    x = torch.randn(64, 4, dtype=torch.double)
    for matrix in (permutation_matrix([2, 0, 3, 1]), torch.diag(torch.tensor([0.5, 2, 3, 1]).double())):
        torch.testing.assert_close((x @ matrix.T).relu(), x.relu() @ matrix.T, rtol=0, atol=1e-12)


def test_a_degenerate_f_does_commute():
    """What the proof needs of F: circulant F has the cyclic shifts, equal entries have all permutations."""
    layer = figlu().double()
    column = torch.tensor([0.3, -1.0, 2.0, 0.7], dtype=torch.double)
    layer.fixed.copy_(torch.stack([column.roll(i) for i in range(4)], 1))
    assert gap(layer, permutation_matrix([3, 0, 1, 2])) < 1e-12
    assert gap(layer, permutation_matrix([1, 0, 2, 3])) > 1e-2
    layer.fixed.fill_(0.7)
    assert gap(layer, permutation_matrix([1, 0, 2, 3])) < 1e-12
    assert gap(layer, permutation_matrix([2, 3, 1, 0])) < 1e-12
    layer.fixed.fill_(0.0)  # gate 1/2: linear, so every scaling commutes
    assert gap(layer, torch.diag(torch.tensor([0.5, 2, 3, -1]).double())) < 1e-12
