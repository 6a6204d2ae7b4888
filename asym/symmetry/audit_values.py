"""What the audit knows of a tensor while it walks through a network: a change δx = A x + c and how it is laid out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from asym.symmetry.audit_system import Form, System


class Unsupported(ValueError):
    """A layout that a rule does not cover; the walk then lets nothing change there."""


@dataclass
class Moved:
    """An activation that may change by δx[p, i] = Σ_j A[i, j] x[p, j] + c[i] at channel i of every position p.

    Attributes:
        channel: channel of every entry, of the activation's shape.
        position: position (example, token, pixel) of every entry, likewise.
        a: A, a form of shape `[d, d]`.
        c: c, a form of shape `[d]`.
    """

    channel: Tensor
    position: Tensor
    a: Form
    c: Form

    def with_layout(self, channel: Tensor, position: Tensor) -> Moved:
        """The same change of a rearranged tensor."""
        return Moved(channel, position, self.a, self.c)

    @property
    def width(self) -> int:
        """Number of channels d."""
        return self.c.shape[0]


@dataclass
class Weights:
    """A tensor made of parameters and constants alone.

    Attributes:
        value: its value, float64 where it is floating point.
        source: for every entry the flat number of the trainable parameter that it is, or -1 for a constant.
    """

    value: Tensor
    source: Tensor


@dataclass
class Still:
    """An activation that depends on the input and does not change."""


class Shares(Still):
    """Weights of an attention: they do not change, and those of a query sum to one."""


@dataclass
class Scores:
    """Products of queries and keys that change by what is the same for all keys, q · c; soft-max ignores it."""

    shifts: list[Form]


Known = Moved | Weights | Still | Scores


def fresh_layout(shape: tuple[int, ...], dim: int) -> tuple[Tensor, Tensor]:
    """Channel and position of every entry of a tensor whose channels lie along `dim`."""
    dim %= len(shape)
    view = [1] * len(shape)
    view[dim] = shape[dim]
    channel = torch.arange(shape[dim]).reshape(view).expand(shape)
    rest = [1 if d == dim else size for d, size in enumerate(shape)]
    position = torch.arange(torch.Size(rest).numel()).reshape(rest).expand(shape)
    return channel, position


def along(system: System, value: Moved, channel: Tensor, position: Tensor) -> tuple[Form, Form]:
    """A and c for rows of entries that an operation mixes, equal in all rows.

    Args:
        system: gets the equations that no entry outside of a row matters.
        value: the activation.
        channel: `[rows, m]`, channels of the entries of each row.
        position: `[rows, m]`, their positions.

    Returns:
        Forms of shape `[m, m]` and `[m]`.

    Raises:
        Unsupported: if rows differ in how channels and positions lie.
    """
    ch = channel[0]
    relative = position - position[:, :1]
    if not bool((channel == ch).all()) or not bool((relative == relative[0]).all()):
        raise Unsupported("rows of an operation differ in their channels")
    at = relative[0]
    same = at[:, None] == at[None, :]
    if int(torch.stack([ch, at], 1).unique(dim=0).shape[0]) != len(ch):
        raise Unsupported("an entry occurs twice in a row")
    for place in at.unique().tolist():
        members = ch[at == place]
        absent = torch.ones(value.width, dtype=torch.bool)
        absent[members] = False
        if absent.any():
            system.require_zero(value.a.map(lambda t, m=members, out=absent: t[:, m][:, :, out]))
    a = value.a.map(lambda t: t[:, ch][:, :, ch] * same)
    return a, value.c.map(lambda t: t[:, ch])
