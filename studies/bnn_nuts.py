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
from torch import Tensor

from asym.bayes import Target, effective_size, split_rhat
from asym.bayes.copies import group_order, visited
from asym.populations import run_tasks
from asym.reliability import nll
from asym.seeds import derived_seed
from asym.store import config_hash, read_table, update_table
from studies import bnn_plane
from studies.bnn import SAMPLED, TABLES, Config
from studies.bnn_chains import CLASSES, RULES, VERSION, Lengths, Task, data_of, draw, network_of
from studies.checks import InputError
from studies.launching import launcher_of
from studies.progress import Progress
from studies.setup import (
    DataArgs,
    check_domain,
    check_no_gpu,
    check_places,
    check_stored,
    default_jobs,
    resolve_device,
    stamp,
)
from studies.tables import VOLATILE, render

KINDS = (("standard", "tanh"), ("w", "tanh"), ("standard", "relu"), ("fixed-scale", "relu"), ("w", "relu"),
         ("sigma", "figlu"))  # fmt: skip
PRESETS = {
    "smoke": Lengths(2, 20, 20, 4, 8, 30, 20),
    "laptop": Lengths(4, 150, 200, 6, 64, 300, 500),
    "paper": Lengths(8, 500, 1000, 6, 128, 1000, 2000),
}


def prepare(config: Config) -> list[Task]:
    """All chains and reference runs of a config.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    if resolve_device(config) != "cpu" and config.device != "auto":
        raise InputError(f"--device: got {config.device}, chains on small networks run on the cpu")
    check_no_gpu(config)
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
            network_of(task)
    check_stored(config, [("chain", task.config) for task in tasks])
    return tasks


def execute(config: Config, tasks: list[Task]) -> pd.DataFrame:
    """Sample, measure; returns the rows of `bnn_nuts.csv`."""
    where = stamp("cpu")
    with Progress(len(tasks), f"{len(tasks)} chains", quiet=config.quiet) as progress:
        results = run_tasks(
            draw,
            [(t,) for t in tasks],
            jobs=default_jobs(config, "cpu", len(tasks)),
            launcher=launcher_of(config),
            on_tick=progress.add,
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


def summary_text(config: Config, tasks: list[Task], rows: pd.DataFrame) -> str:
    """The terminal's table."""
    columns = ("network", "R̂ weights", "aligned", "R̂ predictions", "ESS weights", "ESS predictions", "cells visited",
               "by reference", "copies predicted", "distance", "its noise", "test NLL", "reference")  # fmt: skip
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
        "cells: regions of weights nearest to one copy of a reference draw, each with 1 % of the draws or more (0.1 %\n"
        "of the reference's); without the symmetry they are regions like any other; aligned: R̂ of weights after each\n"
        "draw was moved to one cell; distance: mean total variation of predictions from a long reference run; its\n"
        "noise: between halves of the reference"
    )
    return f"{title}\n{render(columns, lines)}\n{legend}"


def plan_text(config: Config, tasks: list[Task]) -> str:
    """What a run would do, with an estimate of the time from one timed gradient."""
    task = tasks[0]
    x, y, _, _ = data_of(task)
    target = Target(network_of(task), RULES, x, y)
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


def _row(config: Config, results: list[tuple[Task, dict[str, Any]]]) -> dict[str, Any]:
    task = results[0][0]
    reference = next(r for t, r in results if t.chain < 0)
    chains = [r for t, r in results if t.chain >= 0]
    _, _, _, y_test = data_of(task)
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
