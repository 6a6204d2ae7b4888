"""Modules of equal blocks as one module, whose parameters and buffers have the blocks as a new first axis.

What works on axes counted from the end then takes all blocks in one product, and an optimiser sees half the tensors or
fewer. State dicts keep the names that a list of the modules would have, `name.place.rest`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Kind = TypeVar("Kind", bound=nn.Module)


def stacked(modules: Sequence[Kind]) -> Kind:
    """All of them as one: place k of every parameter and buffer is that of module k."""
    return _changed(modules[0], lambda path, name: torch.stack([_tensor(m, path, name) for m in modules]))


def taken(module: Kind, place: int) -> Kind:
    """Module `place` of a stacked one, with parameters of its own."""
    return _changed(module, lambda path, name: _tensor(module, path, name)[place].clone())


def keep_names(parent: nn.Module, name: str, count: int) -> None:
    """Write and read the state of a stacked child as that of a list of `count` modules.

    Args:
        parent: of the child.
        name: of the child.
        count: blocks.
    """

    def write(module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
        start = f"{prefix}{name}."
        for key in [key for key in state if key.startswith(start)]:
            whole = state.pop(key)
            for place in range(count):
                state[f"{start}{place}.{key.removeprefix(start)}"] = whole[place]

    def read(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        start = re.escape(f"{prefix}{name}.")
        rests = {match[1] for key in state if (match := re.fullmatch(rf"{start}0\.(.+)", key))}
        for rest in rests:
            keys = [f"{prefix}{name}.{place}.{rest}" for place in range(count)]
            if all(key in state for key in keys):
                state[f"{prefix}{name}.{rest}"] = torch.stack([state.pop(key) for key in keys])

    parent.register_state_dict_post_hook(write)
    parent.register_load_state_dict_pre_hook(read)


def _tensor(module: nn.Module, path: str, name: str) -> Tensor:
    inner = module.get_submodule(path)
    return {**inner._parameters, **inner._buffers}[name].detach()  # type: ignore[union-attr]


def _changed(module: Kind, make: Callable[[str, str], Tensor]) -> Kind:
    """A copy with other tensors, given by path of the module inside and name."""
    found = copy.deepcopy(module)
    for path, inner in found.named_modules():
        for name, parameter in inner._parameters.items():
            if parameter is not None:
                inner._parameters[name] = nn.Parameter(make(path, name))
        for name, buffer in inner._buffers.items():
            if buffer is not None:
                inner._buffers[name] = make(path, name)
    return found
