"""Planning the connectivity study: every check that can be made before work starts, and the list of what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from asym.data import Data
from asym.files import sha256_file
from asym.models import get_arch
from asym.models.checkpoints import load_checkpoint
from asym.nn import Variant
from asym.populations import Architecture, Member, Population, Recipe, chunks_of, plan_for
from asym.populations.population import compact
from asym.populations.runs import KIND, run_config
from asym.seeds import derived_seed
from asym.store import config_hash
from studies.checks import InputError
from studies.lmc import ASYMMETRIC, TABLES, Config, Job
from studies.lmc_pairs import (
    MEASURE_VERSION,
    CheckpointTask,
    Measure,
    Task,
    Trial,
    path_configs,
    validation_config,
)
from studies.presets import Defaults
from studies.setup import DataArgs, check_domain, check_places, check_stored, resolve_device


def prepare(config: Config) -> list[Job]:
    """The jobs of a config, one a variant.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    first = config.preset_defaults(config.variants[0])
    device = resolve_device(config)
    check_places(config, TABLES)
    data_args = DataArgs.of(config, first.dataset, config.train_size)
    data = data_args.load()
    check_domain(config.arch, data)
    if data.domain == "graph":
        for flag, given in (("batch-size", config.batch_size is not None), ("augment", config.augment != "per-image")):
            if given:
                raise InputError(f"--{flag}: has no meaning for the graph {data.name}, which each step sees whole")
    jobs = [job_of(config, variant, data, data_args, device) for variant in config.variants]
    for job in jobs:
        _check_recipe(config, job)
    check_stored(config, stored(jobs))
    return jobs


def recipe_of(config: Config, preset: Defaults, lr: float) -> Recipe:
    """The training recipe at one learning rate: the preset's, with the flags that were given."""

    def choose(flag, value):
        return value if flag is None else flag

    augment = config.augment.removeprefix("per-")
    epochs, warmup = choose(config.epochs, preset.epochs), choose(config.warmup, preset.warmup)
    return Recipe(
        optimizer="adamw",
        lr=lr,
        weight_decay=choose(config.weight_decay, preset.weight_decay),
        schedule=choose(config.schedule, preset.schedule),
        warmup=warmup,
        epochs=epochs,
        batch_size=choose(config.batch_size, preset.batch_size),
        augment=augment,  # pyright: ignore[reportArgumentType]
    )


def _check_recipe(config: Config, job: Job) -> None:
    for tasks in job.tasks.values():
        if isinstance(task := tasks[0], CheckpointTask):
            continue
        recipe = task.population.members[0].recipe
        if recipe.warmup > recipe.epochs:
            text = f"{recipe.warmup:g} epochs of warm-up in {recipe.epochs} epochs; give --warmup {recipe.epochs / 5:g}"
            raise InputError(f"--warmup: {text}")
        if job.variant == "syre" and not recipe.weight_decay:
            raise InputError("--variants: syre acts through weight decay alone; give --weight-decay, such as 0.1")


def job_of(config: Config, variant: str, data: Data, data_args: DataArgs, device: str) -> Job:
    """The job of one variant: its pairs at every rate that may be chosen, and the networks to choose it by."""
    preset = config.preset_defaults(variant)
    architecture = _architecture(config, variant, preset, data)
    alignments, measure = _alignments(config, variant), _measure_of(config, preset)
    if config.checkpoints:
        return _checkpoint_job(config, architecture, data, data_args, measure, alignments, device)
    fixed_lr = config.lr if config.lr is not None else (None if config.lrs else preset.lr)
    lrs = (fixed_lr,) if fixed_lr is not None else tuple(sorted(set(config.lrs or preset.lrs)))
    tasks: dict[float, list[Task | CheckpointTask]] = {}
    trials: dict[float, Trial] = {}
    for lr in lrs:
        recipe = recipe_of(config, preset, lr)
        pairs = config.pairs if config.pairs is not None else preset.pairs
        populations = [_population(config.seed, k, architecture, recipe, data) for k in range(pairs)]
        plan = plan_for(populations[0], device)
        key = config_hash(
            {
                **populations[0].config | {"members": [compact(recipe)]},
                "plan": dataclasses.asdict(plan),
                "measure": {"version": MEASURE_VERSION, **dataclasses.asdict(measure)},
                "seed": config.seed,
            }
        )
        shared = _columns(config, architecture, data, key) | {
            "lr": lr,
            "tuned_over": " ".join(map(str, lrs)) if len(lrs) > 1 else "",
            "epochs": recipe.epochs,
            "train_images": len(data.train.labels),
        }
        tasks[lr] = []
        for k, population in enumerate(populations):
            a, b = population.members
            columns = shared | {"pair": k, "seed_a": a.seed, "seed_b": b.seed, "mask_seed": a.mask_seed}
            runs = str(config.runs)
            tasks[lr].append(Task(population, plan, data_args, measure, alignments, runs, device, columns))
        if len(lrs) > 1:
            seeds = derived_seed(config.seed, "tuning"), derived_seed(config.seed, "tuning", "mask")
            trial = Population(architecture, (Member(*seeds, recipe),), data.fingerprint)
            trials[lr] = Trial(trial, plan_for(trial, device), data_args, str(config.runs), device)
    return Job(variant, tasks, trials, architecture.describe())


def _checkpoint_job(
    config: Config,
    architecture: Architecture,
    data: Data,
    data_args: DataArgs,
    measure: Measure,
    alignments: tuple[str, ...],
    device: str,
) -> Job:
    """A job that compares two networks from files.

    Raises:
        FileNotFoundError, ValueError: if a file is missing, damaged, of another network or holds NaN.
    """
    a, b = config.checkpoints
    networks = [load_checkpoint(architecture.build(0), file) for file in (a, b)]
    constants = [{k: v for k, v in n.state_dict().items() if k.endswith(("mask", "fixed"))} for n in networks]
    for name, value in constants[0].items():
        if not torch.equal(value, constants[1][name]):
            raise InputError(f"--checkpoints: {a} and {b} differ in {name}; networks must share masks and fixed values")
    key = config_hash(
        {
            "architecture": compact(architecture),
            "data": data.fingerprint,
            "files": [sha256_file(file) for file in (a, b)],
            "measure": {"version": MEASURE_VERSION, **dataclasses.asdict(measure)},
        }
    )
    columns = _columns(config, architecture, data, key) | {
        "lr": float("nan"),
        "tuned_over": "",
        "epochs": 0,
        "train_images": len(data.train.labels),
        "pair": 0,
        "seed_a": -1,
        "seed_b": -1,
        "mask_seed": -1,
    }
    files = (str(a), str(b))
    task = CheckpointTask(architecture, files, data_args, measure, alignments, device, columns)
    return Job(config.variants[0], {0.0: [task]}, {}, architecture.describe())


def _architecture(config: Config, variant: str, preset: Defaults, data: Data) -> Architecture:
    plain = Variant(variant)
    if plain.gated and not get_arch(config.arch).gateable:
        raise InputError(f"--variants: {variant} replaces activations, {config.arch} has none; leave it out")
    if variant == "w-scale" and get_arch(config.arch).scheme != "kaiming":
        raise InputError(
            f"--variants: w-scale is the same network as standard for {config.arch}, whose variants all start with "
            "PyTorch's default scale; leave it out"
        )
    kappa = None
    if plain.plans and variant != "w-zero":
        kappa = config.kappa if config.kappa is not None else preset.kappa
    options = Variant(
        name=variant,
        kappa=kappa,
        n_fix_scale=config.n_fix_scale if plain.plans else 1.0,
        bias_range=config.bias_range if variant == "bias" else Variant().bias_range,
        gate=config.gate if plain.gated else "sigmoid",
        syre_scale=config.syre_scale if variant == "syre" else Variant().syre_scale,
    )
    return Architecture(config.arch, data.input_shape, data.classes, config.width, config.norm, options)


def _alignments(config: Config, variant: str) -> tuple[str, ...]:
    asymmetric = Variant(variant).gated or (variant in ASYMMETRIC and not config.align_asymmetric)
    alignments = tuple(a for a in config.alignments if a == "none" or not asymmetric)
    if not alignments:
        raise InputError(
            f"--alignments: {variant} networks have no symmetry to align along; add none, or leave {variant} out"
        )
    return alignments


def _measure_of(config: Config, preset: Defaults) -> Measure:
    images = config.eval_images if config.eval_images is not None else preset.eval_images
    return Measure(config.points, images, config.restarts if config.restarts is not None else preset.restarts)


def _columns(config: Config, architecture: Architecture, data: Data, key: str) -> dict[str, Any]:
    variant = architecture.variant
    kappa = variant.kappa if variant.name != "w-zero" else 0.0
    return {
        "study": "lmc",
        "preset": config.preset,
        "arch": config.arch,
        "dataset": data.name,
        "variant": variant.name,
        "alignment": "",
        "pair": 0,
        "seed_a": 0,
        "seed_b": 0,
        "mask_seed": 0,
        "width": config.width,
        "norm": config.norm or "default",
        "kappa": ("table" if kappa is None else f"{kappa:g}") if variant.plans else "",
        "n_fix_scale": config.n_fix_scale,
        "params": architecture.trainable,
        "config": key,
    }


def _population(seed: int, pair: int, architecture: Architecture, recipe: Recipe, data: Data) -> Population:
    mask_seed = derived_seed(seed, "mask", pair)
    members = (Member(derived_seed(seed, "network", 2 * pair + k), mask_seed, recipe) for k in range(2))
    return Population(architecture, tuple(members), data.fingerprint)


def stored(jobs: list[Job]) -> list[tuple[str, dict[str, Any]]]:
    """Kind and config of every run of the store that the jobs may read or write, existing or not."""
    out: list[tuple[str, dict[str, Any]]] = []
    for job in jobs:
        for trial in job.trials.values():
            whole = run_config(trial.population, trial.plan)
            out.append((KIND, whole))
            out.append(("validation", validation_config(config_hash(whole))))
        for tasks in job.tasks.values():
            for task in tasks:
                if isinstance(task, CheckpointTask):
                    continue
                whole = config_hash(run_config(task.population, task.plan))
                out += [(KIND, run_config(chunk, task.plan)) for chunk in chunks_of(task.population, task.plan)]
                out += [("path", c) for c in path_configs(task, whole).values()]
    return out
