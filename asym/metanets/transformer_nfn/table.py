"""The table of terms of a Transformer-NFN layer: which tensors may feed which, and how.

Notation of `asym.symmetry.encoder`, per channel, with S = Σ_s Q_s K_sᵀ and T = Σ_s V_s O_s. Tensors by their axes:

    S p q     T p j     A j k     a k     B k q     b q           attention: Q p, K p, V p (rows), O j (columns)

The group permutes k (P_A) and, where no residual connection forbids it, j (P_O); p and q stand still. M_s and N_s
leave only Q_s K_sᵀ and V_s O_s to feed the others, and the order of heads only their sums. What is linear in S, T, A,
a, B, b and commutes with the permutations is then spanned by one family for each set of acted axes ("tied"):

    sum a source over its acted axes that are not tied; map what is left, its standing axes and channels, by a free
    matrix, the same for all entries of the tied axes; add the result to an output, the same for all entries of its
    acted axes that are not tied

For attention, s and the axis inside the head are always tied: M_s = λ_s 1 with distinct λ leaves nothing but Q_s to
feed Q_s, general M_s let only a matrix act, on rows, and the order of heads makes it the same for all. With j and k
acted these are the published terms, 1 each for Q, K, V, 2 for O, 13 for A, 10 for a, 10 for B, 7 for b, constants
counted, and with d input and e output channels

    e d (2 D³ + 12 D² + 15 D + 12) + 2 e (D + 1) weights.

Source: Tran et al. 2025 (arXiv 2410.04209), section 5 and appendix; that nothing is missing is checked in the tests
against the null space of the equivariance constraint. With residual connections only k is acted: the free axes grow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from asym.symmetry.encoder import Sizes

PERCEPTRON = {"S": "pq", "T": "pj", "A": "jk", "a": "k", "B": "kq", "b": "q"}
"""Sources of A, a, B, b, with their axes."""
ORDINARY = {**PERCEPTRON, "o": "j"}
"""Sources in an ordinary transformer itself: the bias of z beside them, of which later layers have none."""
OUTPUTS = ("A", "a", "B", "b")
ATTENTION = {"Q": "p", "K": "p", "V": "p", "O": "j"}
"""Each feeds itself alone; axes apart from head and the one inside it."""


@dataclass(frozen=True)
class TermSet:
    """All terms of one set of tied axes."""

    tied: str
    sources: tuple[str, ...]
    outputs: tuple[str, ...]


def acted_axes(residual: bool) -> str:
    """Axes that the group permutes."""
    return "k" if residual else "jk"


def term_sets(tensors: Mapping[str, str], outputs: Sequence[str], acted: str) -> list[TermSet]:
    """The sets of tied axes with their sources and outputs, the empty set first."""
    subsets = [""]
    for axis in acted:
        subsets += [s + axis for s in subsets]
    found = []
    for tied in subsets:
        sources = tuple(name for name, axes in tensors.items() if set(tied) <= set(axes))
        into = tuple(name for name in outputs if set(tied) <= set(tensors[name]))
        if sources and into:
            found.append(TermSet(tied, sources, into))
    return found


def sources(size: Sizes, first: bool) -> Mapping[str, str]:
    """Sources with their axes, of a layer that reads the transformer itself or one that reads another layer."""
    return ORDINARY if size.ordinary and first else PERCEPTRON


def width(name: str, acted: str, size: Sizes) -> int:
    """Entries of the standing axes: numbers that a tensor gives or takes for each entry of tied axes and channel."""
    axes = ATTENTION.get(name) or ORDINARY[name]
    return math.prod(axis_size(axis, size, name) for axis in axes if axis not in acted)


def axis_size(axis: str, size: Sizes, name: str = "") -> int:
    """Length of an axis of a tensor."""
    if axis == "p" or name == "S":
        return size.rows
    return size.hidden if axis == "k" else size.dim


def count(size: Sizes, c_in: int, c_out: int, *, residual: bool = False, first: bool = True) -> dict[str, int]:
    """Weights of the whole layer that feed each of Q, K, V, O, A, a, B, b, constants included."""
    acted = acted_axes(residual)
    found = dict.fromkeys((*ATTENTION, *OUTPUTS), 0)
    for name, axes in ATTENTION.items():
        sets = term_sets({name: axes}, (name,), acted)
        found[name] = len(sets) * c_in * c_out * width(name, acted, size) ** 2
    for terms in term_sets(sources(size, first), OUTPUTS, acted):
        inputs = c_in * sum(width(name, acted, size) for name in terms.sources)
        for name in terms.outputs:
            found[name] += (inputs + (not terms.tied)) * c_out * width(name, acted, size)
    return found
