"""One chain on a small network, or the reference run: the network, what it sees, and the draws.

Functions here run in worker processes; draws are kept in the store and found there the next time.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch
from torch import Tensor, nn

from asym.bayes import PriorRule, Target, fix_scaling, run_chain
from asym.bayes.hmc import sample
from asym.models import build
from asym.nn import LayerRule, MaskedLayer, Variant, apply_variant, fewest_n_fix
from asym.populations import cached, subset, tick
from asym.seeds import derived_seed
from asym.store import Store
from studies.setup import DataArgs

VERSION = 1
"""Raised by hand whenever the same config would give other chains or measures."""
CLASSES = 3
RULES = (PriorRule("*", 1.0, "unit"),)
THINNED = 200
"""Draws of a chain that predictions and copies are computed for, at most."""


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How long is sampled."""

    chains: int
    warmup: int
    draws: int
    tree_depth: int
    reference_chains: int
    reference_warmup: int
    reference_moves: int


@dataclasses.dataclass(frozen=True)
class Task:
    """One chain, or the reference run, of one kind of network."""

    variant: str
    activation: str
    chain: int
    """-1 for the reference."""
    lengths: Lengths
    features: int
    hidden: int
    images: int
    kappa: float
    seed: int
    data: DataArgs
    fingerprint: str
    runs: str

    @property
    def config(self) -> dict[str, Any]:
        """What determines the draws, as the store names it."""
        lengths = dataclasses.asdict(self.lengths)
        reference = self.chain < 0
        lengths = {k: v for k, v in lengths.items() if k.startswith("reference") == reference and k != "chains"}
        return {
            "version": VERSION,
            "data": self.fingerprint,
            "kind": [self.variant, self.activation],
            "chain": self.chain,
            "sizes": [self.features, self.hidden, self.images],
            "kappa": self.kappa if self.variant == "w" else 0.0,
            "seed": self.seed,
            **lengths,
        }


def draw(task: Task) -> dict[str, Any]:
    """The draws of a chain or of the reference, and what they predict; from the store if they are there."""

    def compute() -> tuple[dict, dict, dict]:
        start = time.perf_counter()
        network = network_of(task)
        x, y, x_test, _ = data_of(task)
        target = Target(network, RULES, x, y)
        seed = derived_seed(task.seed, "chain", task.variant, task.activation, task.chain)
        n = task.lengths
        if task.chain < 0:
            first = torch.stack([target.start(derived_seed(seed, i)) for i in range(n.reference_chains)])
            found = sample(torch.func.vmap(target.potential), first, seed, warmup=n.reference_warmup,
                           moves=n.reference_moves, keep_every=max(1, n.reference_moves // 25))  # fmt: skip
            draws = found.draws
            facts = {"acceptance": found.acceptance, "divergences": 0, "gradients": 0}
        else:
            chain = run_chain(target, seed, warmup=n.warmup, draws=n.draws, max_tree_depth=n.tree_depth)
            draws = chain.draws[None]
            facts = {"acceptance": chain.acceptance, "divergences": chain.divergences, "gradients": chain.gradients}
        keep = draws[:, :: max(1, draws.shape[1] // THINNED)]
        with torch.no_grad():
            logits = torch.func.vmap(lambda z: target.output(z, x_test))(keep.flatten(0, 1))
        tensors = {
            "weights": torch.stack([_weights(target, z, task) for z in draws.flatten(0, 1)]).unflatten(
                0, draws.shape[:2]
            ),
            "units": torch.stack([_units(target, z, task) for z in keep.flatten(0, 1)]),
            "log_p": logits.log_softmax(-1).unflatten(0, keep.shape[:2]),
        }
        return {k: v.contiguous() for k, v in tensors.items()}, {}, facts | {"wall_s": time.perf_counter() - start}

    run = cached(Store(task.runs), "chain", task.config, compute)
    tick(1.0)
    return {**{k: v.clone() for k, v in run.tensors().items()}, **run.state()}


def network_of(task: Task) -> nn.Module:
    """The small network of a task."""
    activation = "relu" if task.activation == "figlu" else task.activation
    shape = (1, 1, task.features)
    network = build("mlp", input_shape=shape, classes=CLASSES, width=task.hidden / 512, depth=1, norm="none",
                    activation=activation, seed=task.seed)  # fmt: skip
    mask_seed = derived_seed(task.seed, "mask", 0)
    if task.variant == "w":
        # The outputs keep their places, so that masking the hidden layer leaves no symmetry.
        n_fix = fewest_n_fix(task.hidden, task.features)
        rules = (LayerRule("head", 0, 0.0), LayerRule("*", n_fix, task.kappa))
        return apply_variant(network, Variant("w", mask_seed=mask_seed, kappa=task.kappa), rules=rules)
    if task.variant == "sigma":
        variant = Variant("sigma", mask_seed=mask_seed, figlu_scale=1.0)
        return apply_variant(network, variant, example_input=torch.zeros(2, *shape))
    return fix_scaling(network) if task.variant == "fixed-scale" else network


def data_of(task: Task) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whitened principal components of training and test images, and labels."""
    data = task.data.load()
    parts = []
    for name, count in (("train", task.images), ("test", 200)):
        split = getattr(data, name)
        split = split.take((split.labels < CLASSES).nonzero()[:, 0])
        split = subset(split, count, f"nuts {name}")
        parts.append((data.inputs(split).flatten(1), split.labels))
    (x, y), (x_test, y_test) = parts
    mean = x.mean(dim=0)
    _, _, directions = torch.linalg.svd(x - mean, full_matrices=False)
    directions = directions[: task.features].T
    # The sign of a singular vector is the library's choice: make the largest entry positive.
    largest = directions.abs().argmax(dim=0)
    directions = directions * directions[largest, torch.arange(task.features)].sign()
    spread = ((x - mean) @ directions).std(dim=0)

    def project(v: Tensor) -> Tensor:
        return ((v - mean) @ directions / spread)[:, None, None, :]

    return project(x), y, project(x_test), y_test


def _full(target: Target, z: Tensor) -> dict[str, Tensor]:
    """Effective weights by name."""
    values = target.assembler.parameters(target.values(z))
    for layer in target.assembler.layers:
        module = target.assembler.network.get_submodule(layer.name)
        if isinstance(module, MaskedLayer):
            name = layer.parameters[0]
            values[name] = torch.where(module.mask, values[name], module.fixed)
    return values


def _units(target: Target, z: Tensor, task: Task) -> Tensor:
    """Incoming weights, bias and outgoing weights of each hidden unit `m k`, free of ReLU's scale where it has one."""
    values = _full(target, z)
    incoming = torch.cat([values["hidden.0.linear.weight"], values["hidden.0.linear.bias"][:, None]], dim=1)
    outgoing = values["head.weight"].T
    if task.variant == "fixed-scale":
        incoming = incoming / incoming.norm(dim=1, keepdim=True)
    elif task.activation == "relu" and task.variant == "standard":
        balance = (outgoing.norm(dim=1, keepdim=True) / incoming.norm(dim=1, keepdim=True)).sqrt()
        incoming, outgoing = incoming * balance, outgoing / balance
    return torch.cat([incoming, outgoing], dim=1)


def _weights(target: Target, z: Tensor, task: Task) -> Tensor:
    """The random entries; without the norms that have no effect in a network of fixed scale."""
    if task.variant != "fixed-scale":
        return z
    values = _full(target, z)
    return torch.cat([_units(target, z, task).flatten(), values["head.bias"]])
