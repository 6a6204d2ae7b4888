"""Networks that others wrote: `timm/<name>` and `package.module:factory`.

They keep their own widths, norms, activations and initialisation; masks follow the rule of thumb.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from asym.models.arch import Arch, Shape


def _foreign(name: str, make: Callable[..., nn.Module]) -> Arch:
    """A network that others wrote: its own widths, norms, activations and initialisation, and the rule of thumb."""
    return Arch(
        name,
        make=lambda *, input_shape, classes, **_: make(input_shape, classes),
        rules=lambda width, depth: (),
        input_shape=(3, 224, 224),
        norms=(),
        activations=(),
        scheme="",
        widths=(),
    )


def timm_arch(name: str) -> Arch:
    """The timm model called `timm/<name>`, without pretrained weights.

    Raises:
        ValueError: if timm has no such model; the message lists close names.
    """
    import timm

    model = name.removeprefix("timm/")
    if not timm.is_model(model):
        close = difflib.get_close_matches(model.partition(".")[0], timm.list_models(), n=3)
        hint = f"; did you mean {', '.join('timm/' + c for c in close)}?" if close else ""
        raise ValueError(f"arch: timm has no model {model!r}{hint}")

    def make(input_shape: Shape, classes: int) -> nn.Module:
        config = timm.get_pretrained_cfg(model)
        fixed = config is not None and config.fixed_input_size
        size: dict[str, Any] = {"img_size": input_shape[1:]} if fixed else {}
        try:
            return timm.create_model(model, pretrained=False, num_classes=classes, in_chans=input_shape[0], **size)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"input_shape: timm cannot make {model!r} for {input_shape} ({error})") from error

    return _foreign(name, make)


def factory_arch(name: str) -> Arch:
    """The network that `package.module:factory` makes as factory(input_shape, classes).

    Raises:
        ValueError: if the factory cannot be imported or called.
    """
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"arch: cannot load {name!r} ({error}); expected package.module:factory") from error
    if not callable(factory):
        raise ValueError(f"arch: {name!r} is not callable; expected factory(input_shape, classes) -> Module")

    def make(input_shape: Shape, classes: int) -> nn.Module:
        model = factory(input_shape, classes)
        if not isinstance(model, nn.Module):
            raise ValueError(f"arch: {name!r} returned a {type(model).__name__}, not a torch.nn.Module")
        return model

    return _foreign(name, make)
