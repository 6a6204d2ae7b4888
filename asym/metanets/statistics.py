"""Seven numbers for each tensor of a network: mean, variance, minimum, maximum and the three quartiles.

Over the trained entries of a tensor, the variance unbiased (0 for a single entry), quartiles interpolated linearly.
They do not depend on the order of units; scalings change them. Sources: Unterthiner et al. 2020, "Predicting Neural
Network Accuracy from Weights" (percentiles 0, 25, 50, 75, 100, standard deviation and mean), Zhou et al. 2023 (NFN) and
Lim et al. 2024 (arXiv 2405.20231) with the variance.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from asym.metanets.stack import Stack
from asym.symmetry.chain import Frame

PER_TENSOR = 7


def statistics(stack: Stack, names: Sequence[str] | None = None) -> Float[Tensor, "n s"]:
    """The seven statistics of each tensor, tensor after tensor.

    Args:
        stack: networks.
        names: tensors to describe, whether the networks have them or not: NaN stands where one does not, or where
            nothing of it is trained. Else all that have trained entries.
    """
    found = []
    for name in stack.chain.shapes if names is None else names:
        rows = stack.trained(name) if name in stack.chain.shapes else stack.like.new_empty(len(stack), 0)
        size = rows.shape[1]
        if not size:
            if names is not None:
                found.append(rows.new_full((len(stack), PER_TENSOR), float("nan")))
            continue
        ranked = rows.sort(1).values
        columns = [rows.mean(1), rows.var(1) if size > 1 else torch.zeros_like(rows[:, 0]), ranked[:, 0], ranked[:, -1]]
        for share in (0.25, 0.5, 0.75):
            place = share * (size - 1)
            low = int(place)
            high = min(low + 1, size - 1)
            columns.append(torch.lerp(ranked[:, low], ranked[:, high], place - low))
        found.append(torch.stack(columns, 1))
    return torch.cat(found, 1)


def tensor_names(chains: Sequence[Frame]) -> list[str]:
    """Names of the tensors of any of the chains, in the order in which they come up."""
    return list(dict.fromkeys(name for chain in chains for name in chain.shapes))


def count_statistics(chain: Frame, trained: dict[str, int]) -> int:
    """How many statistics networks of a chain have, given the numbers of trained entries by tensor."""
    return PER_TENSOR * sum(trained[name] > 0 for name in chain.shapes)
