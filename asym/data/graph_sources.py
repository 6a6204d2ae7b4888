"""The built-in graphs: neighbouring digits, and the citation graph ogbn-arxiv from its raw files.

| name | nodes | edges | features | classes | train / val / test |
|---|---|---|---|---|---|
| `digits-graph` | 1,797 | each digit and its 8 nearest | 64 | 10 | 1,097 / 200 / 500, those of `digits` |
| `ogbn-arxiv` | 169,343 | 1,166,243, both directions | 128 | 40 | 90,941 / 29,799 / 48,603, by year |

The second is that of Hu et al., "Open Graph Benchmark", 2020; its files are read as they come out of the benchmark's
archive `arxiv.zip`, and are never fetched.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from asym.data.graphs import GraphData, graph_data
from asym.data.sources import DEFAULT_DATA_DIR, digits_items, load_digits

NEIGHBOURS = 8
ARXIV_FOLDERS = ("arxiv", "ogbn_arxiv", "ogbn-arxiv", ".")
GRAPHS = ("digits-graph", "ogbn-arxiv")


def load_graph(name: str, data_dir: Path | None, download: bool) -> GraphData:
    """One of `GRAPHS`.

    Raises:
        ValueError: if a download is asked for; damaged files.
        FileNotFoundError: missing files, naming them.
    """
    if name == "digits-graph":
        return load_digits_graph()
    if download:
        raise ValueError(
            f"download: {name} is not fetched; unpack the benchmark's arxiv.zip and pass --data-dir FOLDER"
        )
    return load_arxiv(data_dir)


def load_digits_graph(neighbours: int = NEIGHBOURS) -> GraphData:
    """scikit-learn's digits, each joined with the digits whose pixels are nearest to its own.

    An edge is there where one of two digits is among the other's nearest (symmetric). Distances are those of the raw
    pixels, whole numbers when squared, so that they are exact on any machine; of equally near digits the first counts.
    Features, labels and splits are those of `digits`; features of all nodes are known in training.
    """
    digits, (whole, parts) = load_digits(), digits_items()
    edges = nearest(whole.images.flatten(1).double(), neighbours)
    train, val, test = parts
    return graph_data(
        "digits-graph",
        features=digits.normalise(whole.images).flatten(1),
        edges=edges,
        labels=whole.labels,
        train=train,
        val=val,
        test=test,
        class_names=digits.class_names,
    )


def nearest(points: Float[Tensor, "n d"], k: int) -> Int[Tensor, "2 m"]:
    """Pairs (i, j) with j among the k points nearest to i, itself left out; ties go to the lower number."""
    x = points.numpy()
    squares = (x * x).sum(1)
    distances = squares[:, None] + squares[None] - 2 * (x @ x.T)
    np.fill_diagonal(distances, np.inf)
    found = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return torch.from_numpy(np.stack([np.repeat(np.arange(len(x)), k), found.reshape(-1)]))


def load_arxiv(data_dir: Path | None) -> GraphData:
    """ogbn-arxiv from `raw/*.csv.gz` and `split/time/*.csv.gz`, looked for in data_dir and its folder `arxiv`.

    Features are taken as they are. Of the published split, train, valid and test become train, val and test.
    """
    root = data_dir or DEFAULT_DATA_DIR
    folder = next((f for name in ARXIV_FOLDERS if ((f := root / name) / "raw").is_dir()), None)
    if folder is None:
        raise FileNotFoundError(
            f"dataset: ogbn-arxiv is not in {root} (want raw/edge.csv.gz and more); unpack the benchmark's arxiv.zip "
            "and pass --data-dir FOLDER"
        )
    names = ("raw/node-feat", "raw/edge", "raw/node-label", "split/time/train", "split/time/valid", "split/time/test")
    files = [folder / f"{name}.csv.gz" for name in names]
    for file in files:
        if not file.is_file():
            what = "the graph has no labels" if "label" in file.name else "a file of the graph is missing"
            raise FileNotFoundError(f"dataset: ogbn-arxiv: {what}: {file} is not there")
    features = _read(files[0], "float32")
    edges, labels, *parts = (_read(file, "int64") for file in files[1:])
    for file, table, columns in zip(files[1:], (edges, labels, *parts), (2, 1, 1, 1, 1)):
        if table.shape[1] != columns:
            raise ValueError(f"dataset: {file} has {table.shape[1]} columns, not {columns}")
    if len(labels) != len(features):
        raise ValueError(f"dataset: {files[2]} has {len(labels)} labels, {files[0]} has {len(features)} nodes")
    train, val, test = (torch.from_numpy(part[:, 0].copy()) for part in parts)
    return graph_data(
        "ogbn-arxiv",
        features=torch.from_numpy(features),
        edges=torch.from_numpy(edges.T.copy()),
        labels=torch.from_numpy(labels[:, 0].copy()),
        train=train,
        val=val,
        test=test,
        class_names=tuple(map(str, range(int(labels.max()) + 1))),
    )


def _read(file: Path, dtype: str) -> np.ndarray:
    """The numbers of a compressed CSV file without a header, [rows, columns].

    Raises:
        ValueError: naming the file, if it is empty, damaged or holds something else.
    """
    try:
        return pd.read_csv(file, header=None, dtype=dtype).to_numpy()  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (OSError, EOFError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"dataset: {file} is damaged, truncated or not of {dtype} numbers ({reason})") from None
