"""Streaming counts against a plain dictionary; vectors made of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.explicit import counts as module
from asym.explicit.counts import PairCounter, count_pairs
from asym.explicit.vectors import context_vectors


def plain(ids, starts, size, offset):
    begin = np.zeros(len(ids), dtype=int)
    for start in starts:
        begin[start:] = start
    table = np.zeros((size, size), dtype=int)
    for i in range(len(ids)):
        if 0 <= i + offset < len(ids) and begin[i] == begin[i + offset]:
            table[ids[i], ids[i + offset]] += 1
    return table


def _dense(table):
    return table if isinstance(table, np.ndarray) else table.toarray()


texts = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=5)


def _stream(documents):
    lengths = [len(document) for document in documents]
    ids = np.concatenate([np.array(document, dtype=np.int32) for document in documents])
    return ids, np.cumsum([0, *lengths[:-1]])


@settings(deadline=None)
@given(texts, st.sampled_from([-3, -1, 1, 2, 5]), st.booleans(), st.integers(1, 30))
def test_counts_are_those_of_a_plain_loop(documents, offset, dense, block):
    ids, starts = _stream(documents)
    before, module.BLOCK = module.BLOCK, block
    try:
        counter = PairCounter(5, dense=dense)
        counter.add_stream(ids, starts, offset)
        found = _dense(counter.matrix())
    finally:
        module.BLOCK = before
    assert (found == plain(ids, starts, 5, offset)).all()


@settings(deadline=None)
@given(texts, texts, st.booleans(), st.booleans())
def test_shards_add(first, second, dense, other_dense):
    a, b = PairCounter(5, dense=dense), PairCounter(5, dense=other_dense)
    for counter, documents in ((a, first), (b, second)):
        counter.add_stream(*_stream(documents), 1)
    a.merge(b)
    union = plain(*_stream(first + second), 5, 1)
    assert (_dense(a.matrix()) == union).all()
    keys, found = a.items()
    assert (union.ravel()[keys] == found).all()
    assert found.sum() == union.sum()


def test_several_processes_count_the_same():
    parts = [_stream([[0, 1, 2, 1], [3, 3]]), _stream([[1, 2, 1]])]
    alone, several = (count_pairs(parts, 4, (1, -2), jobs=jobs) for jobs in (1, 2))
    assert list(several) == [1, -2]
    for offset in (1, -2):
        assert (alone[offset] == several[offset]).all()
        assert (alone[offset] == sum(plain(*part, 4, offset) for part in parts)).all()


def test_memory_is_that_of_the_distinct_pairs():
    counter = PairCounter(1_000_000)
    assert not counter.dense
    ids = np.tile(np.array([0, 999_999, 7], dtype=np.int32), 1000)
    counter.add_stream(ids, np.array([0]), 1)
    table = counter.matrix()
    assert (table.nnz, table[0, 999_999], table.sum()) == (3, 1000, 2999)


@pytest.mark.parametrize(
    ("call", "match"),
    [(lambda: PairCounter(0), "size: got 0"),
     (lambda: PairCounter(3).add(np.array([0]), np.array([3])), "between 0 and 2"),
     (lambda: PairCounter(3).add(np.array([-1]), np.array([0])), "between 0 and 2"),
     (lambda: PairCounter(3).add_stream(np.array([0, 1]), np.array([0]), 0), "offset"),
     (lambda: PairCounter(3).merge(PairCounter(4)), "4 tokens cannot be added to 3")],
)  # fmt: skip
def test_bad_counts(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_context_vectors_by_hand():
    pairs = {-1: np.array([[0, 2], [0, 0]]), 1: np.array([[1, 1], [2, 0]])}
    cipher, counts = np.eye(2), np.array([3, 3])
    np.testing.assert_allclose(context_vectors(pairs, cipher, counts), [[1 / 4, 3 / 4], [1, 0]])
    np.testing.assert_allclose(
        context_vectors(pairs, cipher, counts, aggregation="cat"), [[0, 2 / 4, 1 / 4, 1 / 4], [0, 0, 1, 0]]
    )
    damped = context_vectors({1: np.array([[3, 1], [0, 0]])}, cipher, np.array([3, 1]), damping=1.0)
    np.testing.assert_allclose(damped, [[0.5, 0.5], [0, 1]])  # the second has no neighbour: its own cipher


@pytest.mark.parametrize(
    ("options", "match"),
    [({"aggregation": "mean"}, "sum, cat"), ({"damping": 2.0}, "between 0 and 1"), ({"pairs": {}}, "no offset"),
     ({"pairs": {1: np.zeros((3, 3))}}, "offset 1")],
)  # fmt: skip
def test_bad_vectors(options, match):
    with pytest.raises(ValueError, match=match):
        context_vectors(**{"pairs": {1: np.zeros((2, 2))}, "cipher": np.eye(2), "counts": np.array([1, 1])} | options)
