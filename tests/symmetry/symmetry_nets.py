"""One table of tiny networks for the tests of this folder: name → how to make it, an input, its groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    """conv → block with identity shortcut → block with projection → pool → linear, as in CIFAR ResNets."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), norm(4)
        self.a1, self.an1 = nn.Conv2d(4, 4, 3, padding=1), norm(4)
        self.a2, self.an2 = nn.Conv2d(4, 4, 3, padding=1), norm(4)
        self.b1, self.bn1 = nn.Conv2d(4, 6, 3, stride=2, padding=1), norm(6)
        self.b2, self.bn2 = nn.Conv2d(6, 6, 3, padding=1), norm(6)
        self.short = nn.Conv2d(4, 6, 1, stride=2)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem_norm(self.stem(x)))
        x = F.relu(self.an2(self.a2(F.relu(self.an1(self.a1(x))))) + x)
        x = F.relu(self.bn2(self.b2(F.relu(self.bn1(self.b1(x))))) + self.short(x))
        return self.head(x.mean((2, 3)))


class PaddedShortcut(nn.Module):
    """A shortcut without parameters: every other pixel, new channels of zeros on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3, 2, 1), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = self.conv(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))
        return self.head(x.relu().amax((-1, -2)))


class Dense(nn.Module):
    """Concatenation: the classifier reads two layers, one of them flattened with its pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 1)
        self.norm, self.conv3, self.head = nn.BatchNorm2d(7), nn.Conv2d(7, 5, 1), nn.Linear(5 * 4 + 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        one = self.conv1(x).tanh()
        both = self.norm(torch.cat([one, self.conv2(one)], 1))
        flat = self.conv3(both).relu().flatten(1)
        return self.head(torch.cat([flat, one.mean((2, 3))], -1))


class Attention(nn.Module):
    """A small vision transformer: patches, class token, positions, fused projection, layer scale, two MLP layers."""

    def __init__(self, written_out: bool = False) -> None:
        super().__init__()
        self.written_out = written_out
        self.patch = nn.Conv2d(1, 6, 2, 2)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, 6)), nn.Parameter(torch.randn(1, 5, 6))
        self.norm1, self.qkv, self.out = nn.LayerNorm(6), nn.Linear(6, 18), nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.full((6,), 1e-6))
        self.norm2, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 5), nn.Linear(5, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, 2, 3).permute(2, 0, 3, 1, 4).unbind(0)
        if self.written_out:
            y = ((q * 3**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.scale * self.out(y.transpose(1, 2).reshape(n, t, c))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(x[:, 0])


class Language(nn.Module):
    """Tied embedding, causal nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attention = nn.Embedding(7, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=x.dtype)
        return self.head(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])


class Mixer(nn.Module):
    """Mixing over tokens and over channels: one axis of parameters for each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(3, 4), nn.LayerNorm(4)
        self.tokens1, self.tokens2 = nn.Linear(5, 6), nn.Linear(6, 5)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.tokens2(self.tokens1(self.norm(x).transpose(1, 2)).tanh()).transpose(1, 2)
        return self.head(x.mean(1))


class Einsum(nn.Module):
    """A layer written with einsum, gated by halves of another."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 2, 4))
        self.gate, self.head = nn.Linear(3, 16), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("bi,ihd->bhd", x, self.w).flatten(1)
        return self.head(y * F.glu(self.gate(x)))


class Loop(nn.Module):
    """A layer from a residual stream into itself: one parameter with the same group on both axes."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.loop, self.head = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        return self.head(x + self.loop(x).tanh())


class Shuffle(nn.Module):
    """Channels from an upsampled image, shuffled into pixels and back."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 12, 1), nn.ConvTranspose2d(3, 4, 2, bias=False)
        self.three, self.head = nn.Conv2d(16, 3, 1), nn.PReLU(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.two(F.pixel_shuffle(self.one(x).relu(), 2)).relu()[..., :8, :8]
        return self.head(self.three(F.pixel_unshuffle(x, 2))).mean((2, 3))


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    groups: dict[str, int]
    """Group name to size."""
    parents: dict[str, str] = field(default_factory=dict)
    tokens: int = 0
    """Number of tokens, for inputs that are integers."""

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make().eval()

    def input(self, batch: int = 2) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        if self.tokens:
            return torch.randint(self.tokens, (batch, *self.shape), generator=generator)
        return torch.randn(batch, *self.shape, generator=generator)


def mlp(*norms: Callable[[int], nn.Module]) -> nn.Module:
    """3 → 5 → 4 → 2 with the given norms."""
    layers: list[nn.Module] = []
    for (a, b), norm in zip(((3, 5), (5, 4)), norms):
        layers += [nn.Linear(a, b), norm(b), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(4, 2))


def vgg() -> nn.Module:
    """Convolutions, a pool, and a flatten that leaves 2 × 2 pixels a channel."""
    convs = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*convs, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 2))


def depthwise() -> nn.Module:
    """A depth-wise convolution moves with its input; two channels a group are a family over it."""
    convs = [nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 8, 1, groups=4), nn.ReLU()]
    return nn.Sequential(*convs, nn.Conv2d(8, 2, 1))


def grouped() -> nn.Module:
    """Three groups, two channels of each going in, three coming out."""
    convs = [nn.Conv2d(1, 6, 1), nn.ReLU(), nn.Conv2d(6, 9, 3, groups=3), nn.BatchNorm2d(9), nn.ReLU()]
    return nn.Sequential(*convs, nn.Conv2d(9, 2, 1))


RESIDUAL = {"stem": 4, "a1": 4, "b1": 6, "b2": 6}
TRANSFORMER = {"patch": 6, "qkv.heads": 2, "qkv.query_key": 3, "qkv.value": 3, "up": 5}
FAMILIES = {"qkv.query_key": "qkv.heads", "qkv.value": "qkv.heads"}

CASES: dict[str, Case] = {
    "mlp-plain": Case(lambda: mlp(nn.Identity, nn.Identity), (3,), {"0": 5, "3": 4}),
    "mlp-layer": Case(lambda: mlp(nn.LayerNorm, nn.LayerNorm), (3,), {"0": 5, "3": 4}),
    "mlp-batch": Case(lambda: mlp(nn.BatchNorm1d, nn.BatchNorm1d), (3,), {"0": 5, "3": 4}),
    "mlp-rms": Case(lambda: mlp(nn.RMSNorm, nn.RMSNorm), (3,), {"0": 5, "3": 4}),
    "mlp-blocks": Case(
        lambda: mlp(nn.Identity, partial(nn.GroupNorm, 2)),
        (3,),
        {"0": 5, "3.groups": 2, "3.within": 2},
        {"3.within": "3.groups"},
    ),
    "resnet-group": Case(lambda: Residual(partial(nn.GroupNorm, 1)), (2, 6, 6), RESIDUAL),
    "resnet-batch": Case(lambda: Residual(nn.BatchNorm2d), (2, 6, 6), RESIDUAL),
    "resnet-padded": Case(PaddedShortcut, (1, 8, 8), {"stem": 4, "conv": 2, "conv#2": 2}),
    "vgg": Case(vgg, (1, 8, 8), {"0": 3, "3": 4, "7": 5}),
    "depthwise": Case(depthwise, (1, 5, 5), {"0.groups": 4, "3.within": 2}, {"3.within": "0.groups"}),
    "grouped": Case(
        grouped,
        (1, 5, 5),
        {"0.groups": 3, "0.within": 2, "2.within": 3},
        {"0.within": "0.groups", "2.within": "0.groups"},
    ),
    "dense": Case(Dense, (1, 4, 4), {"conv1": 3, "conv2": 4, "conv3": 5}),
    "transformer": Case(Attention, (1, 4, 4), TRANSFORMER, FAMILIES),
    "transformer-written-out": Case(partial(Attention, True), (1, 4, 4), TRANSFORMER, FAMILIES),
    "language": Case(
        Language,
        (5,),
        {"embed": 4, "attention.in_proj.heads": 2, "attention.in_proj.query_key": 2, "attention.in_proj.value": 2},
        {
            "attention.in_proj.query_key": "attention.in_proj.heads",
            "attention.in_proj.value": "attention.in_proj.heads",
        },
        tokens=7,
    ),
    "mixer": Case(Mixer, (5, 3), {"embed": 4, "tokens1": 6}),
    "einsum": Case(Einsum, (3,), {"w": 2, "w#2": 4}),
    "loop": Case(Loop, (3,), {"enter": 5}),
    "shuffle": Case(Shuffle, (1, 4, 4), {"one": 3, "two": 4}),
}
