"""The published sets of implicit networks, on small files made in their format."""

import json
import math

import pytest
import torch
from torch import nn

from asym.data.siren_sets import load_siren_set
from asym.metanets import Stack, chain_of
from asym.models.siren import Siren, grid


def network(seed, outputs=1):
    found = Siren(2, outputs, width=4, shift=0.5)
    found.reset_parameters(torch.Generator().manual_seed(seed))
    return found


def save(file, seed, pattern, outputs=1, **more):
    state = {}
    for i, layer in enumerate(network(seed, outputs).layers):
        state |= {f"{pattern.format(i)}.{what}": p.detach() for what, p in layer.named_parameters()}
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state | more, file)


def mnist(root, train=24, test=2):
    for i in range(train + test):
        part = "training" if i < train else "testing"
        folder = root / f"mnist_png_{part}_{i % 10}_{i if i < train else i - train}"
        save(folder / "checkpoints" / "model_final.pth", i, "seq.{}")
    return root


def test_mnist(tmp_path):
    found = load_siren_set(mnist(tmp_path), "mnist")
    assert found.sizes == (2, 4, 4, 1)
    assert (found.shift, found.omega) == (0.5, 30.0)
    assert [found.splits.count(split) for split in ("train", "val", "test")] == [22, 2, 2]
    assert found.splits == load_siren_set(tmp_path, "mnist").splits
    training = [i for i, split in enumerate(found.splits) if split != "test"]
    assert sorted(found.images[training].tolist()) == list(range(24))
    x = grid(4, 4)
    for i in (0, 5, 25):
        seed = int(found.images[i]) + (24 if found.splits[i] == "test" else 0)
        assert int(found.labels[i]) == seed % 10
        drawn = network(seed).stacked({name: t[i : i + 1] for name, t in found.tensors.items()}, x)
        torch.testing.assert_close(drawn[0].t(), network(seed)(x))
    Stack(chain_of(network(0), torch.zeros(2, 2)), found.tensors)


def test_a_list_of_splits_counts(tmp_path):
    mnist(tmp_path, train=4)
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.pth"))
    part = {"train": [f for f in files if "training" in f][:3], "test": [f for f in files if "testing" in f]}
    part["val"] = [f for f in files if "training" in f][3:]
    listed = {s: {"path": [f"data/mnist-inrs/{p}" for p in paths], "label": []} for s, paths in part.items()}
    (tmp_path / "mnist_splits.json").write_text(json.dumps(listed))
    found = load_siren_set(tmp_path, "mnist")
    assert found.splits == ("train",) * 3 + ("val",) + ("test",) * 2
    listed["val"]["path"].append("data/mnist_png_training_9_77/checkpoints/model_final.pth")
    (tmp_path / "mnist_splits.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match=r"_77.*is not there"):
        load_siren_set(tmp_path, "mnist")
    (tmp_path / "mnist_splits.json").write_text(json.dumps({s: part[s] for s in ("train", "test")} | {"val": []}))
    with pytest.raises(ValueError, match="does not name mnist_png_training"):
        load_siren_set(tmp_path, "mnist")
    (tmp_path / "mnist_splits.json").write_text("{")
    with pytest.raises(ValueError, match="no list of splits"):
        load_siren_set(tmp_path, "mnist")


def test_fashion_mnist_has_labels_inside(tmp_path):
    for i in range(3):
        save(tmp_path / ("test" if i == 2 else "train") / f"model_{i}.pth", i, "seq.{}", label=9 - i)
    found = load_siren_set(tmp_path, "fashion_mnist")
    assert found.labels.tolist() == [9, 8, 7]
    assert found.splits == ("train", "train", "test")
    save(tmp_path / "train" / "model_7.pth", 7, "seq.{}")
    with pytest.raises(ValueError, match=r"model_7\.pth has no entry 'label'"):
        load_siren_set(tmp_path, "fashion_mnist")


def test_cifar_is_split_by_number(tmp_path):
    for i in range(4):
        save(tmp_path / f"randinit_smaller_{i % 2}s" / f"net{i}.pth", i, "net.{}.linear", outputs=3)
    found = load_siren_set(tmp_path, "cifar10", points=(2, 3))
    assert found.sizes == (2, 4, 4, 3)
    assert found.shift == 0
    assert found.labels.tolist() == [0, 1, 0, 1]
    assert found.splits == ("train", "train", "val", "test")
    save(tmp_path / "randinit_smaller_aug0_1s" / "net0.pth", 9, "net.{}.linear", outputs=3)
    with pytest.raises(ValueError, match=r"prefix: .* randinit_smaller, randinit_smaller_aug0; name one"):
        load_siren_set(tmp_path, "cifar10")
    assert len(load_siren_set(tmp_path, "cifar10", prefix="randinit_smaller", points=(2, 3)).labels) == 4


def _spoil(file, how):
    state = torch.load(file)
    if how == "truncated":
        file.write_bytes(file.read_bytes()[:100])
        return
    if how == "NaN":
        state["seq.1.weight"][0, 0] = math.nan
    elif how == "other shapes":
        state = {f"seq.{i}.{n}": p for i in (0, 1) for n, p in nn.Linear(2, 2).state_dict().items()}
    elif how == "does not fit":
        state["seq.1.bias"] = torch.zeros(7)
    elif how == "has an entry":
        state["epoch"] = 3
    else:
        state = [1, 2]
    torch.save(state, file)


@pytest.mark.parametrize("how", ["truncated", "NaN", "other shapes", "does not fit", "has an entry", "list"])
def test_damaged_files_are_named(how, tmp_path):
    mnist(tmp_path, train=12)
    file = next(tmp_path.glob("mnist_png_testing_*")) / "checkpoints" / "model_final.pth"
    _spoil(file, how)
    with pytest.raises(ValueError, match=how) as error:
        load_siren_set(tmp_path, "mnist")
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load_siren_set(tmp_path / "none", "mnist")
    with pytest.raises(FileNotFoundError, match="no file mnist_png_training"):
        load_siren_set(tmp_path, "mnist")
    with pytest.raises(ValueError, match="kind: 'svhn'; choose from mnist"):
        load_siren_set(tmp_path, "svhn")
    with pytest.raises(ValueError, match="prefix: has no meaning for mnist"):
        load_siren_set(tmp_path, "mnist", prefix="a")
