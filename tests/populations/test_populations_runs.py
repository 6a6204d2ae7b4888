import dataclasses

import pytest
import torch

from asym.data import load
from asym.nn import Variant
from asym.populations import Architecture, Member, Plan, Population, Recipe, chunks_of, train_population
from asym.populations import runs as runs_module
from asym.populations.population import compact
from asym.populations.runs import cached, run_config, run_of, train_or_load
from asym.store import CorruptRun, Store, config_hash

PLAN = Plan(2, "float32", channels_last=False)
RECIPE = Recipe(lr=1e-2, epochs=1, batch_size=64)


@pytest.fixture(scope="module")
def data():
    return load("digits", train_size=100)


def _population(data, n=2, variant="standard"):
    architecture = Architecture("small-cnn", data.input_shape, data.classes, variant=Variant(variant))
    return Population(architecture, tuple(Member(i, 0, RECIPE) for i in range(n)), data.fingerprint)


def test_names_of_runs_are_pinned():
    """A change here renames every kept run: raise RECIPE_VERSION on purpose instead, or give a field a default."""
    member = Member(1, 2, Recipe(lr=0.01, epochs=3))
    for variant, name in (("standard", "79f09e051226"), ("w", "a2e040bbefcb")):
        architecture = Architecture("mlp", (1, 8, 8), 10, variant=Variant(variant))
        config = run_config(Population(architecture, (member,), "abc"), Plan(1, "float32", False))
        assert config_hash(config) == name


def test_defaults_do_not_count_in_a_config():
    assert compact(Recipe()) == {}
    assert compact(Member(1)) == {"seed": 1}
    assert compact(Member(1, 0, Recipe(lr=0.5))) == {"seed": 1, "recipe": {"lr": 0.5}}


def test_chunks_keep_order_and_group_by_what_must_agree(data):
    population = _population(data, 5)
    assert [[m.seed for m in c.members] for c in chunks_of(population, PLAN)] == [[0, 1], [2, 3], [4]]
    mixed = dataclasses.replace(
        population,
        members=tuple(
            dataclasses.replace(m, recipe=dataclasses.replace(RECIPE, optimizer="sgd" if m.seed % 2 else "adam"))
            for m in population.members
        ),
    )
    assert [[m.seed for m in c.members] for c in chunks_of(mixed, PLAN)] == [[0, 2], [4], [1, 3]]
    longer = chunks_of(_population(data, 8), PLAN)
    assert chunks_of(population, PLAN)[:2] == longer[:2]


def test_what_is_finished_is_not_trained_again(data, tmp_path, monkeypatch):
    store, population = Store(tmp_path), _population(data)
    first = train_or_load(store, population, data, PLAN)

    def never(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(runs_module, "train_chunk", never)
    again = train_or_load(store, population, data, PLAN)
    assert torch.equal(first.theta, again.theta)
    assert (first.history, first.diverged, first.wall_s) == (again.history, again.diverged, again.wall_s)


def test_a_population_comes_in_the_order_of_its_members(data, tmp_path):
    population = _population(data, 3)
    members = tuple(
        dataclasses.replace(m, recipe=dataclasses.replace(RECIPE, optimizer="sgd" if m.seed == 1 else "adam"))
        for m in population.members
    )
    population = dataclasses.replace(population, members=members)
    ticks = []
    whole = train_population(Store(tmp_path), population, data, PLAN, on_epoch=ticks.append)
    assert sum(ticks) == 3
    assert sorted(entry["network"] for entry in whole.history) == [0, 1, 2]
    for i, member in enumerate(members):
        chunk = next(c for c in chunks_of(population, PLAN) if member in c.members)
        part = train_or_load(Store(tmp_path), chunk, data, PLAN)
        assert torch.equal(whole.theta[i], part.theta[chunk.members.index(member)])


def test_a_run_holds_masks_once_for_a_population(data, tmp_path):
    store, population = Store(tmp_path), _population(data, 2, "w")
    train_or_load(store, population, data, PLAN)
    tensors = run_of(store, population, PLAN).tensors()
    masks = [name for name in tensors if name.endswith(".mask")]
    assert masks
    assert all(name.startswith("mask_seed=0/") for name in masks)
    network = population.architecture.build(0, 0)
    for name in masks:
        assert torch.equal(tensors[name], network.state_dict()[name.removeprefix("mask_seed=0/")])


def test_damage_is_found_before_it_is_used(data, tmp_path):
    store, population = Store(tmp_path), _population(data)
    train_or_load(store, population, data, PLAN)
    file = run_of(store, population, PLAN).path / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptRun, match=r"tensors\.safetensors"):
        train_or_load(Store(tmp_path), population, data, PLAN)


def test_the_wrong_data_or_too_large_a_chunk_is_refused(data, tmp_path):
    with pytest.raises(ValueError, match="the population names"):
        train_or_load(Store(tmp_path), dataclasses.replace(_population(data), data="other"), data, PLAN)
    with pytest.raises(ValueError, match="chunk: 3 members"):
        train_or_load(Store(tmp_path), _population(data, 3), data, PLAN)
    with pytest.raises(ValueError, match="members"):
        dataclasses.replace(_population(data), members=())
    assert not list(tmp_path.rglob("*.safetensors"))


def test_cached_computes_once(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"x": torch.ones(2)}, {}, {"value": 3}

    store = Store(tmp_path)
    for _ in range(2):
        assert cached(store, "thing", {"a": 1}, compute).state()["value"] == 3
    assert len(calls) == 1
