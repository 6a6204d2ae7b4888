"""State dicts from files that others wrote, read without running any of their code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
"""Keys under which training scripts put the state dict inside their checkpoint."""
PREFIXES = ("module.", "_orig_mod.")
"""Prefixes left by data-parallel and compiled modules."""


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Named tensors of a `.safetensors` file, or of a `.pt`, `.pth` or `.bin` file read weights-only.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is truncated, of another kind, or holds no state dict; names the file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint: {path} is not there")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has its own errors for a damaged file
        raise ValueError(
            f"checkpoint: {path} cannot be read ({type(error).__name__}): it is truncated, no state dict, or holds "
            "other objects than tensors, which are not loaded; save a plain state dict"
        ) from None
    for key in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content or not all(_plain(*item) for item in content.items()):
        raise ValueError(f"checkpoint: {path} holds no state dict (names of tensors)")
    out = {}
    for name, value in content.items():
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
        out[name] = value
    return out


def _plain(name: Any, value: Any) -> bool:
    return (
        isinstance(name, str) and isinstance(value, Tensor) and value.layout == torch.strided and not value.is_complex()
    )


def load_checkpoint(network: nn.Module, path: str | Path) -> nn.Module:
    """Load a state-dict file into `network` and return it.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if names or shapes do not match the network, or a weight is not finite; names file and tensor.
    """
    state = read_state_dict(path)
    own = network.state_dict()
    missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}, which the network lacks"
        raise ValueError(
            f"checkpoint: {path} does not fit the network: it {what} "
            f"({len(missing)} missing, {len(unknown)} unknown names)"
        )
    for name, value in state.items():
        if value.shape != own[name].shape:
            raise ValueError(
                f"checkpoint: {path}: {name} has shape {tuple(value.shape)}, the network {tuple(own[name].shape)}"
            )
        if value.is_floating_point() and not torch.linalg.vector_norm(value.float()).isfinite():
            raise ValueError(f"checkpoint: {path}: {name} holds NaN, infinite or immense values")
    network.load_state_dict(state)
    return network
