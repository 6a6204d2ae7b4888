"""Zoos whose networks differ in width and depth, read together."""

import numpy as np
import pytest

from asym.store import read_table
from studies import metanet, metanet_setup
from studies.metanet_read import open_zoo, splits_of

READERS = ("stats", "stats-boost", "hyper-boost", "deepsets", "gmn", "scale-gmn")


def config(folder, **options):
    fixed = {"preset": "smoke", "networks": 24, "readers": READERS, "reader_width": 2, "epochs": 1, "lrs": (1e-3,),
             "zoo_epochs": 1, "quiet": True, "widths": (0.5, 1.0), "depths": (2, 3)}  # fmt: skip
    return metanet.Config(**{**fixed, "out": folder / "results", "runs": folder / "runs"} | options)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return config(folder), metanet.run(config(folder))


def test_networks_of_all_shapes_are_read_by_every_reader_that_mixes(study):
    settings, rows = study
    assert {(row["variant"], row["reader"]) for row in rows.to_dict("records") if row["part"] == "whole"} == {
        (variant, reader) for variant in ("standard", "w") for reader in READERS
    }
    assert set(rows["shapes"]) == {"width 0.5 1, depth 2 3"}
    whole = rows[rows["part"] == "whole"]
    assert set(whole["train_networks"] + whole["val_networks"] + whole["test_networks"]) == {24}
    moved = rows[(rows["variant"] == "standard") & (rows["reader"] == "scale-gmn")]
    for name in ("r2_permuted", "r2_rescaled"):
        assert moved[name].to_numpy() == pytest.approx(moved["r2"].to_numpy(), rel=1e-3, abs=1e-3)
    zoos = read_table(settings.out / "metanet_zoos.csv")
    assert set(zoos["shapes"]) == {"width 0.5 1, depth 2 3"}


def test_shapes_are_dealt_in_turn_and_hyper_parameters_are_those_of_one_zoo(study):
    settings, _ = study
    prepared = metanet.ROOMS.prepare(settings)
    family = prepared.families[0]
    zoo = open_zoo(str(settings.runs), family.zoo)
    table = zoo.table.sort_values("run")
    assert table["run"].tolist() == list(range(24))
    assert table["width"].tolist() == [0.5, 0.5, 1.0, 1.0] * 6
    assert table["depth"].tolist() == [2, 3] * 12
    assert len({stack.chain.sizes for stack in zoo.stacks}) == 4
    one = metanet.ROOMS.prepare(config(settings.out.parent, widths=(1.0,), depths=()))
    (plan,) = one.families[0].plans
    drawn = [plan.recipes[run].lr for run in table["run"]]
    assert table["lr"].tolist() == drawn
    hyper = np.concatenate([np.asarray(stack.hyper) for stack in zoo.stacks])
    assert (hyper == zoo.table["width"].to_numpy(dtype=np.float32)[:, None]).all(0).any()


def test_splits_are_those_of_a_zoo_of_one_shape(study):
    settings, _ = study
    found = []
    for options in ({}, {"widths": (1.0,), "depths": ()}):
        chosen = config(settings.out.parent, **options, readers=("stats",), variants=("standard",))
        metanet.run(chosen)
        prepared = metanet.ROOMS.prepare(chosen)
        (item, *_) = metanet_setup.items(chosen, prepared)
        reading = metanet_setup.reading(chosen, prepared, item, 1e-3, 0)
        runs = open_zoo(reading.runs, reading.zoo).table["run"].to_numpy()
        found.append({name: set(runs[places]) for name, places in splits_of(reading).items()})
    assert found[0] == found[1]


def test_the_published_depth_is_the_plain_zoo(tmp_path):
    plain = metanet.ROOMS.prepare(config(tmp_path, widths=(1.0,), depths=()))
    named = metanet.ROOMS.prepare(config(tmp_path, widths=(1.0,), depths=(3,)))
    other = metanet.ROOMS.prepare(config(tmp_path, widths=(1.0,), depths=(2,)))
    assert plain.families[0].zoo == named.families[0].zoo != other.families[0].zoo
    assert plain.families[0].columns == named.families[0].columns
    assert other.families[0].columns["shapes"] == "depth 2"
    assert other.families[0].columns["network_params"] == 160 + 2320 + 170


def test_a_dry_run_times_every_shape(tmp_path, capsys):
    text = metanet.ROOMS.plan_text(config(tmp_path, readers=("gmn",)), metanet.ROOMS.prepare(config(tmp_path)))
    assert "24 networks of" in text
    assert "gmn: " in text
