"""Weight matching against a plain version of it, and how often a planted permutation is found again.

The plain version does what the published one does: every sweep visits every group, computes every product of matrices
anew, one for each axis of each parameter, and stops when no group improves. In the first row it visits groups in random
order, as published, another one each time; in the second in our order, from input to output, so that both take the same
steps.

Networks are trained here, on scikit-learn's digits, for a few epochs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from torch import Tensor, nn

from asym.models import build
from asym.seeds import numpy_generator, torch_generator
from asym.symmetry import (
    PermutationSpec,
    permutation_spec,
    permute,
    random_permutations,
    weight_matching,
)
from benchmarks.harness import compare, single_thread

SHAPE = (1, 8, 8)


def train(arch: str, seed: int, *, epochs: int, lr: float, width: float = 1.0) -> dict[str, Tensor]:
    """Parameters of a network after `epochs` on the digits (Adam, batch 100, bfloat16 autocast)."""
    pixels, targets = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels, dtype=torch.float32).reshape(-1, *SHAPE), torch.tensor(targets)
    images = (images - images.mean()) / images.std()
    model = build(arch, input_shape=SHAPE, classes=10, width=width, seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    generator = torch_generator(seed, "order")
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=generator).split(100):
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images[batch])
            loss = F.cross_entropy(logits.float(), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def spec_of(arch: str, width: float = 1.0) -> PermutationSpec:
    """The permutation spec of an architecture on digits."""
    model: nn.Module = build(arch, input_shape=SHAPE, classes=10, width=width)
    return permutation_spec(model, torch.zeros(2, *SHAPE), prove=False)


def plain_weight_matching(
    spec: PermutationSpec, a: Mapping[str, Tensor], b: Mapping[str, Tensor], rng: np.random.Generator | None = None
) -> dict[str, Tensor]:
    """Coordinate descent from the identity, nothing kept between steps; groups in random order if `rng` is given.

    For specs whose axes are whole groups.
    """
    perms = {name: torch.arange(group.size) for name, group in spec.groups.items()}
    axes = {name: [getattr(axis, "group", None) for axis in spec.tensors[name]] for name in spec.tensors}
    names = list(perms)
    for _ in range(100):
        progress = False
        for name in names if rng is None else rng.permutation(names):
            total = torch.zeros(len(perms[name]), len(perms[name]))
            for tensor, axis in spec.groups[name].axes:
                moved = b[tensor]
                for other, group in enumerate(axes[tensor]):
                    if other != axis and group is not None:
                        moved = moved.index_select(other, perms[group])
                left = a[tensor].movedim(axis, 0).reshape(len(perms[name]), -1)
                total += left @ moved.movedim(axis, 0).reshape(len(perms[name]), -1).T
            before = total[torch.arange(len(total)), perms[name]].sum()
            found = torch.from_numpy(linear_sum_assignment(total.numpy(), maximize=True)[1])
            gain = total[torch.arange(len(total)), found].sum() - before
            progress = progress or float(gain) > 1e-12 * abs(float(before))
            perms[name] = found
        if not progress:
            break
    return perms


def inner(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """The inner product of two networks."""
    return sum(float((a[name].double() * b[name].double()).sum()) for name in a)


def speed(arch: str, width: float, *, epochs: int, target: float) -> list[dict[str, Any]]:
    """One restart, from the identity, against the plain version in the published, random order and in ours."""
    a, b = (train(arch, seed, epochs=epochs, lr=1e-3, width=width) for seed in (0, 1))
    spec = spec_of(arch, width)
    seeds = itertools.count()

    def objective(perms: Mapping[str, Tensor]) -> float:
        return inner(a, permute(spec, perms, b))

    def ours() -> dict[str, Tensor]:
        return weight_matching(spec, a, b, restarts=1).perms

    def same_steps() -> dict[str, Tensor]:
        return plain_weight_matching(spec, a, b)

    def published() -> dict[str, Tensor]:
        return plain_weight_matching(spec, a, b, numpy_generator(next(seeds), "plain"))

    name, found = f"weight matching, {arch} width {width:g}, a restart", objective(ours())
    apart = abs(found / objective(same_steps()) - 1)
    reached = [objective(published()) for _ in range(3)]
    note = f"after {epochs} epochs; objective {found:.1f}"
    return [
        compare(
            name,
            ours,
            published,
            target=target,
            repeats=5,
            note=f"{note} against {min(reached):.1f} to {max(reached):.1f}",
        ),
        compare(
            f"{name}, the same steps", ours, same_steps, target=0.0, repeats=5, note=f"{note}, apart by {apart:.0e}"
        ),
    ]


def planted(arch: str, trials: int = 100) -> dict[str, Any]:
    """How often a random permutation of a trained network is found again, tensor for tensor.

    The ratio is that of the first two starts (identity, greedy); the note has the identity start alone and the plain
    version, which visits groups in random order.
    """
    b = train(arch, 0, epochs=10, lr=3e-3)
    spec = spec_of(arch)
    hits = {"greedy": 0, "identity": 0, "plain": 0}
    seconds = {"greedy": 0.0, "identity": 0.0, "plain": 0.0}
    for trial in range(trials):
        a = permute(spec, random_permutations(spec, torch_generator(trial, "planted")), b)
        for which in hits:
            start = time.perf_counter()
            if which == "plain":
                perms = plain_weight_matching(spec, a, b, numpy_generator(trial, "plain"))
            else:
                perms = weight_matching(spec, a, b, restarts=2 if which == "greedy" else 1).perms
            seconds[which] += time.perf_counter() - start
            moved = permute(spec, perms, b)
            hits[which] += all(torch.equal(moved[name], a[name]) for name in a)
    return {
        "name": f"planted permutation found again, trained {arch}",
        "ratio": hits["greedy"] / trials,
        "ours_s": seconds["greedy"] / trials,
        "reference_s": seconds["plain"] / trials,
        "target": 1.0,
        "note": f"{trials} trials; identity start alone {hits['identity']}, plain version {hits['plain']}",
    }


def run() -> list[dict[str, Any]]:
    """All rows: the time of a restart, then the share of planted permutations that are found again."""
    single_thread()
    return [
        *speed("resnet20", 8.0, epochs=4, target=2.0),
        planted("mlp"),
        planted("resnet20"),
    ]
