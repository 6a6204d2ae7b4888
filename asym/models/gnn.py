"""Graph networks by averaging over neighbours: full batch, every node's answer from its neighbourhood.

    h₀ = X,    h_l = act(norm(W_l (A h_{l−1} + h_{l−1}) + b_l)),  l = 1 … 3,    logits = W h₃ + b

with A the mean over neighbours (`asym.data.GraphInput`), 256 hidden units, BatchNorm over all nodes, GELU, no dropout:
176,424 parameters at 128 features and 40 classes, 171,576 trainable ones as W. The network knows no graph: features
and A come with each call. Source of sizes and tables: Lim et al. 2024 (arXiv 2405.20231), appendix.

`gnn-linear` has the identity for its activation. It is the control for the published gate: F there has a standard
deviation of .01/√d, on features that BatchNorm has brought to unit variance, so that F x has one of about .01, the
gate is .5 ± .0025 and FiGLU(x) ≈ x/2: nearly linear. The released W network has that gate too (variant `w-sigma`); the
paper describes W with GELU (variant `w`). Masks differ from layer to layer here; the released code gave layers of one
shape the same mask and constants.
"""

from __future__ import annotations

import math
from itertools import pairwise

from torch import Tensor, nn

from asym.data.graphs import GraphInput
from asym.models.arch import Shape
from asym.models.parts import make_activation, make_norm, scaled
from asym.models.registry import register
from asym.nn.variants import LayerRule


class GraphLayer(nn.Module):
    """(n, in_features) → (n, out_features): mean over neighbours plus own features → linear → norm → activation."""

    def __init__(self, in_features: int, out_features: int, norm: str, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = make_norm(norm, out_features, spatial=False)
        self.act = make_activation(activation)

    def forward(self, x: Tensor, averaging: Tensor) -> Tensor:
        """The layer on features of all nodes, with the averaging matrix (n, n), sparse or dense."""
        return self.act(self.norm(self.linear(averaging @ x + x)))


class GraphNetwork(nn.Module):
    """`GraphInput` of n nodes → (k, classes), logits of the nodes that it asks for."""

    def __init__(self, features: int, classes: int, *, hidden: int, depth: int, norm: str, activation: str) -> None:
        super().__init__()
        widths = [features] + [hidden] * depth
        self.layers = nn.ModuleList(GraphLayer(a, b, norm, activation) for a, b in pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, graph: GraphInput) -> Tensor:
        """Logits."""
        x = graph.features
        for layer in self.layers:
            x = layer(x, graph.averaging)
        return self.head(x if graph.nodes is None else x[graph.nodes])


def rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """n_fix 6 a row and κ 1/2 in all layers; n_fix times √width, the first layer's for 128 features."""
    n_fix = round(6 * math.sqrt(width))
    return (LayerRule("layers.0.linear", n_fix, 0.5, fan_in=128), LayerRule("*", n_fix, 0.5))


for _name, _activations in (("gnn", ("gelu", "relu", "tanh", "silu")), ("gnn-linear", ("identity",))):

    @register(
        _name,
        rules=rules,
        domain="graph",
        input_shape=(128,),
        classes=40,
        depth=3,
        free_depth=True,
        norms=("batch", "layer", "none"),
        activations=_activations,
        figlu_scale=".01/sqrt(d)",
    )
    def graph_network(
        *, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str
    ) -> GraphNetwork:
        """The network on input_shape[0] features, with `depth` layers of 256 · width units."""
        options = {"hidden": scaled(256, width), "depth": depth, "norm": norm, "activation": activation}
        return GraphNetwork(input_shape[0], classes, **options)
