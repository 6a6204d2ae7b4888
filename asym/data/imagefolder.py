"""Image files as tensors: `train|val|test/<class>/*.png|jpg` in a folder, .tar, .tar.gz or .zip.

Classes are the folder names in alphabetical order, images are ordered by class and file name, so the same
files give the same tensors (and the same fingerprint) from a folder and from any archive. An archive is
read, never unpacked. Three channels if any image has colour, else one; an alpha channel is dropped. Larger
images are decoded in threads. What decoding gave is kept in `cache_dir` under a key made of the files'
names, sizes and times of change.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from asym.data.check import ARCHIVES, SPLITS
from asym.data.images import Augment, ImageData, Split, fingerprint, image_data
from asym.data.sources import IMAGENET_MEAN, IMAGENET_STD, PAD_AND_FLIP
from asym.data.splits import validation_split
from asym.files import replace_file

SUFFIXES = (".png", ".jpg", ".jpeg")
SMALLEST_AUGMENTED = 16
_CACHE_VERSION = 1
_CHUNK = 128
_THREADED_BYTES = 4096  # below, a JPEG decodes in microseconds and threads cost more than they save
_UNREADABLE = (OSError, EOFError, SyntaxError, ValueError, struct.error, zlib.error)  # what Pillow raises
_DEEP = ("I", "I;16", "I;16B", "F")
_DAMAGED = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


class Member(NamedTuple):
    """Where an image belongs."""

    split: str
    class_name: str
    file: str

    def __str__(self) -> str:
        return "/".join(self)


def load_imagefolder(path: Path, *, cache_dir: Path | None = None, image_size: int | None = None) -> ImageData:
    """A data set from image files.

    Args:
        path: folder or archive.
        cache_dir: where decoded images are kept; None keeps nothing.
        image_size: shorter side resized to this many pixels, then the central square; None wants equal sizes.

    Normalised with ImageNet's mean and standard deviation for three channels, with those of the training
    split for one; augmented by shifts of 4 pixels and mirroring for three channels of at least 16 pixels.

    Raises:
        FileNotFoundError: no images for train or test.
        ValueError: damaged archive or image, images of different sizes, a class of val or test unknown in
            train.
    """
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size: must be at least 1, got {image_size}")
    cache = None if cache_dir is None else cache_dir / f"{_stem(path)}-{_signature(path, image_size)}.safetensors"
    found = _read_cache(cache) if cache is not None and cache.exists() else None
    if found is None:
        found = _decode_all(path, image_size)
        if cache is not None:
            _write_cache(cache, *found)
    splits, class_names = found

    train = splits["train"]
    if "val" in splits:
        val = splits["val"]
    else:
        if len(train) < 2:
            raise ValueError(f"dataset: {path}: train/ needs at least 2 images, has {len(train)}")
        train, val = (train.take(part) for part in validation_split(len(train)))
    colour = train.images.shape[1] == 3
    mean, std, augment = IMAGENET_MEAN, IMAGENET_STD, Augment()
    if not colour:
        pixels = train.images.double()
        mean = (round(float(pixels.mean()), 4),)
        std = (round(float(pixels.std(correction=0)), 4) or 1.0,)
    elif min(train.images.shape[2:]) >= SMALLEST_AUGMENTED:
        augment = PAD_AND_FLIP
    return image_data(
        _stem(path),
        train=train,
        val=val,
        test=splits["test"],
        class_names=class_names,
        mean=mean,
        std=std,
        augment=augment,
    )


def _decode_all(path: Path, image_size: int | None) -> tuple[dict[str, Split], list[str]]:
    try:
        images = dict(_decode(path, _blobs(path), image_size))
    except _DAMAGED as error:
        raise ValueError(f"dataset: {path} is truncated or damaged ({error})") from None
    for split in ("train", "test"):
        if not any(member.split == split for member in images):
            raise FileNotFoundError(
                f"dataset: {path} has no images {split}/<class>/*{'|'.join(SUFFIXES)}; want train/ and test/"
            )
    class_names = sorted({member.class_name for member in images if member.split == "train"})
    for member in images:
        if member.class_name not in class_names:
            raise ValueError(f"dataset: {path}: class of {member} does not occur in train/")
    if any(len(image) == 3 for image in images.values()):
        images = {member: image.expand(3, -1, -1) for member, image in images.items()}
    order = sorted(images)
    shape = tuple(images[order[0]].shape)
    for member in order:
        if tuple(images[member].shape) != shape:
            raise ValueError(
                f"dataset: {path}: {member} is {_size(images[member])} pixels, {order[0]} is "
                f"{_size(images[order[0]])}; resize them with --image-size (argument image_size)"
            )
    splits = {}
    for split in SPLITS:
        members = [member for member in order if member.split == split]
        if members:
            labels = torch.tensor([class_names.index(member.class_name) for member in members])
            splits[split] = Split(torch.stack([images[member] for member in members]), labels)
    return splits, class_names


def _blobs(path: Path) -> Iterator[tuple[Member, bytes]]:
    """Every image's place and encoded bytes, in no particular order."""
    if path.is_dir():
        for member, file in _listing(path):
            yield member, file.read_bytes()
        return
    prefixes: set[PurePosixPath] = set()
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                member = _member(path, name, prefixes)
                if member is not None:
                    yield member, archive.read(name)
        return
    with tarfile.open(path, "r|*") as archive:  # a stream: one pass, never back
        for entry in archive:
            member = _member(path, entry.name, prefixes) if entry.isfile() else None
            stream = archive.extractfile(entry) if member is not None else None
            if member is not None and stream is not None:
                yield member, stream.read()


def _listing(path: Path) -> Iterator[tuple[Member, Path]]:
    for split in SPLITS:
        for class_folder in _entries(path / split):
            if not class_folder.is_dir():
                continue
            for file in _entries(Path(class_folder.path)):
                if file.name.lower().endswith(SUFFIXES) and file.is_file():
                    yield Member(split, class_folder.name, file.name), Path(file.path)


def _entries(path: Path) -> list[os.DirEntry[str]]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _member(path: Path, name: str, prefixes: set[PurePosixPath]) -> Member | None:
    parts = PurePosixPath(name).parts
    if len(parts) < 3 or parts[-3] not in SPLITS or parts[-1].startswith("."):
        return None
    if not parts[-1].lower().endswith(SUFFIXES):
        return None
    prefixes.add(PurePosixPath(*parts[:-3]))
    if len(prefixes) > 1:
        raise ValueError(f"dataset: {path} holds several data sets: {', '.join(sorted(map(str, prefixes)))}")
    return Member(*parts[-3:])


def _decode(
    path: Path, blobs: Iterable[tuple[Member, bytes]], image_size: int | None
) -> Iterator[tuple[Member, Tensor]]:
    def decode_chunk(chunk: list[tuple[Member, bytes]]) -> list[tuple[Member, Tensor]]:
        return [(member, _decode_one(path, member, blob, image_size)) for member, blob in chunk]

    workers = min(8, os.cpu_count() or 1)
    source = iter(blobs)
    chunks = iter(lambda: list(itertools.islice(source, _CHUNK)), [])
    with ThreadPoolExecutor(workers) as pool:
        # A few rounds at a time, so that a large archive is not held in memory twice.
        while group := list(itertools.islice(chunks, 4 * workers)):
            encoded = [len(blob) for chunk in group for _, blob in chunk]
            threads = sum(encoded) >= _THREADED_BYTES * len(encoded)
            for decoded in pool.map(decode_chunk, group) if threads else map(decode_chunk, group):
                yield from decoded


def _decode_one(path: Path, member: Member, blob: bytes, image_size: int | None) -> Tensor:
    try:
        with Image.open(io.BytesIO(blob), formats=("PNG", "JPEG")) as file:
            mode = file.mode
            image = file.convert("L" if mode in ("1", "L", "LA", *_DEEP) else "RGB")
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"dataset: {path}: {member} is truncated or no image ({reason})") from None
    if mode in _DEEP:
        raise ValueError(f"dataset: {path}: {member} has more than 8 bits a channel; convert it to 8")
    if image_size is not None:
        image = _resize(image, image_size)
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)


def _resize(image: Image.Image, size: int) -> Image.Image:
    """Shorter side to `size` pixels, then the central square; smoothed when it gets smaller."""
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + size, top + size))


def _signature(path: Path, image_size: int | None) -> str:
    digest = hashlib.sha256(repr((_CACHE_VERSION, image_size)).encode())
    files = _listing(path) if path.is_dir() else [(path.name, path)]
    for name, file in files:
        status = file.stat()
        digest.update(repr((str(name), status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()[:16]


def _write_cache(cache: Path, splits: dict[str, Split], class_names: list[str]) -> None:
    from safetensors.torch import save_file

    tensors = {f"{name}_images": split.images.contiguous() for name, split in splits.items()}
    tensors |= {f"{name}_labels": split.labels for name, split in splits.items()}
    facts = {"class_names": class_names, "fingerprint": fingerprint(*splits.values())}
    metadata = {"facts": json.dumps(facts)}  # one entry: several would be written in random order
    replace_file(cache, lambda temporary: save_file(tensors, temporary, metadata))


def _read_cache(cache: Path) -> tuple[dict[str, Split], list[str]] | None:
    """What the cache holds; None if it is damaged, it is then written anew."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(cache, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            names = [name for name in SPLITS if f"{name}_images" in file.keys()]  # noqa: SIM118 (no mapping)
            splits = {
                name: Split(file.get_tensor(f"{name}_images"), file.get_tensor(f"{name}_labels")) for name in names
            }
    except (OSError, ValueError, SafetensorError):
        return None
    if facts.get("fingerprint") != fingerprint(*splits.values()):
        return None
    return splits, facts["class_names"]


def _stem(path: Path) -> str:
    name = path.resolve().name
    for suffix in ARCHIVES:
        if path.is_file() and name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def _size(image: Tensor) -> str:
    return "×".join(map(str, image.shape[1:]))
