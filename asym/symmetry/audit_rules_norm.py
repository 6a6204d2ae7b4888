"""Rules of LayerNorm, GroupNorm and BatchNorm; see `audit_rules.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from asym.symmetry.audit_rules import blocks, change_of, moved
from asym.symmetry.audit_system import Form
from asym.symmetry.audit_values import Known, Moved, Unsupported
from asym.symmetry.audit_walk import Walk, rule


def _affine(walk: Walk, rotation: Form, known: dict[str, Any], d: int) -> tuple[Form, Form]:
    """A', c' after scale g and shift β of a norm whose normalised input changes by R z."""
    system, eye = walk.system, torch.eye(d, dtype=torch.float64)
    weight, bias = known.get("weight"), known.get("bias")
    g = torch.ones(d, dtype=torch.float64) if weight is None else weight.value
    beta = torch.zeros(d, dtype=torch.float64) if bias is None else bias.value
    a = rotation.map(lambda t: g[:, None] * t / g)
    if weight is not None:
        scale = system.new(torch.diag_embed(eye)[weight.source >= 0], "affine scale")
        walk.change(weight, scale.map(lambda t: t.diagonal(dim1=1, dim2=2) * g))
        a = a + scale
    moved = a.map(lambda t: t @ beta)
    if bias is None:
        return a, -moved
    free = bias.source >= 0
    shift = system.new(eye[free], "affine shift")
    walk.change(bias, (shift + moved).map(lambda t: t * free))
    return a, shift - moved.map(lambda t: t * ~free)


@rule("layer_norm")
def layer_norm(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """z = C x / |C x| · √d over the last dimension, then g z + β."""
    if len(numbers["normalized_shape"]) != 1:
        raise Unsupported
    d, value, system = result.shape[-1], known["input"], walk.system
    rotation = Form.zero(d, d)
    if isinstance(value, Moved):
        a, c = change_of(walk, value, -1)
        centre = torch.eye(d, dtype=torch.float64) - 1 / d
        system.require_zero(a.map(lambda t: (centre @ t).sum(-1)))
        system.require_zero(c.map(lambda t: t @ centre))
        inner = a.map(lambda t: centre @ t @ centre)
        rotation = _rotation(walk, inner, centre[None])
    a, c = _affine(walk, rotation, known, d)
    return moved(a, c, tuple(result.shape), -1)


def _rotation(walk: Walk, a: Form, parts: Tensor) -> Form:
    """The antisymmetric part of A; its symmetric part has to be a multiple of each of `parts` `[g, d, d]`."""
    symmetric = a.map(lambda t: (t + t.mT) / 2)
    norms = parts.pow(2).sum((1, 2)).clamp(min=1e-300)
    share = symmetric.map(lambda t: torch.einsum("zij,gij,g,gkl->zkl", t, parts, 1 / norms, parts))
    walk.system.require_zero(symmetric - share)
    return a.map(lambda t: (t - t.mT) / 2)


@rule("group_norm")
def group_norm(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """Mean and variance over the channels of a group and all positions."""
    d, groups, system, value = result.shape[1], numbers["num_groups"], walk.system, known["input"]
    rotation = Form.zero(d, d)
    if isinstance(value, Moved):
        a, c = change_of(walk, value, 1)
        block = blocks(d, groups)
        mean = block * groups / d
        system.require_zero(a.map(lambda t: t * (1 - block)))
        system.require_zero(c.map(lambda t: t - t @ mean))
        ids = torch.arange(d) // (d // groups)
        parts = torch.stack([torch.diag((ids == g).double()) for g in range(groups)])
        rotation = _rotation(walk, a, parts)
        system.require_zero(rotation.map(lambda t: t.sum(-1)))
    a, c = _affine(walk, rotation, known, d)
    return moved(a, c, tuple(result.shape), 1)


@rule("batch_norm")
def batch_norm(walk: Walk, node: fx.Node, known: dict[str, Any], numbers: dict[str, Any], result: Tensor) -> Known:
    """On batch statistics every channel's scale and shift vanish; on running statistics it is an affine map."""
    d, value, system = result.shape[1], known["input"], walk.system
    training = bool(numbers["training"])
    if not isinstance(value, Moved) or training:
        if isinstance(value, Moved):
            a, _ = change_of(walk, value, 1)
            system.require_zero(a.map(lambda t: t * (1 - torch.eye(d))))
        a, c = _affine(walk, Form.zero(d, d), known, d)
        return moved(a, c, tuple(result.shape), 1)
    a, c = change_of(walk, value, 1)
    sigma = (numbers["running_var"] + numbers["eps"]).sqrt()
    a_in = a.map(lambda t: t / sigma[:, None] * sigma)
    c_in = (c + a.map(lambda t: t @ numbers["running_mean"])).map(lambda t: t / sigma)
    g = known["weight"].value if known.get("weight") is not None else torch.ones(d, dtype=torch.float64)
    a, c = _affine(walk, a_in, known, d)
    return moved(a, c + c_in.map(lambda t: g * t), tuple(result.shape), 1)
