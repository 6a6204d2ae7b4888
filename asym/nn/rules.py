"""Which layers of a network are masked and how strongly: rules by layer name, resolved into a plan.

A rule holds the published n_fix and κ of the layers whose name it matches. Resolved for an actual layer:

    n_fix = round(n_fix of the rule · n_fix_scale · fan_in / fan_in of the rule),

raised to the fewest, and lowered to the most, with which rows can be distinct. For layers that no table
speaks of the rule of thumb is n_fix = max(⌈log2 rows⌉, fan_in / 8), at most fan_in / 4 (after the authors'
remark that n_fix should be at least log2 of the width).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from asym.nn.masked import MaskedLayer
from asym.nn.masks import GRANULARITIES, fewest_n_fix, most_n_fix
from asym.nn.swap import swap_problem


@dataclass(frozen=True)
class LayerRule:
    """The n_fix and κ of all layers whose qualified name matches a pattern; the first rule that matches counts."""

    pattern: str
    """Shell-style pattern on the qualified module name, such as "stages.1.*.conv?"."""
    n_fix: int | None
    """Fixed entries (or input channels) a row; None is the rule of thumb, 0 leaves the layer plain."""
    kappa: float = 1.0
    """Standard deviation of the constants."""
    fan_in: int | None = None
    """The fan-in for which n_fix was published, in entries or channels; None where n_fix holds for any."""
    granularity: str = "entry"
    """What n_fix counts in a convolution: "entry" or "channel"."""
    allow_frozen: bool = False
    """Freeze the whole layer where n_fix reaches its fan-in, in place of lowering n_fix."""

    def __post_init__(self) -> None:
        if self.n_fix is not None and self.n_fix < 0:
            raise ValueError(f"n_fix: {self.n_fix} in the rule for {self.pattern!r}; must be at least 0")
        if not (math.isfinite(self.kappa) and self.kappa >= 0):
            raise ValueError(f"kappa: {self.kappa} in the rule for {self.pattern!r}; must be at least 0")
        if self.fan_in is not None and self.fan_in < 1:
            raise ValueError(f"fan_in: {self.fan_in} in the rule for {self.pattern!r}; must be at least 1")
        if self.granularity not in GRANULARITIES:
            raise ValueError(
                f"granularity: {self.granularity!r} in the rule for {self.pattern!r}; "
                f"choose from {', '.join(GRANULARITIES)}"
            )


@dataclass(frozen=True)
class LayerPlan:
    """What becomes of one layer. `n_fix` and `fan_in` count entries, or channels with granularity "channel"."""

    name: str
    rows: int
    fan_in: int
    n_fix: int
    kappa: float
    granularity: str
    frozen: bool
    trainable: int
    """Trainable entries of the weight."""


THUMB = LayerRule("*", n_fix=None)
"""What holds for a layer that no rule matches."""

_LINEAR_OR_CONV = (nn.Linear, nn.Conv2d)
_SAME_FUNCTION = ("timm.layers.linear.Linear",)
"""Subclasses whose own forward computes what the plain one does."""


def plan_rules(
    model: nn.Module, rules: Sequence[LayerRule], *, kappa: float | None, n_fix_scale: float
) -> dict[str, LayerPlan]:
    """The plan of all layers that would be masked, by qualified name, in the order of the modules.

    Args:
        model: a plain network; it may lie on the meta device.
        rules: the first rule that matches a layer's name counts; where none does, the rule of thumb.
        kappa: replaces the κ of every rule; 0 leaves that of layers that are frozen as a whole.
        n_fix_scale: factor on every n_fix.

    Raises:
        ValueError: if the model has masked layers already or nothing to mask, if a rule matches no layer, if
            n_fix_scale brings an n_fix to a fan-in, if rows cannot be distinct in a layer that a rule names
            with an n_fix of its own, or if a layer's weight would be read past its forward (attention of
            PyTorch).
    """
    matched: set[LayerRule] = set()
    plans: dict[str, LayerPlan] = {}
    seen = False
    for name, module in model.named_modules():
        if isinstance(module, MaskedLayer):
            raise ValueError(f"model: {name or 'the root'!r} is masked already; start from the plain network")
        if not isinstance(module, _LINEAR_OR_CONV):
            continue
        seen = True
        rule = next((rule for rule in rules if fnmatchcase(name, rule.pattern)), THUMB)
        matched.add(rule)
        if rule.n_fix == 0:
            continue
        _check_maskable(model, name, module)
        plan = _resolve(name, module, rule, kappa, n_fix_scale)
        if plan is not None:
            plans[name] = plan
    if not seen:
        raise ValueError(f"model: {type(model).__name__} has no nn.Linear or nn.Conv2d to mask")
    for rule in rules:
        if rule not in matched:
            raise ValueError(f"rules: {rule.pattern!r} matches no layer that an earlier rule has not taken")
    if not plans:
        raise ValueError(f"rules: no layer of {type(model).__name__} is left to mask")
    return plans


def _resolve(
    name: str, module: nn.Linear | nn.Conv2d, rule: LayerRule, kappa: float | None, n_fix_scale: float
) -> LayerPlan | None:
    weight = module.weight
    rows = weight.shape[0]
    channelwise = rule.granularity == "channel"
    fan_in = weight.shape[1] if channelwise else weight[0].numel()
    if rule.n_fix is None:
        table = min(max(math.ceil(math.log2(rows)), math.ceil(fan_in / 8)), fan_in // 4)
    else:
        table = rule.n_fix * fan_in / (rule.fan_in or fan_in)
    n_fix = math.floor(table * n_fix_scale + 0.5)
    frozen = rule.allow_frozen and n_fix >= fan_in
    if frozen:
        n_fix = fan_in
    else:
        try:
            low, high = fewest_n_fix(rows, fan_in), most_n_fix(rows, fan_in)
        except ValueError as error:
            if rule.n_fix is None:
                return None  # more rows than subsets (wide depth-wise convolutions): stays plain
            raise ValueError(f"rules: {rule.pattern!r} at layer {name!r}: {error}") from error
        if n_fix > high and n_fix_scale > 1:
            raise ValueError(
                f"n_fix_scale: {n_fix_scale:g} asks for {n_fix} of {fan_in} in layer {name!r}, "
                f"which can fix at most {high}"
            )
        n_fix = min(max(n_fix, low), high)
        if n_fix == 0:  # a single row needs no constant to be distinct, but a masked layer has at least one
            n_fix = min(1, fan_in - 1)
    per_row = weight[0].numel() // fan_in * (fan_in - n_fix)
    return LayerPlan(
        name=name,
        rows=rows,
        fan_in=fan_in,
        n_fix=n_fix,
        # A frozen layer of zeros would cut the network in two: it keeps the random features of its rule.
        kappa=rule.kappa if kappa is None or (frozen and kappa == 0) else kappa,
        granularity=rule.granularity,
        frozen=frozen,
        trainable=rows * per_row,
    )


def _check_maskable(model: nn.Module, name: str, module: nn.Linear | nn.Conv2d) -> None:
    """Refuse layers whose masked counterpart would be bypassed or would compute something else."""
    remedy = f"leave it plain with LayerRule({name!r}, n_fix=0)"
    base = nn.Linear if isinstance(module, nn.Linear) else nn.Conv2d
    kind = type(module)
    if isinstance(module, LazyModuleMixin):
        raise ValueError(f"model: {name!r} is lazy and has no size yet; run the model once first")
    if kind.forward is not base.forward and f"{kind.__module__}.{kind.__name__}" not in _SAME_FUNCTION:
        raise ValueError(f"model: {name!r} is a {kind.__name__} with a forward of its own; {remedy}")
    if not isinstance(module._parameters.get("weight"), nn.Parameter):
        raise ValueError(f"model: the weight of {name!r} is computed from other parameters; {remedy}")
    if problem := swap_problem(model, name):
        raise ValueError(f"model: {problem}; {remedy}")
