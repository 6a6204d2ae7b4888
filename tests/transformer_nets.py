"""Random blocks of transformers, and how far two answers lie apart, for the tests of their readers."""

import torch
import torch.nn.functional as F

from asym.symmetry.encoder import Sizes

CASES = [Sizes(6, 2, 3, 3, 8), Sizes(5, 3, 2, 4, 7), Sizes(4, 1, 4, 2, 3)]


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weights(size, n, channels, seed=0):
    """Random blocks with heads as an axis."""
    return {s: randn(n, channels, *shape, seed=seed + i) for i, (s, shape) in enumerate(size.shapes.items())}


def made(kind, *args, seed=0, **options):
    torch.manual_seed(seed)
    return kind(*args, **options).double()


def relu(x):
    return {s: F.relu(t) if s in "AaBb" else t for s, t in x.items()}


def deviation(a, b):
    """Largest difference in units of the size of b."""
    return float((a - b).detach().abs().max() / b.detach().abs().max())
