"""Planning the study of implicit networks: every check that can be made before work starts, and what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

from asym.data import ImageData
from asym.metanets import Protocol
from asym.populations.population import compact
from asym.populations.sirens import KIND as SIRENS
from asym.populations.sirens import SPLITS, Piece, SirenRecipe, pieces_of
from asym.store import config_hash
from studies.checks import InputError
from studies.inr import EDITORS, TABLES, Config
from studies.inr_read import KIND, READ_VERSION, Task, read_config
from studies.setup import DataArgs, check_places, check_stored, resolve_device


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Values that a preset gives to the flags that were left out."""

    dataset: str
    readers: tuple[str, ...]
    instances: int
    fits: int
    train_size: int | None
    siren_width: int
    fit_steps: int
    fit_lr: float
    reader_width: int
    sign: str
    epochs: int
    lr: float
    batch_size: int
    footprint: str


MATCHED = ("flat+matched", "deepsets+matched", "nfn-np+matched", "gmn+matched", "scale-gmn", "scale-gmn-b+matched")
PIECE = 64
"""Networks that a reader holds in memory together; they are small."""
LAPTOP = Defaults(
    dataset="digits",
    readers=MATCHED,
    instances=3,
    fits=8,
    train_size=None,
    siren_width=16,
    fit_steps=200,
    fit_lr=3e-3,
    reader_width=16,
    sign="canonicalise",
    epochs=10,
    lr=3e-3,
    batch_size=64,
    footprint="cross",
)
PRESETS = {
    "smoke": dataclasses.replace(
        LAPTOP,
        readers=("flat", "scale-gmn"),
        instances=2,
        fits=1,
        train_size=150,
        siren_width=8,
        fit_steps=60,
        reader_width=8,
        epochs=2,
    ),
    "laptop": LAPTOP,
    "paper": Defaults(
        dataset="mnist",
        readers=(*MATCHED, "gmn", "scale-gmn-b", "nfn-hnp", "stats+matched"),
        instances=3,
        fits=1,
        train_size=None,
        siren_width=32,
        fit_steps=1000,
        fit_lr=1e-3,
        reader_width=128,
        sign="symmetrise",
        epochs=200,
        lr=1e-3,
        batch_size=128,
        footprint="square",
    ),
}
"""`paper`: implicit networks of the published size (1,185 parameters), readers of width 128 for 200 epochs."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a config asks for."""

    pieces: list[Piece]
    tasks: list[Task]
    data: DataArgs
    config: str
    """Hash of what determines all rows but their task, reader and instance."""
    columns: dict[str, Any]
    """Cells that all rows share."""


def prepare(config: Config) -> Plan:
    """The plan of a config.

    Raises:
        InputError, ValueError, FileNotFoundError: for whatever cannot work.
    """
    preset = PRESETS[config.preset]
    device = resolve_device(config)
    check_places(config, TABLES)
    train_size = config.train_size or preset.train_size
    data_args = DataArgs.of(config, preset.dataset, train_size)
    data = data_args.load()
    if not isinstance(data, ImageData):
        raise InputError(f"--dataset: {data.name} has no images to fit networks to")
    if min(data.input_shape[1:]) < 2:
        raise InputError(f"--dataset: images of {data.name} must have at least 2 pixels a side")
    recipe = SirenRecipe(
        width=config.siren_width or preset.siren_width,
        depth=config.siren_depth,
        omega=config.omega,
        start=config.start,
        shared=config.shared_start,
        steps=config.fit_steps or preset.fit_steps,
        lr=config.fit_lr or preset.fit_lr,
    )
    protocol = Protocol(
        epochs=config.epochs or preset.epochs,
        lr=config.lr or preset.lr,
        batch=config.batch_size or preset.batch_size,
        piece=PIECE,
    )
    fits = config.fits or preset.fits
    pieces = [
        piece
        for split in SPLITS
        for piece in pieces_of(data, split, recipe, fits=fits if split == "train" else 1, seed=config.seed)
    ]
    footprint = config.footprint or preset.footprint
    reader_width = config.reader_width or preset.reader_width
    sign = config.sign or preset.sign
    key = config_hash(
        {
            "version": READ_VERSION,
            "data": data.fingerprint,
            "recipe": compact(recipe),
            "fits": fits,
            "protocol": dataclasses.asdict(protocol),
            "footprint": footprint,
            "reader_width": reader_width,
            "sign": sign,
            "seed": config.seed,
        }
    )
    columns = {
        "study": "inr",
        "preset": config.preset,
        "config": key,
        "dataset": data.name,
        "task": "",
        "reader": "",
        "instance": 0,
        "seed": 0,
        "siren": "-".join(map(str, [2, *[recipe.width] * recipe.depth, data.input_shape[0]])),
        "omega": recipe.omega,
        "start": recipe.start + (", shared" if recipe.shared else ""),
        "fit_steps": recipe.steps,
        "fit_lr": recipe.lr,
        "fits": fits,
        "train_images": len(data.train),
        "footprint": footprint,
        "sign": sign,
        "epochs": protocol.epochs,
        "lr": protocol.lr,
        "batch_size": protocol.batch,
    }
    tasks = [
        Task(
            task,
            reader,
            instance,
            config.seed,
            tuple(pieces),
            data_args,
            protocol,
            reader_width,
            sign,
            footprint,
            str(config.runs),
            device,
            columns,
        )
        for instance in range(config.instances or preset.instances)
        for task in config.tasks
        for reader in config.readers or preset.readers
        if task == "classify" or reader.split("+")[0] in EDITORS
    ]
    check_stored(config, [(SIRENS, piece.config) for piece in pieces] + [(KIND, read_config(task)) for task in tasks])
    for task in tasks[: len(tasks) // (config.instances or preset.instances)]:
        task.build()  # an add-on that a reader cannot have is bad input
    return Plan(pieces, tasks, data_args, key, columns)
