"""The accuracy-prediction study end to end, on zoos small enough for tests."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from asym.rank_metrics import kendall
from asym.store import Store, read_table
from studies import metanet, metanet_setup
from studies.metanet_differences import bases_of
from studies.metanet_read import make_reader, moved, open_zoo, splits_of
from studies.metanet_setup import PRESETS, items, rates, reading
from studies.tables import VOLATILE

FAST = {"preset": "smoke", "networks": 32, "readers": ("stats", "gmn", "gmn+gauge", "scale-gmn"), "reader_width": 2,
        "epochs": 2, "lrs": (1e-3, 1e-2), "sizes": (10,), "zoo_epochs": 1, "quiet": True}  # fmt: skip


def config(folder, **options):
    return metanet.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metanet")
    return folder, metanet.run(config(folder))


def table(folder, name):
    return read_table(folder / "results" / f"{name}.csv")


def test_every_reader_zoo_and_part_is_a_row(study):
    folder, rows = study
    found = {(row["variant"], row["reader"], row["part"]) for row in rows.to_dict("records")}
    plain = [(zoo, reader, part) for zoo in ("standard", "w") for reader in ("stats", "gmn", "scale-gmn")
             for part in ("whole", "matched")]  # fmt: skip
    curves = [("standard", reader, "curve") for reader in FAST["readers"]]
    assert found == {*plain, *curves, ("standard", "gmn+gauge", "whole")}
    wanted = [
        "study",
        "preset",
        "config",
        "arch",
        "dataset",
        "variant",
        "seed",
        "reader_seed",
        "network_params",
        *VOLATILE,
    ]
    assert rows[wanted].notna().all().all()
    assert set(rows["network_params"][rows["variant"] == "standard"]) == {4970}
    assert len(table(folder, "metanet_summary")) == rows["config"].nunique()


def test_numbers_are_those_of_the_predictions(study):
    folder, rows = study
    settings = config(folder)
    prepared = metanet.ROOMS.prepare(settings)
    for item in items(settings, prepared)[:3]:
        row = rows[rows["config"] == metanet_setup.item_config(settings, prepared, item)].iloc[0]
        kept = reading(settings, prepared, item, float(row["lr"]), 0)
        run = Store(settings.runs).run("metanet", kept.config)
        zoo, places = open_zoo(str(settings.runs), item.family.zoo), splits_of(kept)
        truth, predicted = zoo.accuracies[places["test"]], run.tensors()["test"].numpy()
        tau = kendall(truth, predicted)
        assert row["tau"] == pytest.approx(tau, nan_ok=True)
        assert row["mae"] == pytest.approx(np.abs(truth - predicted).mean())
        assert not set(places["test"]) & {*places["train"], *places["val"]}


def test_scale_gmn_reads_moved_networks_alike_and_gmn_does_not(study):
    _, rows = study
    own = rows[(rows["variant"] == "standard") & (rows["part"] == "whole")].set_index("reader")
    for reader in ("scale-gmn", "gmn+gauge"):
        assert own.loc[reader, "r2_rescaled"] == pytest.approx(own.loc[reader, "r2"], abs=1e-4)
    assert abs(own.loc["gmn", "r2_rescaled"] - own.loc["gmn", "r2"]) > 1e-4
    assert own.loc["gmn", "r2_permuted"] == pytest.approx(own.loc["gmn", "r2"], abs=1e-4)
    assert rows[rows["variant"] == "w"]["tau_rescaled"].isna().all()


def test_moved_networks_keep_their_function(study):
    folder, _ = study
    settings = config(folder)
    zoo = open_zoo(str(settings.runs), metanet.ROOMS.prepare(settings).families[0].zoo)
    from asym.models import build

    network = build("small-cnn", input_shape=(1, 8, 8), classes=10)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def function(stack):
        return torch.func.functional_call(network, {name: t[0] for name, t in stack.tensors.items()}, (x,))

    sets = moved(zoo.stacks, 0)
    for part in sets.values():
        assert torch.allclose(function(part[0]), function(zoo.stacks[0]), atol=1e-4)
        assert not torch.allclose(part[0].tensors["head.weight"][0], zoo.stacks[0].tensors["head.weight"][0])


def test_graph_readers_have_equal_parameters_and_rates_equal_trials(study):
    folder, rows = study
    whole = rows[(rows["part"] == "whole") & rows["reader"].str.contains("gmn")]
    sizes = whole.groupby("variant")["reader_params"]
    assert (sizes.max() < 1.3 * sizes.min()).all()  # at width 2 the next width is far
    tuning = table(folder, "metanet_tuning")
    assert (tuning.groupby("config").size() == 2).all()
    assert len(tuning) == 2 * 7
    chosen = tuning.sort_values("val_tau").groupby("config").tail(1).set_index("config")["lr"]
    for row in rows[rows["part"] == "whole"].to_dict("records"):
        best = tuning[tuning["config"] == row["config"]]
        assert (
            row["lr"] in best[best["val_tau"] == best["val_tau"].max()]["lr"].tolist() or best["val_tau"].isna().all()
        )
    assert set(chosen) <= {1e-3, 1e-2}


def test_parameters_match_at_the_width_of_the_laptop(study):
    folder, _ = study
    settings = config(folder, reader_width=16)
    prepared = metanet.ROOMS.prepare(settings)
    sizes = {}
    for item in items(settings, prepared):
        some = reading(settings, prepared, item, 1e-3, 0)
        if item.part == "whole" and item.family is prepared.families[0]:
            zoo = open_zoo(some.runs, some.zoo)
            sizes[item.reader] = sum(p.numel() for p in make_reader(some, zoo).parameters())
    assert sizes["gmn"] == sizes["gmn+gauge"] == pytest.approx(sizes["scale-gmn"], rel=0.05)


def test_zoos_are_described_and_matched(study):
    folder, _ = study
    zoos = table(folder, "metanet_zoos")
    assert len(zoos) == 4
    pair = zoos[zoos["other_zoo"].notna() & zoos["other_zoo"].ne("")]
    assert pair["kept"].nunique() == 1
    assert abs(pair["acc_mean"].diff().iloc[-1]) < 0.02
    whole = zoos.drop(pair.index)
    assert set(whole["kept"] + whole["dropped"]) == {32}
    assert zoos["tau_repeat"].between(0, 1).all()


def test_differences_are_paired_within_a_zoo(study):
    folder, rows = study
    found = table(folder, "metanet_differences")
    one = found[(found["reader"] == "scale-gmn") & (found["other_reader"] == "gmn") & (found["part"] == "whole")]
    assert set(one["measure"]) == {"tau", "tau_permuted", "tau_rescaled"}
    taus = rows.set_index("config")["tau"]
    for row in one[one["measure"] == "tau"].to_dict("records"):
        assert row["difference"] == pytest.approx(taus[row["config"]] - taus[row["other_config"]])
        assert row["paired"]
    between = found[~found["paired"].astype(bool)]
    assert set(zip(between["variant"], between["other_variant"])) == {("w", "standard")}
    assert set(between["part"]) == {"whole", "matched"}
    assert (table(folder, "metanet_cost")["epoch_s"] > 0).all()


def test_forms_are_compared_with_what_they_are_forms_of():
    assert bases_of("scale-gmn+receiver+no-edges") == {"scale-gmn"}
    assert bases_of("scale-gmn-b") == {"scale-gmn", "gmn-b"}
    assert bases_of("gmn-b") == {"gmn"}
    assert bases_of("flat") == {"flat"}


def test_again_changes_nothing_and_what_was_lost_comes_back_the_same(study, monkeypatch):
    folder, _ = study
    before = {file.name: file.read_text() for file in (folder / "results").glob("*.csv")}
    metanet.run(config(folder))
    assert {file.name: file.read_text() for file in (folder / "results").glob("*.csv")} == before
    lost = sorted((folder / "runs" / "metanet").iterdir())[::9]
    for run in lost:
        (run / "finished.json").unlink()
    (folder / "results" / "metanet.csv").unlink()
    metanet.run(config(folder))
    old = pd.read_csv(folder / "results" / "metanet.csv").sort_values(["config", "repeat"])
    (folder / "first.csv").write_text(before["metanet.csv"])
    new = pd.read_csv(folder / "first.csv").sort_values(["config", "repeat"])
    same = [column for column in old if column not in VOLATILE]
    pd.testing.assert_frame_equal(old[same].reset_index(drop=True), new[same].reset_index(drop=True))


def test_more_repeats_add_rows(study):
    folder, rows = study
    more = metanet.run(config(folder, repeats=2, readers=("stats",), skip=("cost",)))
    assert sorted(more["repeat"].unique()) == [0, 1]
    assert set(more["config"]) <= set(rows["config"])


def test_mixed_activations_checkpoints_and_an_equal_sized_zoo(tmp_path):
    rows = metanet.run(
        config(
            tmp_path, variants=("smaller",), readers=("hyper-boost", "scale-gmn"), activations=("relu", "relu-tanh"),
            checkpoints=(1,), zoo_epochs=2, lrs=None, lr=1e-3, networks=20, skip=("curve", "matched", "cost"),
        )
    )  # fmt: skip
    assert set(rows["reader"]) == {"hyper-boost", "scale-gmn"}
    assert rows["network_params"].iloc[0] == pytest.approx(4322, rel=0.05)
    zoos = table(tmp_path, "metanet_zoos")
    assert zoos["kept"].tolist() == [40]
    assert not (tmp_path / "results" / "metanet_tuning.csv").exists() or len(table(tmp_path, "metanet_tuning")) == 0


def test_residual_networks_and_the_control_that_starts_at_w(tmp_path):
    rows = metanet.run(
        config(
            tmp_path, arch="resnet8", variants=("w-init",), readers=("stats", "gmn", "scale-gmn"),
            networks=20, zoo_epochs=1, lrs=None, lr=1e-3, kappa=0.5, dataset="few_digits:load",
            skip=("curve", "matched", "cost"),
        )
    )  # fmt: skip
    assert set(rows["reader"]) == {"stats", "gmn", "scale-gmn"}
    assert set(rows["kappa"]) == {0.5}
    moved = rows.set_index("reader")[["r2", "r2_permuted", "r2_rescaled"]]
    for row in moved.loc[["scale-gmn"]].to_numpy():
        assert row[1:] == pytest.approx(row[0], rel=1e-3, abs=1e-3)
    for row in moved.loc[["gmn"]].to_numpy():
        assert row[1] == pytest.approx(row[0], rel=1e-3, abs=1e-3)
    params = rows.set_index("reader")["reader_params"]
    assert params["gmn"] == pytest.approx(params["scale-gmn"], rel=0.3)  # at width 2


def test_presets_are_what_they_promise():
    laptop = PRESETS["laptop"]
    assert laptop.networks >= 2_000
    assert {"stats", "stats-boost", "flat", "deepsets", "gmn", "scale-gmn"} <= set(laptop.readers)
    assert laptop.repeats == 3
    assert laptop.sizes[0] == 250
    for preset in PRESETS.values():
        for reader in preset.readers:
            metanet.check_reader(reader)
    assert len(PRESETS["paper"].lrs) == len(PRESETS["paper"].tree_lrs)
    assert len(laptop.lrs) == len(laptop.tree_lrs)


def test_forms_of_graph_readers_are_what_they_say(study):
    folder, _ = study
    readers = ("scale-gmn", "scale-gmn+receiver", "scale-gmn+no-edges", "gmn+no-skips+gauge",
               "scale-gmn-b+shipped")  # fmt: skip
    settings = config(folder, readers=readers, variants=("w", "standard"))
    prepared = metanet.ROOMS.prepare(settings)
    found = {}
    for item in items(settings, prepared):
        some = reading(settings, prepared, item, 1e-3, 0)
        found.setdefault(item.reader, make_reader(some, open_zoo(some.runs, some.zoo)))
    assert found["scale-gmn+receiver"].rounds[0].message.receiver
    assert not found["scale-gmn"].rounds[0].message.receiver
    assert found["scale-gmn+no-edges"].rounds[0].edges is None
    assert found["gmn+no-skips+gauge"].rounds[0].skip is None
    assert found["gmn+no-skips+gauge"].gauge
    assert found["scale-gmn-b+shipped"].form == "shipped"
    masked, plain = (family.readers for family in prepared.families)
    assert plain == readers
    assert masked == tuple(reader for reader in readers if "gauge" not in reader)


def test_rates_are_as_many_for_trees(study):
    folder, _ = study
    prepared = metanet.ROOMS.prepare(config(folder))
    assert rates(prepared, "stats-boost") != rates(prepared, "stats")
    assert dataclasses.is_dataclass(prepared)
