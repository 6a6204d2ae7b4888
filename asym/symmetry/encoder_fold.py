"""Ordinary transformers, with scales and shifts of norms and biases in the attention, as blocks of theory, and back.

With norm(x) = γ ∘ n + β, n of mean 0 and deviation 1, whatever reads a norm can take γ and β over:

    norm(x) Q_s + b = n (γ ∘ Q_s) + (β Q_s + b) = (n, 1) (γ ∘ Q_s; β Q_s + b),

and so K_s, V_s, the head behind the last norm, and A with its bias a. So a block has plain norms and one more row in
Q, K, V, on which M_s and N_s act from the right as on all others; the bias of the attention's output stays apart, and
no factor of the group moves it. The function is the same to rounding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

READERS = {
    "norm1": ("attention.query", "attention.key", "attention.value"),
    "norm2": ("up",),
}
"""Norm of a block → the layers that read it."""
ROWS = READERS["norm1"]
LAST = ("norm", "head.0")
"""The last norm, and the layer that reads it."""


def is_ordinary(names: Mapping[str, object]) -> bool:
    """Whether tensors of these names have scales of norms to be folded."""
    return any(re.fullmatch(r"blocks\.\d+\.norm1\.weight", name) for name in names)


def folded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Named tensors `*lead *shape` without norms; those of a transformer without scales and shifts stay as they are.

    `attention.query.weight` and its like become `(h d) (D + 1)`, with the bias as last column; names are kept.

    Raises:
        ValueError: if a tensor is missing, naming it.
    """
    if not is_ordinary(tensors):
        return dict(tensors)
    found = dict(tensors)
    blocks = sorted({name.split(".")[1] for name in tensors if name.startswith("blocks.")}, key=int)
    pairs = [
        (f"blocks.{i}.{norm}", f"blocks.{i}.{layer}") for i in blocks for norm in READERS for layer in READERS[norm]
    ]
    for norm, layer in [*pairs, LAST]:
        for name in (norm, layer):
            for part in ("weight", "bias"):
                if f"{name}.{part}" not in tensors:
                    raise ValueError(f"tensors: {f'{name}.{part}'!r} is missing")
        weight, scale, shift = tensors[f"{layer}.weight"], tensors[f"{norm}.weight"], tensors[f"{norm}.bias"]
        found[f"{layer}.bias"] = tensors[f"{layer}.bias"] + (weight @ shift[..., None])[..., 0]
        found[f"{layer}.weight"] = weight * scale[..., None, :]
        for part in ("weight", "bias"):
            found.pop(f"{norm}.{part}", None)
        if layer.endswith(ROWS):
            bias = found.pop(f"{layer}.bias")[..., None]
            found[f"{layer}.weight"] = torch.cat([found[f"{layer}.weight"], bias], -1)
    return found


def unfolded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of an ordinary transformer with scales of 1 and shifts of 0 that computes what folded ones say."""
    found = dict(tensors)
    for name in [name for name in tensors if name.removesuffix(".weight").endswith(ROWS)]:
        weight = tensors[name]
        found[name], found[name.removesuffix("weight") + "bias"] = weight[..., :-1], weight[..., -1]
    like = {name: tensor for name, tensor in tensors.items() if name.endswith("down.bias")}
    for name, bias in like.items():
        for norm in READERS:
            start = name.removesuffix("down.bias") + norm
            found |= {f"{start}.weight": torch.ones_like(bias), f"{start}.bias": torch.zeros_like(bias)}
    last = next(iter(like.values()))
    return found | {"norm.weight": torch.ones_like(last), "norm.bias": torch.zeros_like(last)}
