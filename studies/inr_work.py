"""Running the planned study of implicit networks, keeping its tables."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
import pandas as pd
import torch

from asym.populations import run_tasks
from asym.populations.sirens import SPLITS, Piece, fit_or_load, fit_sirens, unit_images
from asym.store import Store, read_table, update_table
from studies.inr import TABLES, Config
from studies.inr_read import SHOWN, Sets, dilate, load_sets, read, squares, time_step
from studies.inr_setup import Plan
from studies.inr_tables import (
    MEAN_IMAGE,
    MEASURES,
    NO_EDIT,
    OF_TASK,
    differences,
    fits,
    picture,
    relative,
    summary,
)
from studies.launching import launcher_of
from studies.progress import Progress
from studies.setup import DataArgs, default_jobs, device_here, stamp
from studies.tables import VOLATILE

TIMES = (*VOLATILE, "epoch_s")


def fit_piece(piece: Piece, data_args: DataArgs, runs: str, device: str) -> tuple[str, float]:
    """Fit a piece, or find it; its split and the seconds that it took."""
    run = fit_or_load(Store(runs), piece, data_args.load(), device=device)
    return piece.split, float(run.state()["wall_s"])


def execute(config: Config, plan: Plan) -> pd.DataFrame:
    """Fit, train and measure; returns the study's rows."""
    device = plan.tasks[0].device
    where = stamp(device)
    runs = str(config.runs)
    networks = sum(piece.images for piece in plan.pieces)
    with Progress(networks, f"{networks} implicit networks", quiet=config.quiet) as progress:
        took = run_tasks(
            fit_piece,
            [(piece, plan.data, runs, device) for piece in plan.pieces],
            jobs=default_jobs(config, device, len(plan.pieces)),
            launcher=launcher_of(config),
            on_tick=progress.add,
        )
    spent = {split: sum(s for where_, s in took if where_ == split) for split in SPLITS}
    store, data = Store(runs), plan.data.load()
    labels = pd.concat([fit_or_load(store, piece, data).table("labels") for piece in plan.pieces], ignore_index=True)
    write(config, "inr_fits", fits(labels, spent, plan.columns).assign(**where), TIMES)

    values: dict[tuple[str, str], list[np.ndarray]] = {}
    sets = load_sets(tuple(plan.pieces), plan.data, runs, device_here(device))
    if "edit" in config.tasks:
        rows, found, pictures = baselines(plan, sets)
        values |= {("edit", reader): [each] for reader, each in found.items()}
        write(config, "inr", relative(pd.DataFrame(rows)).assign(**where), TIMES)
        write(config, "inr_images", pd.DataFrame(pictures))
    no_edit = values.get(("edit", NO_EDIT))
    values |= {(task.task, task.reader): [] for task in plan.tasks}
    with Progress(
        sum(task.protocol.epochs for task in plan.tasks), f"{len(plan.tasks)} trainings", quiet=config.quiet
    ) as progress:

        def keep(result: tuple[dict[str, Any], list[dict[str, Any]], dict[str, torch.Tensor]]) -> None:
            row, history, tensors = result
            if row["task"] == "edit" and no_edit is not None:
                base = float(no_edit[0].mean())
                row |= {f"mse_relative{e}": row[f"mse{e}"] / base for e in ("", "_moved")}
                if row["instance"] == 0:
                    pictures = shown(plan, sets, row["reader"], tensors["images"], tensors["mse"])
                    write(config, "inr_images", pd.DataFrame(pictures))
            write(config, "inr", pd.DataFrame([row | where]), TIMES)
            if history:
                write(config, "inr_history", pd.DataFrame(history))

        results = run_tasks(
            read,
            [(task,) for task in plan.tasks],
            jobs=default_jobs(config, device, len(plan.tasks)),
            launcher=launcher_of(config),
            on_tick=progress.add,
            on_result=keep,
        )
    for row, _, tensors in results:
        if row["diverged"] == 0 or row["best_epoch"] > 0:
            values[row["task"], row["reader"]].append(tensors[OF_TASK[row["task"]]].numpy())
    table = read_table(config.out / "inr.csv")
    wanted = set(values)
    asked = pd.Series([pair in wanted for pair in zip(table["task"], table["reader"])], index=table.index)
    rows = table[(table["config"] == plan.config) & asked].reset_index(drop=True)
    write(config, "inr_summary", summary(rows))
    compared = differences({key: found for key, found in values.items() if found}, plan.columns, config.seed)
    if len(compared):
        write(config, "inr_differences", compared)
    return rows


def write(config: Config, name: str, rows: pd.DataFrame, volatile: tuple[str, ...] = ()) -> None:
    """Add rows to a table of the study."""
    update_table(config.out / f"{name}.csv", rows, list(TABLES[name]), volatile)


def baselines(plan: Plan, sets: Sets) -> tuple[list[dict[str, Any]], dict[str, np.ndarray], list[dict[str, Any]]]:
    """Rows, values on each test network and pictures of what needs no training."""
    start = time.perf_counter()
    test = sets.places("test")
    targets = dilate(sets.images, sets.side, plan.tasks[0].footprint)
    with torch.no_grad():
        drawn = sets.rendered(sets.stack.rows(test))
    mean = targets[sets.places("train")].mean(0)
    images = {NO_EDIT: drawn, MEAN_IMAGE: mean.expand_as(drawn)}
    found = {name: squares(image, targets[test]).cpu().double().numpy() for name, image in images.items()}
    rows = []
    for name, each in found.items():
        row = plan.columns | {"task": "edit", "reader": name, "params": 0, "diverged": 0}
        row |= dict.fromkeys(MEASURES, np.nan) | {"mse": float(each.mean()), "mse_moved": float(each.mean())}
        rows.append(row | {"wall_s": round(time.perf_counter() - start, 3)})
    pictures = shown(plan, sets, "target", targets[test], np.zeros(len(test)))
    for name, image in images.items():
        pictures += shown(plan, sets, name, image, found[name])
    return rows, found, pictures


def shown(plan: Plan, sets: Sets, reader: str, images: torch.Tensor, errors: Any) -> list[dict[str, Any]]:
    """Rows of `inr_images.csv` for the first test images."""
    labels = sets.labels[sets.labels["split"] == "test"].head(SHOWN)
    height, width = sets.side
    return [
        {name: plan.columns[name] for name in ("config", "preset", "dataset")}
        | {"reader": reader, "image": int(row["image"]), "label": int(row["label"]), "mse": float(errors[i])}
        | {"channels": images.shape[1], "height": height, "width": width, "pixels": picture(images[i].cpu())}
        for i, row in enumerate(labels.to_dict("records"))
    ]


def plan_text(config: Config, plan: Plan) -> str:
    """What a run would cost, from a few timed steps; writes nothing."""
    first, data = plan.pieces[0], plan.data.load()
    count = min(64, first.images)
    few = dataclasses.replace(first.recipe, steps=10)
    start = time.perf_counter()
    run_tasks(fit_sirens, [(unit_images(data, "train")[:count], first.seeds[:count], few)])
    networks = sum(piece.images for piece in plan.pieces)
    seconds = (time.perf_counter() - start) / (10 * count) * first.recipe.steps * networks
    size = sum(p.numel() for p in first.recipe.network(data.input_shape[0]).parameters())
    lines = [f"{networks:,} implicit networks {plan.columns['siren']}, {first.recipe.steps} steps: {_minutes(seconds)}"]
    train = sum(piece.images for piece in plan.pieces if piece.split == "train")
    protocol = plan.tasks[0].protocol
    steps = protocol.epochs * math.ceil(train / protocol.batch)
    for task in (task for task in plan.tasks if task.instance == 0):
        each, params = run_tasks(time_step, [(task,)])[0]
        trainings = sum((t.task, t.reader) == (task.task, task.reader) for t in plan.tasks)
        seconds += each * steps * trainings
        lines.append(
            f"{task.task} {task.reader}: {params:,} parameters, {trainings} trainings of {protocol.epochs} epochs, "
            f"{_minutes(each * steps)} each"
        )
    processes = default_jobs(config, plan.tasks[0].device, len(plan.tasks))
    lines.append(
        f"together: {len(plan.tasks)} trainings on {train:,} networks, about {seconds / processes / 60:.2g} min in "
        f"{processes} process(es), about {networks * size * 4 / 1e6:.2g} MB in {config.runs}; nothing was written"
    )
    return "\n".join(lines)


def _minutes(seconds: float) -> str:
    return f"about {seconds / 60:.2g} min"
