"""Zoos of trained networks, read from files: ours, and those that were published.

A zoo is a stack of weights, name → `n *shape`, and a table with a row for each network: its accuracies, its losses and
the hyper-parameters that it was trained with. Published forms:

    Small CNN Zoo         weights.npy (n, 4970), metrics.csv.gz, layout.csv; Unterthiner et al. 2020. In each layer the
                          bias comes before the kernel; a kernel of Keras has axes (h, w, in, out) or (in, out)
    asymmetric networks   a folder of files, each a pair (state dict, test accuracy in percent); Lim et al. 2024

The split of the Small CNN Zoo that the literature uses: rows are put in a published order, of which the checkpoints of
the last step are kept; the first half is for training and validation, the second for testing; Python's `Random(0)`
shuffles the first half, of which four fifths are for training. Without the published order that of the file is taken.

Ours (`save_zoo`): `zoo.safetensors` with the tensors, masks under `mask/<name>`, and a description in its header;
`zoo.parquet` with the table.
"""

from __future__ import annotations

import dataclasses
import json
import random
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
STEP = 86
SMALL_CNN = {
    "convs.0.bias": "b0", "convs.0.weight": "k0", "convs.1.bias": "b1", "convs.1.weight": "k1",
    "convs.2.bias": "b2", "convs.2.weight": "k2", "head.bias": "b3", "head.weight": "k3",
}  # fmt: skip
"""Tensors of `small-cnn` in the order of the published layout."""


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

    weights, table = _there(folder, "zoo.safetensors"), _there(folder, "zoo.parquet")
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


def load_small_cnn_zoo(
    folder: str | Path, *, step: int | None = STEP, order: str | Path | None = None
) -> tuple[NetworkZoo, dict[str, np.ndarray]]:
    """The published Small CNN Zoo as networks of `small-cnn`, and the split that the literature uses.

    Args:
        folder: holds weights.npy, metrics.csv.gz (or metrics.csv) and layout.csv.
        step: keep the checkpoints of this step; None keeps all.
        order: file with a row's number on each line, the published order; a first line that is no new number is its
            header.

    Raises:
        FileNotFoundError: naming the file that is missing.
        ValueError: for files that do not fit each other, or an unknown layout.
    """
    import pandas as pd

    layout = pd.read_csv(_there(folder, "layout.csv"))
    metrics = Path(folder) / "metrics.csv.gz"
    table = pd.read_csv(metrics if metrics.is_file() else _there(folder, "metrics.csv"))
    try:
        weights = np.load(_there(folder, "weights.npy"), mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"zoo: {Path(folder) / 'weights.npy'} cannot be read, it is cut short ({error})") from None
    if weights.ndim != 2 or len(weights) != len(table):
        raise ValueError(f"zoo: weights.npy has shape {weights.shape}, metrics {len(table)} rows; one is cut short")
    slices = _slices(layout, weights.shape[1])
    rows = _published_order(order, len(table)) if order is not None else np.arange(len(table))
    if step is not None:
        rows = rows[table["step"].to_numpy()[rows] == step]
    if not len(rows):
        raise ValueError(f"step: no checkpoint of step {step}; the file has {sorted(set(table['step']))}")
    chosen = np.asarray(weights[np.sort(rows)], dtype=np.float32)[np.argsort(np.argsort(rows))]
    tensors = {name: _keras(chosen[:, start:stop], shape) for name, (start, stop, shape) in slices.items()}
    names = {"test_accuracy": "test_acc", "train_accuracy": "train_acc"}
    frame = table.iloc[rows].rename(columns=lambda c: names.get(c, c.removeprefix("config."))).reset_index(drop=True)
    frame["run"] = pd.factorize(frame["modeldir"])[0] if "modeldir" in frame else np.arange(len(frame))
    keep = finite(tensors)
    zoo = NetworkZoo(
        {n: t[torch.from_numpy(keep)] for n, t in tensors.items()}, frame.iloc[keep].reset_index(drop=True)
    )
    about = {"arch": "small-cnn", "input_shape": [1, 32, 32], "classes": 10, "dropped": len(frame) - len(keep)}
    return dataclasses.replace(zoo, about=about), _published_split(len(keep))


def load_asymmetric_zoo(folder: str | Path, *, limit: int | None = None) -> NetworkZoo:
    """A folder of the published zoo of asymmetric networks: files of a state dict and a test accuracy in percent.

    Files are read in the order of their names (the published code takes that of the directory, which is not fixed).
    Networks with weights that are not finite are dropped, as published; `about` says how many.

    Raises:
        FileNotFoundError: if there are no files.
        ValueError: naming a file that is none of such, or whose tensors differ from the first one's.
    """
    import pandas as pd

    files = sorted(path for path in Path(folder).glob("*.p*") if path.suffix in (".pt", ".pth", ".pkl"))[:limit]
    if not files:
        raise FileNotFoundError(f"zoo: {folder} has no files *.pt or *.pth")
    states, rows = [], []
    for number, path in enumerate(files):
        try:
            state, accuracy = torch.load(path, map_location="cpu", weights_only=True)
            state = {str(name): tensor.float() for name, tensor in dict(state).items()}
            rows.append({"run": number, "file": path.name, "test_acc": float(accuracy) / 100})
        except Exception as error:  # unpickling raises whatever it likes
            text = " ".join(str(error).split())[:80]
            raise ValueError(f"zoo: {path} is no pair of a state dict and an accuracy ({text})") from None
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if states and shapes != {name: tuple(tensor.shape) for name, tensor in states[0].items()}:
            raise ValueError(f"zoo: {path} has other tensors than {files[0].name}; a zoo has one architecture")
        states.append(state)
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    keep = finite(tensors)
    kept = {name: tensor[torch.from_numpy(keep)] for name, tensor in tensors.items()}
    table = pd.DataFrame(rows).iloc[keep].reset_index(drop=True)
    return NetworkZoo(kept, table, about={"dropped": len(files) - len(keep)})


def _there(folder: str | Path, name: str) -> Path:
    path = Path(folder) / name
    if not path.is_file():
        raise FileNotFoundError(f"zoo: {path} is not there")
    return path


def _slices(layout: pd.DataFrame, size: int) -> dict[str, tuple[int, int, tuple[int, ...]]]:
    """Name of ours → start, stop and Keras shape."""
    columns = ("varname", "start_idx", "end_idx", "shape")
    missing = [column for column in columns if column not in layout]
    if missing:
        raise ValueError(f"zoo: layout.csv has no column {', '.join(missing)}")
    kinds = ["bias" if str(name).endswith("bias:0") else "kernel" for name in layout["varname"]]
    if len(layout) != len(SMALL_CNN) or kinds != ["bias", "kernel"] * (len(SMALL_CNN) // 2):
        raise ValueError(
            f"zoo: layout.csv has {len(layout)} variables ({', '.join(kinds)}), not four layers of the CNN"
        )
    found: dict[str, tuple[int, int, tuple[int, ...]]] = {}
    at = 0
    for name, row in zip(SMALL_CNN, layout.to_dict("records")):
        shape = tuple(int(part) for part in str(row["shape"]).strip("()[] ").replace(" ", "").split(",") if part)
        start, stop = int(row["start_idx"]), int(row["end_idx"])
        if start != at or stop - start != int(np.prod(shape)):
            raise ValueError(
                f"zoo: layout.csv says {row['varname']!r} of shape {shape} is at {start} to {stop}, which does not fit"
            )
        found[name], at = (start, stop, shape), stop
    if at != size:
        raise ValueError(f"zoo: layout.csv describes {at} weights a network, weights.npy has {size}")
    return found


def _keras(rows: np.ndarray, shape: tuple[int, ...]) -> Tensor:
    """Rows of a flat variable as `n *shape` in PyTorch's order of axes."""
    tensor = torch.from_numpy(np.array(rows)).view(len(rows), *shape)
    if len(shape) == 4:
        return tensor.permute(0, 4, 3, 1, 2).contiguous()
    return tensor.mT.contiguous() if len(shape) == 2 else tensor


def _published_order(path: str | Path, rows: int) -> np.ndarray:
    numbers = [int(float(line)) for line in Path(path).read_text().split() if line.strip(",")]
    if len(numbers) == rows + 1:
        numbers = numbers[1:]  # the published files begin with a row that repeats a number
    if sorted(numbers) != list(range(rows)):
        raise ValueError(f"order: {path} holds {len(numbers)} numbers, which are not those of {rows} rows")
    return np.array(numbers)


def _published_split(n: int) -> dict[str, np.ndarray]:
    first = list(range(n // 2))
    random.Random(0).shuffle(first)
    cut = int(0.8 * len(first))
    return {"train": np.array(first[:cut]), "val": np.array(first[cut:]), "test": np.arange(n // 2, n)}


__all__ = [
    "NetworkZoo",
    "finite",
    "load_asymmetric_zoo",
    "load_small_cnn_zoo",
    "load_zoo",
    "save_zoo",
    "split_runs",
]
