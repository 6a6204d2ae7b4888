"""Any network to its asymmetric counterpart, and a masked network back to ordinary layers.

`asymmetrize` serves models that were written elsewhere (torchvision, timm, one's own) by the same mechanism
that serves the architectures of this project: modules are swapped by name, n_fix follows the rule of thumb or
the caller's rules. `to_plain` gives the same function with `nn.Linear` and `nn.Conv2d`, for export, for tools
that know plain layers only, and for aligning W networks by permutations.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from asym.nn.rules import LayerRule
from asym.nn.swap import replace_modules
from asym.nn.syre import ShiftedLayer
from asym.nn.variants import Variant, apply_variant
from asym.nn.w_asym import WAsymConv2d, WAsymLinear


def asymmetrize(
    model: nn.Module,
    variant: str | Variant = "w",
    *,
    example_input: Any = None,
    rules: Sequence[LayerRule] = (),
    **options: Any,
) -> nn.Module:
    """A copy of `model` in which a variant's layers stand in for the plain ones; `model` is not changed.

    For "w" every `nn.Linear` and `nn.Conv2d` is masked and keeps its weights where they are trainable, so the copy
    computes another function than the model. Layers of other kinds stay plain, and so does one with more rows than
    there are subsets (a wide depth-wise convolution), as `plan_layers` shows. For "sigma" every activation module
    becomes a FiGLU of its own.

    Args:
        model: any module; activations have to be modules, not function calls, for "sigma".
        variant: a variant's name, or a `Variant`.
        example_input: an input (or tuple of inputs) for one forward pass in evaluation mode. "sigma" needs it
            to see widths; for masked variants it is used to make sure that every layer is reached by calling
            it.
        rules: n_fix and κ by layer name; where none matches, the rule of thumb with κ = 1.
        options: fields of `Variant` (mask_seed, kappa, n_fix_scale, …) if `variant` is a name.

    Raises:
        ValueError: naming the module that stands in the way, see `apply_variant`; or if options are given
            beside a `Variant`.
    """
    if isinstance(variant, str):
        variant = Variant(variant, **options)
    elif options:
        raise ValueError(f"{next(iter(options))}: is a field of the variant; set it there")
    return apply_variant(copy.deepcopy(model), variant, rules=rules, example_input=example_input)


def to_plain(model: nn.Module) -> nn.Module:
    """A copy of `model` with an ordinary layer, holding the effective weight, in the place of each masked one,
    and θ + θ₀ in the place of the parameters of each shifted one.

    The outputs are the same. Every entry of the new weights is trainable. FiGLU stays: no ordinary activation
    computes the same function. A model without masked layers is returned as a plain copy.
    """
    plain = copy.deepcopy(model)
    masked = {
        name: module.to_plain()
        for name, module in plain.named_modules()
        if isinstance(module, WAsymLinear | WAsymConv2d)
    }
    for module in list(plain.modules()):
        if isinstance(module, ShiftedLayer):
            module.unshift_()
    return replace_modules(plain, dict(masked))
