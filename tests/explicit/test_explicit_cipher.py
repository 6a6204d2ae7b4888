"""The bit cipher against its published order, and its noise by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asym.explicit.cipher import bit_cipher, capacity, cipher_vectors

ORDER = "1 2 3 4 5 45 35 25 15 34 24 14 23 13 12 125 135 235 145 245 345 124 134 234 123 1235 2345 1345 1245 1234 12345"


def _bits(row):
    return "".join(str(place + 1) for place in np.flatnonzero(row))


def test_the_order_for_five_bits():
    assert [_bits(row) for row in bit_cipher(31, 5)] == ORDER.split()


@given(st.integers(1, 9), st.data())
def test_codes_are_distinct_in_levels_and_do_not_depend_on_how_many_are_asked_for(bits, data):
    count = data.draw(st.integers(1, capacity(bits)))
    codes = bit_cipher(count, bits)
    assert len({tuple(code) for code in codes}) == count
    assert (np.diff(codes.sum(1).astype(int)) >= 0).all()
    assert codes.sum(1).min() == 1
    assert (codes == bit_cipher(capacity(bits), bits)[:count]).all()


def test_more_tokens_than_codes():
    with pytest.raises(ValueError, match="5 tell 31 tokens apart, the vocabulary has 32; take 6"):
        bit_cipher(32, 5)
    assert bit_cipher(32, 6).shape == (32, 6)
    with pytest.raises(ValueError, match="at least 1"):
        bit_cipher(3, 0)


def test_vectors_follow_frequency_and_have_unit_sum():
    vectors = cipher_vectors(np.array([1, 9, 0, 9]), 2 + 1)
    assert vectors.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0.5, 0.5], [0, 1, 0]]
    assert (cipher_vectors(np.zeros(5, dtype=int), 3).sum(1) == 1).all()


def test_noise_by_hand():
    counts = np.array([6, 2, 2])  # codes e1, e2, e3; mean (.6, .2, .2), q = (.4, .8, .8) / 2
    q = np.array([0.2, 0.4, 0.4])
    np.testing.assert_allclose(
        cipher_vectors(counts, 3, noise="nf"), [[1, 0, 0], 0.5 * np.array([0, 1, 0]) + q / 2, [0.1, 0.2, 0.7]]
    )
    np.testing.assert_allclose(cipher_vectors(counts, 3, noise="f")[0], 6 / 7 * np.array([1, 0, 0]) + q / 7)
    found = cipher_vectors(counts, 3, noise="df", documents=np.array([4, 2, 1]), total_documents=4)
    np.testing.assert_allclose(found[2], [0.15, 0.3, 0.55])
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found[1:] > 0).all()


@pytest.mark.parametrize(("options", "match"), [({"noise": "x"}, "none, nf, f, df"), ({"noise": "df"}, "documents")])
def test_noise_that_cannot_be(options, match):
    with pytest.raises(ValueError, match=match):
        cipher_vectors(np.array([1, 2]), 2, **options)
    with pytest.raises(ValueError, match="all zero"):
        cipher_vectors(np.array([0, 0]), 2, noise="nf")
