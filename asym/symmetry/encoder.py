"""The blocks of a transformer as the matrices of the theory: which tensors they are, and how heads lie in them.

With row vectors, x ∈ R^{tokens × D}, and norms without scale and shift, one block is

    z = Σ_s softmax(y Q_s K_sᵀ yᵀ / √d_k) y V_s O_s,   y = norm(x);      x' = ReLU(norm(z) A + a) B + b

(with residual connections: z and x' are added to what came in). Shapes: Q, K `h D d_k`, V `h D d_v`, O `h d_v D`,
A `D D_A`, a `D_A`, B `D_A D`, b `D`. Ordinary transformers, with biases in their attention and norms with scale and
shift, become such blocks with one more row in Q, K, V and a bias o of z, see `encoder_fold.py`. A module keeps
transposed weights with the heads side by side: `query.weight` is `(h d_k) D`, `out.weight` is `D (h d_v)`. An `Encoder`
knows the names; `split` and `join` go to and fro for stacks of any leading axes. Names are those of
`asym.models.transformer` or of the published files of the Small Transformer Zoo (Tran et al. 2025, arXiv 2410.04209);
what belongs to no block is the embedding or the classifier.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from asym.symmetry.encoder_fold import folded

Block = Mapping[str, Tensor]
"""Q, K, V, O, A, a, B, b, of ordinary blocks also o, with any leading axes."""

SCHEMES: dict[str, dict[str, str]] = {
    "blocks": {
        "Q": "attention.query.weight",
        "K": "attention.key.weight",
        "V": "attention.value.weight",
        "O": "attention.out.weight",
        "A": "up.weight",
        "a": "up.bias",
        "B": "down.weight",
        "b": "down.bias",
    },
    "encoder": {
        "Q": "attention.queries.weight",
        "K": "attention.keys.weight",
        "V": "attention.values.weight",
        "O": "attention.out_projection.weight",
        "A": "fc1.weight",
        "a": "fc1.bias",
        "B": "fc2.weight",
        "b": "fc2.bias",
    },
}
"""Name of the list of blocks → symbol → name of the tensor inside a block: of this project, of the published files."""
OUT_BIAS = "attention.out.bias"
"""Tensor o of an ordinary block of this project."""
EMBEDDING, CLASSIFIER = ("embed", "embedding"), ("head", "classifier")
"""First part of the names of the other tensors."""
PARTS = ("encoder", "embedding", "classifier")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a block: D, h, d_k, d_v, D_A."""

    dim: int
    heads: int
    key: int
    value: int
    hidden: int
    ordinary: bool = False
    """Whether there are residual connections and biases in the attention, which are one more row of Q, K, V."""

    def __post_init__(self) -> None:
        for field, size in vars(self).items():
            if field != "ordinary" and size < 1:
                raise ValueError(f"{field}: {size}; must be at least 1")

    @property
    def rows(self) -> int:
        """Rows of Q, K, V."""
        return self.dim + self.ordinary

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Symbol → shape."""
        d, h = self.dim, self.heads
        plain: dict[str, tuple[int, ...]] = {
            "Q": (h, self.rows, self.key),
            "K": (h, self.rows, self.key),
            "V": (h, self.rows, self.value),
            "O": (h, self.value, d),
            "A": (d, self.hidden),
            "a": (self.hidden,),
            "B": (self.hidden, d),
            "b": (d,),
        }
        return plain | ({"o": (d,)} if self.ordinary else {})


@dataclass(frozen=True)
class Encoder:
    """Tensors of transformers with equal blocks; made by `encoder_of`."""

    size: Sizes
    names: tuple[Mapping[str, str], ...]
    """For each block: symbol → name of its tensor."""
    shapes: Mapping[str, tuple[int, ...]]
    """Name → shape, of all tensors, those of embedding and classifier included."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """D, h, d_k, d_v, D_A and the number of blocks."""
        size = self.size
        return (size.dim, size.heads, size.key, size.value, size.hidden, len(self.names))

    @cached_property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Names of the tensors of encoder, embedding and classifier."""
        inside = {name for block in self.names for name in block.values()}
        rest = [name for name in self.shapes if name not in inside]
        return {
            "encoder": tuple(name for name in self.shapes if name in inside),
            "embedding": tuple(name for name in rest if name.partition(".")[0] in EMBEDDING),
            "classifier": tuple(name for name in rest if name.partition(".")[0] in CLASSIFIER),
        }

    def count(self, part: str) -> int:
        """Number of entries of a part."""
        return sum(math.prod(self.shapes[name]) for name in self.parts[part])


def encoder_of(tensors: Mapping[str, Any], heads: int) -> Encoder:
    """Find the blocks among named tensors (or anything with a `shape`), such as a state dict.

    Args:
        tensors: parameters of one transformer; others than those of blocks, embedding and classifier are an error. Of
            an ordinary one the encoder names the tensors that `asym.symmetry.encoder_fold.folded` makes of them.
        heads: h, which shapes do not tell.

    Raises:
        ValueError: naming the tensor, for missing or unknown ones, shapes that do not fit, heads that do not divide.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in folded(tensors).items()}
    scheme = next((s for s in SCHEMES if any(re.match(rf"{s}\.\d+\.", name) for name in shapes)), None)
    if scheme is None:
        wanted = " or ".join(f"{s}.0.{names['Q']}" for s, names in SCHEMES.items())
        raise ValueError(f"tensors: no blocks found; their names start like {wanted}")
    depth = 1 + max(int(name.split(".")[1]) for name in shapes if re.match(rf"{scheme}\.\d+\.", name))
    inside = SCHEMES[scheme] | ({"o": OUT_BIAS} if f"{scheme}.0.{OUT_BIAS}" in shapes else {})
    names = tuple({s: f"{scheme}.{i}.{inner}" for s, inner in inside.items()} for i in range(depth))
    for block in names:
        for name in block.values():
            if name not in shapes:
                raise ValueError(f"tensors: {name!r} is missing")
    known = {name for block in names for name in block.values()}
    for name in shapes:
        if name not in known and name.partition(".")[0] not in EMBEDDING + CLASSIFIER:
            raise ValueError(
                f"tensors: {name!r} is none of a transformer without biases in its attention and with norms without "
                "scale and shift"
            )
    size = _sizes(shapes, names[0], heads)
    encoder = Encoder(size, names, shapes)
    for block in names:
        for symbol, name in block.items():
            if shapes[name] != _stored(size, symbol):
                raise ValueError(f"tensors: {name!r} has shape {shapes[name]}, expected {_stored(size, symbol)}")
    return encoder


def _sizes(shapes: Mapping[str, tuple[int, ...]], block: Mapping[str, str], heads: int) -> Sizes:
    for symbol in "QVA":
        if len(shapes[block[symbol]]) != 2:
            raise ValueError(f"tensors: {block[symbol]!r} has shape {shapes[block[symbol]]}, expected two axes")
    (keys, _), (values, _), (hidden, dim) = (shapes[block[symbol]] for symbol in "QVA")
    if heads < 1 or keys % heads or values % heads:
        both = math.gcd(keys, values)
        valid = ", ".join(str(h) for h in range(1, both + 1) if both % h == 0)
        raise ValueError(
            f"heads: {heads} do not divide the {keys} rows of {block['Q']!r} and the {values} of {block['V']!r}; "
            f"valid: {valid}"
        )
    return Sizes(dim, heads, keys // heads, values // heads, hidden, "o" in block)


def _stored(size: Sizes, symbol: str) -> tuple[int, ...]:
    """Shape of a tensor as a module keeps it."""
    shape = size.shapes[symbol]
    if symbol in "QKV":
        return (shape[0] * shape[2], shape[1])
    if symbol == "O":
        return (shape[2], shape[0] * shape[1])
    return shape[::-1]


def split(encoder: Encoder, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Named tensors `*lead *stored shape` → the blocks' Q, K, V, O, A, a, B, b, as views where possible.

    Raises:
        ValueError: if a tensor is missing or has another shape.
    """
    return [{s: _split(encoder, s, _named(encoder, tensors, name)) for s, name in b.items()} for b in encoder.names]


def join(encoder: Encoder, blocks: Sequence[Block]) -> dict[str, Tensor]:
    """The blocks' tensors by name, the inverse of `split`.

    Raises:
        ValueError: if there are not as many blocks as the encoder has.
    """
    if len(blocks) != len(encoder.names):
        raise ValueError(f"blocks: {len(blocks)}, the encoder has {len(encoder.names)}")
    out = {}
    for names, block in zip(encoder.names, blocks):
        for symbol, name in names.items():
            tensor = block[symbol]
            if symbol in "QKV":
                tensor = tensor.transpose(-1, -2).flatten(-3, -2)
            elif symbol == "O":
                tensor = tensor.flatten(-3, -2).transpose(-1, -2)
            elif symbol in "AB":
                tensor = tensor.transpose(-1, -2)
            out[name] = tensor.contiguous()
    return out


def _named(encoder: Encoder, tensors: Mapping[str, Tensor], name: str) -> Tensor:
    shape = encoder.shapes[name]
    if name not in tensors or tuple(tensors[name].shape[-len(shape) :]) != shape:
        found = tuple(tensors[name].shape) if name in tensors else "nothing"
        raise ValueError(f"tensors: {name!r} must end in shape {shape}, got {found}")
    return tensors[name]


def _split(encoder: Encoder, symbol: str, tensor: Tensor) -> Tensor:
    heads = encoder.size.heads
    if symbol in "QKV":
        return tensor.unflatten(-2, (heads, -1)).transpose(-1, -2)
    if symbol == "O":
        return tensor.transpose(-1, -2).unflatten(-2, (heads, -1))
    return tensor.transpose(-1, -2) if symbol in "AB" else tensor
