"""Text as images of one row."""

import csv
import math

import numpy as np
import pytest
import torch

from asym.data import load
from asym.data.documents import ALPHABET, FEATURES, LENGTH, PACKAGES, WINDOW, docstrings, word_vectors


def news(folder, n=60, name="test.csv"):
    folder.mkdir(parents=True, exist_ok=True)
    rows = [[str(k % 4 + 1), "title", f"the word{k % 4} of item {k} is word{k % 4}"] for k in range(n)]
    with (folder / name).open("w", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
    return rows


def test_docstrings_are_images_of_one_row_with_vectors_of_words():
    data = load("docstrings")
    assert data.input_shape == (FEATURES, 1, LENGTH)
    assert data.class_names == PACKAGES
    total = sum(len(part) for part in (data.train, data.val, data.test))
    assert len(data.train) == round(0.75 * total) > 500
    pixels = data.normalise(data.train.images)
    assert float(pixels[:, :, 0, -1].abs().max(1).values.min()) == 0.0  # short documents end in zeros
    assert 0.3 < float(pixels.square().mean()) < 1.1
    assert load("docstrings").fingerprint == data.fingerprint


def test_docstrings_do_not_name_their_package(tmp_path):
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "a.py").write_text(f'"""All of {package} in four more words."""\nx = "no docstring"\n')
    texts = docstrings(tmp_path)
    assert [label for _, label in texts] == [0]  # without the name they are one text, which counts once
    assert PACKAGES[0] not in texts[0][0]
    with pytest.raises(FileNotFoundError, match="no source of asyncio"):
        docstrings(tmp_path / "nowhere")


def test_word_vectors_by_hand():
    """Words 1 and 2 stand beside each other alone, 3 and 4 too: one vector for each pair, at right angles."""
    documents = [np.array([1, 2]), np.array([3, 4]), np.array([1, 2]), np.array([3, 4])]
    vectors = word_vectors(documents, 5)
    assert vectors.shape == (5, FEATURES)
    np.testing.assert_array_equal(vectors[0], 0)
    inner = vectors @ vectors.T
    np.testing.assert_allclose(inner[1, 2], inner[1, 1])
    np.testing.assert_allclose(inner[1, 3], 0, atol=1e-12)
    np.testing.assert_allclose(np.square(vectors[1:]).mean(), 1.0)


def test_news_from_files(tmp_path):
    rows = news(tmp_path / "ag_news")
    data = load("ag_news", data_dir=tmp_path)
    assert (len(data.train), len(data.val), len(data.test)) == (45, 6, 9)
    assert data.classes == 4
    same = load("ag_news", data_dir=tmp_path / "ag_news")
    assert same.fingerprint == data.fingerprint
    news(tmp_path / "ag_news", 100, "train.csv")
    whole = load("ag_news", data_dir=tmp_path)
    assert (len(whole.train), len(whole.val), len(whole.test)) == (90, 10, len(rows))
    assert torch.equal(whole.test.labels, torch.tensor([int(row[0]) - 1 for row in rows]))


def test_bad_news_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no ag_news/test.csv"):
        load("ag_news", data_dir=tmp_path)
    news(tmp_path)
    file = tmp_path / "test.csv"
    good = file.read_text()
    for text, message in (
        (good + '"5","a","b"\n', "line 61: want class"),
        (good + '"1","a"\n', "line 61: want class"),
        ('"1","a","b"\n', "has 1 items"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            load("ag_news", data_dir=tmp_path)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="cannot be read"):
        load("ag_news", data_dir=tmp_path)
    file.write_text("Class Index,Title,Description\n" + good)
    assert load("ag_news", data_dir=tmp_path).classes == 4


def test_characters_follow_their_windows():
    data = load("characters")
    assert data.input_shape == (len(ALPHABET) + 1, 1, WINDOW)
    images = data.train.images
    assert torch.equal(images.sum(1), torch.ones_like(images[:, 0]))
    share = torch.bincount(data.test.labels, minlength=data.classes).double() / len(data.test)
    assert float(share.max()) < 0.3
    assert -float((share[share > 0] * share[share > 0].log()).sum()) > 0.7 * math.log(data.classes)
