"""Vocabularies: what the tokens of a text are.

Words: lower-cased runs of letters, digits and inner apostrophes, and single other signs; the V − 1 most frequent of the
training text (of equally frequent ones the first), in that order, after the one token `<unk>` for all others. Any bits
per character with it leave out what `<unk>` stands for, so that they compare models of one vocabulary only.

BPE: byte-level byte-pair encoding with the `tokenizers` library (extra `text`), tokens in order of their frequency in
the training text; nothing is unknown, so that bits per character are those of the text.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

UNKNOWN = "<unk>"
KINDS = ("word", "bpe")
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


class Vocabulary(Protocol):
    """Tokens in order of their frequency in the training text, except that `<unk>` is the first of words."""

    tokens: tuple[str, ...]
    counts: np.ndarray
    """Occurrences in the training text `[V]`."""

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, int32 `[n]`."""
        ...


class Words:
    """A vocabulary of words."""

    def __init__(self, counted: Counter[str], size: int) -> None:
        kept = counted.most_common(size - 1)
        self.tokens = (UNKNOWN, *(word for word, _ in kept))
        self.counts = np.array([counted.total() - sum(n for _, n in kept), *(n for _, n in kept)])
        self._number = {word: number for number, word in enumerate(self.tokens)}

    def encode(self, text: str) -> np.ndarray:
        """int32 `[n]`; unknown words are 0."""
        number = self._number.get
        return np.fromiter((number(word, 0) for word in words(text)), dtype=np.int32)


class Pairs:
    """A vocabulary of byte pairs; `ids` maps the library's numbers to ranks by frequency."""

    def __init__(self, tokenizer: Any, ids: np.ndarray, counts: np.ndarray) -> None:
        self._tokenizer, self._ids, self.counts = tokenizer, ids, counts
        names: dict[int, str] = {number: token for token, number in tokenizer.get_vocab().items()}
        self.tokens = tuple(names[int(number)] for number in np.argsort(ids))

    def encode(self, text: str) -> np.ndarray:
        """int32 `[n]`."""
        return self._ids[np.array(self._tokenizer.encode(text).ids, dtype=np.int64)]


def words(text: str) -> list[str]:
    """The words and signs of a text."""
    return _WORD.findall(text.lower())


def learn_words(texts: Iterable[str], size: int) -> Words:
    """A vocabulary of at most `size` words from the training texts, which are looked at one after the other.

    Raises:
        ValueError: size below 2.
    """
    _check(size, 2)
    counted: Counter[str] = Counter()
    for text in texts:
        counted.update(words(text))
    return Words(counted, size)


def learn_pairs(texts: Iterable[str], size: int) -> Pairs:
    """A vocabulary of `size` byte pairs from the training texts, which are looked at twice.

    Raises:
        ValueError: size below 257, the bytes.
        ModuleNotFoundError: without the `tokenizers` library.
    """
    _check(size, 257)
    try:
        library: Any = importlib.import_module("tokenizers")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("vocabulary: bpe needs the library tokenizers; pip install 'asym[text]'") from None
    texts = list(texts)
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = library.trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    total = tokenizer.get_vocab_size()
    counts = np.zeros(total, dtype=np.int64)
    for text in texts:
        counts += np.bincount(np.array(tokenizer.encode(text).ids, dtype=np.int64), minlength=total)
    order = np.argsort(-counts, kind="stable")
    ids = np.empty(total, dtype=np.int32)
    ids[order] = np.arange(total, dtype=np.int32)
    return Pairs(tokenizer, ids, counts[order])


def _check(size: int, least: int) -> None:
    if size < least:
        raise ValueError(f"vocabulary size: got {size}, must be at least {least}")
