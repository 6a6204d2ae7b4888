"""ScaleGMN the plain way: one large graph of all networks of a batch, messages by gather and scatter.

As graph libraries do it, and as the published code does: every edge of every network is a row, a source's state is
gathered for each of its edges, messages are added into their targets by index; the functions of input and output units
are worked out for all rows and masked; nothing is left out that the output does not need. It takes the parameters of a
`ScaleGMN` and gives its outputs (float64: to rounding), with one architecture of ReLU networks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.metanets.scale_gmn import ScaleGMN
from asym.metanets.scale_gmn.blocks import MLP, Message, ScaleEq
from asym.metanets.stack import Stack


def canonical(x: Tensor) -> Tensor:
    """x / ‖x‖, 0 where x is 0."""
    norm = x.norm(dim=-1, keepdim=True)
    return torch.where(norm > 0, x / torch.where(norm > 0, norm, 1.0), 0.0)


def equivariant(block: ScaleEq | Message, x: Tensor, inner: Tensor) -> Tensor:
    """Both functions on every row, masked: `inner` is 1 for hidden units, 0 for inputs and outputs."""
    scaled = F.linear(x, block.gamma.weight) * block.mlp(canonical(x))
    return scaled * inner + block.free(x) * (1 - inner)


class PlainScaleGMN(nn.Module):
    """The plain form of a `ScaleGMN` for ReLU networks; it owns no parameters but those of the given one."""

    def __init__(self, model: ScaleGMN) -> None:
        super().__init__()
        self.model = model

    def graph(self, stack: Stack) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sources, targets and features of all edges, and which nodes are hidden, a network after the other."""
        sizes, n = stack.chain.sizes, len(stack)
        starts = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        sources, targets, features = [], [], []
        for i, (layer, feature) in enumerate(zip(stack.chain.layers, self.model.encoder.features(stack))):
            out, into = torch.meshgrid(torch.arange(layer.outputs), torch.arange(layer.inputs), indexing="ij")
            sources.append(into.flatten() + starts[i])
            targets.append(out.flatten() + starts[i + 1])
            raw = self.model.encoder.raw(layer, feature)
            features.append(F.linear(raw.features.permute(2, 0, 1, 3).flatten(1, 2), raw.lift))
        offset = (torch.arange(n) * starts[-1])[:, None]
        hidden = torch.zeros(starts[-1], dtype=features[0].dtype)
        hidden[sizes[0] : starts[-2]] = 1
        edges = torch.cat(features, 1).flatten(0, 1)
        return (
            (torch.cat(sources) + offset).flatten(),
            (torch.cat(targets) + offset).flatten(),
            edges,
            hidden.repeat(n)[:, None],
        )

    def forward(self, stack: Stack) -> Tensor:
        """`n out`."""
        model, n = self.model, len(stack)
        nodes = torch.cat([h.movedim(0, 1) for h in model.encoder.nodes(stack)], 1)
        count, h = nodes.shape[1], nodes.flatten(0, 1)
        source, target, e, hidden = self.graph(stack)
        back = e
        for step in model.rounds:
            h, e, back = self.round(step, h, e, back, source, target, hidden)
        states = h.view(n, count, -1).movedim(1, 0)
        sizes = stack.chain.sizes
        per_layer = list(states.split(list(sizes)))
        if model.readout is None:
            raise ValueError("model: has no readout")
        return model.readout(per_layer, model.kinds(stack.chain))

    def round(self, step, h, e, back, source, target, hidden):
        """One round."""
        z = step.edge(e) * step.source(h)[source]
        messages = equivariant(step.message, z, hidden[target])
        parts = [h, torch.zeros_like(h).index_add(0, target, messages)]
        if step.back is not None and self.model.form == "norm":
            parts.append(self.norm_messages(step.back.mlp, h, e, source, target, hidden))
        elif step.back is not None:
            z = step.back.edge(back) * step.back.sender(h)[target]
            messages = equivariant(step.back.message, z, hidden[source])
            parts.append(torch.zeros_like(h).index_add(0, source, messages))
        new = equivariant(step.update, torch.cat(parts, -1), hidden)
        if step.skip is not None:
            new = new + step.skip(h)
        if step.edges is not None:
            tilde = canonical(h)
            pair = torch.cat([tilde[source], tilde[target]], -1)
            e = step.edges.gamma(e) * step.edges.mlp(pair)
            if step.back_edges is not None:
                back = step.back_edges.gamma(back) * step.back_edges.mlp(pair)
        return new, e, back

    def norm_messages(self, mlp: MLP, h, e, source, target, hidden) -> Tensor:
        """n_j Σ_i MLP([h̃_j; h̃_i; ẑ_ij]), ẑ_ij being C e_ij n_j over its root mean square over j."""
        norm = torch.where(hidden > 0, h.norm(dim=-1, keepdim=True), 1.0)
        tilde = canonical(h)
        mine, theirs, edge = mlp.pieces
        z = F.linear(e, edge) * norm[source]
        degree = torch.zeros_like(norm).index_add(0, target, torch.ones_like(z[:, :1]))
        mean = torch.zeros_like(norm).index_add(0, target, z.square().sum(-1, keepdim=True)) / degree.clamp(min=1)
        inverse = torch.where(mean > 0, torch.where(mean > 0, mean, 1.0).rsqrt(), 0.0)
        z = z * torch.where(hidden > 0, inverse, 1.0)[target]
        pre = z + F.linear(tilde[source], mine) + F.linear(tilde[target], theirs, mlp.first.bias)
        messages = norm[source] * mlp.second(mlp.after(pre))
        return torch.zeros_like(h).index_add(0, source, messages)
