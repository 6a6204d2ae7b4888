"""The registry of architectures, and `build`, which makes a network of any of them in any variant.

An architecture is one decorated function that makes the plain network, with its tables of n_fix and κ beside it:

    @register("mlp", rules=rules, ...)
    def mlp(*, input_shape, classes, width, depth, norm, activation) -> nn.Module

`timm/<name>` and `package.module:factory` are accepted wherever a registered name is.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from asym.models.arch import Arch, Shape, check_options, example_input
from asym.models.foreign import factory_arch, timm_arch
from asym.nn.init import initialise
from asym.nn.sites import run_once
from asym.nn.variants import LayerPlan, Variant, apply_variant, count_trainable, plan_layers
from asym.seeds import derived_seed

_REGISTRY: dict[str, Arch] = {}


def register(name: str, **options: Any) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Enter the decorated function as the architecture `name`; options are the fields of `Arch`.

    Raises:
        ValueError: if the name is taken.
    """

    def enter(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        if name in _REGISTRY:
            raise ValueError(f"arch: {name!r} is registered already")
        _REGISTRY[name] = Arch(name, make, **options)
        return make

    return enter


def list_archs(pattern: str = "*") -> list[str]:
    """Names of registered architectures that match a shell-style pattern, in the order of registration."""
    return [name for name in _REGISTRY if fnmatchcase(name, pattern)]


def get_arch(name: str) -> Arch:
    """The architecture of a registered name, of `timm/<name>` or of `package.module:factory`.

    Raises:
        ValueError: if there is none; the message lists close names.
    """
    if name in _REGISTRY:
        return _REGISTRY[name]
    if name.startswith("timm/"):
        return timm_arch(name)
    if ":" in name:
        return factory_arch(name)
    close = difflib.get_close_matches(name, _REGISTRY, n=3)
    hint = f"did you mean {', '.join(close)}? " if close else ""
    raise ValueError(
        f"arch: {name!r} is unknown; {hint}choose from {', '.join(_REGISTRY)}, timm/<name>, package.module:factory"
    )


def build(
    arch: str,
    *,
    input_shape: Shape,
    classes: int,
    width: float = 1.0,
    depth: int | None = None,
    norm: str | None = None,
    activation: str | None = None,
    variant: Variant | None = None,
    seed: int = 0,
) -> nn.Module:
    """A network of an architecture in a variant, initialised from `seed`.

    Values depend on (seed, parameter name), constants on (variant.mask_seed, layer name); the global
    generators are neither read nor advanced. Networks of one seed share the start values of all parameters
    that they share, up to the scheme: standard, sigma and bias use the architecture's, the variants of `w`
    (and w-scale) PyTorch's default.

    Args:
        arch: a registered name, `timm/<name>` or `package.module:factory`. The last two keep their own
            initialisation, drawn from `seed`, in all variants, so that w-scale equals standard there.
        input_shape: (channels, height, width), or (features,) of a graph.
        classes: number of outputs.
        width: factor on all hidden widths.
        depth: depth in the architecture's unit (hidden layers of the MLPs); None is the published one.
        norm: one of the architecture's norms; None is the published one.
        activation: one of the architecture's activations; None is the published one.
        variant: None is the standard network.
        seed: integer seed of the start values.

    Raises:
        ValueError: naming the argument, for anything that the architecture or the variant does not allow.
    """
    variant = variant or Variant()
    entry = get_arch(arch)
    options = check_options(entry, input_shape, classes, width, depth, norm, activation)
    model = _make(entry, options, seed)
    if entry.scheme:
        initialise(model, seed, "default" if variant.plans or variant.name == "w-scale" else entry.scheme)
    example = example_input(entry, input_shape) if variant.gated or not entry.scheme else None
    if example is not None and not entry.scheme:
        output = run_once(model, example)
        if not isinstance(output, Tensor) or output.shape != (2, classes):
            found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(f"arch: {arch!r} gives {found} for 2 images and {classes} classes, not (2, {classes})")
    rules = entry.rules(width, options["depth"])
    return apply_variant(model, variant, rules=rules, figlu_scale=entry.figlu_scale, example_input=example)


def plan(
    arch: str,
    *,
    input_shape: Shape,
    classes: int,
    width: float = 1.0,
    depth: int | None = None,
    norm: str | None = None,
    activation: str | None = None,
    variant: Variant,
) -> dict[str, LayerPlan]:
    """What `build` would mask: n_fix, κ, fan-in and more by layer name, without making weights.

    Raises:
        ValueError: as `build`.
    """
    entry = get_arch(arch)
    options = check_options(entry, input_shape, classes, width, depth, norm, activation)
    model = _make_light(entry, options)
    return plan_layers(model, variant, entry.rules(width, options["depth"]))


def count(arch: str, *, variant: Variant | None = None, **options: Any) -> tuple[int, int]:
    """(trainable, total) parameters of the network that `build` would make, without making weights.

    Raises:
        ValueError: as `build`.
    """
    variant = variant or Variant()
    entry = get_arch(arch)
    filled = check_options(entry, **{"width": 1.0, "depth": None, "norm": None, "activation": None} | options)
    model = _make_light(entry, filled)
    total = sum(p.numel() for p in model.parameters())
    if variant.name == "bias":
        apply_variant(model, variant)
    fixed = 0
    if variant.masked:
        plans = plan_layers(model, variant, entry.rules(filled["width"], filled["depth"]))
        fixed = sum(model.get_submodule(p.name).get_parameter("weight").numel() - p.trainable for p in plans.values())
    return count_trainable(model) - fixed, total


def _make(entry: Arch, options: dict[str, Any], seed: int = 0) -> nn.Module:
    """The plain network; what it draws from the global generator comes from `seed`, and leaves no trace there."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(seed, "build", entry.name))
        return entry.make(**options)


def _make_light(entry: Arch, options: dict[str, Any]) -> nn.Module:
    """The plain network without memory for its weights, where its code is known to allow that."""
    if not entry.scheme:
        return _make(entry, options)
    with torch.device("meta"):
        return entry.make(**options)
