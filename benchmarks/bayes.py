"""An ELBO step: of W against standard networks, of the closed-form chain rule against autograd, of VI against training.

Targets: a step of W costs at most a tenth more than one of standard. The cost of variational inference over
deterministic training of the same network is stated, without a target.
"""

from __future__ import annotations

from typing import Any

import torch

from asym.bayes import Guide, Posterior, PriorRule
from asym.nn import Variant
from asym.populations import Architecture, Member, Recipe, make_plan, train_chunk
from asym.seeds import torch_generator
from benchmarks.harness import compare, random_images, single_thread

RULES = (PriorRule("*", 0.01),)
TARGET = 0.9
BATCH = 64


def run(steps: int = 30) -> list[dict[str, Any]]:
    """Ratios of MLP-8, five networks at once, and of ResNet-20, one network, on images of 8 × 8 pixels."""
    single_thread()
    rows = []
    for arch, guide, n in (("mlp-8", Guide("lowrank"), 5), ("resnet20", Guide("lowrank", log_variance=-12.0), 1)):
        note = f"1x8x8, batch {BATCH}, {n} network(s) at once, rank 4, one thread"
        step = {v: _step(arch, v, guide, n, steps) for v in ("standard", "w")}
        rows.append(compare(f"ELBO step of W {arch}", step["w"], step["standard"], target=TARGET, note=note))
        rows.append(
            compare(
                f"closed-form ELBO gradient of {arch}",
                step["standard"],
                _step(arch, "standard", guide, n, steps, autograd=True),
                target=0,
                note=f"against autograd through it all; {note}",
            )
        )  # fmt: skip
        rows.append(
            compare(
                f"training steps in the time of an ELBO step of {arch}", _train(arch, n, steps), step["standard"],
                target=0, note=f"deterministic training of as many networks; {note}",
            )
        )  # fmt: skip
    return rows


def _step(arch: str, variant: str, guide: Guide, n: int, steps: int, autograd: bool = False):
    architecture = Architecture(arch, (1, 8, 8), 10, variant=Variant(variant, kappa=0.5 if variant == "w" else None))
    networks = [architecture.build(i, i).train() for i in range(n)]
    family = Posterior(networks, RULES, guide)
    theta = torch.nn.Parameter(family.initial(networks, range(n)))
    theta.grad = gradient = torch.zeros_like(theta)
    generator = torch_generator(0, "benchmark", "bayes")
    x = torch.randn(n, BATCH, 1, 8, 8, generator=generator)
    y = torch.randint(0, 10, (n, BATCH), generator=generator)
    adam = torch.optim.Adam([theta], lr=1e-4, fused=True)

    def work() -> None:
        for _ in range(steps):
            noise = torch.randn(n, family.noise_size(BATCH), generator=generator)
            if autograd:
                nll, kl = family.elbo(theta, x, y, noise)
                (theta.grad,) = torch.autograd.grad((nll + 1e-3 * kl).sum(), theta)
            else:
                family.gradient(theta.detach(), x, y, noise, 1e-3, gradient)
            adam.step()

    return work


def _train(arch: str, n: int, steps: int):
    data = random_images(1, 8, steps * BATCH)
    architecture = Architecture(arch, (1, 8, 8), 10)
    plan = make_plan(architecture.build(0), (1, 8, 8), BATCH, torch.device("cpu"))
    member = [Member(i, i, Recipe(optimizer="adam", lr=1e-4, epochs=1, batch_size=BATCH)) for i in range(n)]

    def work() -> None:
        for one in member:
            train_chunk(architecture, [one], data, plan)

    return work
