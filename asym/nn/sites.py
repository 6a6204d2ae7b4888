"""Where a network applies activations: found by one forward pass with hooks.

A site is an activation module together with the width and the axis of the features that it sees, which no
module tells by itself: after a convolution the features of (n, c, h, w) lie on axis 1, after a linear layer
(as in ConvNeXt's n × h × w × c blocks and in transformers) on the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd as ConvBase
from torch.utils.hooks import RemovableHandle

from asym.nn.swap import swap_problem

ACTIVATIONS = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.RReLU,
    nn.PReLU,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Softplus,
    nn.Softsign,
    nn.Hardtanh,
    nn.Hardswish,
)
"""Hidden activations. Sigmoid and its kin are left out: networks use them as gates and as outputs."""

TIMM_ACTIVATIONS = frozenset(
    {"Swish", "Mish", "HardSwish", "HardMish", "PReLU", "GELU", "GELUTanh", "QuickGELU", "Tanh"}
)
"""Names of the hidden activations that timm defines on its own."""


@dataclass(frozen=True)
class Site:
    """An activation module: its qualified name, and the width and axis (1 or -1) of the features it sees."""

    name: str
    width: int
    channel_dim: int


def is_activation(module: nn.Module) -> bool:
    """Whether a module is an element-wise hidden activation of PyTorch or timm."""
    kind = type(module)
    foreign = (
        kind.__module__.startswith("timm.layers.activations") and kind.__name__.removesuffix("Me") in TIMM_ACTIVATIONS
    )
    return isinstance(module, ACTIVATIONS) or foreign


def activation_sites(model: nn.Module, example_input: Any) -> list[Site]:
    """All activation sites of a model, in the order in which a forward pass reaches them.

    Args:
        model: any module; the pass runs in evaluation mode without gradients, and changes no state.
        example_input: an input, or a tuple of positional inputs, on the model's device.

    Raises:
        ValueError: if the model has no activation module, if one is never called, if one is called with
            features of different widths or axes, or if one cannot be replaced (see `swap_problem`).
    """
    names = {module: name for name, module in model.named_modules() if is_activation(module)}
    if not names:
        raise ValueError(
            f"model: {type(model).__name__} has no activation module to replace; "
            "activations that are called as functions in a forward have to be modules"
        )
    for name in names.values():
        if problem := swap_problem(model, name):
            raise ValueError(f"model: {problem}")
    last: list[nn.Module] = []
    found: dict[str, Site] = {}

    def note_layer(module: nn.Module, args: Any, output: Any) -> None:
        last[:] = [module]

    def note_site(module: nn.Module, args: tuple[Any, ...]) -> None:
        name, shape = names[module], args[0].shape
        dim = _channel_dim(last[0] if last else None, len(shape))
        site = Site(name, shape[dim], dim)
        if found.setdefault(name, site) != site:
            raise ValueError(
                f"model: activation {name!r} is called with {found[name].width} features on axis "
                f"{found[name].channel_dim} and with {site.width} on axis {dim}; "
                "give each place a module of its own"
            )

    handles = [module.register_forward_pre_hook(note_site) for module in names]
    for module in model.modules():
        if isinstance(module, nn.Linear | ConvBase):
            handles.append(module.register_forward_hook(note_layer))
    run_once(model, example_input, handles)
    idle = sorted(set(names.values()) - set(found))
    if idle:
        raise ValueError(f"model: activation {idle[0]!r} is not called for this example_input: its width is unknown")
    return list(found.values())


def _channel_dim(last: nn.Module | None, n_dims: int) -> int:
    """The feature axis of a tensor with n_dims axes after the linear or convolutional layer `last`."""
    if n_dims <= 2 or isinstance(last, nn.Linear):
        return -1
    # Three axes after a 2-D convolution are tokens: n × positions × features.
    return 1 if n_dims > 3 or isinstance(last, nn.Conv1d) else -1


def called_modules(model: nn.Module, example_input: Any) -> set[str]:
    """Qualified names of all modules whose forward runs for this input."""
    called: set[str] = set()

    def noting(name: str) -> Callable[..., None]:
        return lambda module, args: called.add(name)

    handles = [module.register_forward_pre_hook(noting(name)) for name, module in model.named_modules()]
    run_once(model, example_input, handles)
    return called


def run_once(model: nn.Module, example_input: Any, handles: Sequence[RemovableHandle] = ()) -> Any:
    """The output of one forward pass in evaluation mode without gradients; removes the hooks, restores the modes.

    Raises:
        ValueError: if the model cannot process the input.
    """
    modes = {module: module.training for module in model.modules()}
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    try:
        with torch.no_grad():
            return model.eval()(*inputs)
    except (RuntimeError, TypeError, IndexError, AssertionError) as error:
        raise ValueError(f"example_input: {type(model).__name__} cannot process it ({error})") from error
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes.items():
            module.training = training
