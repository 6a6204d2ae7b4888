"""Initialisation by name: every parameter of a network comes from (seed, parameter name).

So networks of one seed share the values of all parameters that they share, whatever their variant, and no
value depends on the order in which modules are made. Schemes, for weights of linear and convolutional layers:

    default   U(±1/√fan_in)                   PyTorch's own (Kaiming-uniform with a = √5)
    kaiming   N(0, 2/fan_in)                  Kaiming-normal, the published scheme of the standard ResNets

and those of the Small CNN Zoo, where biases start at zero:

    glorot_normal      N(0, 2/(fan_in + fan_out))
    he_normal          N(0, 2/fan_in)
    orthogonal         rows (or columns, where there are fewer) of an orthonormal matrix
    normal             N(0, std²)
    truncated_normal   the same, drawn again beyond two deviations

Biases are U(±1/√fan_in) in the first two; norms start at scale 1, shift 0. fan_in counts all inputs of a row, fixed
ones too; fan_out of a convolution counts the taps of all its output channels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase as BatchNormBase
from torch.nn.modules.conv import _ConvNd as ConvBase

from asym.nn.masked import MaskedLayer
from asym.seeds import torch_generator

SCHEMES = ("default", "kaiming", "glorot_normal", "he_normal", "orthogonal", "normal", "truncated_normal")
NORM_LAYERS = (BatchNormBase, nn.GroupNorm, nn.LayerNorm)


def initial_values(model: nn.Module, seed: int, scheme: str = "default", std: float = 0.05) -> dict[str, Tensor]:
    """Start values of all trainable parameters, by name, in the dtype and on the device of each parameter.

    Entries of a masked weight that lie under a constant are zero. Parameters that do not require a gradient
    (the fixed shifts of the `bias` variant) are left out. `std` is that of the schemes that have one.

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
                values[name] = _draw(module, key, name, seed, scheme, std).to(parameter)
    return values


@torch.no_grad()
def initialise(model: nn.Module, seed: int, scheme: str = "default", std: float = 0.05) -> nn.Module:
    """Write `initial_values` into the model, reset the running statistics of its norms, and return it."""
    values = initial_values(model, seed, scheme, std)
    for name, value in values.items():
        model.get_parameter(name).copy_(value)
    for module in model.modules():
        if isinstance(module, BatchNormBase):
            module.reset_running_stats()
    return model


def _draw(module: nn.Module, key: str, name: str, seed: int, scheme: str, std: float) -> Tensor:
    parameter = module.get_parameter(key)
    value = torch.empty(parameter.shape)  # drawn in float32 on the CPU: the same on every device and in every dtype
    if isinstance(module, NORM_LAYERS):
        return value.fill_(1.0 if key == "weight" else 0.0)
    if not isinstance(module, nn.Linear | ConvBase) or key not in ("weight", "bias"):
        raise ValueError(f"model: no rule for the initial values of {name!r} of {type(module).__name__}")
    generator = torch_generator(seed, "init", name)
    fan_in = module.weight[0].numel()
    if scheme not in ("default", "kaiming") and key == "bias":
        value.zero_()
    elif key == "bias" or scheme == "default":
        bound = 1 / math.sqrt(fan_in)
        value.uniform_(-bound, bound, generator=generator)
    elif scheme == "orthogonal":
        nn.init.orthogonal_(value, generator=generator)
    elif scheme == "truncated_normal":
        nn.init.trunc_normal_(value, 0.0, std, -2 * std, 2 * std, generator=generator)
    else:
        fan_out = module.weight.shape[0] * module.weight[0, 0].numel()
        spread = {"normal": std, "glorot_normal": math.sqrt(2 / (fan_in + fan_out))}
        value.normal_(0.0, spread.get(scheme, math.sqrt(2 / fan_in)), generator=generator)
    if key == "weight" and isinstance(module, MaskedLayer):
        value *= module.mask.cpu()
    return value
