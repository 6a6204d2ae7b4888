"""The networks of the audit: narrow copies of any architecture, and what they are called with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from asym.models import build, count, get_arch, plan
from asym.models.arch import Arch
from asym.nn import LayerRule, Variant, apply_variant
from asym.nn.variants import count_trainable
from asym.seeds import derived_seed
from asym.symmetry.audit import Draw, normal_inputs

NODES = 40
"""Nodes of the random graph on which graph networks are audited."""
WIDTHS = 40
"""Steps of the width that are tried."""
LEAST = {"transformer": 3 / 16, "mlp": 4 / 512, "gnn": 4 / 256, "resnet": 2 / 16}
"""Narrowest widths: a layer norm of two channels gives nothing but signs."""


@dataclasses.dataclass(frozen=True)
class Net:
    """How to make a narrow network; hashable, picklable."""

    arch: str
    width: float
    input_shape: tuple[int, ...]
    classes: int
    norm: str | None
    activation: str | None
    depth: int | None
    narrow: float | None = None
    """m of `narrowed`, for networks that others wrote and that are too large as they are."""

    @property
    def entry(self) -> Arch:
        """The architecture."""
        return get_arch(self.arch)

    @property
    def options(self) -> dict[str, Any]:
        """What registered architectures are made with."""
        names = ("width", "input_shape", "classes", "norm", "activation", "depth")
        return {name: getattr(self, name) for name in names}

    def variant(self, name: str, kappa: float | None, mask_seed: int, n_fix_scale: float = 1.0) -> Variant:
        """A variant whose n_fix keep their share of the fan-in: tables grow with √width, so times √width again."""
        plans = Variant(name).plans
        share = math.sqrt(min(self.width, 1.0)) if self.entry.widths else 1.0
        return Variant(
            name,
            mask_seed=mask_seed,
            kappa=kappa if plans and name != "w-zero" else None,
            n_fix_scale=share * n_fix_scale if plans else 1.0,
        )

    def build(self, variant: Variant, seed: int) -> nn.Module:
        """The network.

        Raises:
            ValueError: for whatever the architecture or the variant does not allow.
        """
        if self.entry.widths and (not variant.plans or self.can_be(variant.name)):
            return build(self.arch, variant=variant, seed=seed, **self.options)
        if self.entry.widths:  # as many channels, or entries, cannot be fixed in layers this narrow
            plain = build(self.arch, seed=seed, **self.options)
            kappa = next(iter(self.entry.rules(1.0, self.entry.depth))).kappa
            rules = (LayerRule("*", None, kappa),)
            return apply_variant(plain, dataclasses.replace(variant, n_fix_scale=1.0), rules=rules)
        plain = build(self.arch, input_shape=self.input_shape, classes=self.classes, seed=seed)
        if self.narrow is not None:
            plain = narrowed(plain, self.narrow, self.input_shape[0])
        example = torch.zeros(2, *self.input_shape)
        with torch.no_grad():
            found = plain.eval()(example)
        if not isinstance(found, Tensor) or found.shape != (2, self.classes):
            raise ValueError(f"arch: {self.arch} does not give (2, {self.classes}) after its layers were narrowed")
        return apply_variant(plain, variant, rules=self.entry.rules(1.0, 0), example_input=example)

    def can_be(self, variant: str) -> bool:
        """Whether the masks of a variant fit into a network this narrow; True where that is no matter of width."""
        if not self.entry.widths or not Variant(variant).plans:
            return True
        try:
            plan(self.arch, variant=self.variant(variant, None, 0), **self.options)
        except ValueError:
            return False
        return True

    def draw(self) -> Draw:
        """Random inputs: images, or features on a fixed random graph."""
        if self.entry.domain == "images":
            return normal_inputs(self.input_shape)
        from asym.data.graphs import GraphInput

        generator = torch.Generator().manual_seed(derived_seed(0, "audit", "graph"))
        edges = torch.rand((NODES, NODES), generator=generator) < 4 / NODES
        edges = (edges | edges.T | torch.eye(NODES).roll(1, 0).bool()).double().fill_diagonal_(0)
        averaging = edges / edges.sum(1, keepdim=True)

        def draw(n: int, generator: torch.Generator) -> GraphInput:
            features = torch.randn((NODES, *self.input_shape), generator=generator, dtype=torch.float64)
            return GraphInput(features, averaging)

        return draw

    def params(self) -> int:
        """Trainable parameters of the standard network."""
        if self.entry.widths:
            return count(self.arch, **self.options)[0]
        return count_trainable(self.build(Variant(), 0))


def fitted(net: Net, target: int, variants: Sequence[str] = ("standard",)) -> Net:
    """The widest copy with at most `target` trainable parameters whose masks fit, else the widest, else the narrowest.

    Widths run down from 1 in steps of a factor 2^(−¼) for registered architectures; the channels of other networks
    become m √(n / n_min), so that layers keep different widths, for the largest such m.

    Raises:
        ValueError: if no width can be built.
    """
    least = next((w for name, w in LEAST.items() if net.arch.startswith(name)), 0.0)
    best: tuple[tuple[bool, int], Net] | None = None
    if not net.entry.widths:
        net = dataclasses.replace(net, width=1.0)
        if net.params() <= target:
            return net
        choices = [4.0 / 2 ** (k / 2) for k in range(5)]
    else:
        choices = [2.0 ** (-k / 4) for k in range(WIDTHS)]
    error: ValueError | None = None
    for width in choices:
        trial = dataclasses.replace(net, **{"width" if net.entry.widths else "narrow": width})
        try:
            params = trial.params()
        except ValueError as problem:
            error = problem
            continue
        if net.entry.widths and width < least:
            break
        whole = all(trial.can_be(name) for name in variants)
        rank = params > target, params if params > target else -params
        if best is None or rank < best[0]:
            best = rank, trial
        if whole and params <= target:
            return trial
    if best is None:
        raise error or ValueError(f"arch: {net.arch} cannot be narrowed")
    return best[1]


def narrowed(model: nn.Module, m: float, channels: int) -> nn.Module:
    """A network of convolutions, linear layers and norms with n channels replaced by max(1, round(m √(n / n_min))).

    Args:
        model: changed in place and returned; freshly initialised.
        m: channels of the narrowest layer.
        channels: the input's, which stay.

    Raises:
        ValueError: if the network has no layer to narrow.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    if not layers:
        raise ValueError(f"arch: {type(model).__name__} has no layer to narrow")
    outs = [x.out_channels if isinstance(x, nn.Conv2d) else x.out_features for x in layers[:-1]]
    least = min(outs, default=1)
    last, first = layers[-1], layers[0]

    def fit(n: int) -> int:
        return max(1, round(m * math.sqrt(n / least)))

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(0, "audit", "narrow"))
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                depthwise = module.groups == module.in_channels > 1
                into = module.in_channels if module is first and module.in_channels == channels else None
                module.in_channels = into or fit(module.in_channels)
                module.out_channels = fit(module.out_channels)
                module.groups = module.in_channels if depthwise else 1
                shape = (module.out_channels, module.in_channels // module.groups, *module.kernel_size)
                _resize(module, shape)
            elif isinstance(module, nn.Linear):
                module.in_features = module.in_features if module is first else fit(module.in_features)
                module.out_features = module.out_features if module is last else fit(module.out_features)
                _resize(module, (module.out_features, module.in_features))
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.num_features = fit(module.num_features)
                _resize_norm(module, module.num_features)
            elif isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
                module.normalized_shape = (fit(module.normalized_shape[0]),)
                _resize_norm(module, module.normalized_shape[0])
            elif isinstance(module, nn.GroupNorm) and module.num_groups == 1:
                module.num_channels = fit(module.num_channels)
                _resize_norm(module, module.num_channels)
    return model


def _resize(module: nn.Conv2d | nn.Linear, shape: tuple[int, ...]) -> None:
    module.weight = nn.Parameter(torch.empty(shape))
    if module.bias is not None:
        module.bias = nn.Parameter(torch.empty(shape[0]))
    module.reset_parameters()


def _resize_norm(module: nn.Module, n: int) -> None:
    for name, parameter in list(module.named_parameters(recurse=False)):
        setattr(module, name, nn.Parameter(torch.ones(n) if name == "weight" else torch.zeros(n)))
        parameter.grad = None
    for name in ("running_mean", "running_var"):
        if isinstance(getattr(module, name, None), Tensor):
            setattr(module, name, torch.zeros(n) if name == "running_mean" else torch.ones(n))
