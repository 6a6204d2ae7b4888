"""The benchmarks run and compare the same work; how fast they are is not tested."""

import dataclasses
import importlib
import time

import pytest
import torch

from asym.data import Augment
from asym.models import build
from benchmarks import __main__ as command
from benchmarks import transformer_nfn
from benchmarks.harness import compare, large_digits, random_images
from benchmarks.reference import Images, plain_epoch
from benchmarks.transformer_nfn_reference import PlainTransformerNFN


def test_the_ratio_is_reference_over_ours():
    row = compare("x", lambda: time.sleep(0.01), lambda: time.sleep(0.04), target=2.0, per=2.0)
    assert row["ratio"] == pytest.approx(row["reference_s"] / row["ours_s"])
    assert row["reference_s"] > 2 * 0.04
    assert row["ratio"] > 2  # a sleep is never shorter than asked for, and 10 ms are not 40


def test_the_reference_sees_normalised_images_and_learns():
    data = dataclasses.replace(large_digits(side=8, channels=1), augment=Augment(0, False))
    image, label = Images(data)[0]
    assert image.shape == (1, 8, 8)
    assert label == data.train.labels[0]
    torch.testing.assert_close(image, data.normalise(data.train.images[:1])[0], rtol=1e-4, atol=1e-4)
    network = build("mlp", input_shape=(1, 8, 8), classes=10, width=0.0625)
    assert plain_epoch(network, data, batch_size=64, lr=1e-2, epochs=3) < 2.0


def test_enlarged_digits_are_the_digits():
    big, small = large_digits(), large_digits(side=8, channels=1)
    assert big.input_shape == (3, 32, 32)
    assert torch.equal(big.test.images[:, :1, ::4, ::4], small.test.images)
    assert random_images(3, 32, 4).augment.pad == 4


def test_every_named_benchmark_exists():
    for module, function in command.NAMES.values():
        assert callable(getattr(importlib.import_module(f"benchmarks.{module}"), function))


def test_an_unknown_name_is_2(capsys):
    assert command.main(["epochs"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_rows_are_printed_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.layers.random_images", lambda channels, side, count: random_images(1, 8, 20))
    monkeypatch.setattr("benchmarks.layers.Architecture", _small)
    assert command.main(["layers", "--out", str(tmp_path)]) == 0
    assert "times, target 0.95" in capsys.readouterr().out
    assert (tmp_path / "benchmarks.csv").read_text().startswith("benchmark,name,ratio")


def _small(arch, *args, **kwargs):
    from asym.populations import Architecture

    return Architecture("resnet8", *args, **kwargs)


def test_the_plain_transformer_nfn_is_the_same_function():
    encoder = transformer_nfn.encoder_of_size(8)
    stack = transformer_nfn.transformers(encoder, 5, torch.float64)
    model = transformer_nfn.reader(encoder).double()
    model.observe(stack)
    for parameter in model.parameters():
        if parameter.ndim == 1 and len(parameter) > 10:
            torch.nn.init.normal_(parameter)
    for literal in (True, False):
        plain = PlainTransformerNFN(model, literal=literal).double()
        torch.testing.assert_close(plain(stack), model(stack), rtol=0, atol=1e-12)
    weights = sum(p.numel() for p in plain.parameters())
    assert weights == sum(p.numel() for p in model.parameters())
