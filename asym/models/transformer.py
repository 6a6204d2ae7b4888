"""Small transformer encoders on patches of an image.

    patches → linear embedding + positions written as waves → dropout → blocks → norm → mean over patches → head
    block:  x ← [x +] dropout(MH(norm(x))),    x ← [x +] dropout(MLP(norm(x))),
    MH(x) = Σ_s softmax(x Q_s K_sᵀ xᵀ / √d_k) x V_s O_s

`transformer` is the usual encoder: residual connections, norms with scale and shift, biases everywhere, GELU, a linear
head. `transformer-plain` is the encoder of the Small Transformer Zoo (Tran et al. 2025, "Equivariant Neural Functional
Networks for Transformers", arXiv 2410.04209, and its released code): no residual connections, norms without scale and
shift, no biases in the attention, ReLU, a head of two layers; 18,506 parameters on 1 × 28 × 28 images. Both have two
blocks of two heads, D = 32 and hidden layers of 64. Patches have a quarter of a side of 8 pixels, and otherwise 4
pixels. No n_fix was published: the rule of thumb applies. `transformer-causal` is the plain one as a language model: a
token sees none after it, and the head reads the last token in place of the mean.

Dropout stands where the zoo's encoder has it: after the embedding with its positions, after the attention and after the
perceptron, before what they are added to. There is none on the attention's weights and none inside the perceptron, as
PyTorch's encoder layer has. Its rate is that of the training (`Recipe.dropout`).

Attention is written out in matrix products, which can be batched over networks and whose symmetries can be traced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from asym.models.arch import Shape
from asym.models.parts import make_activation, scaled
from asym.models.registry import register
from asym.nn.dropout import Dropout
from asym.nn.variants import LayerRule


class Attention(nn.Module):
    """Multi-head self-attention on (n, tokens, dim); d_k and d_v are dim / heads unless given.

    Raises:
        ValueError: if d_k or d_v is not given and the heads do not divide `dim`.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        bias: bool,
        key_dim: int | None = None,
        value_dim: int | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__()
        if dim % heads and None in (key_dim, value_dim):
            raise ValueError(f"heads: {heads} do not divide dim {dim}; give key_dim and value_dim")
        self.heads, self.causal = heads, causal
        keys, values = heads * (key_dim or dim // heads), heads * (value_dim or dim // heads)
        self.query, self.key = nn.Linear(dim, keys, bias=bias), nn.Linear(dim, keys, bias=bias)
        self.value, self.out = nn.Linear(dim, values, bias=bias), nn.Linear(values, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, dim) → (n, tokens, dim)."""
        n, tokens, _ = x.shape
        q, k, v = (
            y.reshape(n, tokens, self.heads, y.shape[-1] // self.heads).transpose(1, 2)
            for y in (self.query(x), self.key(x), self.value(x))
        )
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        if self.causal:
            later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, tokens, self.heads * v.shape[-1]))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm, with or without residual connections."""

    def __init__(
        self, dim: int, heads: int, hidden: int, *, residual: bool, affine: bool, activation: str, **attention: Any
    ) -> None:
        super().__init__()
        self.residual = residual
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=affine)
        self.attention = Attention(dim, heads, bias=affine, **attention)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=affine)
        self.up = nn.Linear(dim, hidden)
        self.act = make_activation(activation)
        self.down = nn.Linear(hidden, dim)
        self.drop1, self.drop2 = Dropout(), Dropout()

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, dim) → (n, tokens, dim)."""
        y = self.drop1(self.attention(self.norm1(x)))
        x = x + y if self.residual else y
        y = self.drop2(self.down(self.act(self.up(self.norm2(x)))))
        return x + y if self.residual else y


class Transformer(nn.Module):
    """(n, c, h, w) → (n, classes).

    Args:
        input_shape: (channels, height, width).
        classes: outputs.
        blocks: number of blocks.
        heads: heads of each block.
        dim: D, a multiple of `heads`.
        hidden: width of the perceptrons.
        residual: whether blocks have residual connections.
        affine: whether norms have scale and shift, and attention biases.
        activation: of the perceptrons and of the head, where it has two layers.
        head_layers: 1 or 2.
        key_dim: d_k of each head; None is dim / heads.
        value_dim: d_v of each head; None is dim / heads.
        causal: whether a token sees only itself and those before it.
        last: whether the head reads the last token in place of the mean over tokens.

    Raises:
        ValueError: if heads do not divide `dim` and d_k or d_v is not given.
    """

    positions: Tensor

    def __init__(
        self,
        input_shape: Shape,
        classes: int,
        *,
        blocks: int,
        heads: int,
        dim: int,
        hidden: int,
        residual: bool,
        affine: bool,
        activation: str,
        head_layers: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        causal: bool = False,
        last: bool = False,
    ) -> None:
        super().__init__()
        self.last = last
        channels, height, width = input_shape
        patch = patch_size(height, width)
        self.embed = nn.Conv2d(channels, dim, patch, patch)
        tokens = (height // patch) * (width // patch)
        self.register_buffer("positions", waves(tokens, dim), persistent=False)
        self.drop = Dropout()
        options: dict[str, Any] = {"residual": residual, "affine": affine, "activation": activation}
        options |= {"key_dim": key_dim, "value_dim": value_dim, "causal": causal}
        self.blocks = nn.ModuleList(Block(dim, heads, hidden, **options) for _ in range(blocks))
        self.norm = nn.LayerNorm(dim, elementwise_affine=affine)
        layers = [nn.Linear(dim, dim), make_activation(activation)] if head_layers == 2 else []
        self.head = nn.Sequential(*layers, nn.Linear(dim, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.drop(self.embed(x).flatten(2).transpose(1, 2) + self.positions)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x[:, -1] if self.last else x.mean(1))


def patch_size(height: int, width: int) -> int:
    """Side of a patch: 4, or a quarter of a side of less than 16 pixels, at least 1."""
    return 4 if min(height, width) >= 16 else max(1, min(height, width) // 4)


def waves(tokens: int, dim: int) -> Tensor:
    """Positions (tokens, dim) as sines and cosines of frequencies 10000^(−2k / dim)."""
    frequency = 10_000.0 ** (-torch.arange(0, dim, 2, device="cpu") / dim)
    angle = torch.arange(tokens, device="cpu")[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim]


def rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """The rule of thumb with κ = 1/2, as for the small convolutional network."""
    return (LayerRule("*", None, 0.5),)


def _make(
    plain: bool, input_shape: Shape, classes: int, width: float, depth: int, activation: str, *, causal: bool = False
) -> Transformer:
    heads = 2
    dim = heads * scaled(16, width)
    return Transformer(
        input_shape,
        classes,
        blocks=depth,
        heads=heads,
        dim=dim,
        hidden=2 * dim,
        residual=not plain,
        affine=not plain,
        activation=activation,
        head_layers=2 if plain else 1,
        causal=causal,
        last=causal,
    )


_SHARED: dict[str, Any] = {
    "rules": rules,
    "input_shape": (1, 28, 28),
    "depth": 2,
    "free_depth": True,
}


@register("transformer", norms=("layer",), activations=("gelu", "relu", "tanh", "silu"), **_SHARED)
def transformer(
    *, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str
) -> Transformer:
    """The usual encoder of `depth` blocks; D = 2 · round(16 · width)."""
    return _make(False, input_shape, classes, width, depth, activation)


@register("transformer-plain", norms=("none",), activations=("relu", "gelu", "tanh", "silu"), **_SHARED)
def transformer_plain(
    *, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str
) -> Transformer:
    """The zoo's encoder of `depth` blocks; D = 2 · round(16 · width). Its norms have no scale and shift to choose."""
    return _make(True, input_shape, classes, width, depth, activation)


@register("transformer-causal", norms=("none",), activations=("relu", "gelu", "tanh", "silu"), **_SHARED)
def transformer_causal(
    *, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str
) -> Transformer:
    """`transformer-plain` as a language model of the token after its input."""
    return _make(True, input_shape, classes, width, depth, activation, causal=True)
