"""Copies of a mode: group elements of a small network, and networks without the scaling symmetry."""

import numpy as np
import pytest
import torch

from asym.bayes import fix_scaling
from asym.bayes.copies import group_order, nearest_element, visited
from asym.models import build


def test_orders_of_the_groups():
    assert group_order(3, odd=True) == 48
    assert group_order(3, odd=False) == 6


@pytest.mark.parametrize("seed", range(5))
def test_a_known_element_is_found(seed):
    g = np.random.default_rng(seed)
    reference = g.normal(size=(4, 5))
    order, signs = g.permutation(4), g.choice([-1, 1], size=4)
    moved = np.empty_like(reference)
    moved[order] = reference * signs[:, None]
    got = nearest_element(moved, reference, odd=True)
    assert got == (tuple(order), tuple(signs))
    _, aligned = visited(moved[None], reference, odd=True)
    np.testing.assert_allclose(aligned[0], reference)


def test_copies_are_counted_and_stragglers_are_not():
    reference = np.array([[1.0, 0.0], [0.0, 2.0]])
    swapped, flipped = reference[::-1], reference * [[-1], [1]]
    draws = np.concatenate([np.repeat(a[None], n, 0) for a, n in ((reference, 500), (swapped, 300), (flipped, 2))])
    assert visited(draws, reference, odd=True)[0] == 2
    assert visited(draws, reference, odd=True, share=0.001)[0] == 3
    assert visited(draws, reference, odd=False)[0] == 2


def test_fixing_the_scale_removes_the_symmetry_and_only_that():
    options = {"input_shape": (1, 1, 3), "classes": 2, "width": 4 / 512, "depth": 1, "norm": "none"}
    plain = build("mlp", **options, activation="relu").double()
    fixed = fix_scaling(plain)
    x = torch.randn(6, 1, 1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def scaled(network, c):
        state = {k: v.clone() for k, v in network.state_dict().items()}
        state["hidden.0.linear.weight"] *= c
        state["hidden.0.linear.bias"] *= c
        state["head.weight"] /= c
        return torch.func.functional_call(network, state, (x,))

    torch.testing.assert_close(scaled(plain, 3.0), plain(x))
    assert not torch.allclose(scaled(fixed, 3.0), fixed(x))
    norms = torch.cat([plain.hidden[0].linear.weight, plain.hidden[0].linear.bias[:, None]], 1).norm(dim=1)
    state = {k: v.clone() for k, v in plain.state_dict().items()}
    state["head.weight"] *= norms  # the same function, its scale moved outwards
    torch.testing.assert_close(torch.func.functional_call(fixed, state, (x,)), plain(x))


def test_networks_that_cannot_be_fixed():
    with pytest.raises(ValueError, match="norm"):
        fix_scaling(build("mlp", input_shape=(1, 1, 3), classes=2, width=4 / 512, depth=1))
    with pytest.raises(ValueError, match="hidden"):
        fix_scaling(torch.nn.Linear(2, 2))
