"""Planning the audit: which narrow networks, at which points; every check that can be made before work starts."""

from __future__ import annotations

import dataclasses
from typing import Any

from asym.models import get_arch
from asym.models.arch import Arch
from asym.nn import Variant
from asym.seeds import derived_seed
from asym.store import config_hash
from studies.audit import SWAPS, TABLES, Config
from studies.audit_nets import Net, fitted
from studies.audit_work import KIND, VERSION, Task, stored_config
from studies.checks import InputError
from studies.setup import check_no_gpu, check_places, check_stored

POINTS = {"smoke": 1, "laptop": 3, "paper": 5}
SWAP_KAPPAS = {"smoke": (0.0, 1.0), "laptop": (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)}
SWAP_N_FIX = {"smoke": (1.0,), "laptop": (0.5, 1.0, 2.0)}
SWAP_WIDTH = {"mlp": 1 / 16, "resnet8": 0.5}
"""Widths of the networks whose units are exchanged: 32 hidden units, and half the channels."""


def prepare(config: Config) -> list[Task]:
    """The tasks of a config, one for each network, variant and point.

    Raises:
        InputError, ValueError: for whatever cannot work; an architecture that turns out untraceable is no such case.
    """
    check_no_gpu(config)
    check_places(config, TABLES)
    nets = [network(config, arch) for arch in config.archs]
    points = config.points if config.points is not None else POINTS[config.preset]
    tasks = [
        _task(config, net, Variant(variant), params, point)
        for net, params in nets
        for variant in config.variants
        for point in range(points)
    ]
    if config.swaps:
        tasks += _swap_tasks(config, points)
    check_stored(config, [(KIND, stored_config(task)) for task in tasks])
    return tasks


def network(config: Config, arch: str) -> tuple[Net, int]:
    """The narrow copy of an architecture and its standard form's parameters.

    Raises:
        InputError: if it has more than --max-params, or the architecture does not know a flag.
    """
    entry = get_arch(arch)
    net = Net(
        arch=arch,
        width=config.width or 1.0,
        input_shape=_input_shape(config, entry, arch),
        classes=config.classes,
        norm=_known(config, entry, "norm"),
        activation=_known(config, entry, "activation"),
        depth=config.depth if entry.free_depth or len(config.archs) == 1 else None,
    )
    if config.width is None:
        net = fitted(net, config.target, config.variants)
    params = net.params()
    if params > config.max_params:
        raise InputError(
            f"--max-params: the narrowest copy of {arch} has {params:,} trainable parameters, more than "
            f"{config.max_params:,}; give more, or a smaller network"
            if config.width is None
            else f"--max-params: {arch} of width {config.width:g} has {params:,} trainable parameters, more than "
            f"{config.max_params:,}; give a smaller --width"
        )
    return net, params


def _known(config: Config, entry: Arch, flag: str) -> str | None:
    """A choice of norm or activation, where it is one that the architecture has; an error if there is no other."""
    value: str | None = getattr(config, flag)
    allowed = entry.norms if flag == "norm" else entry.activations
    if value is not None and value not in allowed:
        if len(config.archs) > 1 and not allowed:
            return None
        raise InputError(f"--{flag}: {value!r} for {entry.name}; choose from {', '.join(allowed) or 'its own alone'}")
    return value


def _input_shape(config: Config, entry: Arch, arch: str) -> tuple[int, ...]:
    if entry.domain != "images":
        return (8,)
    if not entry.widths:
        side = config.side or 32
        return (3, side, side)
    side = config.side or 8
    return (entry.input_shape[0], side, side)


def _task(config: Config, net: Net, variant: Variant, params: int, point: int) -> Task:
    settings: dict[str, Any] = {
        "net": dataclasses.asdict(net),
        "variant": variant.name,
        "kappa": config.kappa if variant.plans else None,
        "batch_norm": config.batch_norm,
        "seed": config.seed,
        "version": VERSION,
    }
    columns = {
        "study": "audit",
        "preset": config.preset,
        "arch": net.arch,
        "dataset": "normal",
        "variant": variant.name,
        "width": net.width if net.narrow is None else net.narrow,
        "norm": net.norm or "default",
        "activation": net.activation or "default",
        "kappa": ("table" if config.kappa is None else f"{config.kappa:g}") if variant.plans else "",
        "masks": ("table" if net.can_be(variant.name) and net.entry.widths else "thumb") if variant.plans else "",
        "batch_norm": config.batch_norm,
        "input_shape": "x".join(map(str, net.input_shape)),
        "standard_params": params,
        "config": config_hash(settings),
        "point": point,
        "mask_seed": derived_seed(config.seed, "audit", "mask", point),
        "seed": derived_seed(config.seed, "audit", "point", point),
    }
    return Task(net, variant.name, config.kappa, config.batch_norm == "batch", point, str(config.runs), columns)


def _swap_tasks(config: Config, points: int) -> list[Task]:
    few = config.preset if config.preset in SWAP_KAPPAS else "laptop"
    tasks = []
    for arch in (a for a in config.archs if a in SWAPS):
        entry = get_arch(arch)
        shape = (entry.input_shape[0], 8, 8)
        net = Net(arch, SWAP_WIDTH[arch], shape, config.classes, None, None, None)
        for kappa in config.swap_kappas or SWAP_KAPPAS[few]:
            for scale in config.swap_n_fix or SWAP_N_FIX[few]:
                for point in range(points):
                    settings = {
                        "net": dataclasses.asdict(net),
                        "swap": "w",
                        "seed": config.seed,
                        "version": VERSION,
                    }
                    columns = {
                        "study": "audit",
                        "preset": config.preset,
                        "arch": arch,
                        "dataset": "normal",
                        "variant": "w",
                        "width": net.width,
                        "kappa": kappa,
                        "n_fix_scale": scale,
                        "point": point,
                        "mask_seed": derived_seed(config.seed, "audit", "mask", point),
                        "seed": derived_seed(config.seed, "audit", "point", point),
                        "config": config_hash(settings),
                    }
                    tasks.append(Task(net, "w", kappa, True, point, str(config.runs), columns, scale))
    return tasks
