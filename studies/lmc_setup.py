"""Planning the connectivity study: every check that can be made before work starts, and the list of what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from asym.data import ImageData
from asym.nn import Variant
from asym.populations import Architecture, Member, Population, Recipe, chunks_of, cpu_count, plan_for
from asym.populations.population import compact
from asym.populations.runs import KIND, run_config
from asym.seeds import derived_seed
from asym.store import CorruptRun, Store, config_hash, read_table
from studies.cli import InputError
from studies.lmc import ASYMMETRIC, Config, Job
from studies.lmc_pairs import MEASURE_VERSION, DataArgs, Measure, Task, Trial, path_configs, validation_config
from studies.presets import Defaults


def prepare(config: Config) -> list[Job]:
    """The jobs of a config, one a variant.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    first = config.preset_defaults(config.variants[0])
    device = resolve_device(config.device)
    for name in ("lmc", "lmc_curves", "lmc_tuning"):
        if (config.out / f"{name}.csv").exists():
            read_table(config.out / f"{name}.csv")  # an unreadable table is found now, not after hours
    data_args = DataArgs(
        config.dataset or first.dataset,
        str(config.data_dir) if config.data_dir else None,
        config.download,
        config.dataset_name,
        config.train_size,
        None if config.dry_run else str(config.runs / "cache"),
    )
    data = data_args.load()
    jobs = [_job(config, variant, data, data_args, device) for variant in config.variants]
    _check_stored(config, jobs)
    return jobs


def resolve_device(name: str) -> str:
    """`cpu`, `cuda:N` or `mps` from the flag; `auto` takes an accelerator if there is one.

    Raises:
        InputError: if the device is unknown or missing.
    """
    if name == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(
                f"--device: {name} is not there; CUDA devices found: {torch.cuda.device_count()}"
            )
        if device.type == "mps" and not torch.backends.mps.is_available():
            raise InputError("--device: mps is not there")
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError
    except RuntimeError:
        raise InputError(f"--device: unknown {name!r}; valid: auto, cpu, cuda, cuda:N, mps") from None
    return "cuda:0" if name == "cuda" else name


def default_jobs(config: Config, device: str, tasks: int) -> int:
    """Processes: one for smoke and on an accelerator, else one a processor, at most one a task."""
    if config.jobs is not None:
        return config.jobs
    return 1 if config.preset == "smoke" or device != "cpu" else max(1, min(cpu_count(), tasks))


def recipe_of(config: Config, preset: Defaults, lr: float) -> Recipe:
    """The training recipe at one learning rate: the preset's, with the flags that were given."""

    def choose(flag, value):
        return value if flag is None else flag

    augment = config.augment.removeprefix("per-")
    return Recipe(
        optimizer="adamw",
        lr=lr,
        weight_decay=choose(config.weight_decay, preset.weight_decay),
        schedule=choose(config.schedule, preset.schedule),
        warmup=choose(config.warmup, preset.warmup),
        epochs=choose(config.epochs, preset.epochs),
        batch_size=choose(config.batch_size, preset.batch_size),
        augment=augment,  # pyright: ignore[reportArgumentType]
    )


def _job(config: Config, variant: str, data: ImageData, data_args: DataArgs, device: str) -> Job:
    preset = config.preset_defaults(variant)
    masked = variant in ("w", "w-init", "w-zero")
    kappa = (
        (config.kappa if config.kappa is not None else preset.kappa)
        if masked and variant != "w-zero"
        else None
    )
    architecture = Architecture(
        config.arch,
        data.input_shape,
        data.classes,
        config.width,
        config.norm,
        Variant(
            name=variant,
            kappa=kappa,
            n_fix_scale=config.n_fix_scale if masked else 1.0,
            bias_range=config.bias_range if variant == "bias" else Variant().bias_range,
            gate=config.gate if variant == "sigma" else "sigmoid",
        ),
    )
    fixed_lr = config.lr if config.lr is not None else (None if config.lrs else preset.lr)
    lrs = (fixed_lr,) if fixed_lr is not None else tuple(sorted(set(config.lrs or preset.lrs)))
    alignments = tuple(
        a for a in config.alignments
        if a == "none" or variant not in ASYMMETRIC or (config.align_asymmetric and variant != "sigma")
    )  # fmt: skip
    if not alignments:
        raise InputError(f"--alignments: {variant} networks have no symmetry to align along; add none")
    restarts = config.restarts if config.restarts is not None else preset.restarts
    images = config.eval_images if config.eval_images is not None else preset.eval_images
    measure = Measure(config.points, images, restarts)
    pairs = config.pairs if config.pairs is not None else preset.pairs

    tasks: dict[float, list[Task]] = {}
    trials: dict[float, Trial] = {}
    for lr in lrs:
        recipe = recipe_of(config, preset, lr)
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
        tasks[lr] = []
        for k, population in enumerate(populations):
            columns = {
                "study": "lmc",
                "preset": config.preset,
                "arch": config.arch,
                "dataset": data.name,
                "variant": variant,
                "alignment": "",
                "pair": k,
                "seed_a": population.members[0].seed,
                "seed_b": population.members[1].seed,
                "mask_seed": population.members[0].mask_seed,
                "width": config.width,
                "norm": config.norm or "default",
                "kappa": "table" if masked and kappa is None else "" if kappa is None else str(kappa),
                "n_fix_scale": config.n_fix_scale,
                "params": architecture.trainable,
                "lr": lr,
                "tuned_over": " ".join(map(str, lrs)) if len(lrs) > 1 else "",
                "epochs": recipe.epochs,
                "train_images": len(data.train.labels),
                "config": key,
            }
            tasks[lr].append(
                Task(population, plan, data_args, measure, alignments, str(config.runs), device, columns)
            )
        if len(lrs) > 1:
            member = Member(
                derived_seed(config.seed, "tuning"), derived_seed(config.seed, "tuning", "mask"), recipe
            )
            trial = Population(architecture, (member,), data.fingerprint)
            trials[lr] = Trial(trial, plan_for(trial, device), data_args, str(config.runs), device)
    return Job(variant, tasks, trials, architecture.describe())


def _population(
    seed: int, pair: int, architecture: Architecture, recipe: Recipe, data: ImageData
) -> Population:
    mask_seed = derived_seed(seed, "mask", pair)
    members = (Member(derived_seed(seed, "network", 2 * pair + k), mask_seed, recipe) for k in range(2))
    return Population(architecture, tuple(members), data.fingerprint)


def _check_stored(config: Config, jobs: list[Job]) -> None:
    """Verify what the store already holds of this study.

    Raises:
        CorruptRun: naming the damaged file, unless --retrain is given; then the damaged run is removed.
    """
    store = Store(config.runs)
    for kind, what in stored(jobs):
        try:
            run = store.run(kind, what)
            if run.path.exists():
                run.verify()
        except CorruptRun:
            if not config.retrain:
                raise
            if not config.dry_run:
                store.discard(kind, what)


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
                whole = config_hash(run_config(task.population, task.plan))
                out += [
                    (KIND, run_config(chunk, task.plan)) for chunk in chunks_of(task.population, task.plan)
                ]
                out += [("path", c) for c in path_configs(task, whole).values()]
    return out
