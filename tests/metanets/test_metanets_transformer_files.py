"""Files of the Small Transformer Zoo's format; trees on all weights; names of readers."""

import math

import pytest
import torch
from transformer_files import published

from asym.metanets import Stack, build, predict
from asym.metanets.transformer_nfn.baselines import TRANSFORMER_READERS
from asym.metanets.transformer_nfn.files import load_files
from asym.models import build as build_network
from asym.names import TRANSFORMER_METANETS
from asym.symmetry.encoder import encoder_of


@pytest.fixture
def folder(tmp_path):
    for k in range(4):
        torch.save(published(k), tmp_path / f"run{k}_75_{5000 + k}.pt")
    torch.save(published(9), tmp_path / "run0_best_9000.pt")
    (tmp_path / "notes.txt").write_text("no checkpoint")
    return tmp_path


def test_files_become_a_zoo_and_a_broken_one_costs_its_row(folder):
    whole = (folder / "run0_75_5000.pt").read_bytes()
    (folder / "cut_75_7000.pt").write_bytes(whole[:300])
    torch.save(published(5, width=0.5), folder / "wide_75_7000.pt")
    nan = published(6)
    nan["encoder.0.fc1.bias"][0] = math.nan
    torch.save(nan, folder / "nan_75_7000.pt")
    lacking = published(7)
    del lacking["encoder.1.fc2.weight"]
    torch.save(lacking, folder / "part_75_7000.pt")
    torch.save(published(8), folder / "over_75_70000.pt")
    encoder, zoo = load_files(folder, 2)
    assert zoo.table["test_acc"].tolist() == [0.5, 0.5001, 0.5002, 0.5003]
    assert (encoder.size.dim, len(encoder.names)) == (8, 2)
    assert encoder.count("embedding") == 8 * 4 + 8
    skipped = "\n".join(zoo.about["skipped"])
    for text in ("cut_75", "NaN or infinite", "'encoder.1.fc2.weight' is missing", "has other tensors", "no fraction"):
        assert text in skipped
    assert len(zoo.about["skipped"]) == 5
    assert len(load_files(folder, 2, epoch="best")[1]) == 1
    torch.testing.assert_close(zoo.tensors["encoder.0.fc1.bias"][2], published(2)["encoder.0.fc1.bias"])


def test_what_cannot_be_read_is_one_clear_line(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load_files(tmp_path / "nowhere", 2)
    with pytest.raises(FileNotFoundError, match="has no file <run>_50_<acc>"):
        load_files(folder, 2, epoch="50")
    with pytest.raises(ValueError, match=r"^heads: 3 do not divide the 8 rows .*; valid: 1, 2, 4, 8$"):
        load_files(folder, 3)
    for file in folder.glob("*.pt"):
        file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"none of 4 files .* can be used; run0_75_5000\.pt: "):
        load_files(folder, 3)


def test_names_of_readers_are_those_of_the_table():
    assert tuple(TRANSFORMER_READERS) == TRANSFORMER_METANETS


@pytest.mark.parametrize("name", ["boost", "forest", "nfn-classifier"])
def test_baselines_read_a_stack(name):
    network = build_network("transformer-plain", input_shape=(1, 8, 8), classes=3, width=0.125)
    encoder = encoder_of(dict(network.named_parameters()), 2)
    stack = Stack(encoder, {name: torch.randn(60, *shape) for name, shape in encoder.shapes.items()})
    target = stack.tensors["head.2.bias"].sum(1, keepdim=True)
    options = {"iterations": 20} if name != "nfn-classifier" else {}
    reader = build(name, encoder, among=TRANSFORMER_READERS, **options)
    if not reader.by_gradient:
        reader.fit(stack, target)
    out = predict(reader, stack)
    assert out.shape == (60, 1)
    if not reader.by_gradient:
        assert torch.corrcoef(torch.cat([out, target], 1).T)[0, 1] > 0.3
