"""Scalings, sign flips and permutations acting on the hidden units of chains, and how to remove or draw them.

    W'_l = P_l Q_l W_l Q_{l−1}⁻¹ P_{l−1}ᵀ,      b'_l = P_l Q_l b_l            (`chain.py`: which Q are allowed)

All functions are pure and act on dicts of tensors `*lead *shape`, one network or a stack of them; factors and
permutations have the same leading axes, one entry a hidden layer.

`gauge_fix` removes positive scalings exactly, layer by layer from the input: with k_i the row of W_l (after the layer
before was fixed) and b_i the bias of unit i, it acts with q_i = 1 / ‖(k_i, b_i)‖. Two networks that differ by positive
scalings get the same weights, since the row of the second is c_i times that of the first. A dead unit (norm 0) keeps
q_i = 1: what it sends on is zero in any gauge, though its outgoing weights are not fixed; they are set to zero, as the
network's function does not depend on them (its output σ(0) is 0 for every activation with a scaling law).
Sign flips are removed by making the entry of (k_i, b_i) that is largest in magnitude positive, if it is unique.
For sin with a factor ω a unit's bias also has a phase: sin(ω(k x + b + π/ω)) = −sin(ω(k x + b)), so b is brought into
[−π/2ω, π/2ω] by steps of π/ω, each odd number of which flips the unit's sign. (The released code of ScaleGMN steps by π
in the raw bias, which is no symmetry unless ω is 1.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from asym.symmetry.chain import Chain, ChainLayer, check_tensors
from asym.symmetry.residual import Residual
from asym.symmetry.residual_actions import (
    fix_streams,
    permute_streams,
    random_stream_factors,
    random_stream_orders,
    scale_streams,
)

Tensors = Mapping[str, Tensor]
Units = Chain | Residual
"""Chains, and residual networks, whose streams take the place of hidden layers (`residual_actions.py`)."""


def scale_units(chain: Units, factors: Sequence[Tensor], tensors: Tensors) -> dict[str, Tensor]:
    """Multiply hidden units by `factors`, and divide what reads them.

    Args:
        chain: the networks' chain.
        factors: for each hidden layer `*lead width`: positive for "scale", ±1 for "sign", 1 for "none".
        tensors: name to tensor `*lead *shape`; names that the chain does not have pass through.

    Raises:
        ValueError: if a factor is not allowed by its layer's symmetry, or a shape does not fit.
    """
    if isinstance(chain, Residual):
        return scale_streams(chain, factors, tensors)
    lead = check_tensors(chain, tensors)
    if len(factors) != len(chain.hidden):
        raise ValueError(f"factors: {len(factors)} for {len(chain.hidden)} hidden layers")
    for layer, q in zip(chain.hidden, factors):
        if tuple(q.shape) != (*lead, layer.outputs):
            raise ValueError(f"factors: {layer.name!r} has shape {tuple(q.shape)}, expected {(*lead, layer.outputs)}")
        if not _allowed(layer.symmetry, q):
            raise ValueError(
                f"factors: not all factors of {layer.name!r} are allowed by its symmetry {layer.symmetry!r}"
            )
    return _scaled(chain, factors, tensors)


def permute_units(chain: Units, perms: Sequence[Tensor], tensors: Tensors) -> dict[str, Tensor]:
    """Reorder hidden units, each network by its own permutation.

    Args:
        chain: the networks' chain.
        perms: for each hidden layer `*lead width`, indices as in `tensor[perm]`.
        tensors: name to tensor `*lead *shape`.

    Raises:
        ValueError: if an entry is no permutation, or a shape does not fit.
    """
    if isinstance(chain, Residual):
        return permute_streams(chain, perms, tensors)
    lead = check_tensors(chain, tensors)
    if len(perms) != len(chain.hidden):
        raise ValueError(f"perms: {len(perms)} for {len(chain.hidden)} hidden layers")
    for layer, perm in zip(chain.hidden, perms):
        if tuple(perm.shape) != (*lead, layer.outputs):
            raise ValueError(f"perms: {layer.name!r} has shape {tuple(perm.shape)}, expected {(*lead, layer.outputs)}")
        if not torch.equal(perm.sort(-1).values, torch.arange(layer.outputs, device=perm.device).expand(perm.shape)):
            raise ValueError(f"perms: {layer.name!r} has an entry that is not a permutation")
    out = dict(tensors)
    before: Tensor | None = None
    axis = len(lead)
    for layer, perm in zip(chain.layers, [*perms, None]):
        weight = split_taps(layer, out[layer.weight], lead)
        if before is not None:
            weight = _take(weight, before, axis + 1, lead)
        if perm is not None:
            weight = _take(weight, perm, axis, lead)
            if layer.bias is not None:
                out[layer.bias] = out[layer.bias].gather(-1, perm)
        out[layer.weight] = weight.reshape(*lead, *layer.shape)
        before = perm
    return out


def random_factors(
    chain: Units, lead: tuple[int, ...], generator: torch.Generator, *, ratio: float = 4.0, like: Tensor | None = None
) -> list[Tensor]:
    """Factors that each layer's symmetry allows: log-uniform in [1/ratio, ratio], fair signs, or ones.

    Raises:
        ValueError: if ratio is below 1 or not finite.
    """
    if not 1 <= ratio < math.inf:
        raise ValueError(f"ratio: {ratio}; must be a finite number of at least 1")
    if isinstance(chain, Residual):
        return random_stream_factors(chain, lead, generator, ratio=ratio, like=like)
    found = []
    for layer in chain.hidden:
        u = torch.rand(*lead, layer.outputs, generator=generator, dtype=torch.float64)
        q = {"scale": ratio ** (2 * u - 1), "sign": torch.where(u < 0.5, -1.0, 1.0)}.get(layer.symmetry)
        q = torch.ones_like(u) if q is None else q
        found.append(q.to(like) if like is not None else q)
    return found


def random_orders(chain: Units, lead: tuple[int, ...], generator: torch.Generator) -> list[Tensor]:
    """A uniformly random permutation of each hidden layer of each network."""
    if isinstance(chain, Residual):
        return random_stream_orders(chain, lead, generator)
    return [
        torch.rand(*lead, layer.outputs, generator=generator, dtype=torch.float64).argsort(-1) for layer in chain.hidden
    ]


def gauge_fix(chain: Units, tensors: Tensors) -> dict[str, Tensor]:
    """The same networks with scalings, signs and phases of hidden units removed, each where its layer allows it.

    Raises:
        ValueError: if a shape does not fit.
    """
    if isinstance(chain, Residual):
        return fix_streams(chain, tensors)
    lead = check_tensors(chain, tensors)
    out = dict(tensors)
    for i, layer in enumerate(chain.hidden):
        if layer.symmetry == "none":
            continue
        if layer.activation == "sin" and layer.bias is not None:
            _fix_phase(chain, i, out, lead)
        rows = _rows(layer, out, lead)
        if layer.symmetry == "scale":
            norm = _norm(rows)
            divisors, outgoing = torch.where(norm == 0, 1.0, norm), norm
        else:
            top = rows.gather(-1, rows.abs().argmax(-1, keepdim=True)).squeeze(-1)
            divisors, outgoing = torch.where(top < 0, -torch.ones_like(top), torch.ones_like(top)), top.sign()
        _act(chain, i, out, divisors, outgoing, lead, torch.div)
    return out


def split_taps(layer: ChainLayer, weight: Tensor, lead: tuple[int, ...]) -> Tensor:
    """A weight as `*lead outputs inputs taps`."""
    return weight.reshape(*lead, layer.outputs, layer.inputs, layer.taps)


def _allowed(symmetry: str, q: Tensor) -> bool:
    if symmetry == "scale":
        return bool(((q > 0) & torch.isfinite(q)).all())
    return bool((q.abs() == 1).all()) if symmetry == "sign" else bool((q == 1).all())


def _scaled(chain: Chain, factors: Sequence[Tensor], tensors: Tensors) -> dict[str, Tensor]:
    out = dict(tensors)
    lead = tuple(factors[0].shape[:-1]) if factors else ()
    for i, q in enumerate(factors):
        _act(chain, i, out, q, 1 / q, lead)
    return out


def _act(
    chain: Chain,
    i: int,
    out: dict[str, Tensor],
    incoming: Tensor,
    outgoing: Tensor,
    lead: tuple,
    operation: Callable[[Tensor, Tensor], Tensor] = torch.mul,
) -> None:
    """Multiply (or divide) rows of layer i by `incoming`, multiply columns of layer i + 1 by `outgoing`, in the dict.

    Units that weight decay has shrunk to 1e-40 can be divided by their norm, whose reciprocal is not finite in float32.
    """
    layer, reader = chain.layers[i], chain.layers[i + 1]
    weight = operation(split_taps(layer, out[layer.weight], lead), incoming[..., :, None, None])
    out[layer.weight] = weight.reshape(*lead, *layer.shape)
    if layer.bias is not None:
        out[layer.bias] = operation(out[layer.bias], incoming)
    weight = split_taps(reader, out[reader.weight], lead) * outgoing[..., None, :, None]
    out[reader.weight] = weight.reshape(*lead, *reader.shape)


def _rows(layer: ChainLayer, tensors: Tensors, lead: tuple[int, ...]) -> Tensor:
    """(k_i, b_i) as `*lead outputs entries`."""
    weight = tensors[layer.weight].reshape(*lead, layer.outputs, -1)
    return weight if layer.bias is None else torch.cat([weight, tensors[layer.bias][..., None]], -1)


def _norm(rows: Tensor) -> Tensor:
    """Euclidean norms that neither overflow nor underflow."""
    top = rows.abs().amax(-1, keepdim=True)
    safe = torch.where(top == 0, torch.ones_like(top), top)
    return (safe * torch.linalg.vector_norm(rows / safe, dim=-1, keepdim=True)).squeeze(-1)


def _fix_phase(chain: Chain, i: int, out: dict[str, Tensor], lead: tuple[int, ...]) -> None:
    layer = chain.layers[i]
    bias = out[layer.bias]  # type: ignore[index]
    half = math.pi / abs(layer.omega)
    turns = torch.round(bias / half)
    out[layer.bias] = bias - turns * half  # type: ignore[index]
    sign = 1 - 2 * torch.remainder(turns, 2)
    reader = chain.layers[i + 1]
    weight = split_taps(reader, out[reader.weight], lead) * sign[..., None, :, None]
    out[reader.weight] = weight.reshape(*lead, *reader.shape)


def _take(weight: Tensor, perm: Tensor, axis: int, lead: tuple[int, ...]) -> Tensor:
    """`weight` reordered along `axis`, each network by its own row of `perm`."""
    shape = [1] * weight.dim()
    shape[: len(lead)] = lead
    shape[axis] = perm.shape[-1]
    return weight.gather(axis, perm.view(shape).expand(weight.shape))
