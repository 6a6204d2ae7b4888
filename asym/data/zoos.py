"""Zoos of trained networks: what one is, how it is split, and its files.

A zoo is a stack of weights, name → `n *shape`, and a table with a row for each network: its accuracies, its losses and
the hyper-parameters that it was trained with. Its files (`save_zoo`): `zoo.safetensors` with the tensors, masks under
`mask/<name>`, and a description in its header; `zoo.parquet` with the table. Published zoos: `asym.data.zoo_files`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from asym.files import replace_file
from asym.seeds import numpy_generator

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("train", "val", "test")
MASK = "mask/"


@dataclasses.dataclass(frozen=True)
class NetworkZoo:
    """Networks of one architecture with what is known of each.

    Raises:
        ValueError: if numbers of networks disagree, a column is missing, or weights are not finite.
    """

    tensors: Mapping[str, Tensor]
    """Name → `n *shape`, float32: what the network computes with, constants of masked layers included."""
    table: pd.DataFrame
    """A row a network, `run` (checkpoints of one training share it) and `test_acc` (a fraction) among its columns."""
    masks: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """Name → booleans `*shape`, true where an entry was trained; tensors without one were trained as a whole."""
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Architecture and data set, as plain values."""

    def __post_init__(self) -> None:
        sizes = {len(tensor) for tensor in self.tensors.values()} | {len(self.table)}
        if len(sizes) != 1 or not self.tensors:
            raise ValueError(f"zoo: tensors and table have {sorted(sizes)} networks; the zoo is cut short")
        for column in ("run", "test_acc"):
            if column not in self.table:
                raise ValueError(f"zoo: the table has no column {column!r}; it has {', '.join(map(str, self.table))}")
        for name, tensor in self.tensors.items():
            bad = ~torch.isfinite(tensor).flatten(1).all(1)
            if bad.any():
                raise ValueError(
                    f"zoo: {name!r} has NaN or infinite entries in {int(bad.sum())} of {len(bad)} networks, the first "
                    f"is network {int(bad.nonzero()[0, 0])}; drop them with `finite`"
                )
        accuracies = self.table["test_acc"].to_numpy(dtype=float)
        if not ((accuracies >= 0) & (accuracies <= 1)).all():
            raise ValueError("zoo: test_acc must be fractions in [0, 1]")

    def __len__(self) -> int:
        return len(self.table)

    def take(self, places: np.ndarray) -> NetworkZoo:
        """The networks at these places."""
        index = torch.from_numpy(np.asarray(places, dtype=np.int64))
        tensors = {name: tensor[index] for name, tensor in self.tensors.items()}
        return dataclasses.replace(self, tensors=tensors, table=self.table.iloc[places].reset_index(drop=True))


def finite(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Places of the networks without NaN or infinite weights."""
    good = torch.stack([torch.isfinite(tensor).flatten(1).all(1) for tensor in tensors.values()]).all(0)
    return np.flatnonzero(good.numpy())


def split_runs(runs: Sequence[int] | np.ndarray, *, val: float, test: float, seed: int) -> dict[str, np.ndarray]:
    """Places of networks by split; all checkpoints of a run are in the same one.

    Args:
        runs: the run of each network.
        val: share of the runs for validation.
        test: share for testing.
        seed: of the order of runs. Each run has a random number of its own, so that zoos that are drawn in pairs are
            split alike; places within a split are in that order, so that the first k of `train` are a random subset.

    Raises:
        ValueError: if a share leaves a split empty.
    """
    values = np.asarray(runs)
    known = np.unique(values)
    drawn = [numpy_generator(seed, "zoo", "split", int(run)).random() for run in known]
    order = known[np.argsort(drawn)]
    stops = [round(test * len(order)), round((test + val) * len(order))]
    parts = dict(zip(("test", "val", "train"), np.split(order, stops)))
    for name in SPLITS:
        if not len(parts[name]):
            raise ValueError(f"zoo: {len(order)} runs leave none for {name} at shares of {val} and {test}")
    places: dict[int, list[int]] = {}
    for place, run in enumerate(values.tolist()):
        places.setdefault(run, []).append(place)
    return {
        name: np.array([place for run in parts[name].tolist() for place in places[run]], dtype=int) for name in SPLITS
    }


def save_zoo(folder: str | Path, zoo: NetworkZoo) -> list[Path]:
    """Write a zoo as stacked safetensors and a table in parquet; returns both files."""
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "zoo.safetensors", folder / "zoo.parquet"]
    everything = {**zoo.tensors, **{MASK + name: mask for name, mask in zoo.masks.items()}}
    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in everything.items()}
    header = {"about": json.dumps(dict(zoo.about), sort_keys=True), "networks": str(len(zoo))}
    replace_file(files[0], lambda temporary: save_file(flat, temporary, metadata=header))
    replace_file(files[1], lambda temporary: zoo.table.to_parquet(temporary, index=False))
    return files


def load_zoo(folder: str | Path) -> NetworkZoo:
    """What `save_zoo` wrote.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is cut short or the two do not fit.
    """
    import pandas as pd
    from safetensors import SafetensorError, safe_open

    weights, table = there(folder, "zoo.safetensors"), there(folder, "zoo.parquet")
    try:
        with safe_open(weights, "pt") as file:
            header = file.metadata() or {}
            everything = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        frame = pd.read_parquet(table)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"zoo: {weights.parent} cannot be read, a file is cut short or altered ({error})") from None
    masks = {name.removeprefix(MASK): t for name, t in everything.items() if name.startswith(MASK)}
    tensors = {name: t for name, t in everything.items() if not name.startswith(MASK)}
    return NetworkZoo(tensors, frame, masks, json.loads(header.get("about", "{}")))


def there(folder: str | Path, name: str) -> Path:
    """A file of a folder; FileNotFoundError if it is not there."""
    path = Path(folder) / name
    if not path.is_file():
        raise FileNotFoundError(f"zoo: {path} is not there")
    return path


__all__ = ["NetworkZoo", "finite", "load_zoo", "save_zoo", "split_runs", "there"]
