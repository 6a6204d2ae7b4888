"""Dropout whose masks come from outside: the module says where, the one who trains says what is dropped.

    y = x ⊙ m,      m_i = 1/(1 − r) with probability 1 − r, and 0 otherwise,      E m = 1

independently for every entry of every input. Source: Srivastava et al. 2014, "Dropout: a simple way to prevent neural
networks from overfitting", with the scale on the training side, so that evaluation needs none. A module without a mask,
and any in evaluation, is the identity; it has no rate, no parameter and no buffer, and draws nothing.

`keeping` gives masks to a module for one pass; `torch.func.functional_call` takes them under the same names, which lets
`torch.func.vmap` give each of many networks its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from asym.nn.sites import run_once


class Dropout(nn.Module):
    """A place where entries are dropped; input and output of any shape."""

    keep: Tensor | None
    """The mask of this pass, of the shape of the input, as `keep_mask` makes it; None drops nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.keep = None

    def forward(self, x: Tensor) -> Tensor:
        """The input times the mask, rounded once where the input is of lower precision."""
        if self.keep is None or not self.training:
            return x
        return (x * self.keep).to(x.dtype)


def dropout_shapes(model: nn.Module, example: Tensor) -> dict[str, tuple[int, ...]]:
    """Name of each place's mask → shape of one input's mask, in the order of `named_modules`.

    Args:
        model: any module; the pass runs in evaluation and changes nothing.
        example: inputs `n …`.

    Raises:
        ValueError: if the model cannot process the example, or does not reach a place exactly once.
    """
    places = _places(model)
    keys: dict[nn.Module, str] = {module: key for key, module in places.items()}
    found: list[tuple[str, tuple[int, ...]]] = []

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        found.append((keys[module], tuple(args[0].shape[1:])))

    if places:
        run_once(model, example, [module.register_forward_pre_hook(note) for module in keys])
    shapes = dict(found)
    if len(found) != len(shapes) or set(shapes) != set(places):
        raise ValueError(f"model: {type(model).__name__} does not reach each of its {len(places)} dropouts once")
    return {key: shapes[key] for key in places}


def keep_mask(count: int, rate: float, generator: torch.Generator) -> Tensor:
    """`count` entries of a mask, float32 on the CPU: 0 with probability `rate`, and otherwise 1 / (1 − rate).

    Raises:
        ValueError: for a rate outside [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"rate: got {rate}, must be in [0, 1)")
    return torch.rand(count, generator=generator).ge_(rate).div_(1 - rate)


@contextlib.contextmanager
def keeping(model: nn.Module, masks: Mapping[str, Tensor]) -> Iterator[None]:
    """Give masks, by the names of `dropout_shapes`, to a model for the time of a forward pass.

    Raises:
        ValueError: naming a mask whose place the model has not.
    """
    places = _places(model) if masks else {}
    unknown = next((name for name in masks if name not in places), None)
    if unknown is not None:
        valid = ", ".join(places) or f"none, {type(model).__name__} has no dropout"
        raise ValueError(f"masks: no place {unknown!r}; valid: {valid}")
    try:
        for key, mask in masks.items():
            places[key].keep = mask
        yield
    finally:
        for module in places.values():
            module.keep = None


def _places(model: nn.Module) -> dict[str, Dropout]:
    """Name of the mask → place."""
    modules = model.named_modules()
    return {f"{name}.keep" if name else "keep": place for name, place in modules if isinstance(place, Dropout)}
