"""Every factor of the group of `attention.py` by name, and exact symmetries of transformer blocks that it leaves out.

norm(x) = (x − mean x) / deviation x, without scale and shift, sees neither a shift along 1 nor a positive factor, and
commutes with every orthogonal R that keeps 1 up to sign: (x R) 1 = ±x 1, so that means keep their size, ‖x R‖ = ‖x‖.
Its output sums to 0. So, with u a vector over rows, v one over columns, c > 0 (notation of `encoder.py`):

| name | action | residual | why |
|---|---|---|---|
| `relu-scale` | A, a columns × s_k; B rows / s_k, s_k > 0 | stays | ReLU(s x) = s ReLU(x) |
| `norm-shift` | O_s + u_s 1ᵀ | stays | z moves along 1, all that reads it is behind a norm |
| `null-row` | Q, K, V, A + 1 vᵀ (a v for each) | stays | they read a norm's output, which sums to 0 |
| `next-shift` | B + u 1ᵀ, b + c 1 | stays | x' moves along 1, all that reads it is behind a norm |
| `norm-scale` | O × c, all heads | lost | z × c, which the second norm does not see |
| `norm-rotation` | O R, Rᵀ A | lost | norm(z R) Rᵀ A = norm(z) A; contains P_O |
| `next-scale` | B, b × c | lost | x' × c, which the next norm does not see |
| `between-blocks` | (B, b)_l R; Rᵀ (Q, K, V)_{l+1} | lost | as `norm-rotation`, for the next block's first norm |

With residual connections the last four would need the same c or R for the whole stream. Norms divide by
√(variance + ε), and with ε > 0 the two scale symmetries of norms hold up to ε / variance. Not in a published group;
derived here from the block's formula and checked on the transformer's function in the tests, as is that they explain,
with the published group, the whole null space of the Jacobian of a block.

`transform` draws an element of one of them, or of one published factor, for a whole stack of blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from asym.symmetry.attention import FACTORS, RESIDUAL_FACTORS, act, orthogonal, random_element
from asym.symmetry.encoder import Block, Sizes

Blocks = Sequence[Block]
Draw = Callable[..., Tensor]
"""draw(*shape) → standard normal numbers with the networks' leading axes in front."""

RESIDUAL_EXTRA = ("relu-scale", "norm-shift", "null-row", "next-shift")
"""Those that residual connections leave."""
EXTRA = (*RESIDUAL_EXTRA, "norm-scale", "norm-rotation", "next-scale", "between-blocks")
"""Symmetries that the published group leaves out."""
NAMES = (*FACTORS, *EXTRA)
RESIDUAL_NAMES = (*RESIDUAL_FACTORS, *RESIDUAL_EXTRA)


def sizes_of(block: Block) -> Sizes:
    """Sizes of a block from its tensors."""
    h, _, k = block["Q"].shape[-3:]
    return Sizes(block["b"].shape[-1], h, k, block["V"].shape[-1], block["a"].shape[-1], "o" in block)


def transform(
    name: str,
    blocks: Blocks,
    generator: torch.Generator,
    *,
    strength: float = 1.0,
    condition: float = 10.0,
    spread: float | None = None,
) -> list[dict[str, Tensor]]:
    """Act with a random element of one symmetry on each network of a stack, blocks independently.

    Args:
        name: one of `NAMES`.
        blocks: of networks with any leading axes, each of which gets an element of its own.
        generator: to draw from, on the CPU.
        strength: of those in `EXTRA`: positive factors are exp(strength · N(0, 1)), shifts are strength · N(0, 1) times
            the root mean square of what they are added to.
        condition: of M and N, see `random_element`.
        spread: of M and N, see `random_element`.

    Raises:
        ValueError: for an unknown name, and as `random_element`.
    """
    lead = tuple(blocks[0]["a"].shape[:-1])
    like = blocks[0]["a"]

    def draw(*shape: int) -> Tensor:
        return strength * torch.randn(*lead, *shape, generator=generator, dtype=torch.float64).to(like)

    if name in FACTORS:
        options = {"factors": (name,), "condition": condition, "spread": spread}
        elements = [random_element(sizes_of(block), lead, generator, **options) for block in blocks]
        return [act(element, block) for element, block in zip(elements, blocks)]
    if name == "between-blocks":
        return _between(blocks, generator)
    if name not in EXTRA:
        raise ValueError(f"name: {name!r}; choose from {', '.join(NAMES)}")
    if name == "norm-rotation":
        return [_rotate(block, generator) for block in blocks]
    return [{**block, **_EXTRA[name](block, draw)} for block in blocks]


def rotation(dim: int, lead: Sequence[int], generator: torch.Generator) -> Tensor:
    """Random orthogonal matrices `*lead dim dim` (float64) that keep the vector of ones.

    R = E diag(1, R') Eᵀ, with E an orthonormal basis that begins with it.
    """
    start = torch.eye(dim, dtype=torch.float64)
    start[:, 0] = 1.0
    basis = torch.linalg.qr(start).Q
    inner = torch.zeros(*lead, dim, dim, dtype=torch.float64)
    inner[..., 0, 0] = 1.0
    if dim > 1:
        inner[..., 1:, 1:] = orthogonal((*lead, dim - 1, dim - 1), generator)
    return basis @ inner @ basis.T


def _rotate(block: Block, generator: torch.Generator) -> dict[str, Tensor]:
    r = rotation(block["b"].shape[-1], block["b"].shape[:-1], generator).to(block["b"])
    return {**block, "O": block["O"] @ r[..., None, :, :], "A": r.mT @ block["A"]}


def _between(blocks: Blocks, generator: torch.Generator) -> list[dict[str, Tensor]]:
    out = [dict(block) for block in blocks]
    for before, after in itertools.pairwise(out):
        r = rotation(before["b"].shape[-1], before["b"].shape[:-1], generator).to(before["b"])
        before["B"] = before["B"] @ r
        before["b"] = (before["b"][..., None, :] @ r)[..., 0, :]
        for symbol in "QKV":
            after[symbol] = r.mT[..., None, :, :] @ after[symbol]
    return out


def _size(x: Tensor, axes: int) -> Tensor:
    """Root mean square over the last axes, kept as axes of 1."""
    return x.square().mean(tuple(range(-axes, 0)), keepdim=True).sqrt()


def _relu_scale(block: Block, draw: Draw) -> dict[str, Tensor]:
    s = draw(block["a"].shape[-1]).exp()
    return {"A": block["A"] * s[..., None, :], "a": block["a"] * s, "B": block["B"] / s[..., None]}


def _norm_shift(block: Block, draw: Draw) -> dict[str, Tensor]:
    o = block["O"]
    return {"O": o + _size(o, 3) * draw(*o.shape[-3:-1], 1)}


def _null_row(block: Block, draw: Draw) -> dict[str, Tensor]:
    a = block["A"]
    reads = torch.ones(block["Q"].shape[-2], 1, dtype=a.dtype, device=a.device)
    reads[a.shape[-2] :] = 0.0  # the row of biases reads no norm
    heads = {s: block[s] + _size(block[s], 3) * draw(block[s].shape[-3], 1, block[s].shape[-1]) * reads for s in "QKV"}
    return {**heads, "A": a + _size(a, 2) * draw(1, a.shape[-1])}


def _next_shift(block: Block, draw: Draw) -> dict[str, Tensor]:
    b, bias = block["B"], block["b"]
    return {"B": b + _size(b, 2) * draw(b.shape[-2], 1), "b": bias + _size(bias, 1) * draw(1)}


def _norm_scale(block: Block, draw: Draw) -> dict[str, Tensor]:
    return {"O": block["O"] * draw(1, 1, 1).exp()}


def _next_scale(block: Block, draw: Draw) -> dict[str, Tensor]:
    c = draw(1).exp()
    return {"B": block["B"] * c[..., None], "b": block["b"] * c}


_EXTRA: dict[str, Callable[[Block, Draw], dict[str, Tensor]]] = {
    "relu-scale": _relu_scale,
    "norm-shift": _norm_shift,
    "null-row": _null_row,
    "next-shift": _next_shift,
    "norm-scale": _norm_scale,
    "next-scale": _next_scale,
}
