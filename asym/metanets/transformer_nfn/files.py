"""The published Small Transformer Zoo from its files: `<run>_<epoch>_<acc>.pt`, one state dict each.

`acc` is the test accuracy times 10,000, rounded down; epochs are 1, 50, 75, 100 and `best`. Read weights-only. A file
that is damaged, holds NaN or has other tensors than the first good one costs its own row: it is left out and named.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import torch

from asym.data.zoos import NetworkZoo
from asym.models.checkpoints import read_state_dict
from asym.symmetry.encoder import CLASSIFIER, EMBEDDING, SCHEMES, Encoder, encoder_of, split

NAME = re.compile(r"(?P<run>.+)_(?P<epoch>\d+|best)_(?P<acc>\d+)\.pt")
PARTS = (*SCHEMES, *EMBEDDING, *CLASSIFIER)
CONSTANTS = ("pos_embedding", "positions")
"""Endings of tensors that are not trained."""


def load_files(folder: str | Path, heads: int, *, epoch: str = "75") -> tuple[Encoder, NetworkZoo]:
    """The networks of one epoch, in the order of their names; `about["skipped"]` has a line for each file left out.

    Raises:
        FileNotFoundError: if there is no such folder, or no file of this epoch in it.
        ValueError: if no file can be used; says why of the first. Where it is the number of heads, says that alone.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"zoo: {folder} is not a folder")
    found = [(path, NAME.fullmatch(path.name)) for path in sorted(folder.glob("*.pt"))]
    chosen = [(path, match) for path, match in found if match and match["epoch"] == epoch]
    if not chosen:
        raise FileNotFoundError(f"zoo: {folder} has no file <run>_{epoch}_<acc>.pt")
    encoder: Encoder | None = None
    states, rows, skipped, reasons = [], [], [], []
    for path, match in chosen:
        try:
            accuracy = int(match["acc"]) / 10_000
            if accuracy > 1:
                raise ValueError(f"checkpoint: {path} names an accuracy of {accuracy}, which is no fraction")
            state = {
                name: tensor.float()
                for name, tensor in read_state_dict(path).items()
                if name.partition(".")[0] in PARTS and not name.endswith(CONSTANTS)
            }
            own = encoder_of(state, heads)
            encoder = encoder or own
            if own.shapes != encoder.shapes:
                raise ValueError(f"checkpoint: {path} has other tensors than {chosen[0][0].name}")
            split(encoder, state)
            bad = next((name for name, tensor in state.items() if not torch.isfinite(tensor).all()), None)
            if bad is not None:
                raise ValueError(f"checkpoint: {path}: {bad} holds NaN or infinite values")
        except ValueError as error:
            skipped.append(f"{path.name}: {error}")
            reasons.append(str(error))
            continue
        states.append(state)
        rows.append({"run": len(rows), "name": match["run"], "epochs": match["epoch"], "test_acc": accuracy})
    if encoder is None or not states:
        other = next((reason for reason in reasons if reason.startswith("heads: ")), None)
        if other is not None:
            raise ValueError(other)
        raise ValueError(f"zoo: none of {len(chosen)} files in {folder} can be used; {skipped[0]}")
    tensors = {name: torch.stack([state[name] for state in states]) for name in encoder.shapes}
    about = {"zoo": folder.name, "skipped": skipped, "test_images": 10_000, "dataset": folder.name}
    return encoder, NetworkZoo(tensors, pd.DataFrame(rows), {}, about)
