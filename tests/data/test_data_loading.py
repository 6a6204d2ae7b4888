from pathlib import Path

import pytest
import torch

import asym.data
from asym.data import load, with_train_size
from asym.data.documents import DOCUMENTS
from asym.data.graph_sources import GRAPHS
from asym.data.sources import CIFAR, GREY
from asym.names import DATASETS

LOADER = """
import torch
from asym.data import Split, image_data

def toy(data_dir=None):
    part = Split(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    return image_data("toy" if data_dir is None else data_dir.name, train=part, val=part, test=part,
                      class_names=("a", "b"), mean=(0,), std=(1,))

def plain():
    return toy()

def wrong():
    return 3

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_own_data.py").write_text(LOADER)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_own_loader(mine: Path):
    assert load("my_own_data:plain").name == "toy"
    assert load("my_own_data:toy").name == "toy"
    assert load("my_own_data:toy", data_dir=mine).name == mine.name
    assert load("my_own_data:toy", dataset_name="other").name == "other"
    assert load("my_own_data:toy", train_size=2).train.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("missing", "module 'my_own_data' has no function 'missing'"),
        ("number", "has no function 'number'"),
        ("wrong", r"returned int, not an asym\.data\.ImageData"),
    ],
)
def test_a_wrong_loader_is_named(mine: Path, function: str, message: str):
    with pytest.raises(ValueError, match=message):
        load(f"my_own_data:{function}")


def test_a_smaller_training_set_is_stratified_and_has_its_own_fingerprint():
    whole, small = load("digits"), load("digits", train_size=100)
    assert len(small.train) == 100
    assert (torch.bincount(small.train.labels) - 10).abs().max() <= 1
    assert small.fingerprint not in (whole.fingerprint, load("digits", train_size=101).fingerprint)
    assert small.fingerprint == load("digits", train_size=100).fingerprint
    assert torch.equal(small.test.images, whole.test.images)
    assert small.name == whole.name == "digits"
    assert with_train_size(whole, len(whole.train)).fingerprint == whole.fingerprint


@pytest.mark.parametrize("size", [0, -1, 1098])
def test_a_training_size_out_of_range_is_refused(size: int):
    with pytest.raises(ValueError, match=f"train_size: {size} is not between 1 and 1097"):
        load("digits", train_size=size)


def test_other_bad_arguments_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="unknown 'cats'"):
        load("cats")
    with pytest.raises(FileNotFoundError, match=r"data_dir: .*nowhere is not a folder"):
        load("mnist", data_dir=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="image_size: has no meaning for digits"):
        load("digits", image_size=8)
    with pytest.raises(ValueError, match="dataset_name: must not be empty"):
        load("digits", dataset_name="")


def test_every_named_data_set_has_a_source():
    assert {"digits", *DOCUMENTS, *GREY, *CIFAR, *GRAPHS} == set(DATASETS)


def test_the_name_can_be_chosen():
    assert load("digits", dataset_name="eights").name == "eights"


def test_the_room_offers_what_it_says():
    for name in asym.data.__all__:
        assert callable(getattr(asym.data, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        asym.data.nothing  # noqa: B018
