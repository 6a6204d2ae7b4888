"""Permutation symmetries of networks: described, acted with, matched."""

from asym.symmetry.actions import compose, identity, invert, permute, random_permutations
from asym.symmetry.spec import Group, PermutationSpec, SpecError, permutation_spec
from asym.symmetry.trace import UnknownOperationError

__all__ = [
    "Group",
    "PermutationSpec",
    "SpecError",
    "UnknownOperationError",
    "compose",
    "identity",
    "invert",
    "permutation_spec",
    "permute",
    "random_permutations",
]
