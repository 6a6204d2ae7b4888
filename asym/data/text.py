"""Text as tokens in memory, 4 bytes a token: `load_text(name)` gives a `TextData`.

Every token but the first of a document is predicted from those before it in the same document; nothing is known of
other documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from asym.data.corpus import (
    SPLITS,
    STANDARD_LIBRARY,
    Corpus,
    Piece,
    pieces,
    standard_library,
    text_folder,
)
from asym.data.vocabulary import KINDS, Vocabulary, learn_pairs, learn_words
from asym.files import replace_file
from asym.seeds import numpy_generator

FOLDER = "text:"


@dataclass(frozen=True, eq=False)
class Stream:
    """The tokens of one split, document after document; compared and hashed by identity.

    Attributes:
        ids: int32 `[n]`.
        starts: place of the first token of every document, int64 `[d]`, rising from 0.
        shards: shard of every document, int32 `[d]`.
        characters: how many the text has that the tokens stand for.
    """

    ids: np.ndarray
    starts: np.ndarray
    shards: np.ndarray
    characters: int

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def begin(self) -> np.ndarray:
        """For every token the place where its document begins, int64 `[n]`."""
        return np.repeat(self.starts, np.diff(np.append(self.starts, len(self.ids))))

    @cached_property
    def targets(self) -> np.ndarray:
        """Places of the tokens that are predicted: all but the first of every document, int64 `[n − d]`."""
        return np.setdiff1d(np.arange(len(self.ids)), self.starts, assume_unique=True)

    def choose(self, documents: np.ndarray) -> Stream:
        """The stream of some documents only, in their order."""
        ends = np.append(self.starts[1:], len(self.ids))
        places = [np.arange(int(self.starts[d]), int(ends[d])) for d in documents]
        lengths = np.array([len(p) for p in places], dtype=np.int64)
        ids = self.ids[np.concatenate(places)] if len(places) else self.ids[:0]
        characters = round(self.characters * len(ids) / max(len(self.ids), 1))
        starts = np.cumsum(lengths) - lengths
        return Stream(ids, starts, self.shards[documents], characters)

    def partition(self, k: int, seed: int | None = None) -> list[Stream]:
        """k streams of similar length, of whole shards; of whole documents if there are fewer shards than k.

        One after the other goes to the part that is shortest so far: the largest first, or in an order drawn by `seed`.

        Raises:
            ValueError: fewer documents than parts.
        """
        unit = self.shards if len(np.unique(self.shards)) >= k else np.arange(len(self.starts))
        lengths = np.diff(np.append(self.starts, len(self.ids)))
        names, place = np.unique(unit, return_inverse=True)
        if len(names) < k:
            raise ValueError(f"shards: {len(names)} documents cannot be dealt to {k} networks")
        sizes = np.bincount(place, weights=lengths)
        totals, owner = np.zeros(k), np.zeros(len(names), dtype=np.int64)
        order = np.argsort(-sizes, kind="stable")
        if seed is not None:
            order = numpy_generator(seed, "data", "partition", k).permutation(order)
        for name in order:
            owner[name] = totals.argmin()
            totals[owner[name]] += sizes[name]
        return [self.choose(np.flatnonzero(owner[place] == part)) for part in range(k)]

    def shuffled_labels(self, seed: int) -> Stream:
        """All tokens in a random order, documents as long as before: only frequencies are left to learn."""
        order = numpy_generator(seed, "data", "shuffled labels").permutation(len(self.ids))
        return replace(self, ids=self.ids[order])

    def fraction(self, share: float) -> Stream:
        """The first share of the tokens of every document, at least two tokens each."""
        ends = np.append(self.starts[1:], len(self.ids))
        keep = np.maximum(np.round(share * (ends - self.starts)).astype(np.int64), np.minimum(2, ends - self.starts))
        places = np.concatenate([np.arange(s, s + k) for s, k in zip(self.starts.tolist(), keep.tolist())])
        return Stream(self.ids[places], np.cumsum(keep) - keep, self.shards, round(self.characters * share))


@dataclass(frozen=True)
class TextData:
    """A corpus, split and encoded.

    Attributes:
        name: what tables call it.
        tokens: the vocabulary, most frequent first (after `<unk>`).
        counts: occurrences of each in the training split `[V]`.
        shards: names of the shards.
        train, val, test: the splits.
        fingerprint: hash of all of it.
    """

    name: str
    tokens: tuple[str, ...]
    counts: np.ndarray
    shards: tuple[str, ...]
    train: Stream
    val: Stream
    test: Stream
    fingerprint: str


def load_text(
    dataset: str = STANDARD_LIBRARY,
    *,
    vocabulary: str = "word",
    size: int = 2000,
    split: str = "auto",
    documents: str = "file",
    seed: int = 0,
    name: str | None = None,
    context: int = 1,
    cache_dir: str | Path | None = None,
) -> TextData:
    """A text data set.

    Args:
        dataset: `pydoc`, the reference pages of this Python, or `text:FOLDER`.
        vocabulary: `word` or `bpe`, learnt on the training split.
        size: tokens of the vocabulary; a corpus with fewer words has a smaller one.
        split: `auto`, `given`, `position` or `document`, see `asym.data.corpus`.
        documents: `file` or `paragraph`, what a document is.
        seed: of a split by document.
        name: what tables call it; default: the folder's name.
        context: no split may be shorter than this many tokens and one.
        cache_dir: encoded text is kept there and found next time.

    Raises:
        ValueError: a bad argument, a file that is empty or not UTF-8, a corpus shorter than the context.
        FileNotFoundError: no such folder, or none of its files is text.
        ModuleNotFoundError: bpe without the library tokenizers.
    """
    if vocabulary not in KINDS:
        raise ValueError(f"vocabulary: unknown {vocabulary!r}; valid: {', '.join(KINDS)}")
    if dataset.startswith(FOLDER) and dataset != FOLDER:
        corpus = text_folder(Path(dataset.removeprefix(FOLDER)), documents=documents, name=name)
    elif dataset == STANDARD_LIBRARY:
        corpus = standard_library()
    else:
        raise ValueError(f"dataset: unknown {dataset!r}; choose from {STANDARD_LIBRARY}, {FOLDER}FOLDER")
    options = {"vocabulary": vocabulary, "size": size, "split": split, "seed": seed}
    key = hashlib.sha256(repr((corpus.fingerprint, *options.values())).encode()).hexdigest()[:16]
    file = None if cache_dir is None else Path(cache_dir).expanduser() / f"text-{key}.npz"
    if file is not None and file.is_file():
        data = replace(_read(file), name=name or corpus.name)
    else:
        data = encode_corpus(corpus, name=name, **options)  # type: ignore[arg-type]
        if file is not None:
            replace_file(file, lambda path: _write(path, data))
    check_length(data, context)
    return data


def check_length(data: TextData, context: int) -> None:
    """Raise a `ValueError` if a split is not longer than the context."""
    for which in SPLITS:
        if len(stream := getattr(data, which)) <= context:
            raise ValueError(
                f"dataset: {data.name} has {len(stream)} tokens for {which}, its context of {context} needs more"
            )


def encode_corpus(
    corpus: Corpus,
    *,
    vocabulary: str = "word",
    size: int = 2000,
    split: str = "auto",
    seed: int = 0,
    name: str | None = None,
) -> TextData:
    """Learn a vocabulary on the training split of a corpus and encode all of it; see `load_text`."""

    def read() -> Iterator[Piece]:
        return pieces(corpus, split, seed)

    learn: Callable[[Iterable[str], int], Vocabulary] = learn_words if vocabulary == "word" else learn_pairs
    learnt = learn((piece.text for piece in read() if piece.split == "train"), size)
    parts: dict[str, list[tuple[np.ndarray, str, int]]] = {name: [] for name in SPLITS}
    for piece in read():
        ids = learnt.encode(piece.text)
        if len(ids):
            parts[piece.split].append((ids, piece.shard, len(piece.text)))
    shards = sorted({shard for part in parts.values() for _, shard, _ in part})
    streams = {split: _stream(part, shards) for split, part in parts.items()}
    for which, stream in streams.items():
        if len(stream.targets) == 0:
            raise ValueError(f"dataset: {corpus.name} has no document of two tokens for {which}")
    digest = hashlib.sha256(repr((corpus.fingerprint, learnt.tokens)).encode())
    for stream in streams.values():
        digest.update(stream.ids.tobytes() + stream.starts.tobytes())
    return TextData(
        name=name or corpus.name,
        tokens=learnt.tokens,
        counts=learnt.counts,
        shards=tuple(shards),
        fingerprint=digest.hexdigest()[:16],
        **streams,
    )


def _stream(part: list[tuple[np.ndarray, str, int]], shards: list[str]) -> Stream:
    lengths = np.array([len(ids) for ids, _, _ in part], dtype=np.int64)
    number = {shard: i for i, shard in enumerate(shards)}
    return Stream(
        ids=np.concatenate([ids for ids, _, _ in part]) if part else np.empty(0, dtype=np.int32),
        starts=np.cumsum(lengths) - lengths,
        shards=np.array([number[shard] for _, shard, _ in part], dtype=np.int32),
        characters=sum(characters for _, _, characters in part),
    )


_FIELDS = ("ids", "starts", "shards", "characters")


def _write(path: Path, data: TextData) -> None:
    streams = {f"{which}_{field}": getattr(getattr(data, which), field) for which in SPLITS for field in _FIELDS}
    with path.open("wb") as stream:
        np.savez(
            stream,
            tokens=np.array(data.tokens),
            counts=data.counts,
            names=np.array(data.shards),
            fingerprint=np.array(data.fingerprint),
            **streams,
        )


def _read(file: Path) -> TextData:
    with np.load(file) as kept:
        streams = {
            which: Stream(
                kept[f"{which}_ids"], kept[f"{which}_starts"], kept[f"{which}_shards"], int(kept[f"{which}_characters"])
            )
            for which in SPLITS
        }
        return TextData(
            name="",
            tokens=tuple(map(str, kept["tokens"])),
            counts=kept["counts"],
            shards=tuple(map(str, kept["names"])),
            fingerprint=str(kept["fingerprint"]),
            **streams,
        )
