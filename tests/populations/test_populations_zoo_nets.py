"""Zoos as a whole: who is in them, what their rows say, and that nothing is trained twice."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from asym.data import load
from asym.metanets.zoo_stack import hyper_numbers
from asym.models import build
from asym.nn import Variant
from asym.nn.init import SCHEMES, initial_values
from asym.populations import Architecture, Member, Plan, Recipe, chunks_of, train_chunk
from asym.populations import zoo_nets as module
from asym.populations.zoo_nets import HYPER, ZooPlan, assemble, zoo_of
from asym.populations.zoos import STARTS, draw_recipes
from asym.store import Store


@pytest.fixture(scope="module")
def data():
    return load("digits", train_size=120)


def plan(data, variant="standard", zoo="small-cnn", **options) -> ZooPlan:
    architecture = Architecture("small-cnn", data.input_shape, data.classes, 0.25, variant=Variant(variant))
    fixed = (("batch_size", 64), ("epochs", 2), ("optimizer", "adam"), ("train_fraction", 0.5))
    return ZooPlan(zoo, architecture, options.pop("networks", 4), 0, data.fingerprint, fixed, **options)


def test_the_published_ranges():
    recipes = draw_recipes("small-cnn", 300, 0)
    assert {r.optimizer for r in recipes} == {"adam", "sgd", "rmsprop"}
    assert {r.start for r in recipes} == set(STARTS)
    assert {r.train_fraction for r in recipes} == {0.1, 0.25, 0.5, 1.0}
    assert {(r.epochs, r.batch_size, r.augment) for r in recipes} == {(86, 512, "none")}
    rates = np.log([r.lr for r in recipes])
    assert np.exp(rates.min()) >= 5e-4
    assert np.exp(rates.max()) <= 5e-2
    assert abs(rates.mean() - np.log(5e-3)) < 0.2
    digits = draw_recipes("small-cnn-digits", 300, 0)
    assert {r.optimizer for r in digits} == {"adam", "momentum", "rmsprop"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_starts_have_the_spread_that_they_name(scheme):
    network = build("small-cnn", input_shape=(1, 8, 8), classes=10, width=4)
    values = initial_values(network, 1, scheme, 0.3)
    weight, bias = values["convs.1.weight"], values["convs.1.bias"]
    fan = 64 * 9
    deviation = {
        "default": (3 * fan) ** -0.5, "kaiming": (2 / fan) ** 0.5, "he_normal": (2 / fan) ** 0.5,
        "glorot_normal": (1 / fan) ** 0.5, "orthogonal": (1 / fan) ** 0.5, "normal": 0.3, "truncated_normal": 0.264,
    }[scheme]  # fmt: skip
    assert float(weight.std()) == pytest.approx(deviation, rel=0.03)
    assert (bias == 0).all() == (scheme not in ("default", "kaiming"))
    if scheme == "orthogonal":
        rows = weight.flatten(1)
        assert torch.allclose(rows @ rows.T, torch.eye(64), atol=1e-5)
    if scheme == "truncated_normal":
        assert float(weight.abs().max()) <= 0.6


def test_a_share_of_the_images_is_all_that_a_network_sees(data):
    seen = []

    class Spy:
        domain, name, train = data.domain, data.name, data.train

        def __getattr__(self, key):
            return getattr(data, key)

        def with_train(self, train):
            seen.append(len(train))
            return data.with_train(train)

    recipe = Recipe(epochs=1, batch_size=32, train_fraction=0.25)
    architecture = Architecture("small-cnn", data.input_shape, data.classes, 0.25)
    spied = train_chunk(architecture, [Member(0, 0, recipe)], Spy(), Plan(1, "float32", False))
    assert seen == [30]
    same = train_chunk(architecture, [Member(0, 0, recipe)], data, Plan(1, "float32", False))
    whole = train_chunk(
        architecture, [Member(0, 0, dataclasses.replace(recipe, train_fraction=1.0))], data, Plan(1, "float32", False)
    )
    assert torch.equal(spied.theta, same.theta)
    assert not torch.equal(same.theta, whole.theta)


def test_networks_of_different_shares_do_not_train_together(data):
    zoo = ZooPlan("small-cnn", plan(data).architecture, 12, 0, data.fingerprint)
    for chunk in chunks_of(zoo.populations()[0], Plan(32, "float32", False)):
        assert len({(m.recipe.train_fraction, m.recipe.optimizer) for m in chunk.members}) == 1


@pytest.mark.parametrize("variant", ["standard", "w"])
def test_labels_are_those_of_the_networks_in_the_stack(data, tmp_path, variant):
    store = Store(tmp_path)
    wanted = plan(data, variant)
    zoo = zoo_of(assemble(store, wanted, data))
    assert len(zoo) == 4
    plain = build("small-cnn", input_shape=data.input_shape, classes=10, width=0.25)
    for k, row in enumerate(zoo.table.to_dict("records")):
        weights = {name: tensor[k] for name, tensor in zoo.tensors.items()}
        logits = torch.func.functional_call(plain, weights, (data.inputs(data.test),))
        right = float((logits.argmax(1) == data.test.labels).float().mean())
        assert row["test_acc"] == pytest.approx(right, abs=1e-6)
        assert row["test_loss"] == pytest.approx(float(F.cross_entropy(logits, data.test.labels)), rel=1e-4)
    assert bool(zoo.masks) == (variant == "w")
    if variant == "w":
        mask = zoo.masks["convs.1.weight"]
        fixed = zoo.tensors["convs.1.weight"][:, ~mask]
        assert (fixed == fixed[0]).all()
        assert not (zoo.tensors["convs.1.weight"][:, mask] == zoo.tensors["convs.1.weight"][:1, mask]).all(1)[1:].any()


def test_dropout_is_a_column_where_it_is_drawn_and_nowhere_else(data, tmp_path):
    store, zoos = Store(tmp_path), {}
    for name in ("small-cnn", "small-cnn-digits"):
        wanted = plan(data, zoo=name)
        zoos[name] = zoo_of(assemble(store, wanted, data))
    with_some, without = zoos["small-cnn"].table, zoos["small-cnn-digits"].table
    assert with_some["dropout"].tolist() == [r.dropout for r in plan(data).recipes]
    assert with_some["dropout"].nunique() == 4
    labels = ["run", "activation", "seed", "diverged", "train_loss", "train_acc", "test_loss", "test_acc"]
    assert without.columns.tolist() == [*labels, *(name for name in HYPER if name != "dropout")]
    assert with_some.columns.tolist() == [*without.columns, "dropout"]
    for table, more in ((with_some, 1), (without, 0)):
        known = [name for name in HYPER if name in table]
        old = [name for name in known if name != "dropout"]
        numbers, before = (hyper_numbers(table, names) for names in (known, old))
        assert numbers.shape[1] == before.shape[1] + more
        assert torch.equal(numbers[:, : before.shape[1]], before)


def test_a_chunk_without_dropout_in_a_zoo_with_some_has_zeros(data, tmp_path, monkeypatch):
    """Networks of different optimisers train apart."""
    wanted = plan(data, networks=2)
    rates = iter((0.0, 0.5))
    recipes = [
        dataclasses.replace(r, optimizer=o, dropout=next(rates)) for r, o in zip(wanted.recipes, ("adam", "sgd"))
    ]
    monkeypatch.setattr(module, "draw_recipes", lambda *a, **k: recipes)
    module._recipes.cache_clear()
    module._chunks.cache_clear()
    zoo = zoo_of(assemble(Store(tmp_path), wanted, data))
    module._recipes.cache_clear()
    module._chunks.cache_clear()
    assert zoo.table["optimizer"].tolist() == ["adam", "sgd"]
    assert zoo.table["dropout"].tolist() == [0.0, 0.5]


def test_dropout_is_refused_before_training_where_there_is_no_place(data):
    wanted = dataclasses.replace(plan(data), architecture=Architecture("mlp", data.input_shape, data.classes, 0.25))
    with pytest.raises(ValueError, match=r"^dropout: got 0\.\d+, but mlp has no place for it"):
        wanted.chunks("cpu")


def test_variants_are_paired_and_a_zoo_grows(data):
    standard, w = (plan(data, variant).populations()[0].members for variant in ("standard", "w"))
    assert standard == w
    assert plan(data, networks=6).populations()[0].members[:4] == standard


def test_activations_in_turn_checkpoints_and_one_seed(data, tmp_path):
    wanted = plan(data, activations=("relu", "relu-tanh"), checkpoints=(1,), one_seed=True)
    zoo = zoo_of(assemble(Store(tmp_path), wanted, data))
    assert zoo.table["run"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert zoo.table["epochs"].tolist() == [1, 2] * 4
    assert zoo.table["activation"].tolist() == ["relu", "relu", "relu-tanh", "relu-tanh"] * 2
    assert zoo.table["seed"].nunique() == 1
    first = zoo.take(np.array([0, 1]))
    assert not torch.equal(first.tensors["head.weight"][0], first.tensors["head.weight"][1])


def test_nothing_is_trained_twice(data, tmp_path, monkeypatch):
    store, wanted = Store(tmp_path), plan(data)
    run = assemble(store, wanted, data)
    monkeypatch.setattr(module, "train_or_load", lambda *a, **k: pytest.fail("trained again"))
    assert assemble(store, wanted, data).path == run.path


def test_networks_that_diverged_are_dropped_and_counted(data, tmp_path):
    wild = plan(data, networks=3)
    wild = dataclasses.replace(wild, fixed=(*wild.fixed, ("optimizer", "sgd"), ("lr", 3e38), ("epochs", 4)))
    run = assemble(Store(tmp_path), wild, data)
    assert run.state()["dropped"] == 3 - len(run.table("networks"))
    assert run.state()["dropped"] > 0


def test_refusals(data):
    with pytest.raises(ValueError, match="networks"):
        plan(data, networks=0)
    with pytest.raises(ValueError, match="checkpoints"):
        plan(data, checkpoints=(0,))
    for part in ((2, 2), (-1, 2), (4, 5)):
        with pytest.raises(ValueError, match=r"part: got \("):
            plan(data, part=part)


def test_parts_deal_the_networks_of_a_whole_zoo(data):
    whole = plan(data, networks=7, activations=("relu", "tanh"))
    parts = [plan(data, networks=7, activations=("relu", "tanh"), part=(i, 3)) for i in range(3)]
    everyone = {m for population in whole.populations() for m in population.members}
    dealt = [{m for population in part.populations() for m in population.members} for part in parts]
    assert [len(members) for members in dealt] == [3, 2, 2]
    assert set.union(*dealt) == everyone
    activations = [[p.architecture.activation for p in part.populations()] for part in parts]
    assert activations == [["relu", "tanh"]] * 3
