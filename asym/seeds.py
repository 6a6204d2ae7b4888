"""Randomness by name: every random number of the project comes from (integer seed, stable name).

    generator = f(SeedSequence([seed, sha256(name)]))

The name is hashed with SHA-256, never with Python's `hash()`, which is salted per process. Two processes that ask
for the same (seed, name) get the same numbers; two different names give independent streams; the global generators
of Python, NumPy and PyTorch are neither read nor advanced.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def seed_sequence(seed: int, *name: str | int) -> np.random.SeedSequence:
    """The seed sequence of the stream `name` under `seed`.

    Args:
        seed: any integer, negative ones included.
        name: what the numbers are for, from general to particular, such as `"mask", "layer1.0.conv1"`.

    Raises:
        TypeError: if a part of the name is neither a string nor an integer.
    """
    if not all(isinstance(part, str | int) for part in name):
        raise TypeError(f"name: parts must be strings or integers, got {name!r}")
    # repr keeps 1 and "1", and ("a", "bc") and ("ab", "c"), apart.
    digest = hashlib.sha256(repr((int(seed), *name)).encode()).digest()
    return np.random.SeedSequence(np.frombuffer(digest, dtype="<u4").tolist())


def numpy_generator(seed: int, *name: str | int) -> np.random.Generator:
    """A NumPy generator (PCG64) of the stream `name` under `seed`."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, *name)))


def torch_generator(seed: int, *name: str | int) -> torch.Generator:
    """A PyTorch generator on the CPU of the stream `name` under `seed`.

    Draw on the CPU and move the result: the numbers then do not depend on the device.
    """
    import torch

    state = seed_sequence(seed, *name).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) & 0x7FFF_FFFF_FFFF_FFFF)


def derived_seed(seed: int, *name: str | int) -> int:
    """An integer seed in [0, 2³¹) for the stream `name` under `seed`, to be recorded in a table."""
    return int(seed_sequence(seed, *name).generate_state(1, np.uint32)[0]) & 0x7FFF_FFFF
