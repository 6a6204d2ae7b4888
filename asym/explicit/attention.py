"""The explicit solution of SAFFU's attention matrix W: a soft-max layer whose targets are hidden.

For one pivot and K slots with vectors x_k: comparisons c_k = ⟨x_h, x_k⟩ ≥ 0, attention a = softmax(c W), aggregate
z = Σ_k a_k x_k, output softmax(z U) with target t. With e = t − softmax(z U), gains g_k = x_k U e and ḡ = Σ_k a_k g_k,

    ∂L/∂U = −Σ z ⊗ e,        ∂L/∂W_jk = −Σ c_j a_k (g_k − ḡ):

W is stationary where attention already has its hidden target, one that favours slots of above-average gain.

Hidden targets. 1. U⁰ from uniform attention. 2. Log-likelihood of slot k alone: ℓ_k = Σ_i t_i log softmax(x_k U⁰)_i.
3. v = softmax(β ℓ) over the slots that are there; β = 1 is one E-step from uniform attention, larger is sharper.
4. W = soft-max solution (`softmax.py`) of F^W = Σ c ⊗ v with κ = mean ‖c‖₁. Then U anew from z under this W.

One gradient. W = τ ΔW, ΔW = −∂L/∂W at W = 0 with U⁰; τ by a search on the loss. No hidden targets.

Derived here from the identities above and the idea of a "differential criterion" in the first author's lecture (2024);
the published formula for W (arXiv 2311.07510) was not at hand, so that this may differ from it.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from asym.explicit.softmax import SMOOTHING, solve_softmax


def slot_scores(
    x: Float[Tensor, "m k d"], hidden: Float[Tensor, "d h"], target: Float[Tensor, "m h"]
) -> Float[Tensor, "m k"]:
    """ℓ: the log-likelihood that each slot alone gives the target."""
    return torch.einsum("mkh,mh->mk", (x @ hidden).log_softmax(-1), target)


def token_scores(
    vectors: Float[Tensor, "v d"], hidden: Float[Tensor, "d h"], labels: Float[Tensor, "v h"]
) -> Float[Tensor, "v v"]:
    """ℓ as a table over (token in the slot, next token), for vectors of tokens that do not depend on their place."""
    return (vectors @ hidden).log_softmax(-1) @ labels.T


def hidden_targets(
    scores: Float[Tensor, "m k"], present: Bool[Tensor, "m k"], sharpness: float = 1.0
) -> Float[Tensor, "m k"]:
    """v: the distribution over slots that the layer above would like; zero at slots that are empty.

    Raises:
        ValueError: a sharpness β that is not positive.
    """
    if sharpness <= 0:
        raise ValueError(f"sharpness: got {sharpness}, must be positive")
    v = (sharpness * scores).masked_fill(~present, -torch.inf).softmax(-1)
    return v.nan_to_num(0.0)  # no slot at all


def solve_attention(
    sums: Float[Tensor, "k k"], norm: float, *, priming: float | None = None, smoothing: float = SMOOTHING
) -> Float[Tensor, "k k"]:
    """W from F^W = Σ c ⊗ v and the mean norm of comparisons, row means removed (soft-max ignores them)."""
    weight = solve_softmax(sums, norm=norm, priming=priming, smoothing=smoothing)
    return weight - weight.mean(1, keepdim=True)


def attention_gradient(
    x: Float[Tensor, "m k d"],
    comparisons: Float[Tensor, "m k"],
    present: Bool[Tensor, "m k"],
    hidden: Float[Tensor, "d h"],
    target: Float[Tensor, "m h"],
) -> Float[Tensor, "k k"]:
    """ΔW = −∂L/∂W of the mean loss at W = 0: the one-gradient direction."""
    count = present.sum(1, keepdim=True).clamp(min=1)
    a = present.to(x.dtype) / count
    z = torch.einsum("mk,mkd->md", a, x)
    e = target - (z @ hidden).softmax(-1)
    gain = torch.einsum("mkd,md->mk", x, e @ hidden.T)
    advantage = a * (gain - (a * gain).sum(1, keepdim=True))
    return comparisons.T @ advantage / len(x)
