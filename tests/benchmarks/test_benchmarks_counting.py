"""Both ways of counting count the same."""

import numpy as np

from benchmarks.counting import count, dictionary, run, zipf


def test_both_count_the_same():
    stream = zipf(3000, 40)
    keys, counts = count(stream, 40).items()
    found = dictionary(stream.ids.tolist())
    assert {(int(k) // 40, int(k) % 40): int(n) for k, n in zip(keys, counts)} == found
    assert np.bincount(stream.ids, minlength=40)[0] > np.bincount(stream.ids, minlength=40)[39]


def test_rows_are_made():
    rows = run(tokens=4000, share=2, solve_contexts=512)
    assert [row["target"] for row in rows] == [5.0, 5.0, 0.0, 1.0]
    assert all(row["ratio"] > 0 for row in rows)
