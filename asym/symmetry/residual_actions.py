"""Permutations and factors acting on residual networks, and how to draw or remove them; see `residual.py` for the law.

One permutation and one factor a channel for each hidden stream, in the order of `Residual.streams`. All functions are
pure and act on dicts of tensors `*lead *shape`. `fix_streams` takes q_i = 1 / ‖r_i‖ with r_i all that the first node
layer of a stream receives in channel i: rows of plain writes, γ of normed ones, and the sum of biases and shifts.
Layers are taken in order, so that what a row reads is in its gauge already. A channel with r_i = 0 keeps its factor:
later layers of its stream may still write to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from asym.symmetry.chain import check_tensors
from asym.symmetry.residual import Residual

Tensors = Mapping[str, Tensor]


def places(network: Residual, stream: int) -> Iterator[tuple[str, int, int, int]]:
    """Where a stream acts: (tensor, axis 0 or 1, power of the factor, positions that one channel has there).

    Raises:
        ValueError: if there is BatchNorm, which is to be folded first.
    """
    if not network.folded:
        raise ValueError("network: has BatchNorm, which is part of the layer before it; use fold_batch_norms first")
    for k, node in enumerate(network.nodes):
        for write in node.writes:
            layer = write.layer
            if node.stream == stream:
                yield layer.weight, 0, 0 if write.norm == "group" else 1, 1
                for name in (write.gain, write.shift) if write.norm == "group" else (layer.bias,):
                    if name:
                        yield name, 0, 1, 1
            if network.nodes[write.source].stream == stream and k:
                yield layer.weight, 1, -1, layer.positions


def scale_streams(network: Residual, factors: Sequence[Tensor], tensors: Tensors) -> dict[str, Tensor]:
    """Multiply the channels of hidden streams by `factors`, and divide what reads them.

    Args:
        network: with norms of all channels at once, or none.
        factors: for each hidden stream `*lead channels`: positive for "scale", ±1 for "sign", 1 for "none".
        tensors: name to tensor `*lead *shape`.

    Raises:
        ValueError: if a factor is not allowed, or a shape does not fit.
    """
    lead = _checked(network, "factors", factors, tensors)
    for q, (stream, _) in zip(factors, network.streams.items()):
        kind = network.nodes[stream].symmetry
        allowed = {"scale": (q > 0) & torch.isfinite(q), "sign": q.abs() == 1}.get(kind, q == 1)
        if not allowed.all():
            raise ValueError(f"factors: not all factors of stream {stream} are allowed by its symmetry {kind!r}")
    out = dict(tensors)
    for q, stream in zip(factors, network.streams):
        _scale(network, stream, out, q, lead)
    return out


def permute_streams(network: Residual, perms: Sequence[Tensor], tensors: Tensors) -> dict[str, Tensor]:
    """Reorder the channels of hidden streams, each network by its own permutations `*lead channels`.

    Raises:
        ValueError: if an entry is no permutation, or a shape does not fit.
    """
    lead = _checked(network, "perms", perms, tensors)
    out = dict(tensors)
    for perm, (stream, size) in zip(perms, network.streams.items()):
        if not torch.equal(perm.sort(-1).values, torch.arange(size, device=perm.device).expand(perm.shape)):
            raise ValueError(f"perms: stream {stream} has an entry that is not a permutation")
        for name, axis, _, positions in places(network, stream):
            shape = out[name].shape
            x = _split(out[name], lead, axis, size, positions)
            index = perm.reshape(*lead, *[1] * axis, size, *[1] * (x.dim() - len(lead) - axis - 1))
            out[name] = x.gather(len(lead) + axis, index.expand(x.shape)).reshape(shape)
    return out


def scale_before_norms(network: Residual, factors: Mapping[str, Tensor], tensors: Tensors) -> dict[str, Tensor]:
    """Multiply whole weights before norms by positive numbers `*lead`, weight name → factors; exact at ε = 0 alone.

    Raises:
        ValueError: if a weight has no norm of all channels behind it.
    """
    lead = check_tensors(network, tensors)
    normed = {write.layer.weight for _, write in network.writes if write.norm == "group"}
    out = dict(tensors)
    for name, c in factors.items():
        if name not in normed:
            raise ValueError(f"factors: {name!r} has no norm behind it; those that have: {', '.join(sorted(normed))}")
        out[name] = out[name] * c.reshape(*lead, *[1] * (out[name].dim() - len(lead)))
    return out


def random_stream_factors(
    network: Residual, lead: tuple[int, ...], generator: torch.Generator, *, ratio: float, like: Tensor | None = None
) -> list[Tensor]:
    """Factors that each stream's symmetry allows: log-uniform in [1/ratio, ratio], fair signs, or ones."""
    found = []
    for stream, size in network.streams.items():
        u = torch.rand(*lead, size, generator=generator, dtype=torch.float64)
        kind = network.nodes[stream].symmetry
        q = {"scale": ratio ** (2 * u - 1), "sign": torch.where(u < 0.5, -1.0, 1.0)}.get(kind, torch.ones_like(u))
        found.append(q.to(like) if like is not None else q)
    return found


def random_stream_orders(network: Residual, lead: tuple[int, ...], generator: torch.Generator) -> list[Tensor]:
    """A uniformly random permutation of each hidden stream of each network."""
    return [
        torch.rand(*lead, size, generator=generator, dtype=torch.float64).argsort(-1)
        for size in network.streams.values()
    ]


def fix_streams(network: Residual, tensors: Tensors) -> dict[str, Tensor]:
    """The same networks with factors of hidden streams removed, each where its activations allow it.

    Raises:
        ValueError: if a shape does not fit.
    """
    lead = check_tensors(network, tensors)
    out = dict(tensors)
    for stream, size in network.streams.items():
        node = network.nodes[stream]
        if node.symmetry == "none":
            continue
        shifts, rows = [], []
        for write in node.writes:
            shift = write.shift if write.norm == "group" else write.layer.bias
            shifts += [out[shift]] if shift else []
            rows.append(out[write.gain or write.layer.weight].reshape(*lead, size, -1))
        received = torch.cat([*rows, *([torch.stack(shifts).sum(0)[..., None]] if shifts else [])], -1)
        if node.symmetry == "scale":
            top = received.abs().amax(-1, keepdim=True)
            safe = torch.where(top == 0, 1.0, top)
            norm = (safe * torch.linalg.vector_norm(received / safe, dim=-1, keepdim=True)).squeeze(-1)
            _scale(network, stream, out, torch.where(norm == 0, 1.0, norm), lead, divide=True)
        else:
            most = received.gather(-1, received.abs().argmax(-1, keepdim=True)).squeeze(-1)
            _scale(network, stream, out, torch.where(most < 0, -1.0, 1.0).to(most), lead)
    return out


def _scale(
    network: Residual, stream: int, out: dict[str, Tensor], q: Tensor, lead: tuple, *, divide: bool = False
) -> None:
    """Act with q (or, dividing, with 1 / q, which need not be finite) in the dict."""
    for name, axis, power, positions in places(network, stream):
        if power:
            shape = out[name].shape
            x = _split(out[name], lead, axis, q.shape[-1], positions)
            factor = q.reshape(*lead, *[1] * axis, -1, *[1] * (x.dim() - len(lead) - axis - 1))
            out[name] = (x / factor if (power < 0) != divide else x * factor).reshape(shape)


def _split(x: Tensor, lead: tuple, axis: int, size: int, positions: int) -> Tensor:
    """A tensor with the positions that a channel has along an axis as an axis of their own."""
    return x.unflatten(len(lead) + axis, (size, positions)) if positions > 1 else x


def _checked(network: Residual, argument: str, given: Sequence[Tensor], tensors: Tensors) -> tuple[int, ...]:
    lead = check_tensors(network, tensors)
    streams = network.streams
    if len(given) != len(streams):
        raise ValueError(f"{argument}: {len(given)} for {len(streams)} hidden streams")
    for entry, (stream, size) in zip(given, streams.items()):
        if tuple(entry.shape) != (*lead, size):
            raise ValueError(f"{argument}: stream {stream} has shape {tuple(entry.shape)}, expected {(*lead, size)}")
    return lead


__all__ = [
    "fix_streams", "permute_streams", "places", "random_stream_factors", "random_stream_orders", "scale_before_norms",
    "scale_streams",
]  # fmt: skip
