"""Putting one module in the place of another, and the places where that would not do what it says."""

from __future__ import annotations

from torch import nn

READS_PAST_FORWARD = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""Modules of PyTorch that use the weights, or the kind, of their children without calling them."""


def swap_problem(model: nn.Module, name: str) -> str | None:
    """Why the module called `name` cannot be replaced without a silent change of something else, or None."""
    module, parent = model.get_submodule(name), model.get_submodule(name.rpartition(".")[0])
    if parent is not module and isinstance(parent, READS_PAST_FORWARD):
        return f"{type(parent).__name__} uses {name!r} past its forward"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        return f"{name!r} has hooks, which its replacement would lose"
    return None


def replace_modules(model: nn.Module, new: dict[str, nn.Module]) -> nn.Module:
    """Put `new` modules in the place of those with these names, wherever else the same module hangs too."""
    by_old = {model.get_submodule(name): module for name, module in new.items()}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module not in by_old:
            continue
        if not name:
            return by_old[module]
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, by_old[module])
    return model
