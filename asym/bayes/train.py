"""Variational inference for one network or several at once: Adam on mean nll + (β / N) KL, one sample a step.

Order of images, augmentation and all noise come from generators of a network's own seed and the epoch: what a network
gets depends neither on the networks beside it nor on where training was resumed. A network whose loss or row stops
being finite is marked with the epoch and takes no further part.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from asym.bayes.guides import Guide
from asym.bayes.posterior import Posterior
from asym.bayes.priors import PriorRule
from asym.data import Data
from asym.populations.layout import channels_last
from asym.populations.plan import Plan
from asym.populations.population import Architecture, Member
from asym.populations.train import Checkpoint
from asym.seeds import derived_seed


@dataclasses.dataclass(frozen=True)
class Inference:
    """What determines a variational posterior, the network and its data aside."""

    guide: Guide
    """The family."""
    prior: tuple[PriorRule, ...]
    """The prior, the first rule that matches a layer."""
    kl_weight: float = 1.0
    """β: 1 for the posterior, 1/8 for the published tempering."""

    def __post_init__(self) -> None:
        if not 0 <= self.kl_weight < float("inf"):
            raise ValueError(f"kl_weight: got {self.kl_weight}, must be zero or a positive number")


@dataclasses.dataclass
class Inferred:
    """Result of inference for a chunk of networks."""

    theta: Float[Tensor, "n p"]
    """Rows of `Posterior.layout`."""
    running: Float[Tensor, "n q"]
    """Running statistics of BatchNorm, averaged over steps and so over samples of the weights."""
    history: list[dict[str, Any]]
    """One entry a network and epoch: `network, epoch, train_nll, kl`, and what `watch` gave."""
    diverged: list[int]
    """Epoch (from 1) at which a network diverged; 0 for one that did not."""
    wall_s: float
    """Seconds, those before an interruption included."""


Watch = Callable[[Posterior, Float[Tensor, "n p"], Float[Tensor, "n q"], list[int], int], list[dict[str, Any]]]


def infer_chunk(
    architecture: Architecture,
    members: Sequence[Member],
    data: Data,
    inference: Inference,
    plan: Plan,
    *,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
    checkpoint_every_s: float = 30.0,
    on_epoch: Callable[[int], None] = lambda networks: None,
) -> Inferred:
    """Fit the posteriors of `members` together.

    Args:
        architecture: how the networks are built.
        members: seeds and the recipe, which all share; its optimiser is `adam`.
        data: the training split is used.
        inference: family, prior and KL weight.
        plan: precision and layout.
        device: where to compute.
        watch: called after each epoch with (posterior, rows, running statistics, members' places, epoch from 1);
            its dictionaries, one a row, join the history.
        checkpoint: if given, progress is saved and resumed from; the result is the same to the bit on a CPU.
        checkpoint_every_s: least time between two checkpoints.
        on_epoch: called after each epoch with the number of networks.

    Raises:
        ValueError: for members of different recipes, or an optimiser other than adam.
    """
    recipe = members[0].recipe
    if any(member.recipe != recipe for member in members):
        raise ValueError("recipe: networks of one chunk must share it")
    if recipe.optimizer != "adam" or recipe.weight_decay or recipe.smoothing:
        raise ValueError("recipe: variational inference takes adam, without decay (the prior's task) and smoothing")
    device = torch.device(device)
    networks = [architecture.build(m.seed, m.mask_seed).train() for m in members]
    family = Posterior(networks, inference.prior, inference.guide, device=device)
    theta = torch.nn.Parameter(family.initial(networks, [m.seed for m in members]))
    running = (
        torch.stack([family.running.flatten(dict(n.named_buffers())) for n in networks]).to(device)
        if (family.running.names)
        else torch.zeros(len(members), 0, device=device)
    )
    theta.grad = torch.zeros_like(theta)
    adam = torch.optim.Adam([theta], lr=recipe.lr, fused=device.type in ("cpu", "cuda"))
    batches = data.batches([m.seed for m in members], recipe.batch_size, recipe.augment, device)
    history: list[dict[str, Any]] = []
    diverged, first, before = [0] * len(members), 0, 0.0
    adam.state[theta] = {
        "step": torch.zeros(()),
        "exp_avg": torch.zeros_like(theta),
        "exp_avg_sq": torch.zeros_like(theta),
    }
    slots = adam.state[theta]
    if checkpoint is not None and (saved := checkpoint.load_checkpoint()) is not None:
        tensors, meta = saved
        with torch.no_grad():
            theta.copy_(tensors["theta"])
        running.copy_(tensors["running"])
        for name, slot in slots.items():
            slot.copy_(tensors[name])
        history, diverged = list(meta["history"]), list(meta["diverged"])
        first, before = int(meta["epoch"]), float(meta["wall_s"])
        for _ in range(first):
            on_epoch(len(members))

    start = last_save = time.perf_counter()
    count = len(data.train.labels)
    scale = inference.kl_weight / count
    for epoch in range(first, recipe.epochs):
        rows = [i for i in range(len(members)) if not diverged[i]]
        if not rows:
            break
        everyone = len(rows) == len(members)
        part = family if everyone else family.rows(rows)
        noise_of = [
            torch.Generator(device).manual_seed(derived_seed(members[i].seed, "posterior", epoch)) for i in rows
        ]
        nlls, kls, seen = torch.zeros(len(rows), device=device), torch.zeros(len(rows), device=device), 0
        for step, (images, labels) in enumerate(batches.epoch(rows, epoch)):
            size = labels.shape[1]
            noise = torch.empty(len(rows), part.noise_size(size), device=device)
            for row, generator in zip(noise, noise_of):
                row.normal_(generator=generator)
            if plan.channels_last and len(rows) == 1:
                images = channels_last(images[0])[None]
            assert theta.grad is not None
            values = theta.detach() if everyone else theta.detach()[rows]
            grad = theta.grad if everyone else torch.empty_like(values)
            with torch.autocast(device.type, torch.bfloat16, enabled=plan.dtype == "bfloat16"):
                nll, kl = part.gradient(
                    values, images, labels, noise, scale, grad, running[rows[0]][None] if running.shape[1] else None
                )
            if not everyone:
                theta.grad.zero_()
                theta.grad[rows] = grad
            adam.param_groups[0]["lr"] = recipe.lr_at(epoch + step / batches.steps)
            adam.step()
            nlls += nll * size
            kls += kl * size
            seen += size
        entries = [
            {"network": i, "epoch": epoch + 1, "train_nll": (nlls[k] / seen).item(), "kl": (kls[k] / seen).item()}
            for k, i in enumerate(rows)
        ]
        finite = (nlls + kls).isfinite() & theta.detach()[rows].isfinite().all(dim=1)
        for k, i in enumerate(rows):
            diverged[i] = 0 if finite[k] else epoch + 1
        alive = [k for k, i in enumerate(rows) if not diverged[i]]
        if watch is not None and alive:
            places = [rows[k] for k in alive]
            whole = len(places) == len(members)
            found = watch(
                family if whole else family.rows(places), theta.detach()[places], running[places], places, epoch + 1
            )
            for k, more in zip(alive, found):
                entries[k] |= more
        history += entries
        on_epoch(len(members))
        now = time.perf_counter()
        if checkpoint is not None and now - last_save > checkpoint_every_s:
            last_save = now
            meta = {"epoch": epoch + 1, "history": history, "diverged": diverged, "wall_s": before + now - start}
            checkpoint.save_checkpoint({"theta": theta.detach(), "running": running, **slots}, meta)
    wall_s = before + time.perf_counter() - start
    return Inferred(theta.detach().cpu(), running.cpu(), history, diverged, wall_s)
