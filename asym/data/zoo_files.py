"""Zoos of networks that were published, read from the files that their authors give.

    Small CNN Zoo         weights.npy (n, 4970), metrics.csv.gz, layout.csv; Unterthiner et al. 2020. In each layer the
                          bias comes before the kernel; a kernel of Keras has axes (h, w, in, out) or (in, out)
    asymmetric networks   a folder of files, each a pair (state dict, test accuracy in percent); Lim et al. 2024

The split of the Small CNN Zoo that the literature uses: rows are put in a published order, of which the checkpoints of
the last step are kept; the first half is for training and validation, the second for testing; Python's `Random(0)`
shuffles the first half, of which four fifths are for training. Without the published order that of the file is taken.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from asym.data.zoos import NetworkZoo, finite, there

if TYPE_CHECKING:
    import pandas as pd

STEP = 86
SMALL_CNN = {
    "convs.0.bias": "b0", "convs.0.weight": "k0", "convs.1.bias": "b1", "convs.1.weight": "k1",
    "convs.2.bias": "b2", "convs.2.weight": "k2", "head.bias": "b3", "head.weight": "k3",
}  # fmt: skip
"""Tensors of `small-cnn` in the order of the published layout."""


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

    layout = pd.read_csv(there(folder, "layout.csv"))
    metrics = Path(folder) / "metrics.csv.gz"
    table = pd.read_csv(metrics if metrics.is_file() else there(folder, "metrics.csv"))
    try:
        weights = np.load(there(folder, "weights.npy"), mmap_mode="r", allow_pickle=False)
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
    about = {**_facts(slices), "dropped": len(frame) - len(keep)}
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


def _facts(slices: dict[str, tuple[int, int, tuple[int, ...]]]) -> dict[str, Any]:
    """Architecture of a layout: its channels, classes and width, which must be one CNN's."""
    shapes = {name: shape for name, (_, _, shape) in slices.items()}
    first, last = shapes["convs.0.weight"], shapes["head.weight"]
    if len(first) == 4 and len(last) == 2:
        channels, width, classes = first[2], first[3], last[1]
        expected = dict.fromkeys(shapes, (width,))
        expected |= {f"convs.{i}.weight": (3, 3, width if i else channels, width) for i in range(3)}
        expected |= {"head.bias": (classes,), "head.weight": (width, classes)}
        if shapes == expected:
            return {"arch": "small-cnn", "input_shape": [channels, 32, 32], "classes": classes, "width": width / 16}
    said = ", ".join(f"{name} {shape}" for name, shape in shapes.items() if name.endswith("weight"))
    raise ValueError(f"zoo: layout.csv has kernels {said}; not three 3×3 convolutions of one width and a linear layer")


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


__all__ = ["load_asymmetric_zoo", "load_small_cnn_zoo"]
