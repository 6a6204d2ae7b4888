"""Training: what a network becomes depends on its own seed and recipe, and on nothing else."""

import copy
import dataclasses

import pytest
import torch

from asym.data import load
from asym.nn import Variant
from asym.populations import Architecture, Layout, Member, Plan, Recipe, cross_entropy, plan_for, train_chunk
from asym.populations.population import Population

SINGLE = Plan(1, "float32", channels_last=True)
STACKED = Plan(8, "float32", channels_last=False)


@pytest.fixture(scope="module")
def data():
    return load("digits", train_size=200)


def _arch(data, arch="small-cnn", variant="standard", **options):
    return Architecture(arch, data.input_shape, data.classes, variant=Variant(variant), **options)


def _members(n, **recipe):
    return [Member(seed, 0, Recipe(**{"lr": 1e-2, "epochs": 2, "batch_size": 64} | recipe)) for seed in range(n)]


@pytest.mark.parametrize("variant", ["standard", "w", "sigma"])
def test_stacked_and_single_networks_see_the_same_random_numbers(data, variant):
    architecture, members = _arch(data, "mlp", variant, width=0.125), _members(3)
    stacked = train_chunk(architecture, members, data, STACKED)
    for i, member in enumerate(members):
        alone = train_chunk(architecture, [member], data, SINGLE)
        torch.testing.assert_close(stacked.theta[i], alone.theta[0], rtol=1e-3, atol=1e-3)
    other = train_chunk(architecture, [Member(9, 0, members[0].recipe)], data, SINGLE)
    assert (stacked.theta[0] - other.theta[0]).abs().max() > 0.01  # the comparison above can fail


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "rmsprop", "adam", "adamw"])
def test_every_optimizer_learns(data, optimizer):
    lr = {"sgd": 0.3, "momentum": 0.05}.get(optimizer, 3e-3)
    architecture = _arch(data, "mlp", width=0.125)
    trained = train_chunk(architecture, _members(2, optimizer=optimizer, epochs=4, lr=lr), data, STACKED)
    losses, accuracies = ([e[f"train_{m}"] for e in trained.history if e["network"] == 0] for m in ("loss", "acc"))
    assert losses[-1] < 0.9 * losses[0]
    assert 0 < accuracies[0] < accuracies[-1] <= 1


@pytest.mark.parametrize("plan", [SINGLE, STACKED], ids=["single", "stacked"])
def test_the_accuracy_of_an_epoch_is_that_of_its_batches(data, plan):
    """With a rate that moves nothing it is the accuracy of the initial network on the training images."""
    architecture, members = _arch(data, "mlp", width=0.125), _members(plan.chunk, epochs=1, lr=1e-30)
    trained = train_chunk(architecture, members, data, plan)
    for i, member in enumerate(members):
        with torch.no_grad():
            logits = architecture.build(member.seed)(data.normalise(data.train.images))
        expected = (logits.argmax(1) == data.train.labels).double().mean().item()
        assert trained.history[i]["train_acc"] == pytest.approx(expected, abs=1e-6)


def test_same_bits_twice_and_the_global_generators_stay_untouched(data):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = train_chunk(_arch(data), _members(2), data, STACKED)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(first.theta, train_chunk(_arch(data), _members(2), data, STACKED).theta)


class Memory:
    """A checkpoint in memory."""

    def __init__(self):
        self.saved = None

    def save_checkpoint(self, tensors, state):
        self.saved = {k: v.clone() for k, v in tensors.items()}, copy.deepcopy(dict(state))

    def load_checkpoint(self):
        return copy.deepcopy(self.saved)


@pytest.mark.parametrize("plan", [SINGLE, STACKED])
def test_resuming_gives_the_same_bits(data, plan):
    members = _members(plan.chunk if plan.chunk == 1 else 2, epochs=4, weight_decay=0.1)
    whole = train_chunk(_arch(data), members, data, plan)
    memory, calls = Memory(), []

    def stop_after_two(networks):
        calls.append(networks)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_chunk(
            _arch(data), members, data, plan, checkpoint=memory, checkpoint_every_s=0.0, on_epoch=stop_after_two
        )
    assert memory.saved[1]["epoch"] == 2
    resumed = train_chunk(_arch(data), members, data, plan, checkpoint=memory)
    assert torch.equal(resumed.theta, whole.theta)
    assert resumed.history == whole.history


def test_a_network_that_diverges_is_marked_and_the_others_go_on(data):
    members = _members(3)
    wild = dataclasses.replace(members[1], recipe=dataclasses.replace(members[1].recipe, lr=1e30, optimizer="adamw"))
    trained = train_chunk(_arch(data), [members[0], wild, members[2]], data, STACKED)
    calm = train_chunk(_arch(data), members, data, STACKED)
    assert trained.diverged[0] == trained.diverged[2] == 0
    assert trained.diverged[1] in (1, 2)
    assert trained.theta[[0, 2]].isfinite().all()
    torch.testing.assert_close(trained.theta[[0, 2]], calm.theta[[0, 2]], rtol=1e-3, atol=1e-3)


def test_networks_with_fewer_epochs_stop_there(data):
    long, short = _members(2, epochs=3)
    short = dataclasses.replace(short, recipe=dataclasses.replace(short.recipe, epochs=1))
    together = train_chunk(_arch(data), [long, short], data, STACKED)
    alone = train_chunk(_arch(data), [short], data, SINGLE)
    torch.testing.assert_close(together.theta[1], alone.theta[0], rtol=1e-3, atol=1e-3)
    assert [entry["epoch"] for entry in together.history if entry["network"] == 1] == [1]
    assert [entry["epoch"] for entry in together.history if entry["network"] == 0] == [1, 2, 3]


def test_networks_of_different_masks_train_together(data):
    architecture = _arch(data, "mlp", "w", width=0.125)
    members = [dataclasses.replace(m, mask_seed=i) for i, m in enumerate(_members(2))]
    together = train_chunk(architecture, members, data, STACKED)
    for i, member in enumerate(members):
        alone = train_chunk(architecture, [member], data, SINGLE)
        torch.testing.assert_close(together.theta[i], alone.theta[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("start", ["own", "he_normal"])
def test_started_at_w_where_a_masked_network_has_its_constants(data, start):
    member = Member(3, 5, Recipe(lr=1e-9, epochs=1, batch_size=64, start=start, optimizer="sgd"))
    found = {}
    for variant in ("w-init", "w", "standard"):
        architecture = _arch(data, variant=variant)
        trained = train_chunk(architecture, [member], data, SINGLE)
        network = architecture.build(member.seed, member.mask_seed)
        found[variant] = dict(network.named_buffers()) | Layout.trainable(network).views(trained.theta[0])
    for layer in ("convs.0", "convs.1", "head"):
        mask, own = found["w"][f"{layer}.mask"], found["w-init"][f"{layer}.weight"]
        assert 0 < int((~mask).sum()) < mask.numel()
        torch.testing.assert_close(own[~mask], found["w"][f"{layer}.fixed"][~mask], rtol=0, atol=1e-6)
        torch.testing.assert_close(own[mask], found["standard"][f"{layer}.weight"][mask], rtol=0, atol=1e-6)
        assert not torch.allclose(own[~mask], found["standard"][f"{layer}.weight"][~mask], atol=1e-3)


@pytest.mark.parametrize("plan", [SINGLE, STACKED])
def test_fixed_entries_do_not_move(data, plan):
    architecture = _arch(data, "mlp", "w", width=0.125)
    member = Member(3, 4, Recipe(lr=0.05, weight_decay=0.5, epochs=3, batch_size=32))
    trained = train_chunk(architecture, [member] * min(plan.chunk, 2), data, plan)
    start, end = architecture.build(3, 4), architecture.build(3, 4)
    Layout.trainable(end).load_(end, trained.theta[0])
    moved = 0
    for before, after in zip(start.modules(), end.modules()):
        if hasattr(before, "effective_weight"):
            assert torch.equal(before.effective_weight[~before.mask], after.effective_weight[~before.mask])
            moved += int((before.effective_weight != after.effective_weight).sum())
    assert moved > 0


def test_batch_norm_statistics_are_those_of_the_network_alone(data):
    architecture = _arch(data, "resnet8", norm="batch")
    plan = plan_for(Population(architecture, tuple(_members(2)), data.fingerprint), "cpu")
    assert plan.chunk == 1
    trained = train_chunk(architecture, _members(1, epochs=1), data, plan)
    fresh = architecture.build(0)
    running = Layout.running(fresh)
    assert trained.running.shape == (1, running.size)
    assert not torch.equal(trained.running[0], running.flatten(fresh.state_dict()))
    with pytest.raises(ValueError, match="BatchNorm"):
        train_chunk(architecture, _members(2), data, STACKED)


def test_members_of_a_chunk_must_agree(data):
    one, two = _members(2)
    for field, value in (("batch_size", 32), ("optimizer", "sgd"), ("augment", "batch")):
        other = dataclasses.replace(two, recipe=dataclasses.replace(two.recipe, **{field: value}))
        with pytest.raises(ValueError, match=field):
            train_chunk(_arch(data), [one, other], data, STACKED)


def test_augmentation_per_batch_differs_from_per_image():
    from asym.data import Augment

    data = dataclasses.replace(load("digits", train_size=100), augment=Augment(2, True))
    results = {}
    for mode in ("image", "batch", "none"):
        trained = train_chunk(_arch(data), _members(1, augment=mode, epochs=1), data, SINGLE)
        results[mode] = trained.theta
    assert not torch.equal(results["image"], results["batch"])
    assert not torch.equal(results["image"], results["none"])


def test_cross_entropy_with_smoothing_is_torch_s():
    logits, labels = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    for smoothing in (0.0, 0.15):
        ours = cross_entropy(logits, labels, torch.tensor(smoothing, dtype=torch.float64))
        theirs = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        torch.testing.assert_close(ours, theirs)
