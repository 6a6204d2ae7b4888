"""SyRe: the loss ℓ(θ + θ₀) + γ‖θ‖² with a fixed random θ₀, as a network that computes with θ + θ₀.

A module that holds parameters keeps their names (`weight`, `bias`), has θ₀ in a buffer beside each (`weight_fixed`,
`bias_fixed`), and computes with

    φ = θ + θ₀,      θ₀ ~ N(0, σ₀²) from (seed, parameter name),      σ₀ = .01/√d by default,

so that an optimiser's ordinary weight decay acts on θ = φ − θ₀. Every trainable parameter is shifted, biases and norms
too, as in the formula. d is the fan-in of a weight of two or more axes and of the bias beside it (a hundredth of the
size at which they start), the number of entries of any other parameter.

What it does to a symmetry: let P be orthogonal with ℓ(Pφ) = ℓ(φ), a permutation of hidden units for example. Then

    ‖Pφ − θ₀‖² − ‖φ − θ₀‖² = 2⟨φ, θ₀ − Pᵀθ₀⟩,

zero for all φ if θ₀ = 0 and for almost no θ₀ otherwise: the symmetry of the objective is broken with probability 1.
But it is broken by the penalty alone, in proportion to γ σ₀. The function keeps all its symmetries: without weight
decay a SyRe network is a standard network that starts elsewhere. (A W network has lost them in its function.)

Source: Ziyin, Xu and Chuang, "Remove Symmetries to Control Model Expressivity and Improve Optimization", 2025
(arXiv 2408.15495). Differs: the decay is that of the optimiser in use (decoupled in AdamW), and d, which the source
uses for the scale of the start, is read as the fan-in. The variant with a diagonal in the penalty is left out.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from asym.nn.masks import sample_fixed
from asym.nn.swap import READS_PAST_FORWARD

SUFFIX = "_fixed"


class ShiftedLayer(nn.Module):
    """What a shifted module gains: it runs the forward of its own class with θ + θ₀ in the place of θ."""

    plain_class: type[nn.Module]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The plain module's forward at the effective parameters."""
        effective = self.effective_parameters()
        # An instance attribute hides the parameter of that name for the time of the call.
        self.__dict__.update(effective)
        try:
            return super().forward(*args, **kwargs)
        finally:
            for key in effective:
                del self.__dict__[key]

    def effective_parameters(self) -> dict[str, Tensor]:
        """φ = θ + θ₀ of the module's own shifted parameters, by name; differentiable in θ."""
        # Read as they lie in the module: `functional_call` puts tensors there that are no `nn.Parameter`.
        pairs = ((key, own, self._buffers.get(key + SUFFIX)) for key, own in self._parameters.items())
        return {key: own + shift for key, own, shift in pairs if own is not None and shift is not None}

    @torch.no_grad()
    def unshift_(self) -> None:
        """Become the plain module that computes the same: φ in the place of θ, no buffers of θ₀."""
        for key, value in self.effective_parameters().items():
            self.get_parameter(key).copy_(value)
            del self._buffers[key + SUFFIX]
        self.__class__ = self.plain_class  # pyright: ignore[reportAttributeAccessIssue]


def shift_parameters(model: nn.Module, scale: Any, seed: int) -> nn.Module:
    """Shift every trainable parameter of a model, in place; its values stay, so its function moves by θ₀.

    Args:
        model: any module whose parameters are read by the forward of the module that holds them.
        scale: d → standard deviation of θ₀.
        seed: of θ₀; networks that are to be compared share it.

    Raises:
        ValueError: if the model has shifted layers already, or a module of it reads parameters of its children
            past their forward (attention of PyTorch).
    """
    owners = {name: m for name, m in model.named_modules() if any(p.requires_grad for p in m.parameters(recurse=False))}
    for name, module in model.named_modules():
        if isinstance(module, ShiftedLayer):
            raise ValueError(f"model: {name or 'the root'!r} is shifted already; start from the plain network")
        if isinstance(module, READS_PAST_FORWARD):
            raise ValueError(f"model: {type(module).__name__} at {name!r} uses weights past their layers' forward")
    for name, module in owners.items():
        weight = module._parameters.get("weight")
        for key, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                continue
            d = weight[0].numel() if weight is not None and weight.dim() > 1 else parameter.numel()
            path = f"{name}.{key}" if name else key
            shift = sample_fixed(tuple(parameter.shape), scale(d), seed=seed, name=f"syre/{path}")
            module.register_buffer(key + SUFFIX, shift.to(parameter.detach()))
        module.__class__ = _shifted(type(module))
    return model


@functools.cache
def _shifted(plain: type[nn.Module]) -> type[nn.Module]:
    return type(f"Shifted{plain.__name__}", (ShiftedLayer, plain), {"plain_class": plain, "__module__": __name__})
