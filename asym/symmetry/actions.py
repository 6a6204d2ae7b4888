"""Permutations acting on the parameters of a network: pure functions on dicts of tensors.

Permutations are index vectors as in `tensor[perm]`: the new position i holds what stood at perm[i]. A group
with a parent has a matrix of them, one row for each new position of the parent (`layout.py` has the formula).
A group that is missing from a dict of permutations stays in place.

    permute(spec, compose(spec, p, q), x) == permute(spec, q, permute(spec, p, x))
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from asym.symmetry.layout import permute_tensor
from asym.symmetry.spec import PermutationSpec

Perms = Mapping[str, Int[Tensor, "..."]]


def permute(spec: PermutationSpec, perms: Perms, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Act with `perms` on the parameters and buffers of one network.

    Args:
        spec: the network's permutation symmetries.
        perms: group name to permutation; missing groups stay in place.
        tensors: name to tensor. Names that the spec does not know pass through unchanged.

    Returns:
        A new dict with the same names in the same order; tensors that do not move are the given ones, not
        copies.

    Raises:
        ValueError: if a group is unknown, a permutation is none, or a tensor's shape is not the spec's.
    """
    check_permutations(spec, perms)
    result = {}
    for name, tensor in tensors.items():
        axes = spec.tensors.get(name)
        if axes is not None:
            sizes = tuple(axis.size for axis in axes)
            if tuple(tensor.shape) != sizes:
                raise ValueError(f"tensors: {name!r} has shape {tuple(tensor.shape)}, the spec says {sizes}")
            tensor = permute_tensor(tensor, axes, perms, spec.parents)
        result[name] = tensor
    return result


def check_permutations(spec: PermutationSpec, perms: Perms) -> None:
    """Raise a ValueError that names the first group whose entry is not a permutation of the right shape."""
    for name, perm in perms.items():
        if name not in spec.groups:
            raise ValueError(f"perms: unknown group {name!r}; the spec has {', '.join(spec.groups) or 'none'}")
        shape = spec.shape(name)
        if tuple(perm.shape) != shape:
            raise ValueError(f"perms: {name!r} has shape {tuple(perm.shape)}, the spec says {shape}")
        if not torch.equal(perm.cpu().sort(-1).values, torch.arange(shape[-1]).expand(shape)):
            raise ValueError(f"perms: {name!r} is not a permutation of 0 … {shape[-1] - 1}")


def identity(spec: PermutationSpec) -> dict[str, Tensor]:
    """The permutation of every group that moves nothing."""
    return {name: torch.arange(spec.shape(name)[-1]).expand(spec.shape(name)).clone() for name in spec.groups}


def random_permutations(spec: PermutationSpec, generator: torch.Generator) -> dict[str, Tensor]:
    """A uniformly random permutation of every group."""
    return {
        name: torch.rand(spec.shape(name), generator=generator, dtype=torch.float64).argsort(-1) for name in spec.groups
    }


def compose(spec: PermutationSpec, first: Perms, then: Perms) -> dict[str, Tensor]:
    """The permutations that act like `first`, followed by `then`."""
    check_permutations(spec, first)
    check_permutations(spec, then)
    a, b = identity(spec) | dict(first), identity(spec) | dict(then)
    result = {}
    for name, parent in spec.parents.items():
        rows = a[name] if parent is None else a[name][b[parent]]
        result[name] = rows.gather(-1, b[name])
    return result


def invert(spec: PermutationSpec, perms: Perms) -> dict[str, Tensor]:
    """The permutations that undo `perms`."""
    check_permutations(spec, perms)
    full = identity(spec) | dict(perms)
    result = {}
    for name, parent in spec.parents.items():
        inverse = full[name].argsort(-1)
        result[name] = inverse if parent is None else inverse[full[parent].argsort(-1)]
    return result
