"""Graphs: averaging over neighbours, splits, the two built-in sets, and what is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from asym.data import Data, GraphInput, graph_data, load
from asym.data.graph_sources import load_arxiv, load_digits_graph, nearest
from asym.data.graphs import mean_over_neighbours

LINE = torch.tensor([[0, 1, 1, 1, 3], [1, 0, 2, 1, 1]])
"""Node 1 between 0, 2 and 3; 0–1 is given in both directions, and 1 is joined to itself; 4 stands alone."""


def _graph(**changes):
    options = {
        "features": torch.arange(10.0).reshape(5, 2),
        "edges": LINE,
        "labels": torch.tensor([0, 1, 0, 1, 0]),
        "train": torch.tensor([0, 1]),
        "val": torch.tensor([2]),
        "test": torch.tensor([4, 3]),
        "class_names": ("a", "b"),
    }
    return graph_data("toy", **options | changes)


def test_the_mean_over_neighbours_by_hand():
    averaging = mean_over_neighbours(LINE, 5)
    third = 1 / 3
    expected = [[0, 1, 0, 0, 0], [third, 0, third, third, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0] * 5]
    torch.testing.assert_close(averaging.to_dense(), torch.tensor(expected))
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(averaging @ x, averaging.to_dense() @ x)


def test_a_split_answers_with_the_whole_graph():
    data = _graph()
    assert isinstance(data, Data)
    assert (data.input_shape, data.classes, data.domain) == ((2,), 2, "graph")
    graph = data.inputs(data.test)
    assert isinstance(graph, GraphInput)
    assert graph.nodes.tolist() == [4, 3]
    assert data.test.labels.tolist() == [0, 1]
    assert torch.equal(graph.features, data.features)
    assert [len(part) for part in data.test.parts(1)] == [2]  # one pass answers for all
    assert data.test.take(torch.tensor([1])).nodes.tolist() == [3]


def test_training_takes_all_training_nodes_in_one_step():
    batches = _graph().batches([5, 6], 1, "image", torch.device("cpu"))
    assert batches.steps == 1
    ((inputs, labels),) = batches.epoch([0, 1], 3)
    assert [graph.nodes.tolist() for graph in inputs] == [[0, 1], [0, 1]]
    assert labels.tolist() == [[0, 1], [0, 1]]


def test_the_example_is_a_small_dense_graph_of_means():
    graph = _graph().example()
    assert graph.averaging.shape == (4, 4)
    torch.testing.assert_close(graph.averaging.sum(1), torch.ones(4))
    assert graph.averaging.diagonal().eq(0).all()


def test_the_fingerprint_tells_features_edges_labels_and_splits_apart():
    changes = [
        {},
        {"features": torch.zeros(5, 2)},
        {"edges": LINE[:, :3]},
        {"labels": torch.tensor([1, 1, 0, 1, 0])},
        {"train": torch.tensor([0])},
        {"train": torch.tensor([1, 0])},
    ]
    prints = [_graph(**change).fingerprint for change in changes]
    assert len(set(prints)) == len(prints)
    assert _graph().fingerprint == prints[0]
    data = _graph()
    assert data.with_train(data.train).fingerprint == prints[0]
    assert data.with_train(data.train.take(torch.tensor([0]))).fingerprint == prints[4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "labels: the graph toy has none"),
        ({"labels": torch.tensor([0, 1, -1, 1, 0])}, "labels: node 2 of val has -1, classes are 0 … 1"),
        ({"labels": torch.tensor([0, 1, 0, 1, 2])}, "labels: node 4 of test has 2"),
        ({"labels": torch.tensor([0, 1])}, "labels: must be 5 numbers"),
        ({"edges": torch.tensor([[0], [5]])}, "edges: must be two rows of nodes from 0 to 4"),
        ({"train": torch.tensor([0, 5])}, "train: nodes 0 … 5, toy has 5"),
        ({"val": torch.tensor([], dtype=torch.int64)}, "val: toy has no nodes"),
        ({"val": torch.tensor([1])}, "a node of toy is in two of them"),
        ({"features": torch.full((5, 2), float("nan"))}, "features: must be a finite float32 matrix"),
    ],
)
def test_a_graph_that_cannot_be_used_is_refused_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message) as error:
        _graph(**changes)
    assert "\n" not in str(error.value)


def test_nodes_of_no_split_need_no_label():
    assert _graph(labels=torch.tensor([0, 1, 0, 1, -1]), test=torch.tensor([3])).test.labels.tolist() == [1]


def test_nearest_neighbours_by_hand_and_ties_to_the_lower_number():
    points = torch.tensor([[0.0], [1.0], [2.0], [10.0]], dtype=torch.float64)
    assert nearest(points, 1).tolist() == [[0, 1, 2, 3], [1, 0, 1, 2]]  # 1 is as near to 0 as to 2
    assert nearest(points, 2)[1].tolist() == [1, 2, 0, 2, 1, 0, 2, 1]


def test_the_graph_of_digits_has_the_digits_splits_and_pixels():
    graph, digits = load("digits-graph"), load("digits")
    for split in ("train", "val", "test"):
        nodes, images = getattr(graph, split), getattr(digits, split)
        assert torch.equal(nodes.labels, images.labels)
        assert torch.equal(graph.features[nodes.nodes], digits.normalise(images.images).flatten(1))
    dense = graph.averaging.to_dense()
    assert torch.equal(dense > 0, dense.T > 0)
    degree = (dense > 0).sum(1)
    assert degree.min() >= 8
    torch.testing.assert_close(dense.sum(1), torch.ones(1797))
    assert graph.fingerprint == "f21a25591540"  # the same edges on every machine
    assert load("digits-graph", train_size=100).fingerprint != graph.fingerprint
    assert load_digits_graph(4).averaging.values().numel() < graph.averaging.values().numel()


ARXIV = {
    "raw/node-feat": "0.5,-1\n1,2\n-3.25,0\n0,0\n",
    "raw/edge": "0,1\n2,1\n",
    "raw/node-label": "2\n0\n1\n0\n",
    "split/time/train": "0\n3\n",
    "split/time/valid": "1\n",
    "split/time/test": "2\n",
}


def _write_arxiv(root: Path, **changes):
    for name, text in (ARXIV | changes).items():
        file = root / "arxiv" / f"{name}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            file.write_bytes(gzip.compress(text.encode()))


def test_the_raw_files_of_ogbn_arxiv(tmp_path):
    _write_arxiv(tmp_path)
    data = load("ogbn-arxiv", data_dir=tmp_path)
    assert (data.name, data.classes, data.input_shape) == ("ogbn-arxiv", 3, (2,))
    np.testing.assert_array_equal(data.features.numpy(), [[0.5, -1], [1, 2], [-3.25, 0], [0, 0]])
    expected = [[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]]  # both directions
    np.testing.assert_array_equal(data.averaging.to_dense().numpy(), expected)
    assert (data.train.nodes.tolist(), data.train.labels.tolist()) == ([0, 3], [2, 0])
    assert (data.val.nodes.tolist(), data.test.nodes.tolist()) == ([1], [2])
    assert load_arxiv(tmp_path / "arxiv").fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"raw/node-label": None}, FileNotFoundError, ["has no labels", "node-label.csv.gz"]),
        ({"raw/edge": None}, FileNotFoundError, ["missing", "edge.csv.gz"]),
        ({"split/time/valid": None}, FileNotFoundError, ["valid.csv.gz"]),
        ({"raw/node-label": "2\n\n1\n0\n"}, ValueError, ["3 labels", "4 nodes"]),
        ({"raw/node-label": "2\nnan\n1\n0\n"}, ValueError, ["node-label.csv.gz", "int64"]),
        ({"raw/node-label": "2\n-1\n1\n0\n"}, ValueError, ["labels: node 1 of val has -1"]),
        ({"raw/edge": "0,1,2\n"}, ValueError, ["edge.csv.gz has 3 columns"]),
        ({"raw/edge": ""}, ValueError, ["edge.csv.gz"]),
        ({"raw/node-feat": "a,b\n"}, ValueError, ["node-feat.csv.gz"]),
    ],
)
def test_damaged_files_of_ogbn_arxiv_are_named(changes, error, words, tmp_path):
    _write_arxiv(tmp_path, **changes)
    with pytest.raises(error) as caught:
        load("ogbn-arxiv", data_dir=tmp_path)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_truncated_file_and_an_absent_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"not in .*arxiv\.zip.*--data-dir"):
        load("ogbn-arxiv", data_dir=tmp_path)
    with pytest.raises(ValueError, match="is not fetched"):
        load("ogbn-arxiv", data_dir=tmp_path, download=True)
    _write_arxiv(tmp_path)
    file = tmp_path / "arxiv" / "raw" / "node-feat.csv.gz"
    file.write_bytes(file.read_bytes()[:-6])
    with pytest.raises(ValueError, match="node-feat"):
        load("ogbn-arxiv", data_dir=tmp_path)
