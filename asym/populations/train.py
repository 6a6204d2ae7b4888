"""One training loop for one network or thousands.

The networks of a chunk are the rows of a matrix θ of shape `n p`. A step computes the gradient of every row, by plain
autograd on a module whose parameters are views into θ (n = 1), or by `torch.func.vmap` over rows (n > 1), and hands
both matrices to the optimiser. What a network sees (initial weights, order of images, crops and flips, what is dropped)
is drawn from generators of its own seed and the epoch number: it depends neither on the chunk nor on where training was
resumed.

A network whose loss or weights stop being finite is marked with the epoch and left as it was at that epoch's end; the
others go on. Networks with fewer epochs leave the chunk when they are done.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from asym.data import Batches, Data, with_train_size
from asym.nn.dropout import keeping
from asym.nn.init import initialise
from asym.populations.dropout import Dropping, check_dropout
from asym.populations.layout import Layout, channels_last
from asym.populations.optim import init_state, update_
from asym.populations.plan import Plan
from asym.populations.population import Architecture, Member, start_at_constants
from asym.populations.recipes import Recipe

SHARED = ("optimizer", "batch_size", "augment", "train_fraction")
"""Fields of a recipe that networks of one chunk must share."""


@runtime_checkable
class Checkpoint(Protocol):
    """Where a training run keeps its progress; `asym.store.Run` is one."""

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None: ...  # noqa: D102
    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None: ...  # noqa: D102


@dataclasses.dataclass
class Trained:
    """Result of training a chunk."""

    theta: Float[Tensor, "n p"]
    """Trainable parameters, one network a row, in the order of `Layout.trainable`."""
    running: Float[Tensor, "n q"]
    """Running statistics of BatchNorm, one network a row (q = 0 without BatchNorm)."""
    history: list[dict[str, float]]
    """One entry a network and epoch: `network, epoch, lr, train_loss` (with smoothing) and `train_acc`, both averaged
    over the epoch's batches as they were met. Runs that were kept before `train_acc` was added lack it."""
    diverged: list[int]
    """Epoch (from 1) at which a network diverged; 0 for one that did not."""
    wall_s: float
    """Seconds of training, those before an interruption included."""


def train_chunk(
    architecture: Architecture,
    members: Sequence[Member],
    data: Data,
    plan: Plan,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Checkpoint | None = None,
    checkpoint_every_s: float = 30.0,
    on_epoch: Callable[[int], None] = lambda networks: None,
) -> Trained:
    """Train `members` together.

    Args:
        architecture: how the networks are built.
        members: the networks; they share optimiser and batch size.
        data: the training split is used; validation and test are not touched.
        plan: numerical choices; `plan.chunk` is not enforced here.
        device: where to train.
        checkpoint: if given, progress is saved after an epoch at least every `checkpoint_every_s` seconds, and
            resumed from; the result is the same to the bit on a CPU.
        on_epoch: called after each epoch with the number of networks that took part.

    Raises:
        ValueError: if members differ in optimiser, batch size, augmentation or share of the images, or have dropout
            where the architecture has no place for it.
    """
    recipes = [member.recipe for member in members]
    for field in SHARED:
        values = {getattr(recipe, field) for recipe in recipes}
        if len(values) > 1:
            raise ValueError(f"{field}: networks of one chunk must share it, got {sorted(map(str, values))}")
    device = torch.device(device)
    if recipes[0].train_fraction < 1:
        data = with_train_size(data, max(1, round(recipes[0].train_fraction * len(data.train))))
    chunk = _Chunk(architecture, members, plan, device)
    batches = data.batches([m.seed for m in members], recipes[0].batch_size, recipes[0].augment, device)
    state = init_state(recipes[0].optimizer, chunk.theta)
    history: list[dict[str, float]] = []
    diverged = [0] * len(members)
    first, before = 0, 0.0
    if checkpoint is not None and (saved := checkpoint.load_checkpoint()) is not None:
        tensors, meta = saved
        chunk.theta.copy_(tensors["theta"])
        chunk.running.copy_(tensors["running"])
        for slot in state:
            state[slot].copy_(tensors[slot])
        history, diverged = list(meta["history"]), list(meta["diverged"])
        first, before = int(meta["epoch"]), float(meta["wall_s"])
        for done in range(first):
            on_epoch(sum(recipe.epochs > done for recipe in recipes))

    start = last_save = time.perf_counter()
    for epoch in range(first, max(recipe.epochs for recipe in recipes)):
        rows = [i for i, recipe in enumerate(recipes) if recipe.epochs > epoch and not diverged[i]]
        if rows:
            losses, accuracies = _run_epoch(chunk, rows, recipes, batches, state, epoch)
            finite = losses.isfinite() & chunk.theta[rows].isfinite().all(dim=1).cpu()
            for k, i in enumerate(rows):
                lr = recipes[i].lr_at(epoch)
                means = {"train_loss": losses[k].item(), "train_acc": accuracies[k].item()}
                history.append({"network": i, "epoch": epoch + 1, "lr": lr, **means})
                diverged[i] = 0 if finite[k] else epoch + 1
        on_epoch(sum(recipe.epochs > epoch for recipe in recipes))
        now = time.perf_counter()
        if checkpoint is not None and now - last_save > checkpoint_every_s:
            last_save = now
            meta = {
                "epoch": epoch + 1,
                "history": history,
                "diverged": diverged,
                "wall_s": before + now - start,
            }
            checkpoint.save_checkpoint({"theta": chunk.theta, "running": chunk.running, **state}, meta)
    wall_s = before + time.perf_counter() - start
    return Trained(chunk.theta.cpu(), chunk.running.cpu(), history, diverged, wall_s)


def _run_epoch(
    chunk: _Chunk,
    rows: list[int],
    recipes: Sequence[Recipe],
    batches: Batches,
    state: dict[str, Tensor],
    epoch: int,
) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """One pass of the networks `rows` over the data; returns each one's mean training loss and accuracy."""
    everyone = len(rows) == len(recipes)
    theta = chunk.theta if everyone else chunk.theta[rows]
    slots = state if everyone else {slot: value[rows] for slot, value in state.items()}
    gradient, masks = chunk.gradient_of(rows, theta), chunk.dropping.epoch(rows, epoch)

    def column(values: list[float]) -> Float[Tensor, "k 1"]:
        return torch.tensor(values, device=theta.device, dtype=theta.dtype)[:, None]

    decays = [recipes[i].weight_decay for i in rows]
    decay = column(decays) if any(decays) else None
    smoothing = column([recipes[i].smoothing for i in rows])[:, 0]
    total, hits, seen = torch.zeros(len(rows), device=theta.device), torch.zeros(len(rows), device=theta.device), 0
    for step, (images, labels) in enumerate(batches.epoch(rows, epoch)):
        lr = column([recipes[i].lr_at(epoch + step / batches.steps) for i in rows])
        grad, loss, right = gradient(images, labels, smoothing, masks(labels.shape[1]))
        update_(recipes[rows[0]].optimizer, theta, grad, slots, epoch * batches.steps + step + 1, lr, decay)
        total += loss * labels.shape[1]
        hits += right
        seen += labels.shape[1]
    if not everyone:
        chunk.theta[rows] = theta
        for slot, value in slots.items():
            state[slot][rows] = value
    chunk.collect_running(rows)
    return (total / seen).cpu(), (hits / seen).cpu()


class _Chunk:
    """The networks of a chunk: θ, running statistics, and how to get gradients."""

    def __init__(self, architecture: Architecture, members: Sequence[Member], plan: Plan, device: torch.device) -> None:
        networks = [architecture.build(m.seed, m.mask_seed) for m in members]
        for network, m in zip(networks, members):
            if m.recipe.start != "own":
                initialise(network, m.seed, m.recipe.start, m.recipe.start_std)
                if architecture.variant.name == "w-init":
                    start_at_constants(network, architecture, m)
        check_dropout(networks[0], architecture.arch, [m.recipe for m in members])
        self.layout = Layout.trainable(networks[0])
        if not self.layout.names:
            raise ValueError(f"architecture: {architecture.arch} has no trainable parameters")
        self.running_layout = Layout.running(networks[0])
        tensors = [{**dict(n.named_parameters()), **dict(n.named_buffers())} for n in networks]
        self.theta = torch.stack([self.layout.flatten(t) for t in tensors]).to(device)
        if self.running_layout.names:
            self.running = torch.stack([self.running_layout.flatten(t) for t in tensors]).to(device)
        else:
            self.running = torch.zeros(len(members), 0, device=device)
        moving = {*self.layout.names, *self.running_layout.names}
        self.constants = [{k: v.detach().to(device) for k, v in t.items() if k not in moving} for t in tensors]
        self.shared_constants = len({m.mask_seed for m in members}) == 1
        self.network = networks[0].to(device).train()
        self.plan = plan
        if plan.channels_last:
            self.network.to(memory_format=torch.channels_last)
        rates = [m.recipe.dropout for m in members]
        self.dropping = Dropping(self.network, architecture.input_shape, [m.seed for m in members], rates, device)

    def gradient_of(self, rows: list[int], theta: Tensor) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        """A function (inputs `k …`, labels `k b`, smoothing `k`, masks of dropout) → (gradient `k p`, loss `k`, correct
        labels `k`)."""
        if len(rows) == 1:
            return self._plain_gradient(rows[0], theta)
        if self.running_layout.names:
            raise ValueError("chunk: networks with BatchNorm are trained one at a time (chunk of 1)")
        return self._stacked_gradient(rows, theta)

    def _plain_gradient(self, row: int, theta: Tensor) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        own = {**dict(self.network.named_parameters()), **dict(self.network.named_buffers())}
        for name, value in self.constants[row].items():
            own[name].data.copy_(value)
        for name, view in self.layout.views(theta[0]).items():
            own[name].data = view  # the module reads θ itself: an update of θ is an update of the module
        if self.running_layout.names:
            self.running_layout.load_(self.network, self.running[row])
        parameters = [own[name] for name in self.layout.names]

        def gradient(
            images: Any, labels: Tensor, smoothing: Tensor, masks: dict[str, Tensor]
        ) -> tuple[Tensor, Tensor, Tensor]:
            inputs = channels_last(images[0]) if self.plan.channels_last else images[0]
            with self._autocast(), keeping(self.network, {name: mask[0] for name, mask in masks.items()}):
                logits = self.network(inputs)
            loss = cross_entropy(logits.float(), labels[0], smoothing[0])
            grads = torch.autograd.grad(loss, parameters)
            right = (logits.argmax(dim=-1) == labels[0]).sum()
            return torch.cat([g.reshape(-1) for g in grads])[None], loss.detach()[None], right[None]

        return gradient

    def _stacked_gradient(self, rows: list[int], theta: Tensor) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        if self.shared_constants:
            constants, axis = self.constants[0], None
        else:
            names = self.constants[0]
            constants = {name: torch.stack([self.constants[i][name] for i in rows]) for name in names}
            axis = 0

        def loss_of(parameters, constants, images, labels, smoothing, masks):
            with self._autocast():
                logits = torch.func.functional_call(self.network, {**constants, **parameters, **masks}, (images,))
            right = (logits.argmax(dim=-1) == labels).sum()
            return cross_entropy(logits.float(), labels, smoothing), right

        both = torch.func.vmap(torch.func.grad_and_value(loss_of, has_aux=True), in_dims=(0, axis, 0, 0, 0, 0))

        def gradient(
            images: Tensor, labels: Tensor, smoothing: Tensor, masks: dict[str, Tensor]
        ) -> tuple[Tensor, Tensor, Tensor]:
            grads, (loss, right) = both(self.layout.views(theta), constants, images, labels, smoothing, masks)
            return torch.cat([grads[n].flatten(1) for n in self.layout.names], dim=1), loss.detach(), right

        return gradient

    def collect_running(self, rows: list[int]) -> None:
        """Read the running statistics back after an epoch of a single network."""
        if self.running_layout.names:
            self.running[rows[0]] = self.running_layout.flatten(dict(self.network.named_buffers()))

    def _autocast(self) -> torch.autocast:
        enabled = self.plan.dtype == "bfloat16"
        return torch.autocast(self.theta.device.type, torch.bfloat16, enabled=enabled)


def cross_entropy(logits: Float[Tensor, "b c"], labels: Tensor, smoothing: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Cross-entropy in nats with the target (1 − s) · one-hot + s · uniform, averaged over the batch."""
    log_p = F.log_softmax(logits, dim=-1)
    hit = log_p.gather(-1, labels[:, None])[:, 0]
    return -((1 - smoothing) * hit + smoothing * log_p.mean(dim=-1)).mean()
