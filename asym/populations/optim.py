"""Optimisers on a matrix of networks: one row a network, hyper-parameters per row.

With θ, g of shape `n p` and learning rate η, decay ω of shape `n 1`, at step t (counted from 1):

- sgd       θ ← θ − η (g + ω θ)
- momentum  v ← 0.9 v + g + ω θ;  θ ← θ − η v
- rmsprop   g' = g + ω θ;  s ← 0.99 s + 0.01 g'²;  θ ← θ − η g' / (√s + ε)
- adam      g' = g + ω θ, then the update of adamw without its decay
- adamw     θ ← (1 − η ω) θ;  m ← β₁ m + (1 − β₁) g;  s ← β₂ s + (1 − β₂) g²;
            θ ← θ − η (m / (1 − β₁ᵗ)) / (√(s / (1 − β₂ᵗ)) + ε)

with β = (0.9, 0.999), ε = 1e-8: PyTorch's defaults, and its results up to rounding (tested against `torch.optim`).
Working on one matrix takes a dozen passes over it, whatever the number of parameters or networks; the matrix is taken
in blocks of columns small enough that these passes stay in the processor's cache.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from asym.populations.recipes import OptimizerName

BETAS = (0.9, 0.999)
MOMENTUM = 0.9
RMS_ALPHA = 0.99
EPS = 1e-8
BLOCK = 2**16
"""Entries of a block on a CPU: four matrices of 256 KiB."""

SLOTS: dict[OptimizerName, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("velocity",),
    "rmsprop": ("square",),
    "adam": ("mean", "square"),
    "adamw": ("mean", "square"),
}
"""Names of the state matrices (`n p`) that each optimiser keeps."""


def init_state(optimizer: OptimizerName, theta: Float[Tensor, "n p"]) -> dict[str, Tensor]:
    """Zero state for `theta`."""
    return {slot: torch.zeros_like(theta) for slot in SLOTS[optimizer]}


@torch.no_grad()
def update_(
    optimizer: OptimizerName,
    theta: Float[Tensor, "n p"],
    grad: Float[Tensor, "n p"],
    state: dict[str, Tensor],
    step: int,
    lr: Float[Tensor, "n 1"],
    decay: Float[Tensor, "n 1"] | None,
) -> None:
    """Take one step in place. `grad` is overwritten. `step` counts from 1. `decay` is None where all are zero."""
    rows, columns = theta.shape
    width = max(1, BLOCK // rows) if theta.device.type == "cpu" else columns
    for at in range(0, columns, width):
        part = slice(at, at + width)
        slots = {slot: value[:, part] for slot, value in state.items()}
        _update_block_(optimizer, theta[:, part], grad[:, part], slots, step, lr, decay)


def _update_block_(
    optimizer: OptimizerName,
    theta: Tensor,
    grad: Tensor,
    state: dict[str, Tensor],
    step: int,
    lr: Tensor,
    decay: Tensor | None,
) -> None:
    if decay is not None:
        if optimizer == "adamw":
            theta.mul_(1 - lr * decay)
        else:
            grad.add_(theta * decay)
    if optimizer == "sgd":
        theta.sub_(grad.mul_(lr))
    elif optimizer == "momentum":
        state["velocity"].mul_(MOMENTUM).add_(grad)
        theta.sub_(grad.copy_(state["velocity"]).mul_(lr))
    elif optimizer == "rmsprop":
        square = state["square"].mul_(RMS_ALPHA).addcmul_(grad, grad, value=1 - RMS_ALPHA)
        theta.sub_(grad.div_(square.sqrt().add_(EPS)).mul_(lr))
    else:
        mean = state["mean"].lerp_(grad, 1 - BETAS[0])
        square = state["square"].mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
        denominator = grad.copy_(square).sqrt_().mul_((1 - BETAS[1] ** step) ** -0.5).add_(EPS)
        theta.sub_(denominator.reciprocal_().mul_(mean).mul_(lr / (1 - BETAS[0] ** step)))
