"""Planning the variational part of the Bayesian study: presets, checks, and the list of what to do.

| preset | data | networks | instances | epochs, batch |
|---|---|---|---|---|
| `smoke` | 200 digits | MLP-8, an eighth as wide | 2 | 2, 64 |
| `laptop` | digits | MLP-8, MLP-16, ResNet-20 | 5, 5, 3 | 40, 64 |
| `paper` | CIFAR-10 | the same, and ResNet-20 with batch norm | 10 | 50, 250 |

Rates, prior precisions and diagonals are the published ones in all presets (Lim et al. 2024, appendix on Bayesian
networks; its released code): Adam at 5e-4 for MLPs and 1e-3 for ResNets, constant; precision 0.01 and 1; log-variances
−10 and −12, not learned; K = 4; 25 samples of the predictive distribution; κ = ½ in all networks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from asym.bayes import Guide, Inference, Posterior, PriorRule
from asym.data import Data
from asym.models import get_arch
from asym.nn import Variant
from asym.populations import RECIPE_VERSION, Architecture, Member, Plan, Population, Recipe, plan_for, run_config
from asym.populations.population import compact, equal_width
from asym.populations.runs import KIND
from asym.seeds import derived_seed
from asym.store import config_hash
from studies.bnn import EQUAL, METHODS, TABLES, Config, split_arch
from studies.bnn_vi import MEASURE_VERSION, Measure, Plain, Variational, measure_config, posterior_config
from studies.checks import InputError
from studies.presets import family
from studies.setup import DataArgs, check_domain, check_places, check_stored, resolve_device

STACK = {"cpu": 5, "other": 16}
"""Networks without convolutions that take a step together: a fifth faster than one by one on a CPU."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A variant of an architecture under a method: rows that are compared with those of other variants."""

    arch: str
    variant: str
    method: str
    kl_weight: float | None
    tasks: list[Variational] | list[Plain]
    ensemble: int
    """Networks an ensemble takes, 0 where none is wanted."""
    instances: int


def prepare(config: Config) -> list[Job]:
    """The jobs of a config.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    device = resolve_device(config)
    check_places(config, TABLES)
    smoke = config.preset == "smoke"
    train_size = config.train_size if config.train_size is not None else 200 if smoke else None
    data_args = DataArgs.of(config, "cifar10" if config.preset == "paper" else "digits", train_size)
    data = data_args.load()
    archs = (
        config.archs
        or {
            "smoke": ("mlp-8",),
            "laptop": ("mlp-8", "mlp-16", "resnet20"),
            "paper": ("mlp-8", "mlp-16", "resnet20", "resnet20/batch"),
        }[config.preset]
    )
    for arch in archs:
        check_domain(split_arch(arch)[0], data)
    jobs = [
        job
        for arch in archs
        for variant in config.variants or ("standard", "w")
        for job in _jobs(config, arch, variant, data, data_args, device)
    ]
    if not jobs:
        raise InputError(f"--methods: nothing to do; valid: {', '.join(METHODS)}")
    check_stored(config, [run for job in jobs for task in job.tasks for run in stored(task)])
    return jobs


def stored(task: Variational | Plain) -> list[tuple[str, dict[str, Any]]]:
    """Kind and config of every run that a task may touch."""
    if isinstance(task, Plain):
        own = run_config(task.population, task.plan)
        return [(KIND, own), ("bnn-measure", measure_config(own, task.measure))]
    own = posterior_config(task)
    return [("posterior", own), ("bnn-measure", measure_config(own, task.measure))]


def _jobs(config: Config, arch: str, variant: str, data: Data, data_args: DataArgs, device: str) -> list[Job]:
    name, norm = split_arch(arch)
    mlp, smoke = family(name) == "mlp", config.preset == "smoke"

    def choose(flag: str, value: Any) -> Any:
        given = getattr(config, flag)
        return value if given is None else given

    paper = config.preset == "paper"
    instances = choose("instances", 2 if smoke else 10 if paper else 5 if mlp else 3)
    methods = choose("methods", METHODS)
    recipe = Recipe(
        optimizer="adam",
        lr=choose("lr", 5e-4 if mlp else 1e-3),
        epochs=choose("epochs", 2 if smoke else 50 if paper else 40),
        batch_size=choose("batch_size", 250 if paper else 64),
    )
    guide = Guide(
        choose("guide", "lowrank"), config.rank, config.diagonal, choose("log_variance", -10.0 if mlp else -12.0)
    )
    prior = (PriorRule("*", choose("prior_precision", 0.01 if mlp else 1.0), choose("prior", "published")),)
    architecture = _architecture(config, name, norm, variant, data, choose("width", 0.125 if smoke else 1.0))
    eval_images = choose("eval_images", 100 if smoke else 10_000)
    measure = Measure(choose("samples", 4 if smoke else 25), eval_images, 2 if smoke else 3)
    ensemble = choose("ensemble", 5 if mlp and not smoke else max(2, instances)) if "ensemble" in methods else 0

    def member(i: int) -> Member:
        return Member(derived_seed(config.seed, "network", i), derived_seed(config.seed, "mask", i), recipe)

    shared = {
        "study": "bnn",
        "preset": config.preset,
        "arch": name,
        "norm": norm or get_arch(name).norms[0],
        "dataset": data.name,
        "variant": variant,
        "width": round(architecture.width, 4),
        "kappa": "" if variant not in ("w", "w-init") else f"{_kappa(config):g}",
        "params": architecture.trainable,
        "epochs": recipe.epochs,
        "lr": recipe.lr,
        "batch_size": recipe.batch_size,
        "train_images": len(data.train.labels),
    }
    jobs = []
    for weight in choose("kl_weights", (0.125, 1.0)) if "vi" in methods else ():
        inference = Inference(guide, prior, weight)
        members = [member(i) for i in range(instances)]
        jobs.append(_variational(config, architecture, inference, members, data, data_args, measure, device, shared))
    if {"deterministic", "ensemble"} & set(methods):
        tasks = []
        key = config_hash(
            {
                "architecture": compact(architecture),
                "layers": architecture.layers,
                "data": data.fingerprint,
                "recipe": compact(recipe),
                "measure": {"version": MEASURE_VERSION, **dataclasses.asdict(measure)},
                "seed": config.seed,
            }
        )
        for i in range(max(instances if "deterministic" in methods else 0, ensemble)):
            one = member(i)
            population = Population(architecture, (one,), data.fingerprint)
            plan = plan_for(population, device)
            columns = shared | {"method": "deterministic", "instance": i, "seed": one.seed, "config": key}
            columns |= {"mask_seed": one.mask_seed}
            tasks.append(Plain(population, plan, data_args, measure, str(config.runs), device, columns))
        jobs.append(Job(arch, variant, "deterministic", None, tasks, ensemble, instances))
    return jobs


def _variational(
    config: Config,
    architecture: Architecture,
    inference: Inference,
    members: list[Member],
    data: Data,
    data_args: DataArgs,
    measure: Measure,
    device: str,
    shared: dict[str, Any],
) -> Job:
    first = architecture.build(members[0].seed, members[0].mask_seed)
    posterior = Posterior([first], inference.prior, inference.guide)
    plain = plan_for(Population(architecture, (members[0],), data.fingerprint), device)
    spatial = plain.channels_last or any(len(layer.shapes[0]) > 2 for layer in posterior.layers)
    stack = 1 if spatial or posterior.running.names else STACK.get(device.split(":")[0], STACK["other"])
    plan = Plan(min(stack, len(members)), plain.dtype, plain.channels_last)
    key = config_hash(
        {
            "version": RECIPE_VERSION,
            "architecture": compact(architecture),
            "layers": architecture.layers,
            "data": data.fingerprint,
            "recipe": compact(members[0].recipe),
            "inference": dataclasses.asdict(inference),
            "plan": dataclasses.asdict(plan),
            "measure": {"version": MEASURE_VERSION, **dataclasses.asdict(measure)},
            "seed": config.seed,
        }
    )
    guide = inference.guide
    columns = shared | {
        "method": "vi",
        "kl_weight": inference.kl_weight,
        "guide": guide.name,
        "rank": guide.factors,
        "diagonal": "learned" if guide.learns_diagonal else "constant",
        "log_variance": guide.log_variance,
        "prior": inference.prior[0].fan,
        "prior_precision": inference.prior[0].precision,
        "params_posterior": _posterior_size(posterior),
        "samples": measure.samples,
        "config": key,
    }
    tasks = [
        Variational(
            architecture,
            tuple(members[at : at + plan.chunk]),
            at,
            inference,
            plan,
            data_args,
            data.fingerprint,
            measure,
            str(config.runs),
            device,
            columns,
        )
        for at in range(0, len(members), plan.chunk)
    ]
    return Job(shared["arch"], shared["variant"], "vi", inference.kl_weight, tasks, 0, len(members))


def _architecture(config: Config, name: str, norm: str | None, variant: str, data: Data, width: float) -> Architecture:
    kappa = _kappa(config) if variant in ("w", "w-init", EQUAL) else None
    chosen = Variant("w" if variant == EQUAL else variant, kappa=kappa)
    architecture = Architecture(name, data.input_shape, data.classes, width, norm, chosen)
    if variant != EQUAL:
        return architecture
    plain = dataclasses.replace(architecture, variant=Variant())
    return dataclasses.replace(plain, width=equal_width(plain, architecture.trainable))


def _kappa(config: Config) -> float:
    return 0.5 if config.kappa is None else config.kappa


def _posterior_size(posterior: Posterior) -> int:
    """Learned numbers of a posterior, places of fixed entries not counted."""
    total = 0
    for name, size in zip(posterior.layout.names, posterior.layout.sizes):
        layer = next((la for la in posterior.layers if name.split("/", 1) == [name.split("/")[0], la.name]), None)
        total += size if layer is None or name.startswith("point/") else size // layer.size * layer.entries
    return total
