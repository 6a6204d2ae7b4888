"""Messages against the direction of the network, from the units of layer l to those of layer l − 1 that they read.

A forward edge from j (layer l − 1) to i (layer l) scales as q_i / q_j. A backward message from i to j has to scale as
q_j, and so cannot be made of the edge and of h_i as a forward message is, unless q = ±1. Four forms:

    norm         with n = ‖h‖ (1 where q is not positive-scaling), the edge ê_ij = e_ij n_j / n_i is invariant:
                     m_j = n_j Σ_i MLP([h̃_j; h̃_i; C ê_ij])
                 exact, and nothing is divided by a weight. A dead unit j gets 0 (n_j = 0); from a dead one ê = 0 comes.
                 Where either end has q = ±1 the product (Γ_e ê) ⊙ (Γ_v h_i / n_i) scales with the sign of q_j, and the
                 message is n_j times a ScaleEq (for signs) or an MLP (else) of it. Edges before a norm scale as c / q_j
                 (`normed.py`): ê_ij is then e_ij n_j over the joint norm of these, and i's state goes in its canonical
                 form throughout.
    reciprocal   a second set of edges that starts at 1 / w entry by entry, 1 / 0 := 0 (the paper, appendix A.2), scales
                 as q_j / q_i and is used like a forward edge. Exact, but 1 / w has no bound.
    pinv         the same with k / ‖k‖² of a whole kernel: singular only for a kernel that is zero throughout.
    shipped      the same starting at w: what the released code does, whatever its configuration says. NOT equivariant
                 for positive scaling (it is for signs); kept as a control.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.metanets.scale_gmn.blocks import MLP, Message, gamma
from asym.metanets.scale_gmn.dense import Edges, inverse_or_zero, project, unit
from asym.metanets.scale_gmn.normed import relative

BACKWARD = ("norm", "reciprocal", "pinv", "shipped")


class EdgeMessages(nn.Module):
    """Σ_i ScaleEq((Γ_e e_ij) ⊙ (Γ_v h_i)) with backward edges e that scale as q_j / q_i."""

    def __init__(self, receiver: bool, width: int, kinds: Collection[str], *, sign: str, norm: bool) -> None:
        super().__init__()
        self.edge, self.sender = gamma(width, width), gamma(width, width)
        self.message = Message(receiver, width, kinds, sign=sign, norm=norm)

    def forward(
        self,
        ends: tuple[int, int],
        states: Sequence[Tensor],
        canonical: Sequence[Tensor],
        edges: Edges,
        kinds: Sequence[str],
        *,
        joint: bool = False,
        alive: Tensor | None = None,
    ) -> Tensor:
        """Messages to the units of the first of two node layers from the second, which reads it: `width n d`.

        Raises:
            ValueError: for edges before a norm (`joint`), whose backward form is not known here.
        """
        near, far = ends
        if joint:
            raise ValueError("backward: only 'norm' sends messages backwards through a norm")
        z = project(edges, self.edge.weight) * self.sender(states[far])[:, None]
        return self.message(z, kinds[near], 0, states[near], canonical[near], alive)


class NormMessages(nn.Module):
    """n_j Σ_i MLP([h̃_j; h̃_i; C ê_ij]), and the form for signs, each made if some pair of layers needs it."""

    def __init__(
        self,
        receiver: bool,
        width: int,
        pairs: Collection[tuple[str, str]],
        *,
        sign: str,
        norm: bool,
        squash: bool,
    ) -> None:
        super().__init__()
        self.squash = squash
        signed = [("sign" in pair) for pair in pairs]
        self.mlp = None if all(signed) else MLP(3, width, norm=norm)
        self.signed = EdgeMessages(receiver, width, {"sign"}, sign=sign, norm=norm) if any(signed) else None

    def forward(
        self,
        ends: tuple[int, int],
        states: Sequence[Tensor],
        canonical: Sequence[Tensor],
        edges: Edges,
        kinds: Sequence[str],
        *,
        joint: bool = False,
        alive: Tensor | None = None,
    ) -> Tensor:
        """As `EdgeMessages.forward`, with the network's forward edges; `joint` for edges before a norm."""
        near, far = ends
        pair = (kinds[near], "none" if joint else kinds[far])
        own = unit(states[near])[1] if pair[0] == "scale" else None
        other = unit(states[far])[1] if pair[1] == "scale" else None
        ratio = _ratio(own, other)
        if self.mlp is None or "sign" in pair:
            return self._signed(ends, states, canonical, edges, kinds, own, ratio, joint, alive)
        mine, theirs, edge = self.mlp.pieces
        lifted = project(edges, edge)
        if ratio is not None:
            lifted = lifted * ratio
        if joint:
            lifted = relative(lifted)
        if self.squash:
            lifted = torch.asinh(lifted)
        sender = F.linear(canonical[far], theirs, self.mlp.first.bias)
        pre = lifted + sender[:, None] + F.linear(canonical[near], mine)[None]
        total = self.mlp.summed(self.mlp.after(pre), 0, None if alive is None else alive[:, None])
        return total if own is None else total * own

    def _signed(self, ends, states, canonical, edges, kinds, own, ratio, joint, alive) -> Tensor:
        if self.signed is None:
            raise ValueError(f"kinds: {kinds} was not among those that this network was made for")
        near, far = ends
        z = project(edges, self.signed.edge.weight)
        z = z if ratio is None else z * ratio
        z = relative(z) if joint else z
        sender = canonical[far] if joint else unit(states[far])[0] if kinds[far] == "scale" else states[far]
        z = z * self.signed.sender(sender)[:, None]
        kind = "none" if kinds[near] == "scale" else kinds[near]
        state = canonical[near] if own is not None else states[near]
        total = self.signed.message(z, kind, 0, state, canonical[near], alive)
        return total if own is None else total * own


def _ratio(own: Tensor | None, other: Tensor | None) -> Tensor | None:
    """n_j / n_i for every edge, `out in n 1`; 0 where n_i is 0."""
    if other is not None:
        other = inverse_or_zero(other)[:, None]
    if own is None:
        return other
    return own[None] if other is None else own[None] * other


def start_of(features: Tensor, form: str) -> Tensor:
    """The features `out in n taps` of backward edges of a form that keeps such edges."""
    if form == "shipped":
        return features
    if form == "reciprocal":
        return features.sign() * inverse_or_zero(features.abs())
    direction, norm = unit(features)
    return direction * inverse_or_zero(norm)
