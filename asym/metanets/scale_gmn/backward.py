"""Messages against the direction of the network, from the units of layer l to those of layer l − 1 that they read.

A forward edge from j (layer l − 1) to i (layer l) scales as q_i / q_j. A backward message from i to j has to scale as
q_j, and so cannot be made of the edge and of h_i as a forward message is, unless q = ±1. Four forms:

    norm         with n = ‖h‖ (1 where q is not positive-scaling), z_ij = (C e_ij) n_j scales as q_i alone, and so does
                 its root mean square s_i over the units j that i reads: ẑ_ij = z_ij / s_i is invariant,
                     m_j = n_j Σ_i MLP([h̃_j; h̃_i; ẑ_ij])
                 exact, and bounded: ‖ẑ_ij‖ ≤ √units, whatever the weights. (z_ij / n_i is invariant too, but without
                 bound where a unit's own state is small beside what it reads, as with a bias near 0.) A dead unit j
                 gets 0 (n_j = 0); from one whose z are all 0 comes ẑ = 0. Where q_i is not positive-scaling ẑ = z.
                 Where either end has q = ±1 the product (Γ_e ẑ) ⊙ (Γ_v h̃_i) scales with the sign of q_j, and the
                 message is n_j times a ScaleEq (for signs) or an MLP (else) of it. Edges before a norm scale as c / q_j
                 (`normed.py`): s is then that of all units i together, and i's state goes in its canonical form
                 throughout.
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
from asym.metanets.scale_gmn.dense import Edges, inverse_or_zero, project, unit, unit_over_sources
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
        there: Tensor | None = None,
    ) -> Tensor:
        """Messages to the units of the first of two node layers from the second, which reads it: `width n d`.

        `alive` and `there` are 1 for units of the second and the first, `width n 1`, and 0 for padding.

        Raises:
            ValueError: for edges before a norm (`joint`), whose backward form is not known here.
        """
        near, far = ends
        if joint:
            raise ValueError("backward: only 'norm' sends messages backwards through a norm")
        z = project(edges, self.edge.weight) * self.sender(states[far])[:, None]
        return self.message(z, kinds[near], 0, states[near], canonical[near], alive)


class NormMessages(nn.Module):
    """n_j Σ_i MLP([h̃_j; h̃_i; ẑ_ij]), and the form for signs, each made if some pair of layers needs it."""

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
        there: Tensor | None = None,
    ) -> Tensor:
        """As `EdgeMessages.forward`, with the network's forward edges; `joint` for edges before a norm."""
        near, far = ends
        pair = (kinds[near], "none" if joint else kinds[far])
        own = unit(states[near])[1] if pair[0] == "scale" else None
        if self.mlp is None or "sign" in pair:
            return self._signed(ends, states, canonical, edges, kinds, own, pair[1], joint, alive, there)
        mine, theirs, edge = self.mlp.pieces
        lifted = _invariant(project(edges, edge), own, pair[1], joint, there)
        if self.squash:
            lifted = torch.asinh(lifted)
        sender = F.linear(canonical[far], theirs, self.mlp.first.bias)
        pre = lifted + sender[:, None] + F.linear(canonical[near], mine)[None]
        total = self.mlp.summed(self.mlp.after(pre), 0, None if alive is None else alive[:, None])
        return total if own is None else total * own

    def _signed(self, ends, states, canonical, edges, kinds, own, kind, joint, alive, there) -> Tensor:
        if self.signed is None:
            raise ValueError(f"kinds: {kinds} was not among those that this network was made for")
        near, far = ends
        z = _invariant(project(edges, self.signed.edge.weight), own, kind, joint, there)
        sender = canonical[far] if joint else unit(states[far])[0] if kinds[far] == "scale" else states[far]
        z = z * self.signed.sender(sender)[:, None]
        near_kind = "none" if kinds[near] == "scale" else kinds[near]
        state = canonical[near] if own is not None else states[near]
        total = self.signed.message(z, near_kind, 0, state, canonical[near], alive)
        return total if own is None else total * own


def _invariant(lifted: Tensor, own: Tensor | None, far: str, joint: bool, there: Tensor | None) -> Tensor:
    """ẑ from C e, `out in n d`: times n_j `in n 1` if j's q is positive, over s_i if i's is, over s before a norm."""
    z = lifted if own is None else lifted * own[None]
    if joint:
        return relative(z)
    return relative_to_reader(z, there) if far == "scale" else z


def relative_to_reader(z: Tensor, there: Tensor | None = None) -> Tensor:
    """z `out in n d` over the root mean square of its norms over `in`, for each `out` and network; 0 where all are 0.

    Args:
        z: edges.
        there: 1 for sources that are there and 0 for padding, `in n 1`; None if all are.
    """
    if there is None:
        return unit_over_sources(z, z.new_tensor(float(z.shape[1])))
    return unit_over_sources(z * there, there.sum(0))


def start_of(features: Tensor, form: str) -> Tensor:
    """The features `out in n taps` of backward edges of a form that keeps such edges."""
    if form == "shipped":
        return features
    if form == "reciprocal":
        return features.sign() * inverse_or_zero(features.abs())
    direction, norm = unit(features)
    return direction * inverse_or_zero(norm)
