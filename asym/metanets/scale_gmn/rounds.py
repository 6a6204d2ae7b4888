"""One round of message passing that keeps the scaling law.

For node layers l with states h (multiplier q_i) and edge layers with states e (multiplier q_i / q_j for j → i):

    message   z_ij = (Γ_e e_ij) ⊙ (Γ_v h_j)                        multiplier q_i
              m_i = Σ_j ScaleEq(z_ij)      or ScaleEq([h_i; z_ij])
    update    h'_i = ScaleEq([h_i; m_i; m_i backward])             input and output units: MLP([…])
    edges     e'_ij = (Γ_E e_ij) ⊙ MLP([h̃_j; h̃_i])                 with the old h
    skip      h'_i += S h_i

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

    def forward(
        self,
        states: Sequence[Tensor],
        edges: Sequence[Edges],
        back_edges: Sequence[Edges],
        kinds: Sequence[str],
        todo: Round,
    ) -> tuple[list[Tensor], list[Edges], list[Edges]]:
        """New states of L + 1 node layers and L edge layers; those that `todo` leaves out stay as they were."""
        canonical = [self.canonical(h, kind) for h, kind in zip(states, kinds)]
        new_states, new_edges, new_back = list(states), list(edges), list(back_edges)
        for k in sorted(todo.nodes):
            ahead = (
                self._ahead(k, states, canonical, edges, kinds) if k in todo.forward else torch.zeros_like(states[k])
            )
            behind = None
            if self.back is not None:
                behind = torch.zeros_like(states[k])
                if k + 1 in todo.backward:
                    wires = back_edges[k] if back_edges else edges[k]
                    behind = self.back(k + 1, states, canonical, wires, kinds)
                    behind = behind / len(states[k + 1]) if self.mean else behind
            new = self.update(concat(states[k], ahead, behind), kinds[k])
            if self.skip is not None:
                new = new + self.skip(states[k])
            new_states[k] = F.dropout(new, self.dropout, self.training)
        for k in sorted(todo.edges):
            if self.edges is None:
                break
            new_edges[k - 1] = self.edges(edges[k - 1], canonical[k - 1], canonical[k])
            if self.back_edges is not None:
                new_back[k - 1] = self.back_edges(back_edges[k - 1], canonical[k - 1], canonical[k])
        return new_states, new_edges, new_back

    def _ahead(self, k: int, states, canonical, edges, kinds) -> Tensor:
        z = project(edges[k - 1], self.edge.weight) * self.source(states[k - 1])[None]
        total = self.message(z, kinds[k], 1, states[k], canonical[k])
        return total / len(states[k - 1]) if self.mean else total


class PlainRound(nn.Module):
    """The same round for permutations alone, as in the released code's plain mode.

    m_i = Σ_j MLP([e_ij; h_j]),   h'_i = MLP([h_i; m_i; …]),   e'_ij = MLP([e_ij; h_j; h_i])
    """

    def __init__(
        self, width: int, *, both: bool, skip: bool, edge_updates: bool, norm: bool, dropout: float, mean: bool
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

    def forward(
        self,
        states: Sequence[Tensor],
        edges: Sequence[Edges],
        back_edges: Sequence[Edges],
        kinds: Sequence[str],
        todo: Round,
    ) -> tuple[list[Tensor], list[Edges], list[Edges]]:
        """As `ScaleRound.forward`; kinds make no difference."""
        new_states, new_edges = list(states), list(edges)
        for k in sorted(todo.nodes):
            ahead, behind = torch.zeros_like(states[k]), None
            if k in todo.forward:
                ahead = self._sum(self.message, edges[k - 1], states[k - 1], 1)
            if self.back is not None:
                behind = torch.zeros_like(states[k])
                if k + 1 in todo.backward:
                    behind = self._sum(self.back, edges[k], states[k + 1], 0)
            new = self.update(concat(states[k], ahead, behind))
            if self.skip is not None:
                new = new + self.skip(states[k])
            new_states[k] = F.dropout(new, self.dropout, self.training)
        for k in sorted(todo.edges):
            if self.edges is None:
                break
            edge, source, target = self.edges.pieces
            pre = project(edges[k - 1], edge).add_(F.linear(states[k - 1], source)[None])
            pre = pre.add_(F.linear(states[k], target, self.edges.first.bias)[:, None])
            new_edges[k - 1] = self.edges.second(self.edges.after(pre))
        return new_states, new_edges, []

    def _sum(self, mlp: MLP, edges: Edges, senders: Tensor, axis: int) -> Tensor:
        edge, state = mlp.pieces
        pre = project(edges, edge).add_(F.linear(senders, state, mlp.first.bias).unsqueeze(1 - axis))
        total = mlp.summed(mlp.after(pre), axis)
        return total / len(senders) if self.mean else total
