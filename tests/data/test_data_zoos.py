"""Loaders of zoos against small files in the published formats, and files that are damaged."""

import dataclasses
import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from published_zoos import SHAPES, asymmetric_files, small_cnn_files

from asym.data.zoo_files import SMALL_CNN, load_asymmetric_zoo, load_small_cnn_zoo
from asym.data.zoos import NetworkZoo, load_zoo, save_zoo, split_runs
from asym.metanets.zoo_stack import stacks_of
from asym.models import build


def zoo(n=3) -> NetworkZoo:
    generator = torch.Generator().manual_seed(0)
    tensors = {"a.weight": torch.randn(n, 2, 3, generator=generator), "a.bias": torch.randn(n, 2, generator=generator)}
    table = pd.DataFrame({"run": range(n), "test_acc": np.linspace(0.1, 0.9, n), "lr": [0.1] * n, "start": ["own"] * n})
    masks = {"a.weight": torch.tensor([[True, False, True], [False, True, True]])}
    return NetworkZoo(tensors, table, masks, {"arch": "toy", "input_shape": [3], "classes": 2})


def test_a_zoo_comes_back_as_it_was(tmp_path):
    before = zoo()
    files = save_zoo(tmp_path, before)
    assert [file.name for file in files] == ["zoo.safetensors", "zoo.parquet"]
    after = load_zoo(tmp_path)
    assert after.about == before.about
    pd.testing.assert_frame_equal(after.table, before.table, check_dtype=False)
    for name, tensor in before.tensors.items():
        assert torch.equal(after.tensors[name], tensor)
    assert torch.equal(after.masks["a.weight"], before.masks["a.weight"])


def test_a_zoo_cut_short_is_one_clear_line(tmp_path):
    weights, table = save_zoo(tmp_path, zoo())
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    with pytest.raises(ValueError, match="cut short") as error:
        load_zoo(tmp_path)
    assert "\n" not in str(error.value)
    weights.write_bytes(whole)
    zoo(2).table.to_parquet(table, index=False)
    with pytest.raises(ValueError, match=r"\[2, 3\] networks"):
        load_zoo(tmp_path)
    table.unlink()
    with pytest.raises(FileNotFoundError, match=r"zoo\.parquet"):
        load_zoo(tmp_path)


def test_weights_and_labels_must_be_numbers():
    good = zoo()
    bad = dict(good.tensors)
    bad["a.bias"] = bad["a.bias"].clone()
    bad["a.bias"][1, 0] = float("nan")
    with pytest.raises(ValueError, match=r"'a\.bias' has NaN .* 1 of 3 networks, the first is network 1"):
        NetworkZoo(bad, good.table)
    with pytest.raises(ValueError, match="fractions"):
        NetworkZoo(good.tensors, good.table.assign(test_acc=73.8))
    with pytest.raises(ValueError, match="test_acc"):
        NetworkZoo(good.tensors, good.table.drop(columns="test_acc"))


def test_small_cnn_zoo_networks_compute_what_keras_would(tmp_path):
    weights = small_cnn_files(tmp_path)
    found, split = load_small_cnn_zoo(tmp_path)
    assert len(found) == 6
    assert found.table["test_acc"].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert found.table["run"].tolist() == list(range(6))
    assert {"activation", "learning_rate", "l2reg"} <= set(found.table)
    assert sum(tensor[0].numel() for tensor in found.tensors.values()) == 4_970
    x = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    flat, at, h = torch.from_numpy(weights[1]), 0, x
    parts = []
    for shape in SHAPES:
        size = int(np.prod(shape))
        parts.append(flat[at : at + size].view(shape))
        at += size
    for bias, kernel in zip(parts[:6:2], parts[1:6:2]):
        h = torch.relu(F.conv2d(h, kernel.permute(3, 2, 0, 1), bias, stride=2))
    by_hand = h.mean((2, 3)) @ parts[7] + parts[6]
    network = build("small-cnn", input_shape=(1, 32, 32), classes=10)
    ours = torch.func.functional_call(network, {name: t[0] for name, t in found.tensors.items()}, (x,))
    assert torch.allclose(ours, by_hand, atol=1e-5)
    assert set(found.tensors) == set(SMALL_CNN) == dict(network.named_parameters()).keys()
    assert sorted(np.concatenate(list(split.values()))) == list(range(6))
    assert (len(split["train"]), len(split["val"]), split["test"].tolist()) == (2, 1, [3, 4, 5])


def test_all_steps_and_the_published_order(tmp_path):
    weights = small_cnn_files(tmp_path)
    every, _ = load_small_cnn_zoo(tmp_path, step=None)
    assert len(every) == 12
    assert every.table["run"].tolist() == [k // 2 for k in range(12)]
    order = [11, 3, 5, 1, 9, 7, 0, 2, 4, 6, 8, 10]
    (tmp_path / "order.csv").write_text("\n".join(map(str, [11, *order])))  # the first row of the published ones
    found, _ = load_small_cnn_zoo(tmp_path, order=tmp_path / "order.csv")
    assert found.table["test_acc"].tolist() == [0.6, 0.2, 0.3, 0.1, 0.5, 0.4]
    assert torch.equal(found.tensors["convs.0.bias"], torch.from_numpy(weights[order[:6], :16]))
    (tmp_path / "order.csv").write_text("0\n1\n1")
    with pytest.raises(ValueError, match="order"):
        load_small_cnn_zoo(tmp_path, order=tmp_path / "order.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.assign(end_idx=t["end_idx"] + 1), "does not fit"),
        (lambda t: t.iloc[:-1], "7 variables"),
        (lambda t: t.drop(columns="shape"), "no column shape"),
        (lambda t: t.assign(shape="(a)"), r"says of 'sequential/layer0/bias:0' .* shape \(a\); must be whole numbers"),
        (lambda t: t.assign(end_idx=None), "end_idx nan.*must be whole numbers"),
    ],
)
def test_a_layout_that_does_not_fit(tmp_path, change, message):
    small_cnn_files(tmp_path)
    change(pd.read_csv(tmp_path / "layout.csv")).to_csv(tmp_path / "layout.csv", index=False)
    with pytest.raises(ValueError, match=message) as error:
        load_small_cnn_zoo(tmp_path)
    assert "\n" not in str(error.value)


def shapes(channels=1, width=16, classes=10, kernel=3):
    """Keras shapes of a small CNN."""
    kernels = [(kernel, kernel, channels, width), *2 * [(kernel, kernel, width, width)]]
    return (*(part for k in kernels for part in ((width,), k)), (classes,), (width, classes))


def test_channels_width_and_classes_are_those_of_the_layout(tmp_path):
    small_cnn_files(tmp_path, shapes=shapes(channels=3, width=8, classes=4))
    zoo, _ = load_small_cnn_zoo(tmp_path)
    assert {key: zoo.about[key] for key in ("input_shape", "width", "classes")} == {
        "input_shape": [3, 32, 32], "width": 0.5, "classes": 4,
    }  # fmt: skip
    (stack,) = stacks_of(dataclasses.replace(zoo, table=zoo.table.drop(columns="activation")))
    assert stack.tensors["convs.0.weight"].shape == (6, 8, 3, 3, 3)
    small_cnn_files(tmp_path, shapes=shapes(kernel=5))
    with pytest.raises(ValueError, match=r"kernels convs.0.weight \(5, 5, 1, 16\).*not three 3×3 convolutions"):
        load_small_cnn_zoo(tmp_path)


def test_published_files_cut_short(tmp_path):
    weights = small_cnn_files(tmp_path)
    with pytest.raises(ValueError, match="step"):
        load_small_cnn_zoo(tmp_path, step=20)
    np.save(tmp_path / "weights.npy", weights[:-1])
    with pytest.raises(ValueError, match="cut short"):
        load_small_cnn_zoo(tmp_path)
    whole = (tmp_path / "weights.npy").read_bytes()
    (tmp_path / "weights.npy").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut short"):
        load_small_cnn_zoo(tmp_path)
    np.save(tmp_path / "weights.npy", weights[:, :-1])
    with pytest.raises(ValueError, match="4970 weights a network"):
        load_small_cnn_zoo(tmp_path)
    (tmp_path / "layout.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"layout\.csv"):
        load_small_cnn_zoo(tmp_path)


def change_metrics(folder, change):
    """Write the table anew."""
    with gzip.open(folder / "metrics.csv.gz", "rt") as file:
        table = pd.read_csv(file)
    with gzip.open(folder / "metrics.csv.gz", "wt") as file:
        change(table).to_csv(file, index=False)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("config.activation", None, "config.activation is missing in line 5; must be a name"),
        ("modeldir", None, "modeldir is missing in line 5"),
        ("config.learning_rate", "fast", "config.learning_rate is 'fast' in line 5; must be a number"),
        ("config.l2reg", None, "config.l2reg is missing in line 5"),
        ("test_accuracy", "good", "test_accuracy is 'good' in line 5"),
        ("test_accuracy", 73.8, "test_accuracy is 73.8; must be a fraction"),
    ],
)
def test_a_cell_of_the_published_table_that_cannot_be_used(tmp_path, column, value, message):
    small_cnn_files(tmp_path)
    change_metrics(tmp_path, lambda t: t.assign(**{column: [value if k == 3 else v for k, v in enumerate(t[column])]}))
    with pytest.raises(ValueError, match=re.escape(f"zoo: metrics.csv.gz: {message}")):
        load_small_cnn_zoo(tmp_path)


@pytest.mark.parametrize("column", ["step", "test_accuracy"])
def test_a_column_of_the_published_table_that_is_missing(tmp_path, column):
    small_cnn_files(tmp_path)
    change_metrics(tmp_path, lambda t: t.drop(columns=column))
    with pytest.raises(ValueError, match=rf"metrics\.csv\.gz has no column {column}; it has modeldir, "):
        load_small_cnn_zoo(tmp_path)


@pytest.mark.parametrize("file", ["metrics.csv.gz", "layout.csv", "weights.npy"])
@pytest.mark.parametrize("content", [b"", b"a,b\n1\n2,3,4\n", bytes(range(256))], ids=["empty", "ragged", "binary"])
def test_a_published_file_that_is_none(tmp_path, file, content):
    small_cnn_files(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^zoo: {file} is no .*, or cut short \(") as error:
        load_small_cnn_zoo(tmp_path)
    assert "\n" not in str(error.value)


def test_a_published_table_cut_short_and_weights_of_another_kind(tmp_path):
    weights = small_cnn_files(tmp_path)
    whole = (tmp_path / "metrics.csv.gz").read_bytes()
    (tmp_path / "metrics.csv.gz").write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"metrics\.csv\.gz is no compressed CSV table, or cut short"):
        load_small_cnn_zoo(tmp_path)
    (tmp_path / "metrics.csv.gz").write_bytes(whole)
    np.save(tmp_path / "weights.npy", weights.astype(complex))
    with pytest.raises(ValueError, match=r"weights\.npy holds complex128; must be one array of floats"):
        load_small_cnn_zoo(tmp_path)
    (tmp_path / "metrics.csv.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither metrics\.csv\.gz nor metrics\.csv"):
        load_small_cnn_zoo(tmp_path)


def test_asymmetric_zoo(tmp_path):
    asymmetric_files(tmp_path)
    found = load_asymmetric_zoo(tmp_path)
    assert found.table["test_acc"].tolist() == pytest.approx([0.738, 0.64, 0.7])
    network = build("resnet8", input_shape=(3, 32, 32), classes=10, width=0.125, seed=1)
    for name, tensor in network.state_dict().items():
        assert torch.equal(found.tensors[name][1], tensor)
    state, accuracy = torch.load(tmp_path / "net001.pt", weights_only=True)
    torch.save(({**state, "norm.num_batches_tracked": torch.tensor(3)}, accuracy), tmp_path / "net001.pt")
    assert set(load_asymmetric_zoo(tmp_path).tensors) == set(state)
    state["fc.weight" if "fc.weight" in state else next(iter(state))].fill_(float("nan"))
    torch.save((state, accuracy), tmp_path / "net001.pt")
    assert load_asymmetric_zoo(tmp_path).about["dropped"] == 1
    assert load_asymmetric_zoo(tmp_path, limit=1).table["file"].tolist() == ["net000.pt"]


def test_asymmetric_zoo_with_other_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no files"):
        load_asymmetric_zoo(tmp_path)
    asymmetric_files(tmp_path, (70.0, 60.0))
    wide = build("resnet8", input_shape=(3, 32, 32), classes=10, width=0.25)
    torch.save((wide.state_dict(), 50.0), tmp_path / "net001.pt")
    with pytest.raises(ValueError, match="one architecture"):
        load_asymmetric_zoo(tmp_path)
    (tmp_path / "net001.pt").write_bytes(b"no network")
    with pytest.raises(ValueError, match="no pair of a state dict") as error:
        load_asymmetric_zoo(tmp_path)
    assert "\n" not in str(error.value)
    torch.save((wide.state_dict(), 150.0), tmp_path / "net001.pt")
    with pytest.raises(ValueError, match=r"net001\.pt has the accuracy 150; must be percent, 0 to 100"):
        load_asymmetric_zoo(tmp_path)
    torch.save(({}, 50.0), tmp_path / "net000.pt")
    with pytest.raises(ValueError, match=r"net000\.pt has a state dict without tensors"):
        load_asymmetric_zoo(tmp_path)


def test_checkpoints_of_a_run_stay_together_and_pairs_are_split_alike():
    runs = np.repeat(np.arange(200), 2)
    split = split_runs(runs, val=0.15, test=0.25, seed=0)
    sets = {name: set(runs[places].tolist()) for name, places in split.items()}
    assert sum(map(len, split.values())) == 400
    assert not (sets["train"] & sets["val"])
    assert not (sets["train"] & sets["test"])
    assert not (sets["val"] & sets["test"])
    assert (len(sets["val"]), len(sets["test"])) == (30, 50)
    # A zoo that lacks a network is split as one that has it, but for the networks at the borders.
    fewer = split_runs(np.delete(np.arange(200), 7), val=0.15, test=0.25, seed=0)
    moved = set(np.delete(np.arange(200), 7)[fewer["test"]].tolist()) ^ sets["test"]
    assert len(moved - {7}) <= 2
    assert split_runs(runs, val=0.15, test=0.25, seed=1)["test"].tolist() != split["test"].tolist()
    with pytest.raises(ValueError, match="none for val"):
        split_runs([0, 1, 2], val=0.1, test=0.3, seed=0)


def test_the_header_is_json(tmp_path):
    from safetensors import safe_open

    save_zoo(tmp_path, zoo())
    with safe_open(tmp_path / "zoo.safetensors", "pt") as file:
        header = file.metadata()
    assert json.loads(header["about"])["arch"] == "toy"
    assert header["networks"] == "3"
