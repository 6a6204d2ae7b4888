"""A posterior over two weights, where one can see the copies of a mode and see them vanish.

Two hidden units whose outgoing weight equals the incoming one, one input x, data y = f(x; 0.8, 2) + noise:

    standard   f = a tanh(a x) + b tanh(b x)                          same under a → −a, b → −b, a ↔ b: 2! · 2² copies
    w          f = a tanh(a x + c₁) + b tanh(b x + c₂)                a fixed weight c of each unit on a constant input
    sigma      f = a h₁ s(F₁ · h) + b h₂ s(F₂ · h),  h = (a x, b x)   s the logistic function, F fixed

Each network explains data of its own kind, made from the same two weights; the posterior is computed on a grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asym.seeds import numpy_generator

TRUTH, NOISE, PRIOR_SD, POINTS = (0.8, 2.0), 0.5, 1.5, 24
FIXED = (1.2, -0.8)
GATE = ((1.0, 2.0), (-2.0, 1.0))
REACH, SIDE = 3.0, 49
VARIANTS = ("standard", "w", "sigma")


def outputs(variant: str, a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """f at weights `[g]`, `[g]` and inputs `[n]`: `[g, n]`."""
    h = np.stack([a[:, None] * x, b[:, None] * x])
    if variant == "sigma":
        gate = 1 / (1 + np.exp(-np.einsum("ij,jgn->ign", np.asarray(GATE), h)))
        units = h * gate
    else:
        units = np.tanh(h + np.asarray(FIXED)[:, None, None] * (variant == "w"))
    return a[:, None] * units[0] + b[:, None] * units[1]


def posterior(variant: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid coordinates a, b (`[SIDE²]` each) and log density relative to its largest value."""
    x = np.linspace(-2, 2, POINTS)
    clean = outputs(variant, np.array(TRUTH[:1]), np.array(TRUTH[1:]), x)[0]
    y = clean + NOISE * numpy_generator(seed, "plane").normal(size=POINTS)
    axis = np.linspace(-REACH, REACH, SIDE)
    a, b = (m.ravel() for m in np.meshgrid(axis, axis, indexing="ij"))
    residual = (y - outputs(variant, a, b, x)) / NOISE
    log_p = -0.5 * (residual**2).sum(axis=1) - 0.5 * (a**2 + b**2) / PRIOR_SD**2
    return a, b, log_p - log_p.max()


def modes(log_p: np.ndarray, depth: float = 5.0) -> int:
    """Local maxima of a grid's log density within `depth` of the largest; a plateau of equal neighbours counts once."""
    grid = np.pad(log_p.reshape(SIDE, SIDE), 1, constant_values=-np.inf)
    inner, strict = grid[1:-1, 1:-1], np.ones((SIDE, SIDE), dtype=bool)
    for i in range(3):
        for j in range(3):
            other = grid[i : i + SIDE, j : j + SIDE]
            # Of equal neighbours the one that comes first in reading order is the maximum.
            strict &= (inner > other) if (i, j) < (1, 1) else (inner >= other)
    return int((strict & (inner > -depth)).sum())


def rows(seed: int, key: str) -> list[dict[str, Any]]:
    """The rows of `bnn_plane.csv`."""
    out = []
    for variant in VARIANTS:
        a, b, log_p = posterior(variant, seed)
        found = modes(log_p)
        out += [
            {"config": key, "variant": variant, "a": float(u), "b": float(v), "log_density": round(float(p), 4),
             "modes": found}
            for u, v, p in zip(a, b, log_p)
        ]  # fmt: skip
    return out
