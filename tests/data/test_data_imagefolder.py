import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from asym.data import imagefolder, load
from asym.data.imagefolder import load_imagefolder
from asym.data.sources import IMAGENET_MEAN

COUNTS = {("train", "cat"): 12, ("train", "dog"): 8, ("test", "cat"): 2, ("test", "dog"): 3}


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def pixels(seed: int, size: tuple[int, ...] = (16, 16, 3)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def make_folder(root: Path, size: tuple[int, ...] = (16, 16, 3), suffix: str = "png") -> Path:
    seed = 0
    for (split, name), count in COUNTS.items():
        for number in range(count):
            write(root / split / name / f"{number:02}.{suffix}", pixels(seed, size))
            seed += 1
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "pets")


def test_a_folder_by_hand(folder: Path):
    data = load_imagefolder(folder)
    assert (data.name, data.class_names, data.input_shape) == ("pets", ("cat", "dog"), (3, 16, 16))
    assert (len(data.train), len(data.val), len(data.test)) == (18, 2, 5)
    assert data.test.labels.tolist() == [0, 0, 1, 1, 1]
    # The 20 training images were seeds 0 … 19, the test images follow in order.
    for index in range(5):
        assert torch.equal(data.test.images[index], torch.from_numpy(pixels(20 + index)).permute(2, 0, 1))
    assert data.mean == IMAGENET_MEAN
    assert (data.augment.pad, data.augment.flip) == (4, True)


def test_training_and_validation_split_the_official_training_images(folder: Path):
    data = load_imagefolder(folder)
    together = torch.cat([data.train.images, data.val.images])
    expected = torch.stack([torch.from_numpy(pixels(seed)).permute(2, 0, 1) for seed in range(20)])
    assert sorted(map(bytes, together.flatten(1).numpy())) == sorted(map(bytes, expected.flatten(1).numpy()))


def test_a_folder_for_validation_is_used(folder: Path):
    write(folder / "val" / "dog" / "0.png", pixels(99))
    data = load_imagefolder(folder)
    assert (len(data.train), len(data.val)) == (20, 1)
    assert data.val.labels.tolist() == [1]


@pytest.mark.parametrize("prefix", ["", "./", "pets/", "data/pets-1.0/"])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".zip"])
def test_an_archive_gives_the_same_as_its_folder(folder: Path, tmp_path: Path, suffix: str, prefix: str):
    archive_path = tmp_path / f"packed{suffix}"
    files = sorted((path for path in folder.rglob("*.png")), key=lambda path: str(path)[::-1])  # in no useful order
    if suffix == ".zip":
        with zipfile.ZipFile(archive_path, "w") as archive:
            for path in files:
                archive.write(path, prefix + str(path.relative_to(folder)))
    else:
        with tarfile.open(archive_path, "w" if suffix == ".tar" else "w:gz") as archive:
            for path in files:
                archive.add(path, prefix + str(path.relative_to(folder)))
    data, expected = load_imagefolder(archive_path), load_imagefolder(folder)
    assert data.name == "packed"
    assert data.fingerprint == expected.fingerprint
    assert torch.equal(data.train.images, expected.train.images)
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("pets", archive_path.name)] == []


def test_an_archive_with_two_data_sets_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x/train/cat/1.png", b"")
        archive.writestr("y/train/cat/1.png", b"")
    with pytest.raises(ValueError, match="holds several data sets: x, y"):
        list(imagefolder._blobs(tmp_path / "a.zip"))


def test_other_files_are_passed_over(folder: Path):
    expected = load_imagefolder(folder).fingerprint
    (folder / "train" / "cat" / "notes.txt").write_text("x")
    (folder / "train" / "cat" / "._00.png").write_bytes(b"x")
    (folder / "train" / ".DS_Store").write_bytes(b"x")
    (folder / "train" / "empty class").mkdir()
    (folder / "README").write_text("x")
    assert load_imagefolder(folder).fingerprint == expected


def test_grey_images_have_one_channel_and_their_own_mean(tmp_path: Path):
    data = load_imagefolder(make_folder(tmp_path / "grey", (8, 8)))
    assert data.input_shape == (1, 8, 8)
    values = data.train.images.double()
    assert data.mean[0] == pytest.approx(float(values.mean()), abs=1e-4)
    assert data.std[0] == pytest.approx(float(values.std(correction=0)), abs=1e-4)
    assert not data.augment.active


def test_small_colour_images_are_not_augmented(tmp_path: Path):
    assert not load_imagefolder(make_folder(tmp_path / "small", (8, 8, 3))).augment.active


def test_one_coloured_image_makes_all_coloured(tmp_path: Path):
    folder = make_folder(tmp_path / "mixed", (16, 16))
    write(folder / "test" / "cat" / "99.png", pixels(0))
    data = load_imagefolder(folder)
    assert data.input_shape == (3, 16, 16)
    grey = torch.from_numpy(pixels(20, (16, 16)))
    assert torch.equal(data.test.images[0], grey.expand(3, 16, 16))


def test_transparency_is_dropped_and_palettes_are_resolved(folder: Path):
    base = pixels(20)
    opaque = np.concatenate([base, np.full((16, 16, 1), 7, np.uint8)], axis=-1)
    write(folder / "test" / "cat" / "00.png", opaque)
    Image.fromarray(base // 128 * 128).quantize(8).save(folder / "test" / "cat" / "01.png")
    data = load_imagefolder(folder)
    assert torch.equal(data.test.images[0], torch.from_numpy(base).permute(2, 0, 1))
    assert torch.equal(data.test.images[1], torch.from_numpy(base // 128 * 128).permute(2, 0, 1))


def test_jpeg_is_read_as_by_the_reference_decoder(tmp_path: Path):
    folder = make_folder(tmp_path / "photos", suffix="jpg")
    data = load_imagefolder(folder)
    with Image.open(folder / "test" / "cat" / "00.jpg") as image:
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    assert (data.test.images[0].int() - expected.int()).abs().max() <= 2


def test_threads_give_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch):
    expected = load_imagefolder(folder).fingerprint
    monkeypatch.setattr(imagefolder, "_CHUNK", 2)
    for smallest in (0, 10**9):
        monkeypatch.setattr(imagefolder, "_THREADED_BYTES", smallest)
        assert load_imagefolder(folder).fingerprint == expected


def test_sixteen_bits_are_refused(folder: Path):
    write(folder / "test" / "cat" / "00.png", pixels(0, (16, 16)).astype(np.uint16) * 256)
    with pytest.raises(ValueError, match=r"test/cat/00\.png has more than 8 bits a channel; convert it to 8"):
        load_imagefolder(folder)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_damaged_image_is_named(tmp_path: Path, suffix: str, keep: float):
    folder = make_folder(tmp_path / "pets", suffix=suffix)
    path = folder / "train" / "dog" / f"03.{suffix}"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(ValueError, match=rf"train/dog/03\.{suffix} is truncated or no image"):
        load_imagefolder(folder)


def test_a_truncated_archive_is_named(folder: Path, tmp_path: Path):
    path = tmp_path / "packed.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "pets")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"packed\.tar\.gz is truncated or damaged"):
        load_imagefolder(path)


def test_images_of_different_sizes_need_a_size(folder: Path):
    write(folder / "train" / "dog" / "99.png", pixels(0, (20, 30, 3)))
    with pytest.raises(
        ValueError, match=r"train/dog/99\.png is 20×30 pixels, test/cat/00\.png is 16×16; resize them with --image-size"
    ):
        load_imagefolder(folder)
    data = load(f"imagefolder:{folder}", image_size=16)
    assert data.input_shape == (3, 16, 16)
    assert torch.equal(data.test.images, load_imagefolder(folder, image_size=16).test.images)


def test_resizing_takes_the_central_square(tmp_path: Path):
    folder = make_folder(tmp_path / "wide", (16, 24, 3))
    image = np.zeros((16, 24, 3), np.uint8)
    image[:, 4:20] = 200
    write(folder / "test" / "cat" / "00.png", image)
    assert (load_imagefolder(folder, image_size=16).test.images[0] == 200).all()
    with pytest.raises(ValueError, match="image_size: must be at least 1, got 0"):
        load_imagefolder(folder, image_size=0)


def test_a_missing_split_says_what_is_wanted(folder: Path):
    shutil.rmtree(folder / "test")
    with pytest.raises(
        FileNotFoundError, match=r"has no images test/<class>/\*\.png\|\.jpg\|\.jpeg; want train/ and test/"
    ):
        load_imagefolder(folder)


def test_a_class_must_be_trained(folder: Path):
    write(folder / "test" / "emu" / "0.png", pixels(0))
    with pytest.raises(ValueError, match=r"class of test/emu/0\.png does not occur in train/"):
        load_imagefolder(folder)


def test_decoded_images_are_kept_and_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = tmp_path / "cache"
    first = load(f"imagefolder:{folder}", cache_dir=cache)
    (kept,) = cache.iterdir()
    assert kept.name.startswith("pets-")
    with monkeypatch.context() as patch:
        patch.setattr(imagefolder, "_decode_all", None)  # would fail if called
        again = load(f"imagefolder:{folder}", cache_dir=cache)
    assert again.fingerprint == first.fingerprint
    assert torch.equal(again.train.images, first.train.images)
    assert again.class_names == first.class_names
    assert list(cache.iterdir()) == [kept]


def test_a_change_of_the_files_is_seen(folder: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    first = load_imagefolder(folder, cache_dir=cache)
    path = folder / "test" / "cat" / "00.png"
    write(path, pixels(1000))
    os.utime(path, (1, 1))
    second = load_imagefolder(folder, cache_dir=cache)
    assert second.fingerprint != first.fingerprint
    path.rename(path.with_name("98.png"))
    third = load_imagefolder(folder, cache_dir=cache)
    assert third.fingerprint not in (first.fingerprint, second.fingerprint)
    load_imagefolder(folder, cache_dir=cache, image_size=16)
    assert len(list(cache.iterdir())) == 4


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_a_damaged_cache_is_written_anew(folder: Path, tmp_path: Path, keep: float):
    cache = tmp_path / "cache"
    first = load_imagefolder(folder, cache_dir=cache)
    (kept,) = cache.iterdir()
    good = kept.read_bytes()
    content = bytearray(good[: int(keep * len(good))])
    if keep == 1:
        content[-100] ^= 1
    kept.write_bytes(content)
    assert load_imagefolder(folder, cache_dir=cache).fingerprint == first.fingerprint
    assert kept.read_bytes() == good
