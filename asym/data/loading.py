"""`load`: one call for every data set, by name."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from asym.data.check import FOLDER_PREFIX, check_dataset_name, default_name, folder_path
from asym.data.documents import DOCUMENTS, load_documents
from asym.data.graph_sources import GRAPHS, load_graph
from asym.data.graphs import GraphData
from asym.data.images import ImageData
from asym.data.protocol import Data
from asym.data.sources import GREY, load_cifar, load_digits, load_grey
from asym.data.splits import stratified_subset

OFFLINE = ("digits", "digits-graph", "docstrings", "characters")
"""Sets that need no files."""
D = TypeVar("D", bound=Data)


def load(
    dataset: str,
    *,
    data_dir: str | Path | None = None,
    download: bool = False,
    dataset_name: str | None = None,
    train_size: int | None = None,
    cache_dir: str | Path | None = None,
    image_size: int | None = None,
) -> Any:
    """A data set as tensors in memory: an `ImageData`, or for a graph a `GraphData`.

    Args:
        dataset: `digits`, `fashion_mnist`, `mnist`, `cifar10`, `cifar100`, `imagefolder:PATH` (a folder,
            .tar, .tar.gz or .zip of train|val|test/<class>/*.png|jpg; val/ may be absent); text as images of one row,
            `docstrings`, `ag_news`, `characters`; the graphs
            `digits-graph` and `ogbn-arxiv`; or `package.module:loader`, a function without required arguments (it is
            given data_dir if it takes it) that returns an `ImageData` or a `GraphData`.
        data_dir: where the files of a built-in set are; `data` if not given.
        download: fetch a missing built-in set into data_dir.
        dataset_name: what tables call it; default: the data set's name, a folder's name without archive
            suffix.
        train_size: keep a stratified subset of this many training items.
        cache_dir: `imagefolder:` keeps decoded images there and finds them next time.
        image_size: `imagefolder:` resizes images to this many pixels a side.

    Where there is no validation split of its own, 10 % of the training set become it (`asym.data.splits`).

    Raises:
        ValueError: an unknown name, a bad argument, damaged files.
        FileNotFoundError: files are missing; says which flag or package brings them.
    """
    check_dataset_name(dataset)
    root = None if data_dir is None else Path(data_dir).expanduser()
    if root is not None and not root.is_dir() and not download and dataset not in OFFLINE:
        raise FileNotFoundError(f"data_dir: {root} is not a folder; name the one that holds {dataset}")
    if dataset_name == "":
        raise ValueError("dataset_name: must not be empty")
    if image_size is not None and not dataset.startswith(FOLDER_PREFIX):
        raise ValueError(f"image_size: has no meaning for {dataset}; only for {FOLDER_PREFIX}PATH")

    if dataset.startswith(FOLDER_PREFIX):
        from asym.data.imagefolder import load_imagefolder

        cache = None if cache_dir is None else Path(cache_dir).expanduser()
        data = load_imagefolder(folder_path(dataset), cache_dir=cache, image_size=image_size)
    elif dataset == "digits":
        data = load_digits()
    elif dataset in DOCUMENTS:
        data = load_documents(dataset, root)
    elif dataset in GRAPHS:
        data = load_graph(dataset, root, download)
    elif dataset in GREY:
        data = load_grey(dataset, root, download)
    elif ":" in dataset:
        data = _load_own(dataset, root)
    else:
        data = load_cifar(dataset, root, download)

    if train_size is not None:
        data = with_train_size(data, train_size)
    own = ":" in dataset and not dataset.startswith(FOLDER_PREFIX)
    return replace(data, name=dataset_name or (data.name if own else default_name(dataset)))


def with_train_size(data: D, train_size: int) -> D:
    """The data with a stratified subset of its training items, and a new fingerprint; val and test stay.

    Raises:
        ValueError: train_size is not between 1 and the number of training items.
    """
    if not 1 <= train_size <= len(data.train):
        raise ValueError(f"train_size: {train_size} is not between 1 and {len(data.train)}, the size of {data.name}")
    return data.with_train(data.train.take(stratified_subset(data.train.labels, train_size)))


def _load_own(dataset: str, data_dir: Path | None) -> ImageData | GraphData:
    module, _, attribute = dataset.partition(":")
    loader: Any = getattr(importlib.import_module(module), attribute, None)
    if not callable(loader):
        raise ValueError(f"dataset: module {module!r} has no function {attribute!r}")
    takes_folder = "data_dir" in inspect.signature(loader).parameters
    data: Any = loader(data_dir=data_dir) if takes_folder else loader()
    if not isinstance(data, ImageData | GraphData):
        kind = type(data).__name__
        raise ValueError(f"dataset: {dataset} returned {kind}, not an asym.data.ImageData or a GraphData")
    train: Any = data.train
    return data.with_train(train)  # with a fingerprint of what it holds now
