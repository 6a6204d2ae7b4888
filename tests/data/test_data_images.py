import numpy as np
import pytest
import torch

from asym.data import Augment, Split, image_data
from asym.data.images import fingerprint


def split(n: int = 4, classes: int = 2, channels: int = 1, seed: int = 0) -> Split:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (n, channels, 3, 3), dtype=torch.uint8, generator=generator)
    return Split(pixels, torch.arange(n) % classes)


def make(**changes: object):
    parts = {"train": split(), "val": split(seed=1), "test": split(seed=2)}
    arguments = {**parts, "class_names": ("a", "b"), "mean": (100.0,), "std": (50.0,), **changes}
    return image_data("toy", **arguments)  # type: ignore[arg-type]


def test_a_data_set_knows_its_shape():
    data = make(augment=Augment(1, True))
    assert (data.name, data.classes, data.class_names, data.input_shape) == ("toy", 2, ("a", "b"), (1, 3, 3))
    assert [len(part) for part in (data.train, data.val, data.test)] == [4, 4, 4]
    assert data.augment.active
    assert not Augment().active


def test_normalise_by_hand():
    data = make(train=split(channels=2), val=split(channels=2), test=split(channels=2), mean=(10, 20), std=(2, 5))
    images = torch.tensor([12, 30], dtype=torch.uint8).view(1, 2, 1, 1)
    found = data.normalise(images)
    assert found.dtype == torch.float32
    assert found.flatten().tolist() == [1, 2]
    assert data.normalise(images.expand(5, 3, 2, 4, 4)).shape == (5, 3, 2, 4, 4)


def test_normalise_keeps_the_layout_and_the_input():
    data = make(train=split(channels=2), val=split(channels=2), test=split(channels=2), mean=(10, 20), std=(2, 5))
    images = data.train.images.contiguous(memory_format=torch.channels_last)
    before = images.clone()
    assert data.normalise(images).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, before)


def test_the_fingerprint_sees_every_pixel_label_and_place():
    base = (split(), split(seed=1))
    pixel = split()
    pixel.images[0, 0, 0, 0] ^= 1
    label = Split(base[0].images, base[0].labels.flip(0))
    names = {
        fingerprint(*parts)
        for parts in (base, (pixel, base[1]), (label, base[1]), base[::-1], (base[0],), (split(8), base[1]))
    }
    assert len(names) == 6
    assert all(len(name) == 12 for name in names)


def test_the_fingerprint_is_of_values_not_of_memory():
    part = split(channels=2)
    last = Split(part.images.contiguous(memory_format=torch.channels_last), part.labels.int())
    assert fingerprint(last) == fingerprint(part)


def test_the_fingerprint_is_pinned():
    part = Split(torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2), torch.tensor([7]))
    assert fingerprint(part) == "efac252806a4"


def test_take_copies():
    part = split()
    taken = part.take(torch.tensor([2, 0]))
    assert torch.equal(taken.images[1], part.images[0])
    taken.images.zero_()
    assert part.images.any()


def test_to_moves_all_splits():
    moved = make().to("meta")
    assert {part.images.device.type for part in (moved.train, moved.val, moved.test)} == {"meta"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val": split(0)}, "val: toy has no images there"),
        ({"test": split(channels=3)}, r"test: images of \(3, 3, 3\), those of train are \(1, 3, 3\)"),
        ({"test": split(classes=3)}, r"test: labels 0 … 2, but there are 2 class names"),
        ({"train": Split(split().images, torch.tensor([0, 1, 0, -1]))}, "train: labels -1 … 1"),
        ({"mean": (1.0, 2.0)}, "mean: 2 values for 1 channels"),
        ({"std": (0.0,)}, "std: must be positive"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_a_split_with_unequal_lengths_is_refused():
    part = split()
    object.__setattr__(part, "labels", part.labels[:3])
    with pytest.raises(ValueError, match="train: 4 images but 3 labels"):
        make(train=part)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("images", torch.zeros(4, 1, 3, 3), r"must be uint8 and int64, got torch\.float32 and torch\.int64"),
        ("labels", torch.zeros(4, dtype=torch.int32), r"got torch\.uint8 and torch\.int32"),
        ("images", torch.zeros(4, 3, 3, dtype=torch.uint8), r"must be n × c × h × w, got \(4, 3, 3\)"),
    ],
)
def test_types_are_checked_without_the_test_hook_too(name: str, tensor: torch.Tensor, message: str):
    part = split()
    object.__setattr__(part, name, tensor)  # the constructor is checked in tests only
    with pytest.raises(ValueError, match=message):
        make(train=part)


def test_numbers_of_numpy_become_pythons():
    data = make(mean=np.array([1.5]), std=[np.float64(2)])
    assert (data.mean, data.std) == ((1.5,), (2.0,))
