"""Hamiltonian Monte Carlo for many chains at once: the long reference that NUTS is compared with.

Hundreds of chains share each tensor operation, which gives a hundred times the draws of as long a run of single
chains, from as many independent starts. A move draws momenta p ~ N(0, I), takes L leapfrog steps of size η

    p ← p − (η/2) ∇U(z),    z ← z + η p,    p ← p − (η/2) ∇U(z)

and accepts with probability min(1, exp(H(before) − H(after))), H = U + |p|²/2. η is one number for all chains; in the
warm-up it follows log η ← log η + (a − 0.8) / √t with the mean acceptance a of move t; L is drawn anew for each
move from 1 … `leaps`, so that no orbit closes on itself (Neal 2011, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from asym.seeds import torch_generator

TARGET_ACCEPTANCE = 0.8


class Draws(NamedTuple):
    """Draws of many chains."""

    draws: Float[Tensor, "c s d"]
    step_size: float
    acceptance: float


def sample(
    potential: Callable[[Float[Tensor, "c d"]], Float[Tensor, " c"]],
    start: Float[Tensor, "c d"],
    seed: int,
    *,
    warmup: int,
    moves: int,
    keep_every: int = 1,
    leaps: int = 20,
    step_size: float = 0.1,
) -> Draws:
    """Sample from exp(−potential) with as many chains as `start` has rows.

    Args:
        potential: U of each chain; a chain's value must depend on its own row alone.
        start: first positions.
        seed: of momenta, path lengths and acceptance.
        warmup: moves in which the step size is adapted, thrown away.
        moves: moves after that.
        keep_every: every so many of them is kept.
        leaps: longest number of leapfrog steps.
        step_size: first step size.

    Raises:
        ValueError: for numbers below 1.
    """
    for name, value in (("moves", moves), ("keep_every", keep_every), ("leaps", leaps)):
        if value < 1:
            raise ValueError(f"{name}: got {value}, must be at least 1")
    generator = torch_generator(seed, "hmc")
    z, eta, kept, rates = start.clone(), step_size, [], []
    u, grad = _value_and_gradient(potential, z)
    for move in range(warmup + moves):
        p = torch.randn(z.shape, generator=generator, dtype=z.dtype)
        steps = int(torch.randint(1, leaps + 1, (), generator=generator))
        # A step size of its own near the common one keeps chains off resonances.
        own = eta * (0.8 + 0.4 * torch.rand((), generator=generator).item())
        before = u + 0.5 * p.square().sum(dim=1)
        new, new_u, new_grad = z, u, grad
        for _ in range(steps):
            p = p - 0.5 * own * new_grad
            new = new + own * p
            new_u, new_grad = _value_and_gradient(potential, new)
            p = p - 0.5 * own * new_grad
        ratio = (before - new_u - 0.5 * p.square().sum(dim=1)).nan_to_num(nan=-torch.inf).exp().clamp(max=1.0)
        accept = torch.rand(len(z), generator=generator, dtype=z.dtype) < ratio
        z = torch.where(accept[:, None], new, z)
        u, grad = torch.where(accept, new_u, u), torch.where(accept[:, None], new_grad, grad)
        rate = ratio.mean().item()
        if move < warmup:
            eta *= float(torch.tensor((rate - TARGET_ACCEPTANCE) / (move + 1) ** 0.5).exp())
        else:
            rates.append(rate)
            if (move - warmup) % keep_every == 0:
                kept.append(z)
    return Draws(torch.stack(kept, dim=1), eta, sum(rates) / len(rates))


def _value_and_gradient(potential: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    leaf = z.detach().requires_grad_()
    with torch.enable_grad():
        u = potential(leaf)
        (grad,) = torch.autograd.grad(u.sum(), leaf)
    return u.detach(), grad
