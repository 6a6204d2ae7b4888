"""A corpus: text in documents, documents in shards, each part of it for training, validation or test.

A folder of text files is read one file at a time, so that its size is no matter; a shard is a file. What belongs to
validation and test is either said by names or cut off here:

- `given`: a file, or a folder above it, is named after a split (`train`, `dev`, `val`, `valid`, `test`, also within a
  name: `babylm_dev/bnc_spoken.dev`, `train_10M/childes.train`), as in BabyLM's layout;
- `position`: of every document the last tenth is for test, the tenth before it for validation;
- `document`: of all documents a tenth is for test, a tenth for validation, at least one each, drawn by `seed`;
- `auto`: `given` where names say so, else `position`.

The offline default is the English that every CPython carries: the reference pages in `pydoc_data.topics`, 120,000 words
about the language; a topic is a document and a shard.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from asym.seeds import numpy_generator

SPLITS = ("train", "val", "test")
SPLIT_RULES = ("auto", "given", "position", "document")
DOCUMENT_RULES = ("file", "paragraph")
STANDARD_LIBRARY = "pydoc"
ENDINGS = (".txt", ".train", ".dev", ".val", ".valid", ".test")
SHARE = 0.1
"""Of a text, for validation and again for test."""
_NAMED = {"train": "train", "dev": "val", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Document:
    """One text.

    Attributes:
        shard: name of what it belongs to: its file's name without ending and split, or a topic.
        text: of any length, not blank.
        split: what names say it is for; None if they say nothing.
    """

    shard: str
    text: str
    split: str | None = None


@dataclass(frozen=True)
class Corpus:
    """Documents that can be read again and again.

    Attributes:
        name: what tables call it.
        read: gives the documents, always in the same order.
        splits: what names say of the documents; None stands for those of which they say nothing.
        fingerprint: hash of what they hold.
    """

    name: str
    read: Callable[[], Iterator[Document]]
    splits: frozenset[str | None]
    fingerprint: str


@dataclass(frozen=True)
class Piece:
    """A part of a document that belongs to one split; the text of a document may be in three of them."""

    shard: str
    document: int
    split: str
    text: str


def standard_library() -> Corpus:
    """The reference pages of the running Python.

    Raises:
        FileNotFoundError: if this Python was installed without them.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        raise FileNotFoundError("dataset: this Python has no pydoc_data.topics; name a folder: text:PATH") from None
    documents = [Document(name, topics[name]) for name in sorted(topics) if topics[name].strip()]
    return from_documents(STANDARD_LIBRARY, documents)


def from_documents(name: str, documents: list[Document]) -> Corpus:
    """A corpus that is in memory already."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(repr((document.shard, document.text, document.split)).encode())
    splits = frozenset(document.split for document in documents)
    return Corpus(name, lambda: iter(documents), splits, digest.hexdigest()[:16])


def text_folder(path: Path, *, documents: str = "file", name: str | None = None) -> Corpus:
    """The text files of a folder and its subfolders: `.txt .train .dev .val .valid .test`, plain or with `.gz`.

    Args:
        path: the folder.
        documents: `file` (each file is one document) or `paragraph` (blank lines separate documents).
        name: of the corpus, by default the folder's.

    Raises:
        FileNotFoundError: the folder is not there or has no such file.
        ValueError: an unknown rule; a file that is empty or not UTF-8, named.
    """
    if documents not in DOCUMENT_RULES:
        raise ValueError(f"documents: unknown {documents!r}; valid: {', '.join(DOCUMENT_RULES)}")
    path = path.expanduser()
    if not path.is_dir():
        raise FileNotFoundError(f"dataset: {path} is not a folder")
    files = sorted(file for file in path.rglob("*") if file.is_file() and _stem(file)[1] in ENDINGS)
    if not files:
        raise FileNotFoundError(f"dataset: {path} has no text files ({', '.join(ENDINGS)}, each also with .gz)")
    digest = hashlib.sha256(documents.encode())
    for file in files:  # every file is read once now, so that a bad one is found before any work
        digest.update(file.relative_to(path).as_posix().encode() + hashlib.sha256(read_text(file).encode()).digest())

    def read() -> Iterator[Document]:
        for file in files:
            shard, split = _stem(file)[0], split_of(file.relative_to(path))
            text = read_text(file)
            parts = [text] if documents == "file" else re.split(r"\n\s*\n", text)
            yield from (Document(shard, part, split) for part in parts if part.strip())

    splits = frozenset(split_of(file.relative_to(path)) for file in files)
    return Corpus(name or path.resolve().name, read, splits, digest.hexdigest()[:16])


def read_text(file: Path) -> str:
    """A text file, unpacked where it is packed.

    Raises:
        ValueError: it is blank, not UTF-8, or no gzip file though it is named so.
    """
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"dataset: {file} is not UTF-8 (byte {error.start})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"dataset: {file} cannot be read: {error}") from None
    if not text.strip():
        raise ValueError(f"dataset: {file} is empty")
    return text.removeprefix("\ufeff")


def split_of(path: Path) -> str | None:
    """The split that a path inside a corpus names, its file first: `dev/a.txt`, `a.dev`, `babylm_test/a.txt`."""
    for part in reversed(path.parts):
        words = [_NAMED[word] for word in re.split(r"[^a-z]+", part.lower()) if word in _NAMED]
        if words:
            return words[-1]
    return None


def pieces(corpus: Corpus, split: str = "auto", seed: int = 0) -> Iterator[Piece]:
    """The documents of a corpus, cut into the parts of each split; see the module's table.

    Raises:
        ValueError: an unknown rule; `given` although names say nothing; too few documents.
    """
    if split not in SPLIT_RULES:
        raise ValueError(f"split: unknown {split!r}; valid: {', '.join(SPLIT_RULES)}")
    named = corpus.splits
    if split == "auto":
        split = "given" if {"train", "test"} <= named else "position"
    if split == "given" and not {"train", "test"} <= named:
        raise ValueError(
            f"split: no file or folder of {corpus.name} is named train and test; valid: position, document"
        )
    drawn = _drawn(sum(1 for _ in corpus.read()), seed, corpus.name) if split == "document" else {}
    held = "val" in named
    for number, document in enumerate(corpus.read()):
        if split == "document":
            yield Piece(document.shard, number, drawn.get(number, "train"), document.text)
        elif split == "given" and (held or document.split != "train"):
            yield Piece(document.shard, number, document.split or "train", document.text)
        else:  # by position; a corpus with train and test alone gives the end of its training texts to validation
            shares = (("val", SHARE),) if split == "given" else (("val", SHARE), ("test", SHARE))
            for name, text in cut(document.text, shares):
                yield Piece(document.shard, number, name, text)


def cut(text: str, shares: tuple[tuple[str, float], ...]) -> list[tuple[str, str]]:
    """Cut the end of a text into parts, in their order, at white space; what comes before them is `train`."""
    edges, left = [0], 1.0 - sum(share for _, share in shares)
    for _, share in (("train", left), *shares[:-1]):
        left = edges[-1] + round(share * len(text))
        space = re.compile(r"\s").search(text, left)
        edges.append(space.start() if space else len(text))
    names = ["train", *(name for name, _ in shares)]
    parts = [(name, text[a:b]) for name, a, b in zip(names, edges, [*edges[1:], len(text)])]
    return [(name, part) for name, part in parts if part.strip()]


def _drawn(count: int, seed: int, name: str) -> dict[int, str]:
    if count < 3:
        raise ValueError(f"split: {name} has {count} documents, a split by document needs at least 3; valid: position")
    share = max(1, round(SHARE * count))
    order = numpy_generator(seed, "data", "split by document").permutation(count).tolist()
    return {number: "test" if place < share else "val" for place, number in enumerate(order[: 2 * share])}


def _stem(file: Path) -> tuple[str, str]:
    name = file.name.removesuffix(".gz")
    return Path(name).stem, Path(name).suffix.lower()
