"""Text for networks that read images of one row: a document is `channels 1 length`, pixel t is word or character t.

    docstrings   which of six packages of the running Python's standard library a docstring comes from (offline)
    ag_news      which of four kinds a news item is (Zhang et al. 2015), from files: `test.csv`, and `train.csv` where
                 there is one; rows "class", "title", "description", of which the description is read
    characters   the character after each window of the reference pages that CPython carries: what a causal transformer
                 needs to be a language model (offline)

Words have frozen vectors, as in the text part of the Small Transformer Zoo (Tran et al. 2025, arXiv 2410.04209), whose
come from outside; here they are made of the training documents alone. With C_uv how often u and v stand within four
words of each other,

    M_uv = max(0, log (C_uv Σ C / (Σ_v C_uv Σ_u C_uv))) = Σ_f λ_f e_fu e_fv,     word u is (√λ_f e_fu)_f

for the largest λ_f (Levy and Goldberg 2014), in units of their root mean square over all words of the documents,
rounded to 256 levels. Other words and the places after the last one are 0, as published. Characters are one of 28:
a … z, a blank for any white space, and one sign for the rest.

AG News without `train.csv` is split anew, three quarters of its items for training: such numbers are not those of the
published split. Docstrings lose the name of their package; they and their fingerprint
change with the Python version.
"""

from __future__ import annotations

import ast
import csv
import re
import string
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from asym.data.corpus import pieces, standard_library
from asym.data.images import ImageData, Split, image_data
from asym.data.splits import stratified_split, validation_split
from asym.data.vocabulary import learn_words
from asym.seeds import numpy_generator

DOCUMENTS = ("docstrings", "ag_news", "characters")
PACKAGES = ("asyncio", "email", "importlib", "logging", "unittest", "xml")
NEWS = ("World", "Sports", "Business", "Sci/Tech")
LENGTH, WINDOW = 32, 16
"""Words of a document, characters of a window."""
FEATURES, VOCABULARY, NEAR = 32, 1000, 4
LEVEL, ZERO = 32, 128
"""One unit and the origin in pixels."""
FEWEST = 4
"""Words of a docstring, at least."""
SIZES = {"train": 2000, "val": 300, "test": 1000}
"""Windows."""
ALPHABET = string.ascii_lowercase + " "

Text = tuple[str, int]
"""A document and its class."""


def load_documents(name: str, data_dir: Path | None) -> ImageData:
    """One of `DOCUMENTS`.

    Raises:
        FileNotFoundError: if files are missing; says where they are looked for.
        ValueError: if a file is damaged, naming it and the line.
    """
    if name == "characters":
        return _characters()
    if name == "docstrings":
        texts = docstrings(Path(sysconfig.get_paths()["stdlib"]))
        return _described(name, PACKAGES, *_split(texts))
    folder = find_news(data_dir)
    rest = read_news(folder / "test.csv")
    if not (folder / "train.csv").is_file():
        return _described(name, NEWS, *_split(rest))
    texts = read_news(folder / "train.csv")
    train, val = validation_split(len(texts))
    return _described(name, NEWS, [texts[i] for i in train.tolist()], [texts[i] for i in val.tolist()], rest)


def docstrings(library: Path) -> list[Text]:
    """The docstrings of modules, classes and functions in `PACKAGES`, without their tests, each once.

    Raises:
        FileNotFoundError: if a package's source is not there.
    """
    found: dict[str, int] = {}
    for label, package in enumerate(PACKAGES):
        files = sorted(file for file in (library / package).rglob("*.py") if not {"test", "tests"} & set(file.parts))
        if not files:
            raise FileNotFoundError(f"dataset: this Python has no source of {package} in {library}; name another set")
        for file in files:
            for node in ast.walk(ast.parse(file.read_bytes())):
                if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                text = re.sub(package, "", ast.get_docstring(node) or "", flags=re.IGNORECASE)
                if len(re.findall(r"\w+", text)) >= FEWEST:
                    found.setdefault(text, label)
    return list(found.items())


def find_news(data_dir: Path | None) -> Path:
    """The folder with `test.csv`: `ag_news` in data_dir (default `data`), or data_dir itself.

    Raises:
        FileNotFoundError: if there is none.
    """
    root = data_dir or Path("data")
    for place in (root / "ag_news", root):
        if (place / "test.csv").is_file():
            return place
    raise FileNotFoundError(f"data_dir: {root} has no ag_news/test.csv; --data-dir names the folder that holds it")


def read_news(file: Path) -> list[Text]:
    """Descriptions and classes 0 … 3 of a file; a first line of titles is left out.

    Raises:
        ValueError: naming the line that is none of three fields with a class of 1 … 4, or a file that is not UTF-8.
    """
    found: list[Text] = []
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            for number, row in enumerate(csv.reader(stream), 1):
                if number == 1 and row and not row[0].isdigit():
                    continue
                if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
                    raise ValueError(f"dataset: {file}, line {number}: want class 1 … 4, title, description")
                found.append((row[2].replace("\\", " "), int(row[0]) - 1))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"dataset: {file} cannot be read: {error}") from None
    if len(found) < 40:
        raise ValueError(f"dataset: {file} has {len(found)} items, want at least 40")
    return found


def word_vectors(documents: Sequence[np.ndarray], words: int) -> np.ndarray:
    """Vectors of words by number `words FEATURES`, the first of them 0; see the module's formula."""
    counts = np.zeros((words, words))
    for ids in documents:
        for distance in range(1, NEAR + 1):
            np.add.at(counts, (ids[:-distance], ids[distance:]), 1.0)
    counts += counts.T
    counts[0] = counts[:, 0] = 0.0
    margin = counts.sum(0)
    expected = np.outer(margin, margin) / max(counts.sum(), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = np.where(counts > 0, np.maximum(np.log(counts / expected), 0.0), 0.0)
    values, basis = np.linalg.eigh(matrix)
    basis = basis[:, ::-1][:, :FEATURES]
    basis = basis * np.sign(basis[np.abs(basis).argmax(0), np.arange(basis.shape[1])])
    vectors = np.zeros((words, FEATURES))
    vectors[:, : basis.shape[1]] = basis * np.sqrt(np.maximum(values[::-1][:FEATURES], 0.0))
    shown = vectors[np.concatenate(list(documents))]
    return vectors / max(np.sqrt((shown**2).mean()), 1e-12)


def _described(name: str, classes: Sequence[str], *parts: Sequence[Text]) -> ImageData:
    """Splits of words as vectors, all learnt from the first."""
    vocabulary = learn_words((text for text, _ in parts[0]), VOCABULARY)
    encoded = [[vocabulary.encode(text)[:LENGTH] for text, _ in part] for part in parts]
    pixels = _pixels(word_vectors(encoded[0], len(vocabulary.tokens)))
    splits = []
    for part, documents in zip(parts, encoded):
        ids = np.zeros((len(part), LENGTH), dtype=np.int64)
        for row, own in zip(ids, documents):
            row[: len(own)] = own
        images = torch.from_numpy(pixels[ids]).movedim(2, 1)[:, :, None].contiguous()
        splits.append(Split(images, torch.tensor([label for _, label in part])))
    return _data(name, classes, splits, ZERO, LEVEL)


def _pixels(vectors: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(ZERO + LEVEL * vectors), 0, 255).astype(np.uint8)


def _split(texts: Sequence[Text]) -> list[list[Text]]:
    """Three quarters, a tenth and the rest, each class with its share."""
    labels = torch.tensor([label for _, label in texts])
    train, val = round(0.75 * len(texts)), round(0.1 * len(texts))
    parts = stratified_split(labels, (train, val, len(texts) - train - val), seed=0)
    return [[texts[i] for i in part.tolist()] for part in parts]


def _characters() -> ImageData:
    text: dict[str, list[Tensor]] = {name: [] for name in SIZES}
    for piece in pieces(standard_library()):
        ids = _encode(piece.text)
        if len(ids) > WINDOW:
            text[piece.split].append(torch.from_numpy(ids).unfold(0, WINDOW + 1, 1))
    splits = []
    for name, size in SIZES.items():
        windows = torch.cat(text[name])
        chosen = numpy_generator(0, "data", "characters", name).permutation(len(windows))[:size]
        rows = windows[torch.from_numpy(np.sort(chosen))]
        images = torch.nn.functional.one_hot(rows[:, :-1], len(ALPHABET) + 1).mT[:, :, None].to(torch.uint8)
        splits.append(Split(images.contiguous(), rows[:, -1].clone()))
    return _data("characters", [*ALPHABET, "other"], splits, 0, 1)


def _encode(text: str) -> np.ndarray:
    number = {character: k for k, character in enumerate(ALPHABET)}
    plain = re.sub(r"\s+", " ", text.lower())
    return np.fromiter((number.get(character, len(ALPHABET)) for character in plain), dtype=np.int64)


def _data(name: str, classes: Sequence[str], splits: Sequence[Split], zero: int, level: int) -> ImageData:
    channels = splits[0].images.shape[1]
    train, val, test = splits
    return image_data(
        name, train=train, val=val, test=test, class_names=classes, mean=(zero,) * channels, std=(level,) * channels
    )


__all__ = ["DOCUMENTS", "docstrings", "find_news", "load_documents", "read_news", "word_vectors"]
