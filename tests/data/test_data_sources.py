import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from asym.data import load, sources
from asym.data.sources import IMAGENET_MEAN, IMAGENET_STD, read_idx


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, train: int = 20, test: int = 6, *, packed: bool = False, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        images = generator.integers(0, 256, (count, 5, 4), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for stem, array in ((f"{part}-images-idx3", images), (f"{part}-labels-idx1", labels)):
            if packed:
                (folder / f"{stem}-ubyte.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / f"{stem}-ubyte").write_bytes(idx(array))
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the machine's packages nor the current folder's data may decide a test."""
    monkeypatch.setattr(sources, "DEBIAN_FASHION_MNIST", tmp_path / "debian")
    monkeypatch.chdir(tmp_path)


def test_digits():
    data = load("digits")
    assert (data.name, data.classes, data.input_shape) == ("digits", 10, (1, 8, 8))
    assert (len(data.train), len(data.val), len(data.test)) == (1097, 200, 500)
    assert not data.augment.active
    everything = torch.cat([data.train.images, data.val.images, data.test.images])
    assert int(everything.max()) == 16
    assert int(everything.long().sum()) == 561_718  # scikit-learn's images, each once
    for part in (data.train, data.val, data.test):
        share = torch.bincount(part.labels, minlength=10) / len(part)
        assert (share - 0.1).abs().max() < 0.015
    normalised = data.normalise(data.train.images)
    assert normalised.mean().item() == pytest.approx(0, abs=1e-4)
    assert normalised.std().item() == pytest.approx(1, abs=1e-4)


def test_digits_are_pinned():
    # Rows of tables are found again by this.
    assert load("digits").fingerprint == "a8354641e6ea"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "folder"),
    [("mnist", "."), ("mnist", "MNIST/raw"), ("fashion_mnist", "."), ("fashion_mnist", "FashionMNIST/raw")],
)
def test_idx_files_are_found_in_data_dir(tmp_path: Path, name: str, folder: str, packed: bool):
    write_idx(tmp_path / "mine" / folder, packed=packed)
    data = load(name, data_dir=tmp_path / "mine")
    assert (data.name, data.classes, data.input_shape) == (name, 10, (1, 5, 4))
    assert (len(data.train), len(data.val), len(data.test)) == (18, 2, 6)
    assert data.test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.mean[0] / 255 == pytest.approx({"mnist": 0.1307, "fashion_mnist": 0.2860}[name])
    assert data.std[0] / 255 == pytest.approx({"mnist": 0.3081, "fashion_mnist": 0.3530}[name])
    assert not data.augment.active


def test_pixels_and_labels_stay_together(tmp_path: Path):
    labels = np.arange(200, dtype=np.uint8) % 10
    images = np.repeat(labels, 20).reshape(200, 5, 4)
    write_idx(tmp_path / "mine")
    (tmp_path / "mine" / "train-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "mine" / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    data = load("mnist", data_dir=tmp_path / "mine")
    for part in (data.train, data.val):
        assert (part.images == part.labels.view(-1, 1, 1, 1)).all()


def test_debian_serves_fashion_mnist_only(tmp_path: Path):
    write_idx(tmp_path / "debian", packed=True)
    assert len(load("fashion_mnist").test) == 6
    (tmp_path / "empty").mkdir()
    assert len(load("fashion_mnist", data_dir=tmp_path / "empty").test) == 6
    with pytest.raises(FileNotFoundError, match="mnist is not in data"):
        load("mnist")


def test_files_in_data_dir_come_before_debians(tmp_path: Path):
    write_idx(tmp_path / "debian", seed=1)
    write_idx(tmp_path / "mine", test=7)
    assert len(load("fashion_mnist", data_dir=tmp_path / "mine").test) == 7


def test_the_default_folder_is_data(tmp_path: Path):
    write_idx(tmp_path / "data" / "MNIST" / "raw")
    assert len(load("mnist").test) == 6


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("mnist", r"mnist is not in data \(want the four IDX files\); pass --data-dir FOLDER, or --download"),
        ("fashion_mnist", "or install Debian's package dataset-fashion-mnist"),
        ("cifar10", r"cifar10 is not in data \(want torchvision's files, whole\); pass --data-dir FOLDER, or --down"),
        ("cifar100", "cifar100 is not in data"),
    ],
)
def test_missing_files_say_what_to_do_and_fetch_nothing(tmp_path: Path, name: str, advice: str):
    with pytest.raises(FileNotFoundError, match=advice):
        load(name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_part_is_named(tmp_path: Path):
    folder = write_idx(tmp_path / "mine")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte"):
        load("mnist", data_dir=folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (idx(np.zeros((3, 2, 2), np.uint8))[:-1], r"holds 11 bytes, its header says \[3, 2, 2\]"),
        (idx(np.zeros((3, 2, 2), np.uint8)) + b"x", "holds 13 bytes"),
        (idx(np.zeros((3, 2), np.uint8)), "is no IDX file of unsigned bytes in 3 dimensions"),
        (b"\0\0\x08\x03\0\0", "is truncated within its header"),
        (b"", "is no IDX file"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, content: bytes, reason: str):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)


def test_a_truncated_gzip_file_is_named(tmp_path: Path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    content = gzip.compress(idx(np.arange(60, dtype=np.uint8).reshape(5, 4, 3)))
    for rest in (content[:-10], b"not gzip at all"):
        path.write_bytes(rest)
        with pytest.raises(ValueError, match=r"idx3-ubyte\.gz: cannot be read, truncated or damaged"):
            read_idx(path, 3)


def test_unequal_numbers_of_images_and_labels_are_named(tmp_path: Path):
    folder = write_idx(tmp_path / "mine")
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(19, np.uint8)))
    with pytest.raises(ValueError, match="20 images but 19 labels in part 'train'"):
        load("mnist", data_dir=folder)


@pytest.fixture
def cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CIFAR-10 of 60 images in the official layout, with checksums to match."""
    base = tmp_path / "mine" / "cifar-10-batches-py"
    base.mkdir(parents=True)
    generator = np.random.default_rng(0)

    def write(name: str, content: dict) -> tuple[str, str]:
        raw = pickle.dumps(content)
        (base / name).write_bytes(raw)
        return name, hashlib.md5(raw).hexdigest()

    def batch(name: str) -> tuple[str, str]:
        labels = [n % 10 for n in range(10)]
        return write(name, {"data": generator.integers(0, 256, (10, 3072), dtype=np.uint8), "labels": labels})

    kind = torchvision.datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [batch(f"data_batch_{n}") for n in range(1, 6)])
    monkeypatch.setattr(kind, "test_list", [batch("test_batch")])
    name, checksum = write("batches.meta", {"label_names": [f"class {n}" for n in range(10)]})
    monkeypatch.setattr(kind, "meta", {"filename": name, "key": "label_names", "md5": checksum})
    return tmp_path / "mine"


def test_cifar10(cifar10: Path):
    data = load("cifar10", data_dir=cifar10)
    assert (data.name, data.classes, data.input_shape) == ("cifar10", 10, (3, 32, 32))
    assert data.class_names[3] == "class 3"
    assert (len(data.train), len(data.val), len(data.test)) == (45, 5, 10)
    assert (data.mean, data.std) == (IMAGENET_MEAN, IMAGENET_STD)
    assert (data.augment.pad, data.augment.flip) == (4, True)
    raw = pickle.loads((cifar10 / "cifar-10-batches-py" / "test_batch").read_bytes())
    assert torch.equal(data.test.images.flatten(1), torch.from_numpy(raw["data"]))
    assert data.test.labels.tolist() == raw["labels"]


def test_torchvisions_checksums_are_kept(cifar10: Path):
    path = cifar10 / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(FileNotFoundError, match="want torchvision's files, whole"):
        load("cifar10", data_dir=cifar10)


def test_the_published_normalisation_in_units_of_pixels():
    assert [value / 255 for value in IMAGENET_MEAN] == pytest.approx([0.485, 0.456, 0.406])
    assert [value / 255 for value in IMAGENET_STD] == pytest.approx([0.229, 0.224, 0.225])


@pytest.mark.parametrize(("name", "kind"), [("mnist", "MNIST"), ("cifar100", "CIFAR100")])
def test_a_failed_download_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str):
    def fail(root: str, train: bool, download: bool) -> None:
        raise OSError("no route\nto host")

    monkeypatch.setattr(torchvision.datasets, kind, fail)
    with pytest.raises(FileNotFoundError, match=rf"{name} could not be fetched into .*new \(no route to host\); put"):
        load(name, data_dir=tmp_path / "new", download=True)


def test_mirrors_that_spell_the_files_with_a_dot(tmp_path: Path):
    folder = write_idx(tmp_path / "mine")
    for path in folder.iterdir():
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(load("mnist", data_dir=folder).test) == 6


def test_download_is_passed_on_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[bool] = []

    def fetch(root: str, train: bool, download: bool) -> None:
        asked.append(download)
        write_idx(Path(root) / "MNIST" / "raw")

    monkeypatch.setattr(torchvision.datasets, "MNIST", fetch)
    assert len(load("mnist", data_dir=tmp_path / "new", download=True).test) == 6
    assert asked == [True]
    load("mnist", data_dir=tmp_path / "new", download=True)
    assert asked == [True]  # it is there now
