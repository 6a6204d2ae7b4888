"""Permutation symmetries of networks: described, acted with, matched."""

from asym.symmetry.actions import compose, identity, invert, permute, random_permutations
from asym.symmetry.activations import activation_matching, reestimate_batchnorm
from asym.symmetry.matching import Matching, weight_matching
from asym.symmetry.spec import Group, PermutationSpec, SpecError, permutation_spec
from asym.symmetry.trace import UnknownOperationError

__all__ = [
    "Group",
    "Matching",
    "PermutationSpec",
    "SpecError",
    "UnknownOperationError",
    "activation_matching",
    "compose",
    "identity",
    "invert",
    "permutation_spec",
    "permute",
    "random_permutations",
    "reestimate_batchnorm",
    "weight_matching",
]
