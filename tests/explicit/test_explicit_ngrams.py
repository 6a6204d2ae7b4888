"""N-grams against a dictionary version written from the formulas."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.data.text import Stream
from asym.explicit.ngrams import NGram


def _stream(documents):
    lengths = [len(document) for document in documents]
    ids = np.array([t for document in documents for t in document], dtype=np.int32)
    return Stream(ids, np.cumsum([0, *lengths[:-1]]), np.arange(len(lengths), dtype=np.int32), 0)


def plain(documents, size, order, smoothing):
    """p(w | history), the history a tuple whose last entry is the last token."""
    counts = [Counter() for _ in range(order)]
    for document in documents:
        padded = ["^"] * (order - 1) + document
        for i in range(order - 1, len(padded)):
            for n in range(order):
                counts[n][tuple(padded[i - n : i + 1])] += 1
    if smoothing == "kneser-ney":
        for n in range(order - 1):
            counts[n] = Counter(gram[1:] for gram in counts[n + 1])
    after = [defaultdict(dict) for _ in range(order)]
    for n in range(order):
        for gram, count in counts[n].items():
            after[n][gram[:-1]][gram[-1]] = count

    def p(word, history, n):
        if n < 0:
            return 1 / size
        below = p(word, history[1:], n - 1)
        seen = after[n].get(history)
        if not seen:
            return below
        total, kinds, count = sum(seen.values()), len(seen), seen.get(word, 0)
        if smoothing == "witten-bell":
            return (count + kinds * below) / (total + kinds)
        once, twice = (sum(c == k for c in counts[n].values()) for k in (1, 2))
        discount = min(max(once / (once + 2 * twice) if once else 0.5, 0.1), 0.95)
        return (max(count - discount, 0) + discount * kinds * below) / total

    return lambda word, history: p(word, history, order - 1)


texts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=14), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(texts, texts, st.integers(1, 4), st.sampled_from(["kneser-ney", "witten-bell"]))
def test_probabilities_are_those_of_the_formulas(train, test, order, smoothing):
    stream, model = _stream(test), NGram(_stream(train), 4, order, smoothing)
    reference = plain(train, 4, order, smoothing)
    found = model.probabilities(stream, np.arange(len(stream)))
    i = 0
    for document in test:
        padded = ["^"] * (order - 1) + document
        for at, word in enumerate(document):
            history = tuple(padded[at : at + order - 1])
            assert found[i] == pytest.approx(reference(word, history), rel=1e-12)
            i += 1
    total = model.distribution(stream, len(stream) - 1).sum()
    assert total == pytest.approx(1, rel=1e-12)


def test_orders_matter_where_text_has_order():
    stream = _stream([[0, 1, 2, 1] * 50, [3, 2, 1, 1] * 20])
    losses = [NGram(stream, 4, order).mean_loss(stream) for order in (1, 2, 3)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[0] < math.log(4)


def test_five_grams_of_a_large_vocabulary_are_counted():
    stream = _stream([list(range(0, 60_000, 7)) * 2])
    model = NGram(stream, 60_000, 5, "witten-bell")
    assert model.mean_loss(stream) < 3


@pytest.mark.parametrize(("options", "match"), [({"order": 0}, "order: got 0"), ({"smoothing": "x"}, "witten-bell")])
def test_bad_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        NGram(_stream([[0]]), **{"size": 2, "order": 2, "smoothing": "kneser-ney"} | options)
    with pytest.raises(ValueError, match="no token"):
        NGram(Stream(np.empty(0, dtype=np.int32), np.array([0]), np.array([0], dtype=np.int32), 0), 2, 1)
