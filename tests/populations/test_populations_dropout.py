"""Training with dropout: each network drops by its own seed, rate and epoch, whoever trains beside it."""

import copy
import dataclasses

import pytest
import torch

from asym.data import load
from asym.nn import Variant
from asym.nn.dropout import keep_mask, keeping
from asym.populations import Architecture, Evaluator, Layout, Member, Plan, Recipe, cross_entropy, plan_for, train_chunk
from asym.populations.dropout import Dropping
from asym.populations.population import Population, compact
from asym.seeds import numpy_generator, torch_generator

SINGLE = Plan(1, "float32", channels_last=True)
STACKED = Plan(8, "float32", channels_last=False)


@pytest.fixture(scope="module")
def data():
    return load("digits", train_size=100)


def _arch(data, arch="small-cnn", variant="standard", width=0.5):
    return Architecture(arch, data.input_shape, data.classes, width, variant=Variant(variant))


def _members(*rates, first=0, **recipe):
    options = {"lr": 1e-2, "epochs": 2, "batch_size": 64, "augment": "none"} | recipe
    return [Member(first + i, 0, Recipe(**options, dropout=rate)) for i, rate in enumerate(rates)]


def test_a_step_is_the_gradient_under_the_named_masks(data):
    """One step of SGD on all images, by hand."""
    architecture, (member,) = _arch(data), _members(0.4, first=3, lr=0.1, optimizer="sgd", batch_size=100, epochs=1)
    network = architecture.build(member.seed).train()
    sizes = {"drops.0.keep": (8, 4, 4), "drops.1.keep": (8, 2, 2), "drops.2.keep": (8, 1, 1)}
    numbers = keep_mask(100 * (128 + 32 + 8), 0.4, torch_generator(3, "dropout", 0))
    parts = numbers.split([100 * 128, 100 * 32, 100 * 8])
    masks = {name: part.reshape(100, *shape) for part, (name, shape) in zip(parts, sizes.items())}
    order = torch.from_numpy(numpy_generator(3, "order", 0).permutation(100))
    images, labels = data.normalise(data.train.images[order]), data.train.labels[order]
    with keeping(network, masks):
        loss = cross_entropy(network(images), labels, torch.tensor(0.0))
    grads = torch.autograd.grad(loss, list(network.parameters()))
    layout = Layout.trainable(network)
    expected = layout.flatten({n: p - 0.1 * g for (n, p), g in zip(network.named_parameters(), grads)})
    for plan in (SINGLE, STACKED):
        trained = train_chunk(architecture, [member] * min(plan.chunk, 2), data, plan)
        torch.testing.assert_close(trained.theta[0], expected, rtol=1e-5, atol=1e-6)
        assert trained.history[0]["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    without = train_chunk(architecture, _members(0.0, first=3, lr=0.1, optimizer="sgd", batch_size=100, epochs=1), data,
                          SINGLE)  # fmt: skip
    assert not torch.allclose(without.theta[0], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("arch", "variant"),
    [("small-cnn", "standard"), ("small-cnn", "w"), ("small-cnn", "sigma"), ("transformer-plain", "standard")],
)
def test_stacked_and_single_networks_drop_the_same(data, arch, variant):
    moving = {"optimizer": "momentum", "lr": 0.2}
    architecture, members = _arch(data, arch, variant), _members(0.2, 0.6, 0.0, **moving)
    stacked = train_chunk(architecture, members, data, STACKED)
    for i, member in enumerate(members):
        alone = train_chunk(architecture, [member], data, SINGLE)
        torch.testing.assert_close(stacked.theta[i], alone.theta[0], rtol=1e-3, atol=1e-4)
    bare = train_chunk(architecture, _members(0.0, 0.0, **moving), data, STACKED)
    assert ((stacked.theta[:2] - bare.theta).abs().amax(1) > 5e-3).all()  # the comparison above can fail


@pytest.mark.parametrize("arch", ["small-cnn", "transformer-plain"])
def test_a_network_without_dropout_has_the_same_bits_beside_others_that_have_some(data, arch):
    architecture = _arch(data, arch)
    mixed = train_chunk(architecture, _members(0.0, 0.5, 0.0), data, STACKED)
    bare = train_chunk(architecture, _members(0.0, 0.0, 0.0), data, STACKED)
    assert torch.equal(mixed.theta[[0, 2]], bare.theta[[0, 2]])
    assert not torch.equal(mixed.theta[1], bare.theta[1])


def test_nothing_is_drawn_where_nothing_is_dropped(data, monkeypatch):
    monkeypatch.setattr("asym.populations.dropout.torch_generator", lambda *a: pytest.fail("drawn"))
    for members, plan in ((_members(0.0, epochs=1), SINGLE), (_members(0.0, 0.0, epochs=1), STACKED)):
        assert train_chunk(_arch(data), members, data, plan).theta.isfinite().all()


def test_the_stream_of_a_network_is_its_own():
    network = Architecture("small-cnn", (1, 8, 8), 10, 0.5).build(0)

    def masks(seeds, rates, rows, epoch=0, steps=(6, 4)):
        step = Dropping(network, (1, 8, 8), seeds, rates, torch.device("cpu")).epoch(rows, epoch)
        return [step(images) for images in steps]

    together = masks([3, 4, 5], [0.3, 0.6, 0.0], [0, 1, 2])
    alone, later, other = (masks([seed], [0.6], [0], epoch) for seed, epoch in ((4, 0), (4, 1), (5, 0)))
    for step in (0, 1):
        for name, mask in together[step].items():
            assert torch.equal(mask[1], alone[step][name][0])
            assert (mask[2] == 1).all()
            assert not torch.equal(mask[1], later[step][name][0])
            assert not torch.equal(mask[1], other[step][name][0])
    assert torch.equal(masks([3, 4, 5], [0.3, 0.6, 0.0], [1])[1]["drops.0.keep"], alone[1]["drops.0.keep"])
    assert not torch.equal(alone[0]["drops.0.keep"][:, :4], alone[1]["drops.0.keep"])
    assert masks([3, 5], [0.3, 0.0], [1]) == [{}, {}]


class Memory:
    """A checkpoint in memory."""

    saved = None

    def save_checkpoint(self, tensors, state):
        self.saved = {k: v.clone() for k, v in tensors.items()}, copy.deepcopy(dict(state))

    def load_checkpoint(self):
        return copy.deepcopy(self.saved)


@pytest.mark.parametrize("plan", [SINGLE, STACKED], ids=["single", "stacked"])
def test_resuming_gives_the_same_bits(data, plan):
    members = _members(*(0.5, 0.2)[: plan.chunk], epochs=3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    whole = train_chunk(_arch(data), members, data, plan)
    memory, calls = Memory(), []

    def stop(networks):
        calls.append(networks)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_chunk(_arch(data), members, data, plan, checkpoint=memory, checkpoint_every_s=0.0, on_epoch=stop)
    assert memory.saved[1]["epoch"] == 1
    resumed = train_chunk(_arch(data), members, data, plan, checkpoint=memory)
    assert torch.equal(resumed.theta, whole.theta)
    assert resumed.history == whole.history
    assert torch.equal(torch.get_rng_state(), before)


def test_networks_of_fewer_epochs_leave_the_others_as_they_are(data):
    long, short = _members(0.5, 0.3, epochs=2)
    short = dataclasses.replace(short, recipe=dataclasses.replace(short.recipe, epochs=1))
    together = train_chunk(_arch(data), [long, short], data, STACKED)
    for i, member in enumerate((long, short)):
        alone = train_chunk(_arch(data), [member], data, SINGLE)
        torch.testing.assert_close(together.theta[i], alone.theta[0], rtol=1e-3, atol=1e-3)


def test_low_precision_trains_with_dropout(data):
    members = _members(0.3, 0.3, optimizer="sgd", lr=0.1)
    exact = train_chunk(_arch(data), members, data, STACKED)
    for n, plan in ((1, Plan(1, "bfloat16", channels_last=True)), (2, Plan(8, "bfloat16", channels_last=False))):
        rough = train_chunk(_arch(data), members[:n], data, plan)
        torch.testing.assert_close(rough.theta[0], exact.theta[0], rtol=0.05, atol=0.01)


def test_evaluation_drops_nothing(data):
    architecture, members = _arch(data), _members(0.5)
    network = architecture.build(0)
    layout = Layout.trainable(network)
    theta = train_chunk(architecture, members, data, SINGLE).theta[0]
    evaluate = Evaluator(network, layout, data, {"test": data.test})
    layout.load_(network, theta)
    with torch.no_grad():
        logits = network.eval()(data.inputs(data.test))
    accuracy = (logits.argmax(1) == data.test.labels).double().mean().item()
    assert evaluate(theta)["test"][1] == pytest.approx(accuracy, abs=1e-6)
    assert evaluate(theta) == evaluate(theta)


@pytest.mark.parametrize("arch", ["mlp", "resnet8"])
def test_refused_where_there_is_no_place_for_it(data, arch):
    architecture, members = _arch(data, arch, width=0.125), tuple(_members(0.0, 0.25))
    population = Population(architecture, members, data.fingerprint)
    for refuse in (lambda: train_chunk(architecture, members, data, STACKED), lambda: plan_for(population, "cpu")):
        with pytest.raises(ValueError, match=f"^dropout: got 0.25, but {arch} has no place for it"):
            refuse()


def test_dropout_is_in_the_name_of_a_run_only_where_there_is_some():
    assert compact(Member(1, 0, Recipe(dropout=0.0))) == {"seed": 1}
    assert compact(Member(1, 0, Recipe(dropout=0.5))) == {"seed": 1, "recipe": {"dropout": 0.5}}
