"""Image data sets in memory: three splits of uint8 tensors and what is needed to use them.

normalise(x) = (x − mean) / std      per channel, in units of the raw uint8 values
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from asym.data.protocol import Batches

FINGERPRINT_LENGTH = 12


@dataclass(frozen=True)
class Augment:
    """What may be done to a training image.

    Attributes:
        pad: shifts of up to this many pixels in either direction, zeros moving in.
        flip: mirror left and right with probability one half.
    """

    pad: int = 0
    flip: bool = False

    @property
    def active(self) -> bool:
        """Whether anything is done at all."""
        return self.pad > 0 or self.flip


@dataclass(frozen=True)
class Split:
    """Images [n, c, h, w] (uint8) and their labels [n] (int64)."""

    images: UInt8[Tensor, "n c h w"]
    labels: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Int[Tensor, " k"]) -> Split:
        """The items at these places, copied."""
        return Split(self.images[index], self.labels[index])

    def to(self, device: torch.device | str) -> Split:
        """The items on a device."""
        return Split(self.images.to(device), self.labels.to(device))

    def parts(self, size: int) -> list[Split]:
        """Consecutive pieces of at most `size` items, as views."""
        return [Split(*pair) for pair in zip(self.images.split(size), self.labels.split(size))]


@dataclass(frozen=True)
class ImageData:
    """A data set; see `image_data`, which makes one and checks it.

    Attributes:
        name: what tables call it.
        classes: number of classes.
        class_names: their names, by label.
        input_shape: (channels, height, width).
        train, val, test: the splits.
        mean, std: per channel, in units of the raw uint8 values.
        fingerprint: a hash of all pixels and labels of all splits.
        augment: what training does to images.
    """

    domain: ClassVar[str] = "images"

    name: str
    classes: int
    class_names: tuple[str, ...]
    input_shape: tuple[int, int, int]
    train: Split
    val: Split
    test: Split
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str
    augment: Augment = Augment()

    def normalise(self, images: UInt8[Tensor, "*n c h w"]) -> Float[Tensor, "*n c h w"]:
        """float32 images with mean and std removed; keeps device and memory format."""
        shape = (len(self.mean), 1, 1)
        mean = torch.tensor(self.mean, dtype=torch.float32, device=images.device).view(shape)
        std = torch.tensor(self.std, dtype=torch.float32, device=images.device).view(shape)
        return images.float().sub_(mean).div_(std)

    def to(self, device: torch.device | str) -> ImageData:
        """The same data with its splits on a device."""
        return replace(self, train=self.train.to(device), val=self.val.to(device), test=self.test.to(device))

    def with_train(self, train: Split) -> ImageData:
        """The data with other training images, and a fingerprint of its own."""
        return replace(self, train=train, fingerprint=fingerprint(train, self.val, self.test))

    def inputs(self, items: Split) -> Float[Tensor, "n c h w"]:
        """What a network is called with to answer for these items: the images, normalised."""
        return self.normalise(items.images)

    def example(self) -> Float[Tensor, "2 c h w"]:
        """Two training images, normalised, to trace a network with."""
        return self.normalise(self.train.images[:2])

    def batches(self, seeds: Sequence[int], batch_size: int, augment: str, device: torch.device) -> Batches:
        """Training batches for networks with these seeds: `ImageBatches`."""
        from asym.data.batches import ImageBatches

        return ImageBatches(self, seeds, batch_size, augment, device)


def image_data(
    name: str,
    *,
    train: Split,
    val: Split,
    test: Split,
    class_names: Sequence[str],
    mean: Iterable[float | int],
    std: Iterable[float | int],
    augment: Augment = Augment(),
) -> ImageData:
    """Put a data set together: the way for a loader of one's own.

    Args:
        name: what tables call it.
        train, val, test: splits with images of one shape and labels in 0 … classes − 1.
        class_names: one name a class, by label.
        mean, std: per channel, in units of the raw uint8 values.
        augment: what training does to images.

    Raises:
        ValueError: an empty split, images of different shapes, labels out of range, mean or std of wrong
            length, std not positive.
    """
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    shape = tuple(train.images.shape[1:])
    for split_name, split in (("train", train), ("val", val), ("test", test)):
        if len(split) == 0:
            raise ValueError(f"{split_name}: {name} has no images there")
        if len(split.images) != len(split.labels):
            raise ValueError(f"{split_name}: {len(split.images)} images but {len(split.labels)} labels")
        if split.images.dtype != torch.uint8 or split.labels.dtype != torch.int64:
            types = f"{split.images.dtype} and {split.labels.dtype}"
            raise ValueError(f"{split_name}: images and labels must be uint8 and int64, got {types}")
        if split.images.dim() != 4:
            raise ValueError(f"{split_name}: images must be n × c × h × w, got {tuple(split.images.shape)}")
        if tuple(split.images.shape[1:]) != shape:
            raise ValueError(f"{split_name}: images of {tuple(split.images.shape[1:])}, those of train are {shape}")
        low, high = int(split.labels.min()), int(split.labels.max())
        if low < 0 or high >= len(class_names):
            raise ValueError(f"{split_name}: labels {low} … {high}, but there are {len(class_names)} class names")
    for what, values in (("mean", mean), ("std", std)):
        if len(values) != shape[0]:
            raise ValueError(f"{what}: {len(values)} values for {shape[0]} channels")
    if min(std) <= 0:
        raise ValueError(f"std: must be positive, got {std}")
    return ImageData(
        name=name,
        classes=len(class_names),
        class_names=tuple(class_names),
        input_shape=(shape[0], shape[1], shape[2]),
        train=train,
        val=val,
        test=test,
        mean=mean,
        std=std,
        fingerprint=fingerprint(train, val, test),
        augment=augment,
    )


def fingerprint(*splits: Split) -> str:
    """12 hexadecimal digits of SHA-256 over shapes, pixels and labels, split by split."""
    digest = hashlib.sha256()
    for split in splits:
        digest.update(repr(tuple(split.images.shape)).encode())
        digest.update(split.images.cpu().contiguous().numpy().data)
        digest.update(split.labels.cpu().to(torch.int64).numpy().astype("<i8", copy=False).data)
    return digest.hexdigest()[:FINGERPRINT_LENGTH]
