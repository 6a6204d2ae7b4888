"""The explicit soft-max layer: naive Bayes, its optimum, its priming number, its sign."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from asym.explicit.softmax import choose_priming, cross_entropy, naive_bayes, outer_sums, solve_softmax


def independent_features(samples=6000, features=40, classes=12, draws=6, seed=0):
    """Inputs of norm `draws`: independent draws of features given the class."""
    g = torch.Generator().manual_seed(seed)
    rates = (1.0 * torch.randn(classes, features, generator=g, dtype=torch.float64)).softmax(1)
    prior = torch.randn(classes, generator=g, dtype=torch.float64).softmax(0)
    y = torch.multinomial(prior, samples, replacement=True, generator=g)
    drawn = torch.multinomial(rates[y], draws, replacement=True, generator=g)
    return functional.one_hot(drawn, features).sum(1).double(), y


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.3, 20), st.floats(0.5, 8), st.booleans())
def test_it_is_naive_bayes_with_the_prior_spread_over_the_input(seed, priming, norm, soft):
    g = torch.Generator().manual_seed(seed)
    h = torch.rand(50, 7, generator=g, dtype=torch.float64)
    h = norm * h / h.sum(1, keepdim=True)
    y = torch.randint(0, 4, (50,), generator=g)
    targets = torch.rand(50, 4, generator=g, dtype=torch.float64).softmax(1) if soft else y
    sums = outer_sums(h, targets, 4)
    assert torch.allclose(sums, h.T @ (targets if soft else functional.one_hot(y, 4).double()), atol=1e-12)
    weight = solve_softmax(sums, norm=norm, priming=priming)
    theta, bias = naive_bayes(sums, norm=norm, tempering=priming / norm)
    ours, theirs = (h @ weight).log_softmax(1), (h @ theta + bias).log_softmax(1)
    assert (ours - theirs).abs().max() < 1e-10


def test_on_one_hot_inputs_it_is_the_optimum():
    g = torch.Generator().manual_seed(0)
    place, y = torch.randint(0, 5, (400,), generator=g), torch.randint(0, 3, (400,), generator=g)
    h = functional.one_hot(place, 5).double()
    weight = solve_softmax(outer_sums(h, y, 3), smoothing=0.0)
    gradient = h.T @ ((h @ weight).softmax(1) - functional.one_hot(y, 3))
    assert gradient.abs().max() < 1e-10
    smoothed = solve_softmax(outer_sums(h, y, 3), smoothing=1.0)
    assert (h.T @ ((h @ smoothed).softmax(1) - functional.one_hot(y, 3))).abs().max() > 0.1


def test_the_best_priming_number_is_the_true_norm():
    h, y = independent_features(samples=60_000)
    h, y, h_test, y_test = h[:40_000], y[:40_000], h[40_000:], y[40_000:]
    sums = outer_sums(h, y, 12)
    choice = choose_priming(
        lambda k: cross_entropy(h_test, solve_softmax(sums, norm=6.0, priming=k), y_test), [1, 2, 3, 4, 5, 6, 7, 8]
    )
    losses = choice.losses
    assert choice.value == 6
    assert losses[1] > 2 * losses[6]
    assert [losses[k] > losses[k + 1] for k in range(1, 8)] == [True] * 5 + [False] * 2


def test_plus_in_place_of_minus_is_no_solution():
    h, y = independent_features()
    sums = outer_sums(h, y, 12)
    right = solve_softmax(sums, norm=6.0)
    wrong = (sums + 1e-2).log() + 5 / 6 * (sums + 1e-2).sum(0).log()
    assert cross_entropy(h, wrong, y) > cross_entropy(h, torch.zeros_like(right), y) > 3 * cross_entropy(h, right, y)


def test_by_hand():
    sums = torch.tensor([[2.0, 1.0], [2.0, 3.0]])
    expected = sums.log() - 0.5 * torch.log(torch.tensor([4.0, 4.0]))
    torch.testing.assert_close(solve_softmax(sums, norm=2.0, smoothing=0.0), expected)
    torch.testing.assert_close(solve_softmax(sums, smoothing=0.0), sums.log())


@pytest.mark.parametrize(
    ("options", "match"),
    [({"norm": 0.0}, "positive"), ({"priming": -1.0}, "positive"), ({"smoothing": -1.0}, "negative"),
     ({"smoothing": 0.0}, "smoothing: got 0")],
)  # fmt: skip
def test_what_cannot_be_solved(options, match):
    with pytest.raises(ValueError, match=match):
        solve_softmax(torch.tensor([[0.0, 1.0]]), **options)
    with pytest.raises(ValueError, match="negative"):
        solve_softmax(torch.tensor([[-1.0, 1.0]]))


def test_choice_survives_nan_and_wants_candidates():
    assert choose_priming(lambda k: float("nan") if k == 1 else k, [1, 3, 2]).value == 2
    with pytest.raises(ValueError, match="none given"):
        choose_priming(lambda k: k, [])


def test_a_single_layer_has_no_barrier():
    """Its loss is convex in the weights: between solutions of two halves of the data lies nothing higher."""
    h, y = independent_features(samples=2000)
    a, b = (solve_softmax(outer_sums(h[part], y[part], 12), norm=6.0) for part in (slice(0, 1000), slice(1000, 2000)))
    ends = cross_entropy(h, a, y), cross_entropy(h, b, y)
    for lam in (0.1, 0.25, 0.5, 0.8):
        assert cross_entropy(h, (1 - lam) * a + lam * b, y) <= (1 - lam) * ends[0] + lam * ends[1] + 1e-6
