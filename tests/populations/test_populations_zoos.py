import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from asym.populations import Recipe
from asym.populations.population import compact
from asym.populations.zoos import ZOOS, Choice, Integers, LogUniform, Uniform, Zoo, draw_recipes
from asym.seeds import numpy_generator
from asym.store import config_hash

MANY = draw_recipes("resnet8", 600, seed=3)


def test_every_network_is_drawn_from_the_published_distributions():
    u = {
        "lr": [-math.log10(r.lr / 0.5) / 2 for r in MANY],
        "weight_decay": [(-math.log10(r.weight_decay) - 1) / 4 for r in MANY],
        "smoothing": [r.smoothing / 0.2 for r in MANY],
    }
    for values in u.values():
        assert stats.kstest(values, "uniform").pvalue > 1e-3
    for a, b in (("lr", "weight_decay"), ("lr", "smoothing"), ("weight_decay", "smoothing")):
        assert abs(np.corrcoef(u[a], u[b])[0, 1]) < 0.15  # streams of their own
    assert {r.epochs for r in MANY} == set(range(10, 41))
    assert {(r.optimizer, r.schedule, r.warmup, r.batch_size) for r in MANY} == {("adamw", "triangular", 5, 512)}


def test_a_uniform_rate_would_be_noticed():
    wrong = [(0.5 - r.lr) / 0.495 for r in MANY]
    assert stats.kstest(wrong, "uniform").pvalue < 1e-6


def test_a_longer_zoo_begins_with_the_shorter_and_another_seed_is_another_zoo():
    assert draw_recipes("resnet8", 5, seed=3) == MANY[:5]
    assert not set(draw_recipes("resnet8", 5, seed=4)) & set(MANY)
    assert len(set(MANY)) == len(MANY)


def test_a_new_hyper_parameter_leaves_the_others_as_they_were():
    old = ZOOS["resnet8"]
    more = dataclasses.replace(old, draws={"optimizer": Choice(("sgd", "adamw")), **old.draws})
    drawn = draw_recipes(more, 20, seed=3)
    assert {r.optimizer for r in drawn} == {"sgd", "adamw"}
    assert [dataclasses.replace(r, optimizer="adamw") for r in drawn] == MANY[:20]


def test_dropout_is_drawn_as_published():
    small = [r.dropout for r in draw_recipes("small-cnn", 400, seed=3)]
    assert min(small) >= 0
    assert max(small) < 0.7
    assert stats.kstest([x / 0.7 for x in small], "uniform").pvalue > 1e-3
    assert stats.kstest([x / 0.9 for x in small], "uniform").pvalue < 1e-6
    grid = (0.0, 0.05, 0.1, 0.15, 0.2)
    drawn = [r.dropout for r in draw_recipes("transformer", 400, seed=3)]
    assert set(drawn) == set(grid)
    assert stats.chisquare([drawn.count(x) for x in grid]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("zoo", "name"),
    [
        ("resnet8", "d1f3644fa513"),
        ("small-cnn-digits", "2963e674fa30"),
        ("transformer-digits", "8a39bfa0ad3b"),
        ("small-cnn", "3e93cee6c972"),
        ("transformer", "2b6e088d7634"),
    ],
)
def test_draws_are_pinned(zoo, name):
    """What was drawn before there was dropout: a change here renames the kept networks of a zoo."""
    recipes = draw_recipes(zoo, 40, seed=0)
    if zoo in ("small-cnn", "transformer"):
        recipes = [dataclasses.replace(recipe, dropout=0.0) for recipe in recipes]
    assert config_hash({"recipes": [compact(recipe) for recipe in recipes]}) == name


def test_shorter_and_fixed_recipes():
    for short, whole in zip(draw_recipes("resnet8", 50, seed=3, epochs_scale=0.1), MANY):
        assert short.epochs == max(1, round(whole.epochs / 10))
        assert short.warmup == min(0.5, short.epochs / 2)
        assert dataclasses.replace(short, epochs=whole.epochs, warmup=whole.warmup) == whole
    fixed = draw_recipes("resnet8", 3, seed=3, epochs_scale=0.1, fixed={"lr": 0.25, "epochs": 7, "batch_size": 64})
    assert [(r.lr, r.epochs, r.batch_size) for r in fixed] == [(0.25, 7, 64)] * 3
    assert [r.smoothing for r in fixed] == [r.smoothing for r in MANY[:3]]


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-3, 3.0))
def test_every_length_gives_valid_recipes(scale):
    for recipe in draw_recipes("resnet8", 8, seed=0, epochs_scale=scale):
        assert 0 < recipe.warmup < recipe.epochs


@pytest.mark.parametrize(
    ("draw", "inside"),
    [
        (Uniform(2.0, 3.0), lambda v: 2 <= v < 3),
        (LogUniform(0.1, 10.0), lambda v: 0.1 <= v < 10.0001),
        (Integers(2, 4), lambda v: v in (2, 3, 4)),
        (Choice(("a", "b")), lambda v: v in ("a", "b")),
    ],
)
def test_draws_lie_inside_and_reach_all(draw, inside):
    values = [draw.draw(numpy_generator(k, "test")) for k in range(200)]
    assert all(inside(value) for value in values)
    if isinstance(draw, LogUniform):
        assert 60 < sum(value < 1 for value in values) < 140
    if isinstance(draw, Integers | Choice):
        assert len(set(values)) == (3 if isinstance(draw, Integers) else 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zoo": "resnet9"}, r"^zoo: 'resnet9' is unknown; choose from resnet8"),
        ({"n": 0}, r"^n: got 0"),
        ({"epochs_scale": 0.0}, r"^epochs_scale: got 0.0"),
        ({"epochs_scale": math.inf}, r"^epochs_scale: got inf"),
        ({"fixed": {"rate": 1.0}}, r"^fixed: 'rate' is no field"),
        ({"fixed": {"lr": -1.0}}, r"^lr: got -1.0"),
        ({"zoo": Zoo("mine", Recipe(), {"rate": Uniform(0, 1)})}, r"^zoo: 'rate' is no field"),
    ],
)
def test_bad_requests_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        draw_recipes(**{"zoo": "resnet8", "n": 2, "seed": 0} | options)
