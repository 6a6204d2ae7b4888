"""Planning the interpolation study: every check that can be made before work starts, and the list of what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

from asym.data import ImageData
from asym.models import get_arch
from asym.nn import Variant
from asym.populations import Architecture, Member, Population, Recipe, chunks_of, plan_for
from asym.populations.population import compact
from asym.populations.runs import KIND, run_config
from asym.populations.zoos import ZOOS, LogUniform, draw_recipes
from asym.seeds import derived_seed
from asym.store import config_hash
from studies.checks import InputError
from studies.mli import TABLES, Config, Family
from studies.mli_paths import KIND as PATH_KIND
from studies.mli_paths import MEASURE_VERSION, Measure, Task, path_config
from studies.setup import DataArgs, check_domain, check_places, check_stored, resolve_device

ZOO = "resnet8"
"""Hyper-parameters of every architecture are drawn from the distributions that were published for this one."""
LR_BINS = 4


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Values that a preset gives to the flags that were left out."""

    dataset: str
    networks: int
    batch_size: int
    epochs_scale: float
    eval_images: int | None


PRESETS = {
    "smoke": Defaults("digits", 3, 64, 0.2, 200),
    "laptop": Defaults("digits", 100, 64, 1.0, None),  # at batches of 512 a network hardly trains on 1,097 images
    "paper": Defaults("cifar10", 300, 512, 1.0, None),
}


def prepare(config: Config) -> list[Family]:
    """The families of a config, one a variant.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    preset = PRESETS[config.preset]
    device = resolve_device(config)
    check_places(config, TABLES)
    recipes = recipes_of(config)
    data_args = DataArgs.of(config, preset.dataset, config.train_size)
    data = data_args.load()
    check_domain(config.arch, data)
    if data.domain != "images":
        raise InputError(f"--dataset: {data.name} has no images; hyper-parameters are drawn for networks on images")
    families = [_family(config, variant, recipes, data, data_args, device) for variant in config.variants]
    check_stored(config, stored(families))
    return families


def recipes_of(config: Config) -> list[Recipe]:
    """The recipe of each network: drawn, with the flags that were given in place of what is drawn."""
    preset = PRESETS[config.preset]
    fixed: dict[str, Any] = given(config)
    fixed["batch_size"] = config.batch_size or preset.batch_size
    fixed["augment"] = config.augment.removeprefix("per-")
    scale = config.epochs_scale or preset.epochs_scale
    return draw_recipes(ZOO, config.networks or preset.networks, config.seed, epochs_scale=scale, fixed=fixed)


def given(config: Config) -> dict[str, float]:
    """Hyper-parameters that are the same for all networks, by flag."""
    values = {field: getattr(config, field) for field in ("epochs", "lr", "weight_decay", "smoothing")}
    return {field: value for field, value in values.items() if value is not None}


def lr_edges(config: Config) -> list[float]:
    """Edges of the bins of the learning rate, equal in its logarithm; a fixed rate is a bin of its own."""
    drawn = ZOOS[ZOO].draws["lr"]
    if config.lr is not None or not isinstance(drawn, LogUniform):
        rate = config.lr or ZOOS[ZOO].base.lr
        return [rate, rate]
    ratio = (drawn.high / drawn.low) ** (1 / LR_BINS)
    return [drawn.low * ratio**i for i in range(LR_BINS)] + [drawn.high]


def _family(
    config: Config, variant: str, recipes: list[Recipe], data: ImageData, data_args: DataArgs, device: str
) -> Family:
    architecture = _architecture(config, variant, data)
    mask_seed = derived_seed(config.seed, "mask", "mli")
    members = tuple(
        Member(derived_seed(config.seed, "network", "mli", k), mask_seed, recipe) for k, recipe in enumerate(recipes)
    )
    population = Population(architecture, members, data.fingerprint)
    plan = plan_for(population, device)
    images = config.eval_images if config.eval_images is not None else PRESETS[config.preset].eval_images
    measure = Measure(config.points, images)
    key = config_hash(
        {
            **population.config | {"members": [compact(recipes[0])]},
            "zoo": {"name": ZOO, "epochs_scale": config.epochs_scale or PRESETS[config.preset].epochs_scale},
            "fixed": given(config),
            "plan": dataclasses.asdict(plan),
            "measure": {"version": MEASURE_VERSION, **dataclasses.asdict(measure)},
            "seed": config.seed,
        }
    )
    columns = _columns(config, architecture, data, key)
    number = {member: k for k, member in enumerate(members)}
    tasks = [
        Task(
            chunk,
            tuple(number[member] for member in chunk.members),
            plan,
            data_args,
            measure,
            str(config.runs),
            device,
            columns,
        )
        for chunk in chunks_of(population, plan)
    ]
    return Family(variant, key, tasks, architecture.describe())


def _architecture(config: Config, variant: str, data: ImageData) -> Architecture:
    if variant == "w-scale" and get_arch(config.arch).scheme != "kaiming":
        raise InputError(
            f"--variants: w-scale is the same network as standard for {config.arch}, whose variants all start with "
            "PyTorch's default scale; leave it out"
        )
    plans = Variant(variant).plans
    options = Variant(
        name=variant,
        kappa=config.kappa if plans and variant != "w-zero" else None,
        n_fix_scale=config.n_fix_scale if plans else 1.0,
    )
    return Architecture(config.arch, data.input_shape, data.classes, config.width, config.norm, options)


def _columns(config: Config, architecture: Architecture, data: ImageData, key: str) -> dict[str, Any]:
    variant = architecture.variant
    kappa = variant.kappa if variant.name != "w-zero" else 0.0
    return {
        "study": "mli",
        "preset": config.preset,
        "arch": config.arch,
        "dataset": data.name,
        "variant": variant.name,
        "network": 0,
        "seed": 0,
        "mask_seed": 0,
        "width": config.width,
        "norm": config.norm or "default",
        "kappa": ("table" if kappa is None else f"{kappa:g}") if variant.plans else "",
        "n_fix_scale": config.n_fix_scale,
        "params": architecture.trainable,
        "epochs_scale": config.epochs_scale or PRESETS[config.preset].epochs_scale,
        "fixed": " ".join(f"{field}={value:g}" for field, value in given(config).items()),
        "train_images": len(data.train.labels),
        "config": key,
    }


def stored(families: list[Family]) -> list[tuple[str, dict[str, Any]]]:
    """Kind and config of every run of the store that the families may read or write, existing or not."""
    out: list[tuple[str, dict[str, Any]]] = []
    for family in families:
        for task in family.tasks:
            out.append((KIND, run_config(task.population, task.plan)))
            out.append((PATH_KIND, path_config(task)))
    return out
