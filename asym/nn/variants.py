"""Variants: the one argument by which an architecture gets its layers.

An architecture is written once, with `nn.Linear`, `nn.Conv2d` and one activation module a site;
`apply_variant` swaps modules by their qualified name.

    standard  as written
    w         linear and convolutional layers masked: where(mask, weight, fixed)
    sigma     activations replaced by FiGLU
    w-zero    w with κ = 0: the constants are missing edges (a layer frozen as a whole keeps its random values)
    w-init    standard, all trainable, started at the values of a w network
    w-scale   standard, started with the initial scale of a w network (only the start differs, see `asym.models`)
    bias      standard with the shifts of its norms fixed to values from U[−k, k]
    w-sigma   both: layers masked as in w, activations replaced as in sigma (the released code's w graph network)
    syre      standard at θ + θ₀, θ₀ fixed and random: weight decay pulls towards θ₀, see `asym.nn.syre`

Source: Lim et al. 2024 (arXiv 2405.20231) for w, sigma and bias; Ziyin et al. 2025 (arXiv 2408.15495) for syre, a
rival way to remove symmetries; the others are controls: w-init from the authors' reply to reviewers, w-zero from the
theorem's premise, w-scale because in the released code the trainable entries of a w ResNet start √6 times smaller than
those of the standard one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from asym.names import VARIANTS
from asym.nn.figlu import GATES, FiGLU
from asym.nn.init import NORM_LAYERS
from asym.nn.masked import MaskedLayer
from asym.nn.masks import sample_fixed, sample_mask
from asym.nn.rules import LayerPlan, LayerRule, plan_rules
from asym.nn.sites import activation_sites, called_modules
from asym.nn.swap import replace_modules
from asym.nn.syre import shift_parameters
from asym.nn.w_asym import WAsymConv2d, WAsymLinear
from asym.seeds import numpy_generator

__all__ = [
    "LayerPlan",
    "LayerRule",
    "Variant",
    "apply_variant",
    "count_trainable",
    "plan_layers",
    "resolve_scale",
]


@dataclass(frozen=True)
class Variant:
    """Which layers a network gets, and the constants in them.

    Networks that are to be compared share the whole variant, its mask_seed included.
    """

    name: str = "standard"
    """standard, w, sigma, w-sigma, w-zero, w-init, w-scale, bias or syre."""
    mask_seed: int = 0
    """Seed of masks, constants, F, fixed shifts and θ₀."""
    kappa: float | None = None
    """Standard deviation of the constants in every masked layer; None takes the architecture's table."""
    n_fix_scale: float = 1.0
    """Factor on every n_fix of the table."""
    bias_range: float = 3.0
    """k of the `bias` variant: shifts are fixed to values from U[−k, k]."""
    figlu_scale: float | str | None = None
    """Standard deviation of F: a number, or a text such as "1/sqrt(d)" with d the width; None: the architecture's."""
    gate: str = "sigmoid"
    """Gate of FiGLU: sigmoid or cosine."""
    syre_scale: float | str = ".01/sqrt(d)"
    """Standard deviation of θ₀ in the `syre` variant: a number, or a text such as ".01/sqrt(d)" with d the fan-in."""

    def __post_init__(self) -> None:
        if self.name not in VARIANTS:
            raise ValueError(f"variant: {self.name!r}; choose from {', '.join(VARIANTS)}")
        if self.kappa is not None and not (math.isfinite(self.kappa) and self.kappa >= 0):
            raise ValueError(f"kappa: {self.kappa}; must be a finite number of at least 0")
        if self.name == "w-zero" and self.kappa:
            raise ValueError(f"kappa: {self.kappa:g} contradicts variant w-zero, whose constants are zero")
        if not (math.isfinite(self.n_fix_scale) and self.n_fix_scale > 0):
            raise ValueError(f"n_fix_scale: {self.n_fix_scale}; must be a finite number above 0")
        if not (math.isfinite(self.bias_range) and self.bias_range > 0):
            raise ValueError(f"bias_range: {self.bias_range}; must be a finite number above 0")
        if self.gate not in GATES:
            raise ValueError(f"gate: {self.gate!r}; choose from {', '.join(GATES)}")
        if self.figlu_scale is not None:
            resolve_scale(self.figlu_scale, 1)
        resolve_scale(self.syre_scale, 1, "syre_scale")

    @property
    def masked(self) -> bool:
        """Whether networks of this variant have masked layers."""
        return self.name in ("w", "w-zero", "w-sigma")

    @property
    def plans(self) -> bool:
        """Whether this variant draws masks: those with masked layers, and w-init, which starts at their values."""
        return self.masked or self.name == "w-init"

    @property
    def gated(self) -> bool:
        """Whether activations become FiGLU."""
        return self.name in ("sigma", "w-sigma")


def resolve_scale(scale: float | str, width: int, argument: str = "figlu_scale") -> float:
    """The standard deviation that a number, "1", "1/sqrt(d)" or ".01/sqrt(d)" means at width d.

    Raises:
        ValueError: if the text has another form or the number is not positive and finite.
    """
    text = str(scale).replace(" ", "")
    head = text.removesuffix("/sqrt(d)")
    try:
        value = float(head)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{argument}: {scale!r}; must be a number above 0 or of the form '1/sqrt(d)'")
    return value if head == text else value / math.sqrt(width)


def plan_layers(model: nn.Module, variant: Variant, rules: Sequence[LayerRule] = ()) -> dict[str, LayerPlan]:
    """The resolved n_fix, κ and fan-in of each layer that the variant masks; empty for variants without masks.

    Args:
        model: a plain network, on any device, meta included.
        variant: see `Variant`.
        rules: rules of the architecture; the first that matches a layer counts, the rule of thumb where none
            does.

    Raises:
        ValueError: see `asym.nn.rules.plan_rules`.
    """
    if not variant.plans:
        return {}
    kappa = 0.0 if variant.name == "w-zero" else variant.kappa
    return plan_rules(model, rules, kappa=kappa, n_fix_scale=variant.n_fix_scale)


def apply_variant(
    model: nn.Module,
    variant: Variant,
    *,
    rules: Sequence[LayerRule] = (),
    figlu_scale: float | str = "1/sqrt(d)",
    example_input: Any = None,
) -> nn.Module:
    """Turn a plain network into a variant of itself, in place, and return it.

    Values of parameters are kept where they are trainable; `w-init` overwrites the entries that a w network
    would fix, so initialise first.

    Args:
        model: a network of `nn.Linear`, `nn.Conv2d` and activation modules.
        variant: see `Variant`; "standard" and "w-scale" change nothing here.
        rules: n_fix and κ by layer name.
        figlu_scale: standard deviation of F if the variant does not say.
        example_input: an input from which the variants "sigma" and "w-sigma" read widths; they need one. For the
            other masked variants it is optional, and used to check that every layer is called.

    Raises:
        ValueError: if a layer cannot be masked, a site cannot be gated, a gated one has no example_input, or
            `bias` finds no norm with a shift. The model is then unchanged.
    """
    new: dict[str, nn.Module] = {}
    if variant.gated:
        if example_input is None:
            raise ValueError(f"example_input: None; {variant.name!r} reads the widths of its activations off an input")
        scale = figlu_scale if variant.figlu_scale is None else variant.figlu_scale
        new |= _gates(model, variant, scale, example_input)
    if variant.plans:
        plans = plan_layers(model, variant, rules)
        _check_not_shared(model, plans)
        if example_input is not None and (idle := plans.keys() - called_modules(model, example_input)):
            raise ValueError(
                f"model: {min(idle)!r} is not called for this example_input, or is read past its forward; "
                f"leave it plain with LayerRule({min(idle)!r}, n_fix=0)"
            )
        if not variant.masked:
            for name, plan in plans.items():
                _start_at_constants(model.get_submodule(name), plan, variant.mask_seed)
            return model
        new |= {name: _masked(model, plan, variant.mask_seed) for name, plan in plans.items()}
    if new:
        return replace_modules(model, new)
    if variant.name == "bias":
        _fix_shifts(model, variant)
    if variant.name == "syre":
        shift_parameters(model, lambda d: resolve_scale(variant.syre_scale, d), variant.mask_seed)
    return model


def count_trainable(model: nn.Module) -> int:
    """Number of values that training can move: trainable entries of masks, elsewhere all entries with a gradient."""
    masked = {id(m.weight): m.n_trainable for m in model.modules() if isinstance(m, MaskedLayer)}
    total = 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            total += masked.get(id(parameter), parameter.numel())
    return total


def _masked(model: nn.Module, plan: LayerPlan, seed: int) -> WAsymLinear | WAsymConv2d:
    module = model.get_submodule(plan.name)
    options: dict[str, Any] = {"n_fix": plan.n_fix, "kappa": plan.kappa, "seed": seed, "name": plan.name}
    options |= {"granularity": plan.granularity, "allow_frozen": plan.frozen}
    if isinstance(module, nn.Linear):
        return WAsymLinear.from_plain(module, **options)
    return WAsymConv2d.from_plain(cast(nn.Conv2d, module), **options)


@torch.no_grad()
def _start_at_constants(module: nn.Module, plan: LayerPlan, seed: int) -> None:
    weight = module.get_parameter("weight")
    shape, draw = tuple(weight.shape), {"seed": seed, "name": plan.name}
    mask = sample_mask(shape, plan.n_fix, granularity=plan.granularity, allow_frozen=plan.frozen, **draw)
    fixed = sample_fixed(shape, plan.kappa, **draw)
    if not weight.is_meta:
        weight.copy_(torch.where(mask.to(weight.device), weight, fixed.to(weight)))


def _check_not_shared(model: nn.Module, plans: dict[str, LayerPlan]) -> None:
    """Refuse weights that two modules share: a mask would belong to one of them only."""
    owner: dict[int, str] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            other = owner.setdefault(id(parameter), name)
            if other != name and (other in plans or name in plans):
                raise ValueError(f"model: {other!r} and {name!r} share a weight, which a masked layer cannot")


def _gates(model: nn.Module, variant: Variant, scale: float | str, example_input: Any) -> dict[str, nn.Module]:
    """The FiGLU of each activation site, by name."""
    reference = next(model.parameters(), torch.empty(0))
    return {
        site.name: FiGLU(
            site.width,
            scale=resolve_scale(scale, site.width),
            seed=variant.mask_seed,
            name=site.name,
            gate=variant.gate,
            channel_dim=site.channel_dim,
            device=reference.device,
            dtype=reference.dtype,
        )
        for site in activation_sites(model, example_input)
    }


@torch.no_grad()
def _fix_shifts(model: nn.Module, variant: Variant) -> None:
    norms = {
        name: shift
        for name, module in model.named_modules()
        if isinstance(module, NORM_LAYERS) and (shift := module._parameters.get("bias")) is not None
    }
    if not norms:
        raise ValueError(f"variant: 'bias' fixes the shifts of norms, and {type(model).__name__} has none")
    k = variant.bias_range
    for name, shift in norms.items():
        drawn = numpy_generator(variant.mask_seed, "shift", name).uniform(-k, k, tuple(shift.shape))
        if not shift.is_meta:
            shift.copy_(torch.from_numpy(drawn))
        shift.requires_grad_(False)
