"""Planning the SAFFU study: every check that can be made before work starts, and the list of what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asym.data.text import TextData
from asym.explicit.cipher import capacity
from studies.checks import InputError
from studies.saffu import TABLES, Config
from studies.saffu_grid import LEVELS
from studies.saffu_nets import Net, TextArgs
from studies.saffu_pairs import KIND as LINE_KIND
from studies.saffu_pairs import Pair, line_config
from studies.saffu_plan import Plan
from studies.saffu_presets import Defaults, settings
from studies.saffu_quality import Trial
from studies.saffu_train import KIND
from studies.setup import check_places, check_stored, resolve_device


@dataclass(frozen=True)
class Prepared:
    """What is to be done."""

    pairs: list[Pair]
    averages: list[Pair]
    architecture: list[Pair]
    tuning: list[Trial]
    arms: list[Trial]
    """One trial for each arm, fraction and repeat; their rates are put in after tuning."""
    explicit: list[Trial]
    counts: list[Trial]
    cost: list[Trial]
    grid: list[Trial]
    device: str
    base: Net
    args: TextArgs


def prepare(config: Config) -> Prepared:
    """The work of a config.

    Raises:
        InputError, ValueError, FileNotFoundError, ModuleNotFoundError: for whatever cannot work.
    """
    values = settings(config)
    device = resolve_device(config)
    check_places(config, {name: key for name, key in TABLES.items() if name.split("_")[1] in (*config.parts, "tuning")})
    if values.sizes.block == values.sizes.radius == 0:
        raise InputError("--block and --radius: are both 0; a model needs one of them")
    args = TextArgs(
        config.dataset or "pydoc",
        config.vocabulary,
        values.size,
        config.split,
        config.documents,
        config.dataset_name,
        None if config.dry_run else str(config.runs / "cache"),
        _longest(config, values),
    )
    data = args.load()
    for flag, bits in (("bits", values.sizes.bits), ("hidden", values.sizes.hidden)):
        if len(data.tokens) > capacity(bits):
            raise InputError(
                f"--{flag}: codes of {bits} bits tell {capacity(bits)} tokens apart, the vocabulary has "
                f"{len(data.tokens)}; take at least {len(data.tokens).bit_length()}, or a smaller --size"
            )
    _check_shards(config, values, data)
    reach = _longest(config, values)
    for fraction in config.fractions:
        if fraction * len(data.train) <= reach:
            raise InputError(
                f"--fractions: {fraction:g} of {len(data.train):,} training tokens is no more than a context of {reach}"
            )
    plan = Plan(config, values, data, args, device)
    prepared = Prepared(
        pairs=list(plan.pairs()) if "connectivity" in config.parts else [],
        averages=list(plan.averages()) if "merging" in config.parts else [],
        architecture=list(plan.architecture()) if "architecture" in config.parts else [],
        tuning=list(plan.tuning()) if "quality" in config.parts else [],
        arms=list(plan.arms()) if "quality" in config.parts else [],
        explicit=list(plan.explicit()) if "quality" in config.parts else [],
        counts=list(plan.counts()) if "quality" in config.parts else [],
        cost=list(plan.cost()) if "cost" in config.parts else [],
        grid=list(plan.grid()) if "grid" in config.parts else [],
        device=device,
        base=plan.net(0.1),
        args=args,
    )
    check_stored(config, stored(prepared, data))
    return prepared


def stored(prepared: Prepared, data: TextData) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and config of the store's runs that are known before rates are tuned."""
    for pair in [*prepared.pairs, *prepared.averages, *prepared.architecture]:
        for net in (*pair.nets, *([pair.union] if pair.union else [])):
            yield KIND, net.config(data.fingerprint, pair.evaluate)
        if pair.alignments:
            yield LINE_KIND, line_config(pair, data.fingerprint)
    for trial in [*prepared.tuning, *prepared.grid]:
        yield KIND, trial.net.config(data.fingerprint, trial.evaluate)


def _longest(config: Config, values: Defaults) -> int:
    """The longest context of any network that is asked for."""
    longest = max(values.sizes.block, values.sizes.radius)
    return max(longest, *LEVELS["block"], *LEVELS["radius"]) if "grid" in config.parts else longest


def _check_shards(config: Config, values: Defaults, data: TextData) -> None:
    wants = 1
    if "architecture" in config.parts or ("connectivity" in config.parts and "disjoint" in values.data):
        wants = 2
    if "merging" in config.parts:
        wants = max(values.merge)
    if len(data.train.starts) < wants:
        raise InputError(
            f"--dataset: {data.name} has {len(data.train.starts)} documents, {wants} networks cannot each have their "
            "own; choose another --documents, --data same, or smaller --merge"
        )
