"""Planning the ablations: each level becomes a job of the connectivity study, checked before work starts."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from asym.data import Data
from asym.models import get_arch
from asym.nn import Variant
from asym.populations import Architecture, Member, Population, chunks_of
from asym.populations.runs import KIND, run_config
from asym.seeds import derived_seed
from asym.store import config_hash
from studies import lmc, lmc_setup
from studies.ablate import Config, tables
from studies.ablate_factors import FACTORS, Base, Factor, Level
from studies.ablate_measure import ABLATE_VERSION, Group, measured_config
from studies.checks import InputError
from studies.lmc import Job
from studies.lmc_pairs import Task
from studies.setup import DataArgs, check_places, check_stored, resolve_device

OWN = ("factor", "levels", "retune", "target_accuracy", "grid")
SHARED = tuple(field.name for field in dataclasses.fields(Config) if field.name not in OWN)
"""Fields that mean the same here and in the connectivity study."""
LAPTOP_PAIRS = 3
PLANE_NETWORKS = 3
TUNED_AS = {"syre": "standard"}
"""Variants that take the rate of another: without weight decay, as networks are tuned, SyRe is a standard network."""


@dataclasses.dataclass(frozen=True)
class PreparedLevel:
    """A level with its networks, planned at every rate that tuning may choose."""

    level: Level
    job: Job
    tuned_as: str
    """Name of the job in `Prepared.tuning` whose rate it takes; empty where its rate is fixed."""
    groups: dict[float, list[Group]]
    """Learning rate → what is measured, one entry a pair."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A factor, ready to run."""

    name: str
    factor: Factor
    levels: list[PreparedLevel]
    tuning: dict[str, Job]
    """Jobs whose networks choose the rates, by name."""


def prepare(config: Config) -> list[Prepared]:
    """The planned work of each factor.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work, naming the factor where it is one's own.
    """
    first = lmc_config(config, "standard")
    resolve = functools.partial(resolve_device, config)
    data_args = DataArgs.of(config, first.preset_defaults("standard").dataset, config.train_size)
    check_places(config, {k: v for name in config.factors for k, v in tables(name).items()})
    device, data = resolve(), data_args.load()
    context = _Context(config, data, data_args, device)
    prepared = [_prepare_factor(context, name) for name in config.factors]
    check_stored(config, [entry for part in prepared for entry in stored(part)])
    return prepared


def lmc_config(config: Config, variant: str, **options: Any) -> lmc.Config:
    """The connectivity study's config with the shared settings, for one variant; options replace fields."""
    fields: dict[str, Any] = {name: getattr(config, name) for name in SHARED} | {"pairs": _pairs(config)} | options
    if "lr" in options:
        fields["lrs"] = None
    return lmc.Config(variants=(variant,), **fields)


def _pairs(config: Config) -> int | None:
    return config.pairs if config.pairs is not None or config.preset != "laptop" else LAPTOP_PAIRS


class _Context:
    """What planning the factors of one command shares: the data, and jobs that were planned before."""

    def __init__(self, config: Config, data: Data, data_args: DataArgs, device: str) -> None:
        self.config, self.data, self.data_args, self.device = config, data, data_args, device
        self._jobs: dict[lmc.Config, Job] = {}

    def job(self, config: lmc.Config) -> Job:
        """The job of a config with one variant."""
        if config not in self._jobs:
            self._jobs[config] = lmc_setup.job_of(config, config.variants[0], self.data, self.data_args, self.device)
        return self._jobs[config]

    @functools.cached_property
    def base(self) -> Base:
        """What levels are made from."""
        config = self.config
        preset = lmc_config(config, "standard").preset_defaults("standard")
        epochs = config.epochs if config.epochs is not None else preset.epochs
        warmup = config.warmup if config.warmup is not None else preset.warmup
        if warmup > epochs:
            raise InputError(f"--warmup: {warmup:g} epochs of warm-up in {epochs} epochs; give --warmup {epochs / 5:g}")
        return Base(
            epochs=epochs,
            warmup=warmup,
            width=config.width,
            lrs=config.lrs or preset.lrs,
            smoke=config.preset == "smoke",
            kaiming=get_arch(config.arch).scheme == "kaiming",
            equal_width=self._equal_width,
        )

    def _equal_width(self) -> float:
        config = self.config

        def trainable(width: float, variant: str) -> int:
            shape, classes = self.data.input_shape, self.data.classes
            return Architecture(config.arch, shape, classes, width, config.norm, Variant(variant)).trainable

        target = trainable(config.width, "w")
        widths = [config.width * step / 128 for step in range(16, 129)]
        low, high = 0, len(widths) - 1
        while low < high:  # counts rise with the width
            middle = (low + high) // 2
            low, high = (middle + 1, high) if trainable(widths[middle], "standard") < target else (low, middle)
        near = widths[max(0, low - 1) : low + 1]
        return min(near, key=lambda width: abs(trainable(width, "standard") - target))


def _prepare_factor(context: _Context, name: str) -> Prepared:
    config, factor = context.config, FACTORS[name]
    try:
        values = config.levels or (factor.values(context.base) if factor.values else ())
        if name == "time" and max(values) > context.base.epochs:
            raise InputError(f"--levels: {max(values):g} epochs is more than the {context.base.epochs} of --epochs")
        levels, tuning = [], {}
        for level in factor.levels(context.base, values):
            job = context.job(lmc_config(config, level.variant, alignments=level.alignments, **level.options))
            tuned_as = ""
            if len(job.tasks) > 1:
                own = config.retune and level.options
                variant = TUNED_AS.get(level.variant, level.variant)
                tuned_as = f"{level.variant}, {level.level}" if own else variant
                tuning[tuned_as] = job if own else context.job(lmc_config(config, variant))
            ks = tuple(int(k) for k in values) if name == "merge" else ()
            groups = {lr: [_group(config, name, level, task, ks) for task in job.tasks[lr]] for lr in job.tasks}
            levels.append(PreparedLevel(level, job, tuned_as, groups))
    except InputError:
        raise
    except ValueError as error:
        raise ValueError(f"--factor {name}: {error}") from error
    return Prepared(name, factor, levels, tuning)


def _group(config: Config, factor: str, level: Level, task: Any, ks: tuple[int, ...]) -> Group:
    measure = FACTORS[factor].measure
    networks = max(ks) if measure == "merge" else PLANE_NETWORKS if measure == "plane" else 2
    extra = tuple(_companions(config.seed, task, place) for place in range(1, -(-networks // 2)))
    own = {
        "study": "ablate",
        "factor": factor,
        "level": level.level,
        "value": float("nan") if level.value is None else float(level.value),
    }
    recipe, variant = task.population.members[0].recipe, task.population.architecture.variant
    settings = {
        "warmup": recipe.warmup,
        "weight_decay": recipe.weight_decay,
        "gate": variant.gate if variant.gated else "",
        "bias_range": variant.bias_range if variant.name == "bias" else float("nan"),
        "syre_scale": str(variant.syre_scale) if variant.name == "syre" else "",
        "target_accuracy": config.target_accuracy,
    }
    grid = config.grid if measure == "plane" and task.columns["pair"] == 0 else 0
    group = Group(measure, task, extra, ks, grid, {})
    key = {"config": task.columns["config"], "version": ABLATE_VERSION, "measure": measure, "ks": list(ks)}
    key |= {"target": config.target_accuracy} | ({"grid": config.grid} if measure == "plane" else {})
    columns = {**task.columns, **own, **settings, "config": config_hash(key)}
    return dataclasses.replace(group, columns=columns)


def _companions(seed: int, task: Task, place: int) -> Population:
    """Two further networks beside a pair's own: other seeds, the same masks."""
    first = task.population.members[0]
    pair = task.columns["pair"]
    seeds = (derived_seed(seed, "network", "companion", pair, place, k) for k in range(2))
    members = tuple(Member(s, first.mask_seed, first.recipe) for s in seeds)
    return dataclasses.replace(task.population, members=members)


def stored(prepared: Prepared) -> list[tuple[str, dict[str, Any]]]:
    """Kind and config of every run of the store that a factor may read or write, existing or not."""
    out = lmc_setup.stored([*prepared.tuning.values(), *(level.job for level in prepared.levels)])
    for level in prepared.levels:
        for groups in level.groups.values():
            for group in groups:
                plan = group.task.plan
                for population in group.extra:
                    out += [(KIND, run_config(chunk, plan)) for chunk in chunks_of(population, plan)]
                if group.measure != "pair":
                    out += [(group.measure, measured_config(group, a)) for a in group.task.alignments]
    unique = {(kind, config_hash(config)): (kind, config) for kind, config in out}
    return list(unique.values())
