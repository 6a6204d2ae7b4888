import inspect

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from asym.data import Augment, apply_augmentation, draw_augmentation

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6))


def images(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def one_by_one(x: torch.Tensor, shifts: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
    """The definition, pixel by pixel."""
    out = torch.zeros_like(x)
    _, _, height, width = x.shape
    for i, ((dy, dx), flip) in enumerate(zip(shifts.tolist(), flips.tolist())):
        for y in range(height):
            for column in range(width):
                from_y, from_x = y + dy, column + dx
                if 0 <= from_y < height and 0 <= from_x < width:
                    out[i, :, y, column] = x[i, :, from_y, width - 1 - from_x if flip else from_x]
    return out


@given(SHAPES, st.integers(0, 4), st.booleans(), st.integers(0, 99))
def test_equals_the_definition(shape: tuple[int, int, int, int], pad: int, flip: bool, seed: int):
    spec = Augment(pad, flip)
    x = images(shape, seed)
    shifts, flips = draw_augmentation(np.random.default_rng(seed), shape[0], spec)
    assert torch.equal(apply_augmentation(x, shifts, flips, spec), one_by_one(x, shifts, flips))


def test_by_hand():
    x = torch.tensor([[[[1, 2, 3], [4, 5, 6]]]], dtype=torch.uint8)
    still, down_left = torch.tensor([[0, 0]]), torch.tensor([[-1, 1]])
    spec = Augment(pad=1, flip=True)
    assert apply_augmentation(x, still, torch.tensor([True]), spec).tolist() == [[[[3, 2, 1], [6, 5, 4]]]]
    # Content moves one row down and one column to the left.
    assert apply_augmentation(x, down_left, torch.tensor([False]), spec).tolist() == [[[[0, 0, 0], [2, 3, 0]]]]
    assert apply_augmentation(x, down_left, torch.tensor([True]), spec).tolist() == [[[[0, 0, 0], [2, 1, 0]]]]


@given(SHAPES, st.integers(0, 4))
def test_no_shift_and_no_flip_is_the_identity(shape: tuple[int, int, int, int], pad: int):
    x = images(shape)
    zeros, never = torch.zeros(shape[0], 2, dtype=torch.int64), torch.zeros(shape[0], dtype=torch.bool)
    assert torch.equal(apply_augmentation(x, zeros, never, Augment(pad, True)), x)


@given(SHAPES, st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_flip_is_an_involution(shape: tuple[int, int, int, int], coins: list[bool]):
    x, spec = images(shape), Augment(flip=True)
    zeros, flips = torch.zeros(shape[0], 2, dtype=torch.int64), torch.tensor(coins[: shape[0]])
    once = apply_augmentation(x, zeros, flips, spec)
    assert torch.equal(once[flips], x[flips].flip(-1))
    assert torch.equal(apply_augmentation(once, zeros, flips, spec), x)


def test_a_shift_is_a_crop_of_the_padded_image():
    x, spec = images((81, 3, 8, 8)), Augment(pad=4)
    shifts = torch.cartesian_prod(torch.arange(-4, 5), torch.arange(-4, 5))
    found = apply_augmentation(x, shifts, torch.zeros(81, dtype=torch.bool), spec)
    padded = F.pad(x, (4, 4, 4, 4))
    for i, (dy, dx) in enumerate(shifts.tolist()):
        assert torch.equal(found[i], padded[i, :, 4 + dy : 12 + dy, 4 + dx : 12 + dx])


def test_the_layout_of_the_input_does_not_matter():
    x, spec = images((5, 3, 8, 8)), Augment(2, True)
    shifts, flips = draw_augmentation(np.random.default_rng(0), 5, spec)
    expected = apply_augmentation(x, shifts, flips, spec)
    last = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(apply_augmentation(last, shifts, flips, spec), expected)
    assert torch.equal(apply_augmentation(x.repeat(1, 2, 1, 1)[:, :3], shifts, flips, spec), expected)


def test_the_input_is_left_alone():
    x, spec = images((5, 3, 8, 8)), Augment(2, True)
    before = x.clone()
    apply_augmentation(x, *draw_augmentation(np.random.default_rng(0), 5, spec), spec)
    assert torch.equal(x, before)


def test_a_shift_beyond_the_padding_is_refused():
    with pytest.raises(ValueError, match="shifts: up to 3 pixels, but the padding is 2"):
        apply_augmentation(images((1, 1, 4, 4)), torch.tensor([[0, -3]]), torch.tensor([False]), Augment(2))


def test_draws_are_uniform_and_independent_per_image():
    shifts, flips = draw_augmentation(np.random.default_rng(0), 90_000, Augment(1, True))
    counts = torch.bincount((shifts[:, 0] + 1) * 6 + (shifts[:, 1] + 1) * 2 + flips.long(), minlength=18)
    assert len(counts) == 18
    # 5,000 expected in each of the 18 cells, standard deviation 69.
    assert int((counts - 5_000).abs().max()) < 4 * 69


def test_per_batch_is_one_decision_for_all():
    generator = np.random.default_rng(0)
    spec = Augment(4, True)
    seen = set()
    for _ in range(20):
        shifts, flips = draw_augmentation(generator, 16, spec, per="batch")
        assert shifts.shape == (16, 2)
        assert (shifts == shifts[0]).all()
        assert (flips == flips[0]).all()
        seen.add((*shifts[0].tolist(), bool(flips[0])))
    assert len(seen) > 10
    shifts, flips = draw_augmentation(generator, 64, spec)
    assert len(shifts.unique(dim=0)) > 10
    assert set(flips.tolist()) == {True, False}


def test_what_is_not_allowed_is_not_drawn():
    shifts, flips = draw_augmentation(np.random.default_rng(0), 1000, Augment(pad=3, flip=False))
    assert not flips.any()
    assert (int(shifts.min()), int(shifts.max())) == (-3, 3)
    shifts, flips = draw_augmentation(np.random.default_rng(0), 1000, Augment(pad=0, flip=True))
    assert not shifts.any()
    assert 400 < int(flips.sum()) < 600


def test_the_stream_advances_alike_whatever_is_allowed():
    ends = []
    for spec in (Augment(), Augment(4, True), Augment(1, False)):
        generator = np.random.default_rng(5)
        draw_augmentation(generator, 7, spec)
        ends.append(generator.random())
    assert len(set(ends)) == 1


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="per: 'epoch'; choose from 'image', 'batch'"):
        inspect.unwrap(draw_augmentation)(np.random.default_rng(0), 1, Augment(), per="epoch")
