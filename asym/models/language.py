"""Language models to compare SAFFU with: a pre-norm decoder, an LSTM, a feed-forward model of concatenated vectors.

Decoder and LSTM read sequences `[n, T]` and give logits of the next token at every place `[n, T, V]`; the feed-forward
model (Bengio et al. 2003: ŷ = softmax(O tanh(U [x_1; …; x_r]))) reads the radius context of `asym.data.contexts`. Input
and output share one embedding (Press and Wolf 2017) in decoder and LSTM. Standard choices otherwise: learned positions,
GELU perceptrons of 4 d, PyTorch's scaled dot-product attention, N(0, 0.02²) starts.

`matched(kind, …)` finds the width of equal trainable parameters, or of equal floating-point operations a token.

`SoftmaxHead` puts a soft-max of H label units between a decoder and the vocabulary, so that its output matrix can have
the explicit solution for known labels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

STD = 0.02


class DecoderBlock(nn.Module):
    """Causal attention and a perceptron, each behind a norm and beside a residual connection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        """(n, T, d) → (n, T, d)."""
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """A pre-norm decoder on `[n, T]`, T up to `length`.

    Args:
        vocabulary: V.
        dim: d, a multiple of `heads`.
        length: longest sequence.
        blocks: number of blocks.
        heads: of each attention.
        labels: if given, a soft-max of so many units before the output instead of the shared embedding.
    """

    reads = "sequences"

    def __init__(
        self, vocabulary: int, dim: int, length: int, *, blocks: int = 1, heads: int = 2, labels: int | None = None
    ) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim: got {dim}, must be a multiple of {heads} heads")
        self.embedding, self.positions = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(DecoderBlock(dim, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(dim)
        self.head = SoftmaxHead(dim, labels, vocabulary) if labels else None

    def read(self, x: Int[Tensor, "n t"]) -> Float[Tensor, "n t d"]:
        """What the output matrix reads."""
        h = self.embedding(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        h = self.norm(h)
        return h if self.head is None else (h @ self.head.hidden).softmax(-1)

    @property
    def effective_output(self) -> Float[Tensor, "d v"]:
        """The output matrix."""
        return self.embedding.weight.T if self.head is None else self.head.output

    def forward(self, x: Int[Tensor, "n t"]) -> Float[Tensor, "n t v"]:
        """Logits of the next token at every place."""
        return self.read(x) @ self.effective_output

    def reset_parameters(self, generator: torch.Generator) -> None:
        """N(0, 0.02²) matrices, zero biases; Xavier in the soft-max head."""
        reset(self, generator)
        if self.head is not None:
            for weight in self.head.parameters():
                nn.init.xavier_uniform_(weight, generator=generator)

    def flops(self, length: int) -> int:
        """Operations of one token in a sequence of this length (2 for each multiply-add)."""
        dim, vocabulary = self.embedding.weight.shape[1], self.embedding.weight.shape[0]
        head = 2 * dim * vocabulary
        if self.head is not None:
            head = 2 * (dim + vocabulary) * self.head.hidden.shape[1]
        return len(self.blocks) * (24 * dim * dim + 4 * dim * length) + head


class SoftmaxHead(nn.Module):
    """U `[d, H]` and O `[H, V]` of softmax(x U) O: the last two layers of a SAFFU model."""

    def __init__(self, dim: int, labels: int, vocabulary: int) -> None:
        super().__init__()
        self.hidden = nn.Parameter(torch.zeros(dim, labels))
        self.output = nn.Parameter(torch.zeros(labels, vocabulary))


class LstmLM(nn.Module):
    """One layer of LSTM cells on `[n, T]`, embedding shared with the output."""

    reads = "sequences"

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.cells = nn.LSTM(dim, dim, batch_first=True)

    def read(self, x: Int[Tensor, "n t"]) -> Float[Tensor, "n t d"]:
        """What the output matrix reads."""
        return self.cells(self.embedding(x))[0]

    @property
    def effective_output(self) -> Float[Tensor, "d v"]:
        """The output matrix."""
        return self.embedding.weight.T

    def forward(self, x: Int[Tensor, "n t"]) -> Float[Tensor, "n t v"]:
        """Logits of the next token at every place."""
        return self.read(x) @ self.effective_output

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Embedding N(0, 0.02²), cells U(±1/√d) as usual."""
        reset(self, generator)
        bound = self.embedding.weight.shape[1] ** -0.5
        for parameter in self.cells.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def flops(self, length: int) -> int:
        """Operations of one token."""
        vocabulary, dim = self.embedding.weight.shape
        return 16 * dim * dim + 2 * dim * vocabulary


class FeedForwardLM(nn.Module):
    """tanh on the concatenated vectors of the last r tokens; an empty slot is a zero vector."""

    reads = "contexts"

    def __init__(self, vocabulary: int, dim: int, radius: int, hidden: int) -> None:
        super().__init__()
        self.radius = radius
        self.embedding = nn.Embedding(vocabulary, dim)
        self.up, self.output = nn.Linear(radius * dim, hidden), nn.Linear(hidden, vocabulary, bias=False)

    def read(self, x: Int[Tensor, "m columns"]) -> Float[Tensor, "m d"]:
        """What the output matrix reads, of contexts whose last `radius` columns are the last tokens."""
        ids = x[:, -self.radius :]
        vectors = self.embedding(ids.clamp(min=0)) * (ids >= 0)[..., None]
        return self.up(vectors.flatten(1)).tanh()

    @property
    def effective_output(self) -> Float[Tensor, "d v"]:
        """The output matrix."""
        return self.output.weight.T

    def forward(self, x: Int[Tensor, "m columns"]) -> Float[Tensor, "m v"]:
        """Logits."""
        return self.read(x) @ self.effective_output

    def reset_parameters(self, generator: torch.Generator) -> None:
        """N(0, 0.02²) embedding, Xavier layers, zero biases."""
        reset(self, generator)
        for layer in (self.up, self.output):
            nn.init.xavier_uniform_(layer.weight, generator=generator)

    def flops(self, length: int) -> int:
        """Operations of one prediction."""
        return 2 * self.up.weight.numel() + 2 * self.output.weight.numel()


def reset(model: nn.Module, generator: torch.Generator) -> None:
    """Matrices N(0, 0.02²), other vectors zero, scales of norms one."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0.0, STD, generator=generator)
        else:
            nn.init.constant_(parameter, 1.0 if "norm" in name and name.endswith("weight") else 0.0)


def parameters(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def matched(make: Callable[[int], nn.Module], measure: Callable[[nn.Module], float], target: float, step: int) -> int:
    """The width, a multiple of `step`, whose network comes nearest to a target; tried on the meta device.

    Args:
        make: width → network.
        measure: grows with the width, such as `parameters`.
        target: what it should be.
        step: widths are its multiples.
    """

    def at(width: int) -> float:
        with torch.device("meta"):
            return measure(make(width))

    width = step
    while at(width + step) < target:
        width += step
    return width if target - at(width) <= at(width + step) - target else width + step
