import dataclasses
import enum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asym.store import config_hash
from asym.store.hashing import canonical, without_defaults

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


def test_literal_hashes():
    # A store is found again by these; a change here orphans every run that was ever kept.
    assert config_hash({}) == "44136fa355b3"
    assert (
        config_hash({"arch": "mlp", "seeds": (0, 1), "lr": 1e-3, "variant": {"name": "w", "kappa": None}})
        == "40ac63be3cc2"
    )
    assert config_hash({"text": "σ", "flag": True, "n": 64}) == "82ee3351631b"


def test_a_new_field_with_its_default_keeps_the_name():
    old = config_hash({"arch": "mlp", "recipe": {"lr": 0.1}}, {"arch": "resnet20", "recipe": {"lr": 0.01}})
    new = config_hash(
        {"arch": "mlp", "recipe": {"lr": 0.1, "smoothing": 0.0}, "norm": None},
        {"arch": "resnet20", "recipe": {"lr": 0.01, "smoothing": 0.0}, "norm": None},
    )
    assert old == new
    changed = config_hash(
        {"arch": "mlp", "recipe": {"lr": 0.1, "smoothing": 0.1}},
        {"arch": "resnet20", "recipe": {"lr": 0.01, "smoothing": 0.0}},
    )
    assert changed != old


def test_a_level_of_defaults_only_is_left_out():
    assert without_defaults({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}) == {}
    assert without_defaults({"a": {"b": 1, "c": 3}}, {"a": {"b": 1, "c": 2}}) == {"a": {"c": 3}}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
        ({"x": (1, 2)}, {"x": [1, 2]}),
        ({"x": 1.0}, {"x": 1}),
        ({"x": np.float64(0.1)}, {"x": 0.1}),
        ({"x": np.int32(3)}, {"x": 3}),
        ({"x": np.bool_(True)}, {"x": True}),
        ({"x": -0.0}, {"x": 0}),
    ],
)
def test_one_spelling(a: dict, b: dict):
    assert config_hash(a) == config_hash(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"x": 1}, {"x": True}),
        ({"x": 1}, {"x": "1"}),
        ({"x": None}, {}),
        ({"x": [1, [2]]}, {"x": [[1], 2]}),
        ({"x": 0.1}, {"x": np.float32(0.1)}),
    ],
)
def test_what_differs_is_told_apart(a: dict, b: dict):
    assert config_hash(a) != config_hash(b)


def test_true_is_not_the_default_one():
    assert config_hash({"x": True}, {"x": 1}) == config_hash({"x": True})


def test_dataclasses_and_enumerations():
    class Colour(enum.Enum):
        RED = "red"

    @dataclasses.dataclass
    class Recipe:
        lr: float
        colour: Colour

    assert canonical({"recipe": Recipe(0.5, Colour.RED)}) == {"recipe": {"lr": 0.5, "colour": "red"}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"config\.a\[1\]: nan cannot determine a run"),
        (float("inf"), r"config\.a\[1\]: inf cannot"),
        (Path("/x"), r"config\.a\[1\]: /x is a path"),
        (np.zeros(2), r"config\.a\[1\]: ndarray has no canonical form"),
        ({1: 2}, r"config\.a\[1\]: keys must be strings, got 1"),
        ({3}, r"config\.a\[1\]: set has no canonical form"),
    ],
)
def test_what_has_no_canonical_form_is_named(value: object, message: str):
    with pytest.raises(ValueError, match=message):
        config_hash({"a": [0, value]})


@given(CONFIGS)
def test_the_hash_is_twelve_digits_and_survives_canonical_form(config: dict):
    name = config_hash(config)
    assert len(name) == 12
    assert set(name) <= set("0123456789abcdef")
    assert config_hash(canonical(config)) == name
    assert config_hash(config, config) == config_hash({})


@given(CONFIGS, st.text(min_size=4, max_size=5), LEAVES)
def test_an_extra_entry_changes_the_hash_unless_it_is_the_default(config: dict, key: str, value: object):
    assert config_hash({**config, key: value}) != config_hash(config)
    assert config_hash({**config, key: value}, {key: value}) == config_hash(config)
