"""Closed-form starts of soft-max networks from counts: bit cipher, streaming counts, explicit solutions, n-grams."""

from asym.explicit.cipher import bit_cipher, cipher_vectors
from asym.explicit.counts import PairCounter, count_pairs
from asym.explicit.ngrams import NGram
from asym.explicit.softmax import choose_priming, naive_bayes, outer_sums, solve_softmax
from asym.explicit.start import Solution, add_unigram_bias, search, solve
from asym.explicit.vectors import context_vectors

__all__ = [
    "NGram",
    "PairCounter",
    "Solution",
    "add_unigram_bias",
    "bit_cipher",
    "choose_priming",
    "cipher_vectors",
    "context_vectors",
    "count_pairs",
    "naive_bayes",
    "outer_sums",
    "search",
    "solve",
    "solve_softmax",
]
