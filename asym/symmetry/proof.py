"""Proof by trial that a spec is right: permuting must not change the network's function.

In float64, at generic random parameters, so that neither a parameter that starts at zero nor a symmetry of the start
values hides an axis, and with permutations that move every position. A ReLU network can be dead at one draw of
parameters, hence several. Rounding leaves changes of about 1e-15; a wrong axis one of about 1.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from asym.seeds import torch_generator
from asym.symmetry.actions import permute, random_permutations
from asym.symmetry.layout import groups_of, tensor_blocks
from asym.symmetry.spec import PermutationSpec, SpecError
from asym.symmetry.trace import CARRIED


def prove(spec: PermutationSpec, model: nn.Module, example_input: Any, *, rtol: float, trials: int) -> None:
    """`PermutationSpec.prove`."""
    check_tensors(spec, model)
    generator = torch_generator(0, "prove")
    model = copy.deepcopy(model).eval().to("cpu", torch.float64)
    given = example_input if isinstance(example_input, tuple) else (example_input,)
    inputs = tree_map(lambda x: _double(x.cpu()) if isinstance(x, Tensor) else x, given)
    for trial in range(trials):
        state = _generic(spec, model, generator)
        before = _outputs(model, state, inputs)

        def change(perms: Mapping[str, Tensor], state: dict[str, Tensor] = state, before: Tensor = before) -> float:
            after = _outputs(model, permute(spec, perms, state), inputs)
            return float((after - before).abs().max() / before.abs().max().clamp(min=1e-300)) if len(before) else 0.0

        perms = _cycles(spec, generator) if trial < trials - 1 else random_permutations(spec, generator)
        found = change(perms)
        if not found <= rtol:
            guilty = {name: c for name, perm in perms.items() if not (c := change({name: perm})) <= rtol}
            named = ", ".join(f"{name!r} ({c:.1e})" for name, c in guilty.items()) or "none alone"
            raise SpecError(
                f"spec: permuting changes the function by {found:.1e} of its largest output "
                f"(allowed {rtol:.0e}); groups at fault: {named}"
            )


def check_tensors(spec: PermutationSpec, model: nn.Module) -> None:
    """Raise a ValueError unless every axis of the spec is one of the model's, described once and in full."""
    shapes = {name: tuple(tensor.shape) for name, tensor in _named_tensors(model)}
    for name, axes in spec.tensors.items():
        if name not in shapes:
            raise ValueError(f"spec: tensor {name!r} is not in the model; it has {', '.join(shapes)}")
        if (sizes := tuple(axis.size for axis in axes)) != shapes[name]:
            raise ValueError(f"spec: tensor {name!r} has axes of sizes {sizes}, in the model {shapes[name]}")
        for block in tensor_blocks(axes):
            for group in block.groups:
                parent = spec.parents[group]
                if parent is not None and block.groups.count(parent) != 1:
                    raise ValueError(f"spec: tensor {name!r} has group {group!r} without its parent {parent!r}")
    missing = [name for name, _ in model.named_parameters() if name not in spec.tensors]
    if missing:
        raise ValueError(f"spec: the model's parameters {missing} are not covered")
    for name, group in spec.groups.items():
        if not group.axes:
            raise ValueError(f"spec: group {name!r} has no axis")
        if group.parent is not None and group.parent not in spec.groups:
            raise ValueError(f"spec: group {name!r} has the unknown parent {group.parent!r}")


def _cycles(spec: PermutationSpec, generator: torch.Generator) -> dict[str, Tensor]:
    """For every group a random permutation that is one cycle: it moves every position, also of a group of two."""
    orders = {name: torch.rand(spec.shape(name), generator=generator).argsort(-1) for name in spec.groups}
    return {name: order.roll(1, -1).gather(-1, order.argsort(-1)) for name, order in orders.items()}


def _generic(spec: PermutationSpec, model: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Generic values of parameters and of buffers that move; other buffers as they are."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    made: dict[int, Tensor] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in _named_tensors(model):
        value = made.get(id(tensor))
        if value is None:
            value = tensor.detach().clone()
            moves = any(groups_of(axis) for axis in spec.tensors.get(name, ()))
            moves = moves or any(fnmatch(name, pattern) for pattern in CARRIED)
            if value.is_floating_point() and (name in parameters or moves):
                noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
                variance = name not in parameters and bool((value >= 0).all())
                value = value + noise * (0.2 if value.ndim < 2 else (2 / value[0].numel()) ** 0.5)
                value = value.abs() if variance else value
        state[name] = made[id(tensor)] = value
    return state


def _named_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _outputs(model: nn.Module, state: dict[str, Tensor], inputs: tuple[Any, ...]) -> Tensor:
    """All outputs as one vector. Tied tensors are given under each of their names, so that each name is checked."""
    with torch.no_grad():
        output = torch.func.functional_call(model, state, inputs, tie_weights=False)
    leaves = [leaf.double().ravel() for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    return torch.cat(leaves) if leaves else torch.zeros(0, dtype=torch.float64)
