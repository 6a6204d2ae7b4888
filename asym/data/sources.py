"""The built-in data sets: from scikit-learn, IDX files, torchvision's files. Nothing is fetched unasked."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from asym.data.images import Augment, ImageData, Split, image_data
from asym.data.splits import stratified_split, validation_split

DEFAULT_DATA_DIR = Path("data")
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
PAD_AND_FLIP = Augment(pad=4, flip=True)
IMAGENET_MEAN = (123.675, 116.28, 103.53)
"""ImageNet's mean per channel, 255 · (0.485, 0.456, 0.406): the published normalisation of the CIFAR runs."""
IMAGENET_STD = (58.395, 57.12, 57.375)


class _Grey(NamedTuple):
    torchvision: str
    folders: tuple[str, ...]
    mean: float
    std: float
    class_names: tuple[str, ...]


GREY = {
    "mnist": _Grey("MNIST", ("MNIST/raw", "mnist", "."), 0.1307, 0.3081, tuple("0123456789")),
    "fashion_mnist": _Grey(
        "FashionMNIST",
        ("FashionMNIST/raw", "fashion-mnist", "fashion_mnist", "."),
        0.2860,
        0.3530,
        (
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
    ),
}


CIFAR = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


def load_digits() -> ImageData:
    """scikit-learn's 1,797 handwritten digits: 8×8 pixels of 0 … 16; 1,097 / 200 / 500 items, stratified.

    Mean and standard deviation are those of the training split, over all its pixels.
    """
    whole, parts = digits_items()
    train, val, test = (whole.take(part) for part in parts)
    pixels = train.images.double()
    return image_data(
        "digits",
        train=train,
        val=val,
        test=test,
        class_names=tuple("0123456789"),
        mean=(round(float(pixels.mean()), 4),),
        std=(round(float(pixels.std(correction=0)), 4),),
    )


def digits_items() -> tuple[Split, list[Tensor]]:
    """All digits in scikit-learn's order, and the places of the training, validation and test items."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    labels = torch.from_numpy(np.asarray(bunch.target, dtype=np.int64))
    whole = Split(torch.from_numpy(bunch.images.astype(np.uint8))[:, None], labels)
    return whole, stratified_split(labels, (1097, 200, 500), seed=0)


def load_grey(name: str, data_dir: Path | None, download: bool) -> ImageData:
    """MNIST or Fashion-MNIST from IDX files; see `find_idx` for where they are looked for."""
    source = GREY[name]
    folder = find_idx(name, data_dir)
    if folder is None and download:
        root = data_dir or DEFAULT_DATA_DIR
        try:
            _torchvision(source.torchvision, root, train=True, download=True)
        except (OSError, RuntimeError) as error:
            raise _not_fetched(name, root, error) from None
        folder = find_idx(name, root)
    if folder is None:
        raise FileNotFoundError(_advice(name, data_dir, "the four IDX files"))
    official = read_idx_split(folder, "train")
    train, val = (official.take(part) for part in validation_split(len(official)))
    return image_data(
        name,
        train=train,
        val=val,
        test=read_idx_split(folder, "t10k"),
        class_names=source.class_names,
        mean=(255 * source.mean,),
        std=(255 * source.std,),
    )


def load_cifar(name: str, data_dir: Path | None, download: bool) -> ImageData:
    """CIFAR-10 or CIFAR-100 from torchvision's files, whose checksums it compares."""
    kind = CIFAR[name]
    root = data_dir or DEFAULT_DATA_DIR
    try:
        sets = [_torchvision(kind, root, train=train, download=download) for train in (True, False)]
    except (OSError, RuntimeError) as error:
        if download:
            raise _not_fetched(name, root, error) from None
        raise FileNotFoundError(_advice(name, data_dir, "torchvision's files, whole")) from None
    official, test = (
        Split(
            torch.from_numpy(np.ascontiguousarray(part.data.transpose(0, 3, 1, 2))),
            torch.tensor(part.targets),
        )
        for part in sets
    )
    train, val = (official.take(part) for part in validation_split(len(official)))
    return image_data(
        name,
        train=train,
        val=val,
        test=test,
        class_names=sets[0].classes,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augment=PAD_AND_FLIP,
    )


def find_idx(name: str, data_dir: Path | None) -> Path | None:
    """The folder with a data set's IDX files, plain or gzipped; None if there is none.

    Looked for in data_dir (default `data`) under torchvision's folder, a folder of the set's name, and
    data_dir itself; Fashion-MNIST also where Debian's package `dataset-fashion-mnist` puts it.
    """
    root = data_dir or DEFAULT_DATA_DIR
    places = [root / folder for folder in GREY[name].folders if data_dir is not None or folder != "."]
    if name == "fashion_mnist":
        places.append(DEBIAN_FASHION_MNIST)
    for place in places:
        if all(_idx_file(place, part) for part in ("train-images-idx3", "t10k-images-idx3")):
            return place
    return None


def read_idx_split(folder: Path, part: str) -> Split:
    """One part ("train" or "t10k") of IDX files as a split.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is truncated or of another shape; names it.
    """
    images = read_idx(_need(folder, f"{part}-images-idx3"), 3)
    labels = read_idx(_need(folder, f"{part}-labels-idx1"), 1)
    if len(images) != len(labels):
        raise ValueError(f"{folder}: {len(images)} images but {len(labels)} labels in part {part!r}")
    return Split(torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64)))


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An IDX file of unsigned bytes: two zero bytes, type 8, number of dimensions, big-endian sizes, data."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            content = stream.read()
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read, truncated or damaged ({error})") from None
    if content[:4] != bytes((0, 0, 8, dimensions)):
        raise ValueError(f"{path}: is no IDX file of unsigned bytes in {dimensions} dimensions")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"{path}: is truncated within its header")
    shape = np.frombuffer(content[4:start], dtype=">u4")
    if len(content) != start + int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"{path}: holds {len(content) - start} bytes, its header says {shape.tolist()}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(tuple(map(int, shape))).copy()


def _idx_file(folder: Path, stem: str) -> Path | None:
    dotted = stem.replace("-idx", ".idx")  # as some mirrors spell it
    for name in (f"{stem}-ubyte", f"{stem}-ubyte.gz", f"{dotted}-ubyte", f"{dotted}-ubyte.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def _need(folder: Path, stem: str) -> Path:
    path = _idx_file(folder, stem)
    if path is None:
        raise FileNotFoundError(f"{folder}: {stem}-ubyte (or .gz) is missing")
    return path


def _torchvision(kind: str, root: Path, *, train: bool, download: bool) -> Any:
    import torchvision

    with warnings.catch_warnings():
        # CIFAR's files predate a spelling that NumPy warns about on reading.
        warnings.filterwarnings("ignore", message=".*align should be passed", category=Warning)
        return getattr(torchvision.datasets, kind)(str(root), train=train, download=download)


def _not_fetched(name: str, root: Path, error: Exception) -> FileNotFoundError:
    reason = " ".join(str(error).split())
    return FileNotFoundError(f"dataset: {name} could not be fetched into {root} ({reason}); put its files there")


def _advice(name: str, data_dir: Path | None, what: str) -> str:
    place = data_dir or DEFAULT_DATA_DIR
    text = f"dataset: {name} is not in {place} (want {what}); pass --data-dir FOLDER, or --download to fetch it"
    if name == "fashion_mnist":
        text += ", or install Debian's package dataset-fashion-mnist"
    return text
