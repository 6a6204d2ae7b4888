"""The permutation symmetries of a network, derived from the network itself.

A `PermutationSpec` says which axes of which parameters and buffers move together. If all of them move with
the same permutation the network computes the same function: for a hidden layer with permutation matrix P, W₁
→ P W₁, b₁ → P b₁, W₂ → W₂ Pᵀ. `permutation_spec` traces a network and proves the result before it returns it.

Following Ainsworth, Hayase, Srinivasa, "Git Re-Basin" (2022), a spec is a table of axes; there it is written
by hand for every architecture, here it is read off the graph (`trace.py`), and attention heads and the groups
of grouped convolutions and norms are included as blocks (`layout.py`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import nn

from asym.symmetry.layout import Axis, Concat, Permuted, Product, groups_of
from asym.symmetry.trace import CARRIED, trace


@dataclass(frozen=True)
class Group:
    """One permutation of a network.

    Attributes:
        size: how many positions it permutes.
        axes: the axes that move with it, as (tensor name, dimension).
        parent: the group that this one is a family over: it has one permutation for each of the parent's
            positions (features inside attention heads); None for a plain permutation.
    """

    size: int
    axes: tuple[tuple[str, int], ...]
    parent: str | None = None


class SpecError(ValueError):
    """A permutation that a spec claims to be a symmetry changes the network's function."""


@dataclass(frozen=True)
class PermutationSpec:
    """Which axes of which tensors share a permutation.

    Attributes:
        tensors: parameter or buffer name to its axes, each a tree of `Fixed`, `Permuted`, `Product`,
            `Concat`.
        parents: group name to its parent or None, in the order in which the network produces the groups.
        buffers: which of `tensors` are buffers; they move, but say nothing about how similar two networks are.
        tied: further names of a tensor that has several, to its first name.
    """

    tensors: Mapping[str, tuple[Axis, ...]]
    parents: Mapping[str, str | None]
    buffers: frozenset[str] = frozenset()
    tied: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def groups(self) -> dict[str, Group]:
        """The groups by name, in the order in which the network produces them."""
        axes: dict[str, list[tuple[str, int]]] = {name: [] for name in self.parents}
        sizes: dict[str, int] = {}
        for tensor, dims in self.tensors.items():
            for dim, axis in enumerate(dims):
                for group, size in _permuted(axis):
                    if group not in axes:
                        raise ValueError(f"tensors: {tensor!r} has group {group!r}, which parents does not list")
                    if sizes.setdefault(group, size) != size:
                        raise ValueError(f"tensors: group {group!r} has {sizes[group]} positions, {size} in {tensor!r}")
                    if (tensor, dim) not in axes[group]:
                        axes[group].append((tensor, dim))
        return {name: Group(sizes.get(name, 0), tuple(axes[name]), parent) for name, parent in self.parents.items()}

    def shape(self, group: str) -> tuple[int, ...]:
        """The shape of a group's permutation: [size], or [parent's size, size]."""
        parent = self.groups[group].parent
        return (self.groups[group].size,) if parent is None else (self.groups[parent].size, self.groups[group].size)

    def __str__(self) -> str:
        if not self.groups:
            return f"no permutation symmetry ({len(self.tensors)} tensors)"
        wide = max(map(len, self.groups))
        lines = [f"{len(self.groups)} permutation groups ({len(self.tensors)} tensors)"]
        for name, group in self.groups.items():
            each = f"for each of {group.parent}: " if group.parent else ""
            text = each + " ".join(_places(self, name))
            head = f"  {name:<{wide}}  {group.size:>5}  "
            lines += textwrap.wrap(
                text,
                110,
                initial_indent=head,
                subsequent_indent=" " * 12,
                break_long_words=False,
                break_on_hyphens=False,
            )
        return "\n".join(lines)

    def prove(self, model: nn.Module, example_input: Any, *, rtol: float = 1e-10, trials: int = 3) -> None:
        """Check on a float64 copy of `model` that random permutations leave its function unchanged (`proof.py`).

        Args:
            model: the network, in any mode; it is not changed.
            example_input: an input (a tensor, or a registered container of tensors), or a tuple of inputs.
            rtol: largest allowed change, relative to the largest output.
            trials: draws of parameters and permutations.

        Raises:
            SpecError: if the function changes, naming the groups at fault.
            ValueError: if the spec's tensors are not the model's, in name or shape.
        """
        from asym.symmetry.proof import prove

        prove(self, model, example_input, rtol=rtol, trials=trials)


def permutation_spec(
    model: nn.Module,
    example_input: Any,
    *,
    pin: Iterable[str] = (),
    carry: Iterable[str] = CARRIED,
    prove: bool = True,
) -> PermutationSpec:
    """Derive the permutation symmetries of a network by tracing it, and prove them.

    Inputs and outputs never move. Parameters and running statistics move; every other buffer, and every
    tensor that the forward pass makes itself, is a constant of the architecture and keeps its axes in place.
    Hence masked layers and gates with a fixed matrix have no permutation symmetry of their own; ask for the
    spec of their plain form to permute as if they had. GroupNorm with one group leaves channels free, with
    more groups blocks of channels and the channels inside a block. Where a structure is too intricate a
    smaller group is returned, never a wrong one.

    Args:
        model: any module that `torch.export` can read; it is traced in evaluation mode and not changed.
        example_input: an input (a tensor, or a registered container of tensors, such as a graph), or a tuple of
            inputs, with a batch axis of at least 2 where the network has one.
        pin: patterns (fnmatch) of parameters whose axes stay in place.
        carry: patterns of buffers that move like parameters.
        prove: whether to check the result (`PermutationSpec.prove`).

    Raises:
        UnknownOperationError: if an operation has no rule, naming it and its place.
        SpecError: if the proof fails.
    """
    found = trace(model, example_input, pin=pin, carry=carry)
    spec = PermutationSpec(found.tensors, found.parents, found.buffers, found.tied)
    if prove:
        spec.prove(model, example_input)
    return spec


def _permuted(axis: Axis) -> list[tuple[str, int]]:
    match axis:
        case Permuted(group, size):
            return [(group, size)]
        case Product(parts) | Concat(parts):
            return [found for part in parts for found in _permuted(part)]
    return []


def _places(spec: PermutationSpec, group: str) -> list[str]:
    """The axes of a group, those of one module together: "bn1.{weight,bias}[0]"."""
    leaves: dict[tuple[str, str], list[str]] = {}
    for tensor, dim in spec.groups[group].axes:
        module, _, leaf = tensor.rpartition(".")
        leaves.setdefault((module, f"[{dim}]{_place(spec.tensors[tensor][dim], group)}"), []).append(leaf)
    return [
        (f"{module}." if module else "") + (names[0] if len(names) == 1 else "{" + ",".join(names) + "}") + place
        for (module, place), names in leaves.items()
    ]


def _place(axis: Axis, group: str) -> str:
    """Where in an axis a group acts: nothing for all of it, "(·×49)" in a product, "[0:192]" in a piece."""
    match axis:
        case Product(factors):
            return "(" + "×".join("·" if group in groups_of(f) else str(f.size) for f in factors) + ")"
        case Concat(pieces):
            start, found = 0, []
            for piece in pieces:
                if group in groups_of(piece):
                    found.append(f"[{start}:{start + piece.size}]{_place(piece, group)}")
                start += piece.size
            return "".join(found) if len(found) == 1 else "{" + ",".join(found) + "}"
    return ""
