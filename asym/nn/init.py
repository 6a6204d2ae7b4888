"""Initialisation by name: every parameter of a network comes from (seed, parameter name).

So networks of one seed share the values of all parameters that they share, whatever their variant, and no
value depends on the order in which modules are made. Schemes, for weights of linear and convolutional layers:

    default   U(±1/√fan_in)                   PyTorch's own (Kaiming-uniform with a = √5)
    kaiming   N(0, 2/fan_in)                  Kaiming-normal, the published scheme of the standard ResNets

Biases are U(±1/√fan_in) in both; norms start at scale 1, shift 0. fan_in counts all inputs of a row, fixed
ones too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase as BatchNormBase
from torch.nn.modules.conv import _ConvNd as ConvBase

from asym.nn.masked import MaskedLayer
from asym.seeds import torch_generator

SCHEMES = ("default", "kaiming")
NORM_LAYERS = (BatchNormBase, nn.GroupNorm, nn.LayerNorm)


def initial_values(model: nn.Module, seed: int, scheme: str = "default") -> dict[str, Tensor]:
    """Start values of all trainable parameters, by name, in the dtype and on the device of each parameter.

    Entries of a masked weight that lie under a constant are zero. Parameters that do not require a gradient
    (the fixed shifts of the `bias` variant) are left out.

    Raises:
        ValueError: for an unknown scheme, or a parameter whose module has no rule (the message names it).
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme: {scheme!r}; choose from {', '.join(SCHEMES)}")
    values = {}
    for path, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            name = f"{path}.{key}" if path else key
            if parameter.requires_grad:
                values[name] = _draw(module, key, name, seed, scheme).to(parameter)
    return values


@torch.no_grad()
def initialise(model: nn.Module, seed: int, scheme: str = "default") -> nn.Module:
    """Write `initial_values` into the model, reset the running statistics of its norms, and return it."""
    values = initial_values(model, seed, scheme)
    for name, value in values.items():
        model.get_parameter(name).copy_(value)
    for module in model.modules():
        if isinstance(module, BatchNormBase):
            module.reset_running_stats()
    return model


def _draw(module: nn.Module, key: str, name: str, seed: int, scheme: str) -> Tensor:
    parameter = module.get_parameter(key)
    value = torch.empty(parameter.shape)  # drawn in float32 on the CPU: the same on every device and in every dtype
    if isinstance(module, NORM_LAYERS):
        return value.fill_(1.0 if key == "weight" else 0.0)
    if not isinstance(module, nn.Linear | ConvBase) or key not in ("weight", "bias"):
        raise ValueError(f"model: no rule for the initial values of {name!r} of {type(module).__name__}")
    generator = torch_generator(seed, "init", name)
    fan_in = module.weight[0].numel()
    if key == "weight" and scheme == "kaiming":
        value.normal_(0.0, math.sqrt(2 / fan_in), generator=generator)
    else:
        bound = 1 / math.sqrt(fan_in)
        value.uniform_(-bound, bound, generator=generator)
    if key == "weight" and isinstance(module, MaskedLayer):
        value *= module.mask.cpu()
    return value
