"""The sampled part of the Bayesian study: chains on small networks, in weights and in predictions.

Networks of one hidden layer see a few principal components of images of the first three classes. Chains of pyro's NUTS
start at draws of the prior. For each kind of network a row says how well chains agree (split R̂, effective sample size)
in weights, in weights after every draw was moved to the copy of one reference draw, and in predicted probabilities of
test images; how many copies of a mode they visited, beside the number the symmetry group predicts; and how far their
predictions are (mean total variation) from a long reference run by another sampler, many chains of HMC at once.

| kind | activation | symmetries | copies predicted |
|---|---|---|---|
| standard | tanh | permutations, signs | m! · 2^m |
| standard | ReLU | permutations, scalings | m! |
| fixed-scale | ReLU | permutations | m! |
| w, with tanh or ReLU | | none | 1 |
| sigma | FiGLU | none | 1 |
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from asym.bayes import PriorRule, Target, effective_size, fix_scaling, run_chain, split_rhat
from asym.bayes.copies import group_order, visited
from asym.bayes.hmc import sample
from asym.models import build
from asym.nn import LayerRule, MaskedLayer, Variant, apply_variant, fewest_n_fix
from asym.populations import cached, run_tasks, subset, tick
from asym.reliability import nll
from asym.seeds import derived_seed
from asym.store import Store, config_hash, read_table, update_table
from studies import bnn_plane
from studies.bnn import SAMPLED, TABLES, Config
from studies.cli import InputError
from studies.progress import Progress
from studies.setup import DataArgs, check_domain, check_places, check_stored, default_jobs, resolve_device, stamp
from studies.tables import VOLATILE, render

VERSION = 1
"""Raised by hand whenever the same config would give other chains or measures."""
CLASSES = 3
KINDS = (("standard", "tanh"), ("w", "tanh"), ("standard", "relu"), ("fixed-scale", "relu"), ("w", "relu"),
         ("sigma", "figlu"))  # fmt: skip
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


PRESETS = {
    "smoke": Lengths(2, 20, 20, 4, 8, 30, 20),
    "laptop": Lengths(4, 150, 200, 6, 64, 300, 500),
    "paper": Lengths(8, 500, 1000, 6, 128, 1000, 2000),
}


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


def prepare(config: Config) -> list[Task]:
    """All chains and reference runs of a config.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    if resolve_device(config.device) != "cpu" and config.device != "auto":
        raise InputError(f"--device: got {config.device}, chains on small networks run on the cpu")
    check_places(config, TABLES)
    args = DataArgs.of(config, "digits")
    data = args.load()
    check_domain("mlp", data)
    if data.classes < CLASSES:
        raise InputError(f"--dataset: {data.name} has {data.classes} classes, must have at least {CLASSES}")
    preset = PRESETS[config.preset]
    lengths = dataclasses.replace(
        preset,
        **{f: v for f in ("chains", "warmup", "draws", "tree_depth") if (v := getattr(config, f)) is not None},
    )
    features = 3 if config.features is None else config.features
    hidden = (2 if config.preset == "smoke" else 3) if config.hidden is None else config.hidden
    images = (40 if config.preset == "smoke" else 100) if config.images is None else config.images
    available = int((data.train.labels < CLASSES).sum())
    pixels = int(np.prod(data.input_shape))
    if images > available:
        raise InputError(f"--images: got {images}, {data.name} has {available} of its first {CLASSES} classes")
    if features > min(pixels, images):
        raise InputError(f"--features: got {features}, must be at most {min(pixels, images)}")
    chosen = config.variants or SAMPLED
    tasks = [
        Task(variant, activation, chain, lengths, features, hidden, images,
             1.0 if config.kappa is None else config.kappa, config.seed, args, data.fingerprint, str(config.runs))
        for variant, activation in KINDS
        if variant in chosen
        for chain in range(-1, lengths.chains)
    ]  # fmt: skip
    for task in tasks:
        if task.chain == 0:
            _network(task)
    check_stored(config, [("chain", task.config) for task in tasks])
    return tasks


def execute(config: Config, tasks: list[Task]) -> pd.DataFrame:
    """Sample, measure; returns the rows of `bnn_nuts.csv`."""
    where = stamp("cpu")
    with Progress(len(tasks), f"{len(tasks)} chains", quiet=config.quiet) as progress:
        results = run_tasks(
            draw, [(t,) for t in tasks], jobs=default_jobs(config, "cpu", len(tasks)), on_tick=progress.add
        )
    rows = []
    for variant, activation in KINDS:
        own = [(t, r) for t, r in zip(tasks, results) if (t.variant, t.activation) == (variant, activation)]
        if own:
            rows.append(_row(config, own) | where)
    update_table(config.out / "bnn_nuts.csv", pd.DataFrame(rows), list(TABLES["bnn_nuts"]), VOLATILE)
    plane = pd.DataFrame(bnn_plane.rows(config.seed, config_hash({"version": VERSION, "plane": config.seed})))
    update_table(config.out / "bnn_plane.csv", plane, list(TABLES["bnn_plane"]))
    table, keys = read_table(config.out / "bnn_nuts.csv"), {row["config"] for row in rows}
    return table[table["config"].isin(keys)].reset_index(drop=True)


def draw(task: Task) -> dict[str, Any]:
    """The draws of a chain or of the reference, and what they predict; from the store if they are there."""

    def compute() -> tuple[dict, dict, dict]:
        start = time.perf_counter()
        network = _network(task)
        x, y, x_test, _ = _data(task)
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


def summary_text(config: Config, rows: pd.DataFrame) -> str:
    """The terminal's table."""
    columns = ("network", "R̂ weights", "aligned", "R̂ predictions", "ESS weights", "ESS predictions", "copies visited",
               "by reference", "predicted", "distance", "its noise", "test NLL", "reference")  # fmt: skip
    lines = []
    for r in rows.to_dict("records"):
        lines.append(
            [
                f"{r['variant']}, {r['activation']}",
                f"{r['rhat_weights_median']:.2f} (max {r['rhat_weights_max']:.2f})",
                f"{r['rhat_aligned_median']:.2f}",
                f"{r['rhat_predictions_median']:.2f} (max {r['rhat_predictions_max']:.2f})",
                f"{r['ess_weights_median']:.0f}",
                f"{r['ess_predictions_median']:.0f}",
                str(r["copies"]),
                str(r["copies_reference"]),
                str(r["copies_predicted"]),
                f"{r['distance']:.4f}",
                f"{r['distance_floor']:.4f}",
                f"{r['test_nll']:.4f}",
                f"{r['test_nll_reference']:.4f}",
            ]
        )
    first = rows.iloc[0]
    title = (
        f"{first['chains']} NUTS chains of {first['draws']} draws, networks of {first['hidden']} hidden units; R̂ and "
        f"ESS: median over weights or predicted probabilities"
    )
    legend = (
        "aligned: R̂ of weights after each draw was moved to the copy of one reference draw; distance: mean total "
        "variation of predictions from a long reference run; its noise: between halves of the reference"
    )
    return f"{title}\n{render(columns, lines)}\n{legend}"


def estimate(config: Config, tasks: list[Task]) -> str:
    """What a run would do, with an estimate of the time from one timed gradient."""
    task = tasks[0]
    x, y, _, _ = _data(task)
    target = Target(_network(task), RULES, x, y)
    z = target.start(0).requires_grad_()
    start = time.perf_counter()
    for _ in range(50):
        torch.autograd.grad(target.potential(z), z)
    each = 1.7 * (time.perf_counter() - start) / 50  # pyro's own share of a leapfrog step
    n = task.lengths
    chains = [t for t in tasks if t.chain >= 0]
    most = len(chains) * (n.warmup + n.draws) * (2**n.tree_depth - 1) * each
    processes = default_jobs(config, "cpu", len(tasks))
    return (
        f"{len(chains)} NUTS chains of {n.warmup} + {n.draws} draws, {len(tasks) - len(chains)} reference runs of "
        f"{n.reference_chains} chains; at most {most / processes / 60:.2g} min in {processes} process(es) for the "
        f"chains, a few minutes for the references; nothing was written"
    )


def _network(task: Task) -> nn.Module:
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


def _data(task: Task) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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


def _row(config: Config, results: list[tuple[Task, dict[str, Any]]]) -> dict[str, Any]:
    task = results[0][0]
    reference = next(r for t, r in results if t.chain < 0)
    chains = [r for t, r in results if t.chain >= 0]
    _, _, _, y_test = _data(task)
    weights = torch.cat([r["weights"] for r in chains])
    log_p = torch.cat([r["log_p"] for r in chains])
    odd = task.activation == "tanh"
    best = reference["units"][-1]
    copies, aligned = visited(torch.cat([r["units"] for r in chains]).numpy(), best.numpy(), odd=odd)
    copies_reference, _ = visited(reference["units"].numpy(), best.numpy(), odd=odd, share=0.001)
    moved = torch.from_numpy(aligned).unflatten(0, (len(chains), -1)).flatten(2)
    if task.variant == "w":  # what is fixed is no weight that could mix
        moved = moved[:, :, (moved.flatten(0, 1).amax(0) - moved.flatten(0, 1).amin(0)) > 0]
    p = log_p.exp().flatten(2)
    mean, mean_reference = log_p.exp().mean(dim=(0, 1)), reference["log_p"].exp().mean(dim=(0, 1))
    halves = [part.exp().mean(dim=(0, 1)) for part in reference["log_p"].chunk(2)]
    measures: dict[str, float] = {}
    for name, values in (("weights", weights), ("aligned", moved), ("predictions", p)):
        rhat, size = split_rhat(values), effective_size(values)
        measures |= {f"rhat_{name}_median": rhat.median().item(), f"rhat_{name}_max": rhat.max().item()}
        measures |= {f"ess_{name}_median": size.median().item(), f"ess_{name}_min": size.min().item()}
    symmetric = task.variant in ("standard", "fixed-scale")
    n = task.lengths
    key = config_hash({"tasks": [t.config for t, _ in results]})
    return {
        "study": "bnn",
        "preset": config.preset,
        "arch": "mlp",
        "dataset": task.data.load().name,
        "variant": task.variant,
        "activation": task.activation,
        "seed": config.seed,
        "mask_seed": derived_seed(task.seed, "mask", 0),
        "hidden": task.hidden,
        "features": task.features,
        "train_images": task.images,
        "kappa": f"{task.kappa:g}" if task.variant == "w" else "",
        "params": int(weights.shape[2]),
        "chains": n.chains,
        "warmup": n.warmup,
        "draws": n.draws,
        "tree_depth": n.tree_depth,
        "reference_draws": n.reference_chains * n.reference_moves,
        **measures,
        "copies": copies,
        "copies_reference": copies_reference,
        "copies_predicted": group_order(task.hidden, odd=odd) if symmetric else 1,
        "distance": _variation(mean, mean_reference),
        "distance_chain": float(np.mean([_variation(r["log_p"].exp().mean((0, 1)), mean_reference) for r in chains])),
        "distance_floor": _variation(*halves),
        "test_nll": nll(mean.double().log().numpy(), y_test.numpy()),
        "test_nll_reference": nll(mean_reference.double().log().numpy(), y_test.numpy()),
        "test_acc": float((mean.argmax(1) == y_test).double().mean()),
        "acceptance": float(np.mean([r["acceptance"] for r in chains])),
        "divergences": sum(r["divergences"] for r in chains),
        "gradients": sum(r["gradients"] for r in chains),
        "diverged": int(not bool(weights.isfinite().all())),
        "config": key,
        "wall_s": round(sum(r["wall_s"] for _, r in results), 3),
    }


def _variation(p: Tensor, q: Tensor) -> float:
    """Mean over items of the total variation ½ Σ |p − q|."""
    return 0.5 * (p - q).abs().sum(dim=1).mean().item()
