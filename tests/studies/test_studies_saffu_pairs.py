"""Windows of sequences, and lines between networks of the SAFFU study."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from saffu_text import write_text

from asym.data.text import Stream
from asym.seeds import numpy_generator, torch_generator
from studies.saffu_begin import begin
from studies.saffu_nets import EXPLICIT, Net, Part, Sizes, TextArgs
from studies.saffu_pairs import Pair, compare, gauge_fixed
from studies.saffu_plan import start_of
from studies.saffu_train import examples
from studies.saffu_windows import sequences, windows


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5).filter(lambda n: max(n) > 1), st.integers(1, 9))
def test_windows_score_every_predicted_token_once(lengths, length):
    starts = np.cumsum([0, *lengths[:-1]])
    stream = Stream(np.arange(sum(lengths), dtype=np.int32), starts, np.arange(len(lengths), dtype=np.int32), 1)
    found = windows(stream, length)
    assert sorted(found.places.tolist()) == stream.targets.tolist()
    read, follow, scored = found.tensors(stream)
    assert (follow[scored] == torch.from_numpy(found.places)).all()
    assert (follow[scored] == read[scored] + 1).all()  # ids are places here
    few = windows(stream, length, max(1, len(stream.targets) // 3))
    assert set(few.places) <= set(found.places)
    x, y, there = sequences(stream, numpy_generator(0, "draw"), 7, length)
    assert there.any(1).all()
    documents = np.searchsorted(starts, x.numpy(), "right"), np.searchsorted(starts, y.numpy(), "right")
    assert (documents[0][there.numpy()] == documents[1][there.numpy()]).all()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    text = write_text(tmp_path_factory.mktemp("text"))
    args = TextArgs(f"text:{text}", "word", 20, "auto", "file", None, None, 4)
    nets = [
        Net("saffu", Sizes(8, 6, 4, 3), start, Part(2, side, 0), 0.1, 0, 8, side)
        for side, start in enumerate((EXPLICIT, EXPLICIT))
    ]
    data = args.load()
    pair = Pair(tuple(nets), None, ("none",), 3, 60, args, "", "cpu", ())
    return [begin(net, data)[0] for net in nets], pair, data


def _measured(a, b, models, alignment="none"):
    _, pair, data = models
    sizes = pair.nets[0].sizes
    return compare(
        a, b, alignment, pair, examples(data.test, sizes, 60, "cpu"), examples(data.train, sizes, 60, "cpu")
    )[0]


def test_shifts_change_neither_barrier_nor_gauge_fixed_distance(models):
    (a, b), *_ = models
    plain = _measured(a, b, models)
    shifted, g = gauge_fixed(b), torch_generator(0, "shift")
    with torch.no_grad():
        for name, parameter in shifted.named_parameters():
            if name != "embedding":
                parameter += torch.randn(len(parameter), 1, generator=g)
        s = torch.randn(shifted.output.shape[1], generator=g)
        shifted.output[:6] += s
        shifted.output[6:] -= s
    moved = _measured(a, shifted, models)
    for column in ("barrier_loss_mid", "loss_b", "distance", "identity_share"):
        assert moved[column] == pytest.approx(plain[column], abs=1e-4)


def test_a_permuted_copy_has_a_barrier_that_matching_removes(models):
    (a, _), pair, data = models
    permuted, _ = begin(
        Net(**{**vars(pair.nets[0]), "start": start_of("permuted", 1)}), data
    )  # the same text, contexts and start
    none, weight, activation = (_measured(a, permuted, models, how) for how in ("none", "weight", "activation"))
    assert none["loss_a"] == pytest.approx(none["loss_b"], abs=1e-4)
    assert none["distance"] > 0.5
    assert none["loss_mid"] > none["loss_a"] + 0.05
    for matched in (weight, activation):
        assert abs(matched["loss_mid"] - matched["loss_a"]) < 1e-4
        assert matched["distance"] < 1e-3
    assert none["cka"] < 1.001


def test_starts_by_name():
    assert start_of("explicit", 1) == EXPLICIT
    assert start_of("noise-0.5", 0).noise == 0.5
    assert [start_of("permuted", side).permute for side in (0, 1)] == [False, True]
    assert start_of("output-only", 0).explicit == ("output",)
    assert start_of("own-code", 0).own_labels
    assert start_of("random", 0).explicit == ()
