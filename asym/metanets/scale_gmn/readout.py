"""From final states to an answer about each network, or to new weights for it.

outputs   MLP of the states of output units (and of input units, if messages go both ways), concatenated; one
          architecture only. Needs as many rounds as the networks have layers
full      MLP([Σ over hidden units MLP(h̃_i); states of inputs and outputs, concatenated]); one architecture only
mean      MLP([means over hidden layers, inputs and outputs of MLP(state)]): any architecture
weights   W' = W + s_l Γ e_ij and b' = b + s_l Γ h_i with learned s_l that start at 0.01: has the law of W and b
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asym.metanets.scale_gmn.blocks import MLP, Canonical, gamma
from asym.metanets.scale_gmn.dense import Edges, project
from asym.metanets.scale_gmn.encode import key_of
from asym.metanets.stack import Stack
from asym.symmetry.chain import Chain
from asym.symmetry.scaling import Units

READOUTS = ("outputs", "full", "mean")


class Readout(nn.Module):
    """`n out` from final states.

    Args:
        form: "outputs", "full" or "mean".
        chains: those that will be read.
        width: channels d.
        out: numbers a network.
        both: whether messages go both ways.
        canonical: how hidden states are made invariant, or None where all states are.
        norm: whether MLPs have a LayerNorm.
    """

    def __init__(
        self,
        form: str,
        chains: Sequence[Units],
        width: int,
        out: int,
        *,
        both: bool,
        canonical: Canonical | None,
        norm: bool,
    ) -> None:
        super().__init__()
        self.form, self.both, self.canonical = form, both, canonical
        ins, outs = chains[0].sizes[0], chains[0].sizes[-1]
        if form == "outputs" and both:
            self.ends = nn.ModuleList([nn.Linear(outs * width, width), nn.Linear(ins * width, width)])
            self.head = MLP(2, width, out, norm=norm)
        elif form == "outputs":
            self.head = MLP(outs, width, out, norm=norm)
        elif form == "full":
            self.each = MLP(1, width, norm=norm)
            self.head = MLP(1 + ins + outs, width, out, norm=norm)
        else:
            self.each, self.of_inputs, self.of_outputs = (MLP(1, width, norm=norm) for _ in range(3))
            self.head = MLP(3, width, out, norm=norm)

    def read(self, layers: int) -> frozenset[int]:
        """Node layers that are read, of those from 0 to `layers`."""
        if self.form == "outputs":
            return frozenset({0, layers} if self.both else {layers})
        return frozenset(range(layers + 1))

    def forward(
        self, states: Sequence[Tensor], kinds: Sequence[str], alive: Sequence[Tensor | None] | None = None
    ) -> Tensor:
        """(n, out) from states `width n d` of all node layers; `alive` as in `ScaleRound.forward`."""
        alive = alive or [None] * len(states)
        first, last = _side_by_side(states[0]), _side_by_side(states[-1])
        if self.form == "outputs":
            x = torch.cat([self.ends[0](last), self.ends[1](first)], -1) if self.both else last
            return self.head(x)
        hidden = [h if self.canonical is None else self.canonical(h, k) for h, k in zip(states[1:-1], kinds[1:-1])]
        if self.form == "full":
            total = sum(
                (self.each.summed(self.each.after(self.each.first(h)), 0, a) for h, a in zip(hidden, alive[1:-1])),
                torch.zeros_like(states[0][0]),
            )
            return self.head(torch.cat([total, first, last], -1))
        means = [
            self.each(h).mean(0) if a is None else (self.each(h) * a).sum(0) / a.sum(0)
            for h, a in zip(hidden, alive[1:-1])
        ]
        inside = torch.stack(means).mean(0) if means else torch.zeros_like(states[0][0])
        return self.head(
            torch.cat([inside, self.of_inputs(states[0]).mean(0), self.of_outputs(states[-1]).mean(0)], -1)
        )


class WeightOutput(nn.Module):
    """New weights from final states."""

    def __init__(self, chains: Sequence[Chain], width: int) -> None:
        super().__init__()
        layers = {key_of(layer): layer.taps for chain in chains for layer in chain.layers}
        self.kernels = nn.ModuleDict({key: gamma(width, taps) for key, taps in sorted(layers.items())})
        self.bias = gamma(width, 1)
        depth = max(len(chain.layers) for chain in chains)
        self.weight_step = nn.Parameter(torch.full((depth,), 0.01))
        self.bias_step = nn.Parameter(torch.full((depth,), 0.01))

    def forward(self, stack: Stack, states: Sequence[Tensor], edges: Sequence[Edges]) -> dict[str, Tensor]:
        """The stack's tensors plus the steps."""
        new = dict(stack.tensors)
        for i, layer in enumerate(stack.chain.layers):
            kernel = project(edges[i], self.kernels[key_of(layer)].weight).permute(2, 0, 1, 3)  # type: ignore[arg-type]
            step = kernel.reshape(len(stack), *layer.shape)
            new[layer.weight] = new[layer.weight] + self.weight_step[i] * step
            if layer.bias is not None:
                new[layer.bias] = new[layer.bias] + self.bias_step[i] * self.bias(states[i + 1]).squeeze(-1).t()
        return new


def _side_by_side(states: Tensor) -> Tensor:
    """`width n d` → `n width·d`."""
    return states.movedim(0, 1).flatten(1)
