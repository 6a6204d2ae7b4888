"""The explicit start of a language model: what it gives, what it leaves, what it does not depend on."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from asym.data.contexts import Reach, contexts
from asym.data.text import Stream, load_text
from asym.explicit.cipher import cipher_vectors
from asym.explicit.start import Solution, add_unigram_bias, mean_loss, search, solve
from asym.models.saffu import SaffuLM
from asym.seeds import numpy_generator, torch_generator


@pytest.fixture(scope="module")
def text():
    return load_text(size=400)


def _model(text, reach=Reach(8, 4), double=True, bits=16, hidden=12, **options):  # noqa: B008
    embedding = torch.from_numpy(cipher_vectors(text.counts, bits))
    net = SaffuLM(embedding, hidden, reach, **options)
    net = net.double() if double else net
    net.reset_parameters(torch_generator(0, "start"))
    return net


def _rows(stream, reach, count, seed=0):
    places = numpy_generator(seed, "rows").permutation(stream.targets)[:count]
    return contexts(stream, places, reach), torch.from_numpy(stream.ids[places].astype(np.int64))


def _labels(text, hidden=12):
    return torch.from_numpy(cipher_vectors(text.counts, hidden))


def _unigram(text, y):
    share = torch.from_numpy((text.counts + 1) / (text.counts + 1).sum())
    return float(-share[y].log().mean())


@pytest.mark.parametrize("attention", ["hidden-targets", "one-gradient", "uniform"])
def test_it_beats_unigram_and_a_random_start_does_not(text, attention):
    net = _model(text)
    train, test = _rows(text.train, net.reach, 6000), _rows(text.test, net.reach, 1500)
    cold = mean_loss(net, *test)
    solve(net, *train, _labels(text), Solution(attention=attention))
    assert cold == pytest.approx(math.log(400), abs=0.3)
    assert mean_loss(net, *test) < _unigram(text, test[1]) - 0.1
    for name, parameter in net.named_parameters():
        if name != "embedding":
            assert parameter.mean(1).abs().max() < 1e-9


def test_shuffled_labels_leave_nothing_but_frequencies(text):
    net, stream = _model(text), text.train.shuffled_labels(0)
    other = text.test.shuffled_labels(0)
    train, test = _rows(stream, net.reach, 6000), _rows(other, net.reach, 1500)
    solve(net, *train, _labels(text), Solution(priming=1.0))
    assert mean_loss(net, *test) > _unigram(text, test[1]) - 0.02


def test_batches_change_nothing(text):
    a, b = _model(text), _model(text)
    train = _rows(text.train, a.reach, 1000)
    solve(a, *train, _labels(text), batch=1000)
    solve(b, *train, _labels(text), batch=77)
    for (name, p), (_, q) in zip(a.named_parameters(), b.named_parameters()):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    "reach", [Reach(0, 4), Reach(8, 0), Reach(0, 3, 9), Reach(0, 3, 0, (2,)), Reach(0, 2, 0, (2, 2))]
)
@pytest.mark.parametrize("options", [{}, {"reading": "features"}, {"log_attention": True}, {"train_embedding": True}])
def test_every_context_and_reading_can_be_solved(text, reach, options):
    net = _model(text, reach, **options)
    train = _rows(text.train, reach, 1500)
    attention = "uniform" if options.get("reading") == "features" else "hidden-targets"
    solve(net, *train, _labels(text), Solution(attention=attention))
    assert mean_loss(net, *train) < _unigram(text, train[1])


def test_parts_are_solved_apart(text):
    train = _rows(text.train, Reach(8, 4), 500)
    for part, names in (("attention", ("weight",)), ("hidden", ("hidden",)), ("output", ("output",))):
        net, start = _model(text), _model(text)
        solve(net, *train, _labels(text), Solution(parts=(part,)))
        for (name, p), (_, q) in zip(net.named_parameters(), start.named_parameters()):
            assert torch.equal(p, q) == (not name.endswith(names)), (part, name)


def test_labels_name_the_units(text):
    a, b, order = _model(text), _model(text), torch.randperm(12, generator=torch_generator(0, "order"))
    train = _rows(text.train, a.reach, 800)
    solve(a, *train, _labels(text))
    solve(b, *train, _labels(text)[:, order])
    for name in ("block", "radius"):
        torch.testing.assert_close(b.layers[name].hidden, a.layers[name].hidden[:, order])
    torch.testing.assert_close(b.output[:12], a.output[:12][order])
    torch.testing.assert_close(a(train[0]), b(train[0]))


def test_the_search_takes_the_best_priming_numbers(text):
    net = _model(text)
    train, held_out = _rows(text.train, net.reach, 1500), _rows(text.val, net.reach, 500)
    found, first, second = search(
        net, train, held_out, _labels(text), Solution(), priming=(1, 4, 16), output_priming=(1, 2, 4)
    )
    assert found.priming == min(first.losses, key=lambda k: first.losses[k])
    assert found.output_priming == min(second.losses, key=lambda k: second.losses[k])
    assert mean_loss(net, *held_out) == pytest.approx(min(second.losses.values()), rel=1e-9)
    again = _model(text)
    solve(again, *train, _labels(text), found)
    torch.testing.assert_close(again.output, net.output)


def test_a_unigram_bias_gives_frequencies(text):
    net = _model(text)
    with torch.no_grad():
        net.output.zero_()
    add_unigram_bias(net, torch.from_numpy(text.counts))
    train = _rows(text.train, net.reach, 500)
    assert mean_loss(net, *train) == pytest.approx(_unigram(text, train[1]), rel=1e-9)


def test_it_is_a_solution_of_two_shards_together(text):
    """Sums are added: contexts of two shards in any order give the same start."""
    a, b = _model(text), _model(text)
    first, second = _rows(text.train, a.reach, 400, 0), _rows(text.train, a.reach, 400, 1)
    solve(a, torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]]), _labels(text))
    solve(b, torch.cat([second[0], first[0]]), torch.cat([second[1], first[1]]), _labels(text))
    torch.testing.assert_close(a.output, b.output, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "match"),
    [({"labels": torch.ones(3, 12)}, "labels: shape"), ({"labels": torch.ones(400, 12)}, "distributions"),
     ({"x": torch.empty(0, 13, dtype=torch.int64), "y": torch.empty(0, dtype=torch.int64)}, "no contexts")],
)  # fmt: skip
def test_what_cannot_be_solved(text, change, match):
    net = _model(text)
    x, y = _rows(text.train, net.reach, 10)
    arguments = {"x": x, "y": y, "labels": _labels(text)} | change
    with pytest.raises(ValueError, match=match):
        solve(net, **arguments)
    with pytest.raises(ValueError, match="take uniform"):
        solve(_model(text, reading="features"), x, y, _labels(text))


def test_bad_solutions_name_the_choices():
    with pytest.raises(ValueError, match="attention, hidden, output"):
        Solution(parts=("bias",))
    with pytest.raises(ValueError, match="one-gradient"):
        replace(Solution(), attention="x")


def test_a_text_of_one_token_can_be_solved():
    stream = Stream(np.zeros(20, dtype=np.int32), np.array([0]), np.array([0], dtype=np.int32), 20)
    net = SaffuLM(torch.from_numpy(cipher_vectors(np.array([20, 0]), 3)), 3, Reach(2, 2))
    net = net.double()
    x, y = contexts(stream, stream.targets, net.reach), torch.zeros(19, dtype=torch.int64)
    solve(net, x, y, torch.from_numpy(cipher_vectors(np.array([20, 0]), 3)))
    assert mean_loss(net, x, y) < 0.01
