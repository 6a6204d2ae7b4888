"""Data sets as tensors in memory.

`load(name)` gives an `ImageData` or a `GraphData`, both of which are `Data`; `check_dataset_name(name)` says without
torch whether it would know the name; `draw_augmentation` and `apply_augmentation` are the training-time transforms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from asym.data.check import check_dataset_name

if TYPE_CHECKING:
    from asym.data.graphs import GraphData, GraphInput, Nodes, graph_data
    from asym.data.images import Augment, ImageData, Split, image_data
    from asym.data.loading import load, with_train_size
    from asym.data.protocol import Batches, Data, Items
    from asym.data.transforms import apply_augmentation, draw_augmentation

__all__ = [
    "Augment",
    "Batches",
    "Data",
    "GraphData",
    "GraphInput",
    "ImageData",
    "Items",
    "Nodes",
    "Split",
    "apply_augmentation",
    "check_dataset_name",
    "draw_augmentation",
    "graph_data",
    "image_data",
    "load",
    "with_train_size",
]

_ROOMS = {
    "Batches": "protocol",
    "Data": "protocol",
    "Items": "protocol",
    "GraphData": "graphs",
    "GraphInput": "graphs",
    "Nodes": "graphs",
    "graph_data": "graphs",
    "Augment": "images",
    "ImageData": "images",
    "Split": "images",
    "image_data": "images",
    "load": "loading",
    "with_train_size": "loading",
    "apply_augmentation": "transforms",
    "draw_augmentation": "transforms",
}


def __getattr__(name: str) -> Any:
    # Everything but the check of names needs torch, which takes seconds to load.
    if name in _ROOMS:
        return getattr(importlib.import_module(f"asym.data.{_ROOMS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
