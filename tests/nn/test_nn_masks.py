"""Masks: exact counts, distinct and non-zero rows, order of the deterministic modes, streams by name."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.nn.masks import fewest_n_fix, most_n_fix, sample_fixed, sample_mask


def rows_of(mask: torch.Tensor) -> list[tuple[bool, ...]]:
    return [tuple(row) for row in mask.flatten(1).tolist()]


@st.composite
def possible_masks(draw):
    """(rows, fan_in, n_fix) for which distinct, non-zero rows exist, tight cases included."""
    fan_in = draw(st.integers(2, 12))
    n_fix = draw(st.integers(1, fan_in - 1))
    return draw(st.integers(1, min(math.comb(fan_in, n_fix), 60))), fan_in, n_fix


@given(possible_masks(), st.integers(-5, 5))
@settings(max_examples=150, deadline=None)
def test_random_rows_are_distinct_nonzero_and_have_n_fix_constants(case, seed):
    rows, fan_in, n_fix = case
    mask = sample_mask((rows, fan_in), n_fix, seed=seed, name="layer")
    assert mask.shape == (rows, fan_in)
    assert mask.dtype == torch.bool
    assert ((~mask).sum(1) == n_fix).all()
    assert len(set(rows_of(mask))) == rows
    assert mask.any(1).all()


@given(possible_masks(), st.sampled_from(["fewest", "at-least"]))
@settings(max_examples=100, deadline=None)
def test_deterministic_rows_are_distinct_and_nonzero(case, mode):
    rows, fan_in, n_fix = case
    n_fix = 0 if mode == "fewest" else n_fix
    mask = sample_mask((rows, fan_in), n_fix, seed=0, name="a", mode=mode)
    assert len(set(rows_of(mask))) == rows
    assert mask.any(1).all()
    assert ((~mask).sum(1) >= n_fix).all()
    assert torch.equal(mask, sample_mask((rows, fan_in), n_fix, seed=1, name="b", mode=mode))


def test_fewest_mode_lists_subsets_by_size_and_then_lexicographically():
    mask = sample_mask((7, 3), 0, seed=0, name="x", mode="fewest")
    expected = [[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert mask.int().tolist() == expected


def test_at_least_mode_starts_at_n_fix():
    mask = sample_mask((4, 3), 1, seed=0, name="x", mode="at-least")
    assert mask.int().tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 1]]


def test_deterministic_modes_stop_before_the_all_fixed_row():
    # three entries have 2³ - 1 = 7 non-zero rows
    with pytest.raises(ValueError, match="gives only 7 distinct rows"):
        sample_mask((8, 3), 0, seed=0, name="x", mode="fewest")


def test_every_row_is_used_when_there_are_exactly_enough():
    mask = sample_mask((math.comb(6, 3), 6), 3, seed=3, name="tight")
    assert set(rows_of(mask)) == {
        tuple(i not in fixed for i in range(6)) for fixed in itertools.combinations(range(6), 3)
    }


def test_the_published_tables_would_collide_without_rejection():
    """ResNet-20's first shortcut: 6 of 16 entries in 32 rows; over many seeds independent rows do collide."""
    collided = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        rows = {tuple(sorted(rng.permutation(16)[:6])) for _ in range(32)}
        collided += len(rows) < 32
        mask = sample_mask((32, 16, 1, 1), 6, seed=seed, name="shortcut")
        assert len(set(rows_of(mask))) == 32
    assert collided > 0


def test_random_entries_are_fixed_evenly():
    """Each of 20 entries is fixed with probability 1/4; 4,000 rows, five standard errors (0.0068 each)."""
    fixed = ~sample_mask((4000, 20), 5, seed=0, name="even")
    assert (fixed.double().mean(0) - 0.25).abs().max() < 5 * math.sqrt(0.25 * 0.75 / 4000)


def test_rows_from_the_list_of_all_subsets_are_even_too():
    counts = np.zeros(4)
    for seed in range(2000):
        counts += (~sample_mask((3, 4), 1, seed=seed, name="small")).sum(0).numpy()
    # 3 of 4 subsets each time: every column is fixed with probability 3/4
    assert np.abs(counts / 2000 - 0.75).max() < 5 * math.sqrt(0.75 * 0.25 / 2000)


def test_channel_mode_fixes_whole_input_channels():
    mask = sample_mask((16, 8, 3, 3), 4, seed=0, name="conv", granularity="channel")
    by_channel = mask.flatten(2)
    assert (by_channel.all(2) | ~by_channel.any(2)).all()
    assert ((~by_channel.any(2)).sum(1) == 4).all()
    assert len(set(rows_of(mask))) == 16


def test_entry_mode_fixes_scattered_entries():
    by_channel = sample_mask((16, 8, 3, 3), 24, seed=0, name="conv").flatten(2)
    assert not (by_channel.all(2) | ~by_channel.any(2)).all()


@pytest.mark.parametrize(
    ("shape", "n_fix", "options", "message"),
    [
        ((4, 5), 5, {}, "n_fix: 5 for layer 'x' with a fan-in of 5 entries leaves nothing to train"),
        ((4, 5), 9, {}, "allow_frozen"),
        ((4, 3, 3, 3), 3, {"granularity": "channel"}, "fan-in of 3 channels"),
        ((6, 5), 1, {}, "gives only 5 distinct rows, layer 'x' has 6; choose n_fix from 2 to 3"),
        ((6, 5), 0, {}, "gives only 1 distinct rows"),
        ((400, 9), 4, {}, "no n_fix can"),
        ((6, 5), 1, {"allow_frozen": True}, "gives only 5 distinct rows"),
        ((4, 5), -1, {}, "n_fix: -1"),
        ((4, 5), 2, {"mode": "fewest"}, "0 in mode 'fewest'"),
        ((4, 5), 2, {"mode": "densest"}, "mode: 'densest' for layer 'x'; choose from random, fewest, at-least"),
        ((4, 5), 2, {"granularity": "filter"}, "granularity: 'filter'"),
        ((4,), 2, {}, "shape"),
    ],
)
def test_impossible_masks_are_errors_that_name_layer_and_choices(shape, n_fix, options, message):
    with pytest.raises(ValueError, match=message):
        sample_mask(shape, n_fix, seed=0, name="x", **options)


def test_a_frozen_layer_is_given_on_request():
    mask = sample_mask((16, 3, 3, 3), 27, seed=0, name="stem", allow_frozen=True)
    assert not mask.any()
    assert mask.shape == (16, 3, 3, 3)


@given(st.integers(1, 500), st.integers(1, 40))
@settings(deadline=None)
def test_fewest_and_most_n_fix_are_the_ends_of_what_is_possible(rows, fan_in):
    possible = [n for n in range(fan_in) if math.comb(fan_in, n) >= rows]
    if not possible:
        with pytest.raises(ValueError, match="cannot be distinct"):
            fewest_n_fix(rows, fan_in)
    else:
        assert fewest_n_fix(rows, fan_in) == possible[0]
        assert most_n_fix(rows, fan_in) == possible[-1]


def test_width_512_needs_fewer_than_log2_of_it():
    assert fewest_n_fix(512, 512) == 1
    assert fewest_n_fix(513, 512) == 2
    assert fewest_n_fix(16, 9) == 2


def test_fixed_values_have_standard_deviation_kappa():
    fixed = sample_fixed((400, 250), 2.0, seed=0, name="f").double()
    assert abs(fixed.mean()) < 5 * 2 / math.sqrt(1e5)
    assert abs(fixed.std() - 2.0) < 5 * 2 / math.sqrt(2e5)


def test_fixed_values_scale_with_kappa_and_do_not_depend_on_the_fan_in():
    one = sample_fixed((3, 7), 1.0, seed=5, name="f")
    assert torch.equal(sample_fixed((3, 7), 4.0, seed=5, name="f"), 4 * one)
    assert torch.equal(sample_fixed((3, 7), 0.0, seed=5, name="f"), torch.zeros(3, 7))


@pytest.mark.parametrize("kappa", [-1.0, math.nan, math.inf])
def test_kappa_must_be_a_finite_number_from_zero_on(kappa):
    with pytest.raises(ValueError, match="kappa"):
        sample_fixed((2, 2), kappa, seed=0, name="f")


def test_seed_and_name_give_different_streams():
    def draw(seed, name):
        return sample_mask((8, 20), 5, seed=seed, name=name), sample_fixed((8, 20), 1.0, seed=seed, name=name)

    first, same = draw(0, "a"), draw(0, "a")
    assert torch.equal(first[0], same[0])
    assert torch.equal(first[1], same[1])
    for other in (draw(1, "a"), draw(0, "b")):
        assert not torch.equal(first[0], other[0])
        assert not torch.equal(first[1], other[1])


def test_the_global_generators_are_left_alone():
    torch.manual_seed(1)
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    sample_mask((8, 20), 5, seed=0, name="a")
    sample_fixed((8, 20), 1.0, seed=0, name="a")
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == legacy).all()  # noqa: NPY002
