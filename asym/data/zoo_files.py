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
        ValueError: for a file that cannot be read, cells that are missing or no numbers, files that do not fit each
            other, or an unknown layout; names the file, what it holds and what it should.
    """
    import pandas as pd

    layout = _csv(there(folder, "layout.csv"))
    metrics = metrics_file(folder)
    table = _csv(metrics)
    weights = _array(there(folder, "weights.npy"))
    if weights.ndim != 2 or len(weights) != len(table):
        raise ValueError(
            f"zoo: weights.npy has shape {weights.shape}, {metrics.name} {len(table)} rows; one is cut short"
        )
    needed = ("test_accuracy", *(["step"] if step is not None else []))
    missing = [column for column in needed if column not in table]
    if missing:
        raise ValueError(f"zoo: {metrics.name} has no column {', '.join(missing)}; it has {', '.join(map(str, table))}")
    slices = _slices(layout, weights.shape[1])
    rows = _published_order(order, len(table)) if order is not None else np.arange(len(table))
    if step is not None:
        rows = rows[table["step"].to_numpy()[rows] == step]
    if not len(rows):
        raise ValueError(f"step: no checkpoint of step {step}; {metrics.name} has {_some(table['step'])}")
    chosen = np.asarray(weights[np.sort(rows)], dtype=np.float32)[np.argsort(np.argsort(rows))]
    tensors = {name: _keras(chosen[:, start:stop], shape) for name, (start, stop, shape) in slices.items()}
    names = {"test_accuracy": "test_acc", "train_accuracy": "train_acc"}
    frame = table.iloc[rows].rename(columns=lambda c: names.get(c, c.removeprefix("config."))).reset_index(drop=True)
    frame["run"] = pd.factorize(frame["modeldir"])[0] if "modeldir" in frame else np.arange(len(frame))
    keep = finite(tensors)
    _check_cells(metrics.name, table.iloc[rows[keep]])
    zoo = NetworkZoo(
        {n: t[torch.from_numpy(keep)] for n, t in tensors.items()}, frame.iloc[keep].reset_index(drop=True)
    )
    about = {**_facts(slices), "dropped": len(frame) - len(keep)}
    return dataclasses.replace(zoo, about=about), _published_split(len(keep))


def metrics_file(folder: str | Path) -> Path:
    """The table of the Small CNN Zoo, compressed or not.

    Raises:
        FileNotFoundError: if there is neither.
    """
    names = ("metrics.csv.gz", "metrics.csv")
    found = next((Path(folder) / name for name in names if (Path(folder) / name).is_file()), None)
    if found is None:
        raise FileNotFoundError(f"zoo: {folder} has neither {' nor '.join(names)}")
    return found


def load_asymmetric_zoo(folder: str | Path, *, limit: int | None = None) -> NetworkZoo:
    """A folder of the published zoo of asymmetric networks: files of a state dict and a test accuracy in percent.

    Files are read in the order of their names (the published code takes that of the directory, which is not fixed).
    Networks with weights that are not finite are dropped, as published; `about` says how many. Single numbers, such as
    batch norm's count of batches, are no weights and left out.

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
            state = {str(name): tensor.float() for name, tensor in dict(state).items() if tensor.dim()}
            percent = float(accuracy)
        except Exception as error:  # unpickling raises whatever it likes
            text = " ".join(str(error).split())[:80]
            raise ValueError(f"zoo: {path} is no pair of a state dict and an accuracy ({text})") from None
        if not state:
            raise ValueError(f"zoo: {path} has a state dict without tensors")
        if not 0 <= percent <= 100:
            raise ValueError(f"zoo: {path} has the accuracy {percent:g}; must be percent, 0 to 100")
        rows.append({"run": number, "file": path.name, "test_acc": percent / 100})
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if states and shapes != {name: tuple(tensor.shape) for name, tensor in states[0].items()}:
            raise ValueError(f"zoo: {path} has other tensors than {files[0].name}; a zoo has one architecture")
        states.append(state)
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    keep = finite(tensors)
    kept = {name: tensor[torch.from_numpy(keep)] for name, tensor in tensors.items()}
    table = pd.DataFrame(rows).iloc[keep].reset_index(drop=True)
    return NetworkZoo(kept, table, about={"dropped": len(files) - len(keep)})


def _csv(path: Path) -> pd.DataFrame:
    """A table whose file is what its name says."""
    import zlib

    import pandas as pd

    try:
        return pd.read_csv(path)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())[:80]
        kind = "compressed CSV table" if path.suffix == ".gz" else "CSV table"
        raise ValueError(f"zoo: {path.name} is no {kind}, or cut short ({reason})") from None


def _array(path: Path) -> np.ndarray:
    """An array of floats, left on the disk."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        kind = str(found.dtype) if isinstance(found, np.ndarray) else "several arrays"
    except (ValueError, OSError, EOFError) as error:
        reason = " ".join(str(error).split()).split(". ")[0]
        raise ValueError(f"zoo: {path.name} is no array of NumPy (.npy), or cut short ({reason})") from None
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f":
        raise ValueError(f"zoo: {path.name} holds {kind}; must be one array of floats")
    return found


NAMES = ("modeldir", "config.activation", "config.optimizer")
NUMBERS = (
    "test_accuracy", "train_accuracy", "config.learning_rate", "config.l2reg", "config.dropout", "config.epochs",
    "config.train_fraction",
)  # fmt: skip
"""Columns of the published table that are used, names and numbers."""


def _check_cells(file: str, table: pd.DataFrame) -> None:
    """Raise a ValueError for a cell that is missing, or no number where one is needed."""
    import pandas as pd

    for column in (name for name in (*NAMES, *NUMBERS) if name in table):
        cells, number = table[column], column in NUMBERS
        good = np.isfinite(pd.to_numeric(cells, errors="coerce")) if number else cells.notna()
        if not good.all():
            place = int(np.flatnonzero(~good)[0])
            found, line = cells.iloc[place], int(cells.index[place]) + 2
            what = "is missing" if pd.isna(found) else f"is {str(found)!r}"
            kind = "number" if number else "name"
            raise ValueError(f"zoo: {file}: {column} {what} in line {line}; must be a {kind} for each network")
    outside = [accuracy for accuracy in table["test_accuracy"].astype(float) if not 0 <= accuracy <= 1]
    if outside:
        raise ValueError(f"zoo: {file}: test_accuracy is {outside[0]:g}; must be a fraction, 0 to 1")


def _some(values: pd.Series) -> str:
    """Its first few values."""
    known = sorted(set(values.dropna().tolist()), key=str)
    return ", ".join(map(str, known[:5])) + (", …" if len(known) > 5 else "") if known else "none"


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
        try:
            shape = tuple(int(part) for part in str(row["shape"]).strip("()[] ").replace(" ", "").split(",") if part)
            start, stop = int(row["start_idx"]), int(row["end_idx"])
        except ValueError:
            given = ", ".join(f"{column} {row[column]}" for column in columns[1:])
            raise ValueError(
                f"zoo: layout.csv says of {row['varname']!r} {given}; must be whole numbers, a shape like (3, 3, 1, 16)"
            ) from None
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
    try:
        numbers = [int(float(line)) for line in Path(path).read_text().split() if line.strip(",")]
    except (ValueError, OverflowError) as error:
        raise ValueError(f"order: {path} is no list of row numbers, one a line ({error})") from None
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
