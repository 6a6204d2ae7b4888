import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from asym.store import CorruptRun
from asym.store.formats import plain, read_sealed, read_tensors, write_sealed, write_tensors


def test_plain_gives_what_json_gives_back():
    value = {"a": (1, 2.5), "b": np.float64(0.1), "c": np.int64(3), "d": None, "e": [True, "x"]}
    assert plain(value, "state") == {"a": [1, 2.5], "b": 0.1, "c": 3, "d": None, "e": [True, "x"]}
    assert json.loads(json.dumps(plain(value, "state"))) == plain(value, "state")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": torch.zeros(2)}, r"state\.a: Tensor does not go into JSON; tensors belong"),
        ({"a": {1: 2}}, r"state\.a: keys must be strings, got 1"),
        ({"a": [b"x"]}, r"state\.a\[0\]: bytes does not go"),
    ],
)
def test_what_json_would_change_is_refused(value: dict, message: str):
    with pytest.raises(ValueError, match=message):
        plain(value, "state")


def test_sealed_json_keeps_every_float(tmp_path: Path):
    values = [0.1, 1e-320, 1e300, -0.0, math.pi, 1 / 3]
    write_sealed(tmp_path / "a.json", {"values": values, "nan": float("nan")})
    body = read_sealed(tmp_path / "a.json")
    assert [value.hex() for value in body["values"]] == [value.hex() for value in values]
    assert math.isnan(body["nan"])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace("0.25", "0.26"), "checksum mismatch"),
        (lambda text: text[: len(text) // 2], "cannot be read as JSON, truncated"),
        (lambda text: "[]", "neither body nor checksum"),
        (lambda text: "", "cannot be read as JSON"),
    ],
)
def test_damaged_json_is_named(tmp_path: Path, damage, reason: str):
    path = tmp_path / "a.json"
    write_sealed(path, {"lr": 0.25})
    path.write_text(damage(path.read_text()))
    with pytest.raises(CorruptRun, match=reason) as caught:
        read_sealed(path)
    assert caught.value.path == path


def test_tensors_come_back_with_the_same_bits(tmp_path: Path):
    base = torch.arange(24.0).reshape(2, 3, 4)
    tensors = {
        "half": torch.randn(3).bfloat16(),
        "double": torch.tensor(0.1, dtype=torch.float64),
        "mask": torch.tensor([True, False]),
        "count": torch.tensor([2**40, -1]),
        "nan": torch.tensor([float("nan"), float("inf")]),
        "empty": torch.zeros(0, 3),
        "channels last": torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        "transposed": base.transpose(0, 2),
        "row 0": base[0],
        "row 1": base[1],
        "tied": base,
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    write_tensors(tmp_path / "a.safetensors", tensors)
    back = read_tensors(tmp_path / "a.safetensors")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name].nan_to_num(7), tensor.nan_to_num(7)), name


def test_the_same_tensors_give_the_same_file(tmp_path: Path):
    tensors = {name: torch.randn(5) for name in "dbca"}
    for name in ("a", "b"):
        write_tensors(tmp_path / name, dict(sorted(tensors.items(), reverse=name == "b")))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_writing_into_what_was_read_leaves_the_file(tmp_path: Path):
    write_tensors(tmp_path / "a", {"x": torch.ones(4)})
    read_tensors(tmp_path / "a")["x"].zero_()
    assert read_tensors(tmp_path / "a")["x"].tolist() == [1, 1, 1, 1]
