"""Graphs whose nodes are classified: features and neighbours of all nodes are known, labels of some (transductive).

A network sees the whole graph in every pass, and answers for the nodes that are asked for. What it gets is one object,
a `GraphInput`: features X [n, f], the averaging matrix A [n, n] with A[i, j] = 1 / degree(i) for the neighbours j of
i (so that A X is the mean over neighbours, zero for a node without any), and the nodes that are asked for.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._pytree import register_dataclass

from asym.data.images import FINGERPRINT_LENGTH
from asym.data.protocol import Batches

EXAMPLE_NODES = 4


@dataclass(frozen=True)
class GraphInput:
    """What a graph network is called with.

    Attributes:
        features: X [n, f], float32.
        averaging: A [n, n], sparse (CSR) or dense.
        nodes: the nodes to answer for [k]; None for all.
    """

    features: Float[Tensor, "n f"]
    averaging: Float[Tensor, "n n"]
    nodes: Int[Tensor, " k"] | None = None


register_dataclass(GraphInput)


@dataclass(frozen=True)
class Nodes:
    """A split: nodes [k] and their labels [k], both int64."""

    nodes: Int[Tensor, " k"]
    labels: Int[Tensor, " k"]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Int[Tensor, " j"]) -> Nodes:
        """The nodes at these places."""
        return Nodes(self.nodes[index], self.labels[index])

    def to(self, device: torch.device | str) -> Nodes:
        """The nodes on a device."""
        return Nodes(self.nodes.to(device), self.labels.to(device))

    def parts(self, size: int) -> list[Nodes]:
        """One piece, whatever the size: a pass over the graph answers for all nodes at once."""
        return [self]


@dataclass(frozen=True)
class GraphData:
    """A graph with labels; see `graph_data`, which makes one and checks it.

    Attributes:
        name: what tables call it.
        classes: number of classes.
        class_names: their names, by label.
        features: X [n, f].
        averaging: A [n, n], sparse (CSR).
        train, val, test: the splits.
        fingerprint: a hash of features, edges, and nodes and labels of all splits.
    """

    domain: ClassVar[str] = "graph"

    name: str
    classes: int
    class_names: tuple[str, ...]
    features: Float[Tensor, "n f"]
    averaging: Float[Tensor, "n n"]
    train: Nodes
    val: Nodes
    test: Nodes
    fingerprint: str

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(f,), the shape of one node's features."""
        return (self.features.shape[1],)

    def with_train(self, train: Nodes) -> GraphData:
        """The graph with other training nodes, and a fingerprint of its own."""
        return replace(
            self, train=train, fingerprint=_fingerprint(self.features, self.averaging, train, self.val, self.test)
        )

    def inputs(self, items: Nodes) -> GraphInput:
        """What a network is called with to answer for these nodes: the whole graph, on the nodes' device."""
        device = items.nodes.device
        return GraphInput(self.features.to(device), self.averaging.to(device), items.nodes)

    def example(self) -> GraphInput:
        """A few nodes, each the neighbour of every other, to trace a network with."""
        n = min(EXAMPLE_NODES, len(self.features))
        others = (1 - torch.eye(n)) / max(n - 1, 1)
        return GraphInput(self.features[:n], others)

    def batches(self, seeds: Sequence[int], batch_size: int, augment: str, device: torch.device) -> Batches:
        """All training nodes at once, one step an epoch; the other arguments have no meaning for a graph."""
        return _WholeGraph(self, device)


class _WholeGraph:
    """Batches of one network on a graph: the same whole graph at every step."""

    steps = 1

    def __init__(self, data: GraphData, device: torch.device) -> None:
        self.items = data.train.to(device)
        self.inputs = data.inputs(self.items)

    def epoch(self, rows: list[int], epoch: int) -> Iterator[tuple[list[GraphInput], Tensor]]:
        """Yield (one input a network; labels `k b`)."""
        yield [self.inputs] * len(rows), self.items.labels.expand(len(rows), -1)


def graph_data(
    name: str,
    *,
    features: Float[Tensor, "n f"],
    edges: Int[Tensor, "2 m"],
    labels: Tensor | None,
    train: Int[Tensor, " t"],
    val: Int[Tensor, " v"],
    test: Int[Tensor, " s"],
    class_names: Sequence[str],
) -> GraphData:
    """Put a graph together: the way for a loader of one's own.

    Args:
        name: what tables call it.
        features: of all nodes, float32, finite.
        edges: pairs of nodes; taken in both directions, each once; loops are left out.
        labels: class of each node [n], int64; nodes of no split may have any value below 0.
        train, val, test: the nodes of each split.
        class_names: one name a class, by label.

    Raises:
        ValueError: no labels, or none for a node of a split; nodes out of range or in two splits; an empty split;
            features that are not finite or of another type.
    """
    n = len(features)
    if labels is None:
        raise ValueError(f"labels: the graph {name} has none; a study needs the class of each node of its splits")
    if features.dtype != torch.float32 or features.dim() != 2 or not features.isfinite().all():
        raise ValueError(f"features: must be a finite float32 matrix, got {tuple(features.shape)} of {features.dtype}")
    if tuple(labels.shape) != (n,) or labels.dtype != torch.int64:
        raise ValueError(f"labels: must be {n} numbers of int64, got {tuple(labels.shape)} of {labels.dtype}")
    if edges.dim() != 2 or edges.shape[0] != 2 or (edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < n):
        raise ValueError(f"edges: must be two rows of nodes from 0 to {n - 1}, got {tuple(edges.shape)}")
    splits = {}
    for split, nodes in (("train", train), ("val", val), ("test", test)):
        if len(nodes) == 0:
            raise ValueError(f"{split}: {name} has no nodes there")
        if not 0 <= int(nodes.min()) <= int(nodes.max()) < n:
            raise ValueError(f"{split}: nodes {int(nodes.min())} … {int(nodes.max())}, {name} has {n}")
        own = labels[nodes]
        if not 0 <= int(own.min()) <= int(own.max()) < len(class_names):
            bad = int(nodes[((own < 0) | (own >= len(class_names))).nonzero()[0, 0]])
            raise ValueError(
                f"labels: node {bad} of {split} has {int(labels[bad])}, classes are 0 … {len(class_names) - 1}"
            )
        splits[split] = Nodes(nodes, own)
    together = torch.cat([train, val, test])
    if len(together.unique()) < len(together):
        raise ValueError(f"train, val, test: a node of {name} is in two of them, or twice in one")
    averaging = mean_over_neighbours(edges, n)
    return GraphData(
        name=name,
        classes=len(class_names),
        class_names=tuple(class_names),
        features=features,
        averaging=averaging,
        fingerprint=_fingerprint(features, averaging, *splits.values()),
        **splits,
    )


def mean_over_neighbours(edges: Int[Tensor, "2 m"], nodes: int) -> Float[Tensor, "n n"]:
    """A in CSR: 1 / degree(i) at the neighbours of i, by edges in either direction; a node is not its own neighbour."""
    rows, columns = edges.numpy()[:, (edges[0] != edges[1]).numpy()]
    both = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    matrix = scipy.sparse.coo_array((np.ones(len(both[0])), both), shape=(nodes, nodes)).tocsr()
    matrix.sum_duplicates()
    degree = np.diff(matrix.indptr)
    values = np.repeat(1 / np.maximum(degree, 1), degree).astype(np.float32)
    parts = (torch.from_numpy(x) for x in (matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), values))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse ", category=UserWarning)  # that this layout is in beta
        return torch.sparse_csr_tensor(*parts, size=(nodes, nodes))


def _fingerprint(features: Tensor, averaging: Tensor, *splits: Nodes) -> str:
    digest = hashlib.sha256()
    edges = (averaging.crow_indices(), averaging.col_indices())
    for tensor in (features, *edges, *(t for split in splits for t in (split.nodes, split.labels))):
        digest.update(repr((tuple(tensor.shape), str(tensor.dtype))).encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:FINGERPRINT_LENGTH]
