import pytest
import torch
from torch import nn

from asym.data import load
from asym.models import build
from asym.nn import Variant, to_plain
from asym.populations import Evaluator, Layout, path, reestimate_running, subset


@pytest.fixture(scope="module")
def data():
    return load("digits", train_size=300)


def _net(seed=0, variant="standard", norm=None, arch="resnet8"):
    return build(arch, input_shape=(1, 8, 8), classes=10, norm=norm, variant=Variant(variant), seed=seed).eval()


def test_loss_and_accuracy_are_those_of_a_plain_pass(data):
    network = _net()
    layout = Layout.full(network)
    loss, accuracy = Evaluator(_net(1), layout, data, {"test": data.test})(layout.flatten(network.state_dict()))["test"]
    with torch.no_grad():
        logits = network(data.normalise(data.test.images))
    assert loss == pytest.approx(nn.functional.cross_entropy(logits, data.test.labels).item(), rel=1e-5)
    assert accuracy == (logits.argmax(1) == data.test.labels).double().mean().item()
    found, labels = Evaluator(_net(1), layout, data, {"test": data.test}).logits(layout.flatten(network.state_dict()))[
        "test"
    ]
    torch.testing.assert_close(found, logits)
    assert torch.equal(labels, data.test.labels)


def test_evaluating_leaves_the_network_as_it_was(data):
    network, other = _net(0), _net(1)
    layout = Layout.full(network)
    before = layout.flatten(network.state_dict())
    Evaluator(network, layout, data, {"val": data.val})(layout.flatten(other.state_dict()))
    assert torch.equal(layout.flatten(network.state_dict()), before)


def test_a_path_starts_and_ends_at_its_networks_and_is_straight(data):
    a, b = _net(0), _net(1)
    layout = Layout.full(a)
    rows = [layout.flatten(n.state_dict()) for n in (a, b)]
    evaluate = Evaluator(_net(2), layout, data, {"val": data.val})
    losses, _ = path(evaluate, *rows, [0.0, 0.25, 1.0])["val"]
    assert losses[0] == evaluate(rows[0])["val"][0]
    assert losses[2] == evaluate(rows[1])["val"][0]
    assert losses[1] == evaluate(0.75 * rows[0] + 0.25 * rows[1])["val"][0]


def test_the_line_between_masked_networks_is_the_line_between_their_plain_forms(data):
    a, b = _net(0, "w"), _net(1, "w")
    masked, plain = Layout.full(a), Layout.full(to_plain(a))
    lambdas = [0.0, 0.5, 1.0]
    one = path(
        Evaluator(_net(2, "w"), masked, data, {"val": data.val}),
        *(masked.flatten(n.state_dict()) for n in (a, b)),
        lambdas,
    )
    other = path(
        Evaluator(to_plain(a), plain, data, {"val": data.val}),
        *(plain.flatten(to_plain(n).state_dict()) for n in (a, b)),
        lambdas,
    )
    assert one["val"][0] == pytest.approx(other["val"][0], rel=1e-5)


def test_batch_norm_statistics_are_the_average_over_batches(data):
    network = nn.Sequential(nn.BatchNorm1d(2))
    batches = [torch.randn(8, 2) * 3 + 1 for _ in range(4)]
    reestimate_running(network, batches)
    mean = torch.stack([batch.mean(0) for batch in batches]).mean(0)
    variance = torch.stack([batch.var(0) for batch in batches]).mean(0)
    torch.testing.assert_close(network[0].running_mean, mean)
    torch.testing.assert_close(network[0].running_var, variance)
    assert network[0].momentum == 0.1


def test_reestimation_rescues_wrong_statistics(data):
    network = _net(norm="batch")
    layout = Layout.full(network)
    row = layout.flatten(network.state_dict())
    with_fresh = Evaluator(_net(norm="batch"), layout, data, {"val": data.val}, reestimate=True)(row)["val"]
    without = Evaluator(_net(norm="batch"), layout, data, {"val": data.val})(row)["val"]
    assert with_fresh != without
    assert with_fresh == Evaluator(_net(norm="batch"), layout, data, {"val": data.val}, reestimate=True)(row)["val"]


def test_a_subset_is_fixed_and_random(data):
    part = subset(data.test, 50, "test")
    assert len(part.labels) == 50
    assert torch.equal(part.images, subset(data.test, 50, "test").images)
    assert not torch.equal(part.labels, data.test.labels[:50])
    assert not torch.equal(part.labels, subset(data.test, 50, "other").labels)
    assert subset(data.test, None, "test") is data.test
    assert subset(data.test, 10**6, "test") is data.test


def test_nan_weights_give_nan_and_no_error(data):
    network = _net()
    layout = Layout.full(network)
    loss, _ = Evaluator(network, layout, data, {"val": data.val})(torch.full((layout.size,), float("nan")))["val"]
    assert loss != loss
