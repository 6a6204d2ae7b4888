"""One round of message passing that keeps the scaling law.

For node layers l with states h (multiplier q_i) and edge layers with states e (multiplier q_i / q_j for j → i):

    message   z_ij = (Γ_e e_ij) ⊙ (Γ_v h_j)                        multiplier q_i
              m_i = Σ_j ScaleEq(z_ij)      or ScaleEq([h_i; z_ij])
    update    h'_i = ScaleEq([h_i; m_i; m_i backward])             input and output units: MLP([…])
    edges     e'_ij = (Γ_E e_ij) ⊙ MLP([h̃_j; h̃_i])                 with the old h
    skip      h'_i += S h_i

In residual networks several layers write to a unit, and their messages are added; what comes through a norm does so as
in `normed.py`; a skip of the input network from unit j to unit i of the same stream, q_i = q_j, is a message
ScaleEq(h_j).

Source: arXiv 2406.10685, sections 5.2 and 5.3, and its released code (whose form is the default where they differ).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.metanets.scale_gmn.backward import EdgeMessages, NormMessages
from asym.metanets.scale_gmn.blocks import MLP, Canonical, Message, ScaleEq, concat, gamma
from asym.metanets.scale_gmn.dense import Edges, Round, project
from asym.metanets.scale_gmn.normed import Normed, PlainNormed
from asym.symmetry.residual import Wires


class EdgeUpdate(nn.Module):
    """(Γ e_ij) ⊙ MLP([h̃_j; h̃_i])."""

    def __init__(self, width: int, *, norm: bool) -> None:
        super().__init__()
        self.gamma = gamma(width, width)
        self.mlp = MLP(2, width, norm=norm, one=True)

    def forward(self, edges: Edges, sources: Tensor, targets: Tensor) -> Tensor:
        """Edges `out in n d` from canonical states `in n d` and `out n d`."""
        source, target = self.mlp.pieces
        pre = F.linear(sources, source)[None] + F.linear(targets, target, self.mlp.first.bias)[:, None]
        return project(edges, self.gamma.weight) * self.mlp.second(self.mlp.after(pre))


class ScaleRound(nn.Module):
    """One round on all layers; see the module's docstring.

    Args:
        width: channels d.
        pairs: kinds of units of two neighbouring node layers, (source, target), that occur.
        backward: None, or a form of backward messages (`backward.py`).
        receiver, skip, edge_updates: whether each is there.
        sign, norm, squash, dropout: as in `ScaleGMN`.
        normed, skips: whether input networks have norms and skips.
    """

    def __init__(
        self,
        width: int,
        pairs: Collection[tuple[str, str]],
        *,
        backward: str | None,
        receiver: bool,
        skip: bool,
        edge_updates: bool,
        sign: str,
        norm: bool,
        squash: bool,
        dropout: float,
        mean: bool,
        normed: bool = False,
        skips: bool = False,
    ) -> None:
        super().__init__()
        kinds = {kind for pair in pairs for kind in pair}
        self.mean = mean
        self.edge, self.source = gamma(width, width), gamma(width, width)
        self.message = Message(receiver, width, kinds, sign=sign, norm=norm)
        self.back: nn.Module | None = None
        if backward == "norm":
            self.back = NormMessages(receiver, width, pairs, sign=sign, norm=norm, squash=squash)
        elif backward is not None:
            self.back = EdgeMessages(receiver, width, kinds, sign=sign, norm=norm)
        self.update = ScaleEq(2 if backward is None else 3, width, kinds, sign=sign, norm=norm)
        self.canonical = Canonical(width, kinds, sign=sign, hidden=width, norm=norm)
        self.edges = EdgeUpdate(width, norm=norm) if edge_updates else None
        apart = edge_updates and backward not in (None, "norm")
        self.back_edges = EdgeUpdate(width, norm=norm) if apart else None
        self.skip = nn.Linear(width, width, bias=False) if skip else None
        if self.skip is not None:
            nn.init.eye_(self.skip.weight)
        self.dropout = dropout
        self.normed = Normed(width, kinds, sign=sign, norm=norm) if normed else None
        self.along = ScaleEq(1, width, kinds, sign=sign, norm=norm) if skips else None
        self.against = ScaleEq(1, width, kinds, sign=sign, norm=norm) if skips and self.back is not None else None

    def forward(
        self,
        states: Sequence[Tensor],
        edges: Sequence[Edges],
        back_edges: Sequence[Edges],
        kinds: Sequence[str],
        todo: Round,
        wires: Wires,
        gains: Sequence[Tensor | None],
        alive: Sequence[Tensor | None],
    ) -> tuple[list[Tensor], list[Edges], list[Edges]]:
        """New states of nodes and edges; those that `todo` leaves out stay as they were.

        Args:
            states: of all node layers.
            edges: of all edge layers.
            back_edges: of all edge layers, or none.
            kinds: of all node layers.
            todo: what to do.
            wires: how the input networks hang together.
            gains: for each edge layer γ `width n` of the norm behind it, or None.
            alive: for each node layer 1 for units and 0 for padding, `width n 1`, or None.
        """
        canonical = [self.canonical(h, kind) for h, kind in zip(states, kinds)]
        new_states, new_edges, new_back = list(states), list(edges), list(back_edges)
        for k in sorted(todo.nodes):
            into = [e for e in wires.into(k) if e in todo.forward]
            found = [self._ahead((k, wires.sources[e - 1]), states, canonical, edges[e - 1], kinds, gains[e - 1], alive)
                     for e in into]  # fmt: skip
            if self.along is not None:
                found += [self.along(states[a], kinds[k]) for a, b in wires.skips if b == k]
            ahead = added(found, states[k])
            behind = None
            if self.back is not None:
                found = []
                for e in wires.out_of(k):
                    if e in todo.backward:
                        ends, joint = (k, wires.targets[e - 1]), gains[e - 1] is not None
                        part = (back_edges or edges)[e - 1]
                        sent = self.back(
                            ends, states, canonical, part, kinds,
                            joint=joint, alive=alive[ends[1]], there=alive[k],
                        )  # fmt: skip
                        found.append(sent / units(states[ends[1]], alive[ends[1]]) if self.mean else sent)
                if self.against is not None:
                    found += [self.against(states[b], kinds[k]) for a, b in wires.skips if a == k]
                behind = added(found, states[k])
            new = self.update(concat(states[k], ahead, behind), kinds[k])
            if self.skip is not None:
                new = new + self.skip(states[k])
            new_states[k] = F.dropout(new, self.dropout, self.training)
        for k in sorted(todo.edges):
            if self.edges is None:
                break
            source, target = canonical[wires.sources[k - 1]], canonical[wires.targets[k - 1]]
            new_edges[k - 1] = self.edges(edges[k - 1], source, target)
            if self.back_edges is not None:
                new_back[k - 1] = self.back_edges(back_edges[k - 1], source, target)
        return new_states, new_edges, new_back

    def _ahead(self, ends: tuple[int, int], states, canonical, edges, kinds, gains, alive) -> Tensor:
        """Messages to the first of two node layers from the second."""
        k, source = ends
        z = project(edges, self.edge.weight) * self.source(states[source])[None]
        if gains is None:
            total = self.message(z, kinds[k], 1, states[k], canonical[k], alive[source])
        else:
            total = self.message(z, "scale", 1, None, None, alive[source])
        total = total / units(states[source], alive[source]) if self.mean else total
        return total if gains is None or self.normed is None else self.normed(total, gains, kinds[k])


class PlainRound(nn.Module):
    """The same round for permutations alone, as in the released code's plain mode.

    m_i = Σ_j MLP([e_ij; h_j]),   h'_i = MLP([h_i; m_i; …]),   e'_ij = MLP([e_ij; h_j; h_i])

    A skip of the input network is a message MLP(h_j).
    """

    def __init__(
        self,
        width: int,
        *,
        both: bool,
        skip: bool,
        edge_updates: bool,
        norm: bool,
        dropout: float,
        mean: bool,
        normed: bool = False,
        skips: bool = False,
    ):
        super().__init__()
        self.mean = mean
        self.message = MLP(2, width, norm=norm)
        self.back = MLP(2, width, norm=norm) if both else None
        self.update = MLP(3 if both else 2, width, norm=norm)
        self.edges = MLP(3, width, norm=norm) if edge_updates else None
        self.skip = nn.Linear(width, width, bias=False) if skip else None
        if self.skip is not None:
            nn.init.eye_(self.skip.weight)
        self.dropout = dropout
        self.normed = PlainNormed(width, norm=norm) if normed else None
        self.along = MLP(1, width, norm=norm) if skips else None
        self.against = MLP(1, width, norm=norm) if skips and both else None

    def forward(
        self,
        states: Sequence[Tensor],
        edges: Sequence[Edges],
        back_edges: Sequence[Edges],
        kinds: Sequence[str],
        todo: Round,
        wires: Wires,
        gains: Sequence[Tensor | None],
        alive: Sequence[Tensor | None],
    ) -> tuple[list[Tensor], list[Edges], list[Edges]]:
        """As `ScaleRound.forward`; kinds make no difference."""
        new_states, new_edges = list(states), list(edges)
        for k in sorted(todo.nodes):
            found, behind = [], None
            for e in wires.into(k):
                if e in todo.forward:
                    source = wires.sources[e - 1]
                    sent = self._sum(self.message, edges[e - 1], states[source], 1, alive[source])
                    gain = gains[e - 1]
                    found.append(sent if gain is None or self.normed is None else self.normed(sent, gain))
            if self.along is not None:
                found += [self.along(states[a]) for a, b in wires.skips if b == k]
            ahead = added(found, states[k])
            if self.back is not None:
                found = [
                    self._sum(self.back, edges[e - 1], states[wires.targets[e - 1]], 0, alive[wires.targets[e - 1]])
                    for e in wires.out_of(k)
                    if e in todo.backward
                ]
                if self.against is not None:
                    found += [self.against(states[b]) for a, b in wires.skips if a == k]
                behind = added(found, states[k])
            new = self.update(concat(states[k], ahead, behind))
            if self.skip is not None:
                new = new + self.skip(states[k])
            new_states[k] = F.dropout(new, self.dropout, self.training)
        for k in sorted(todo.edges):
            if self.edges is None:
                break
            edge, source, target = self.edges.pieces
            near, far = states[wires.targets[k - 1]], states[wires.sources[k - 1]]
            pre = project(edges[k - 1], edge).add_(F.linear(far, source)[None])
            pre = pre.add_(F.linear(near, target, self.edges.first.bias)[:, None])
            new_edges[k - 1] = self.edges.second(self.edges.after(pre))
        return new_states, new_edges, []

    def _sum(self, mlp: MLP, edges: Edges, senders: Tensor, axis: int, alive: Tensor | None) -> Tensor:
        edge, state = mlp.pieces
        pre = project(edges, edge).add_(F.linear(senders, state, mlp.first.bias).unsqueeze(1 - axis))
        total = mlp.summed(mlp.after(pre), axis, None if alive is None else alive.unsqueeze(1 - axis))
        return total / units(senders, alive) if self.mean else total


def added(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """The sum of messages, zeros if there are none."""
    return sum(parts[1:], parts[0]) if parts else torch.zeros_like(like)


def units(states: Tensor, alive: Tensor | None) -> Tensor | int:
    """How many units a node layer has, for each network `n 1` if some are padding."""
    return len(states) if alive is None else alive.sum(0)
