"""The connectivity study end to end, on networks small enough for tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from asym.store import read_table
from studies import lmc
from studies.tables import VOLATILE

FAST = {"arch": "mlp", "width": 0.0625, "preset": "smoke", "train_size": 200, "eval_images": 50, "quiet": True}
ARGS = ["--arch", "mlp", "--width", "0.0625", "--preset", "smoke", "--train-size", "200", "--eval-images", "50"]


def _config(folder: Path, **options):
    return lmc.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


def _stable(table: pd.DataFrame) -> pd.DataFrame:
    key = ["variant", "alignment", "pair"]
    return table.drop(columns=list(VOLATILE)).sort_values(key).reset_index(drop=True)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lmc")
    return folder, lmc.run(_config(folder))


def test_one_row_for_each_variant_alignment_and_pair(study):
    _, rows = study
    found = rows.groupby(["variant", "alignment"])["pair"].apply(list).to_dict()
    assert found == {("standard", "none"): [0, 1], ("standard", "weight"): [0, 1], ("sigma", "none"): [0, 1],
                     ("w", "none"): [0, 1]}  # fmt: skip


def test_alignments_of_earlier_runs_stay_in_the_tables_but_are_not_this_runs(study):
    folder, _ = study
    config = _config(folder, variants=("standard",), alignments=("none",))
    jobs = lmc.ROOMS.prepare(config)
    rows = lmc.ROOMS.execute(config, jobs)
    assert set(rows["alignment"]) == {"none"}
    lines = lmc.ROOMS.summary_text(config, jobs, rows).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("standard")] == ["none"]
    for name in ("lmc", "lmc_summary"):
        table = read_table(folder / "results" / f"{name}.csv")
        assert set(table[table["variant"] == "standard"]["alignment"]) == {"none", "weight"}


def test_columns_of_the_contract(study):
    _, rows = study
    measured = [f"{m}_{net}" for m in ("loss", "acc") for net in "ab"]
    measured += [f"barrier_{m}_{k}" for m in ("loss", "acc") for k in ("mid", "max")]
    wanted = ["arch", "dataset", "variant", "alignment", "pair", "seed_a", "seed_b", "params", *measured]
    wanted += [f"train_{m}" for m in measured] + ["wall_s", "device", "torch", "commit", "config", "preset", "study"]
    assert set(wanted) <= set(rows.columns)
    assert rows[measured].notna().all().all()


def test_barriers_are_those_of_the_curves(study):
    folder, rows = study
    curves = read_table(folder / "results" / "lmc_curves.csv")
    for row in rows.to_dict("records"):
        key = (curves["config"] == row["config"]) & (curves["alignment"] == row["alignment"])
        curve = curves[key & (curves["pair"] == row["pair"]) & (curves["split"] == "test")].sort_values("lam")
        assert len(curve) == 25
        loss, lam = curve["loss"].to_numpy(), curve["lam"].to_numpy()
        excess = loss - ((1 - lam) * loss[0] + lam * loss[-1])
        assert row["barrier_loss_mid"] == pytest.approx(excess[12])
        assert row["barrier_loss_max"] == pytest.approx(excess.max())
        acc = curve["acc"].to_numpy()
        assert row["barrier_acc_mid"] == pytest.approx((acc[0] + acc[-1]) / 2 - acc[12])
        assert (row["loss_a"], row["acc_b"]) == (loss[0], acc[-1])


def test_alignment_keeps_the_networks_and_moves_the_middle(study):
    _, rows = study
    both = rows[rows["variant"] == "standard"].set_index(["alignment", "pair"])
    for pair in (0, 1):
        plain, matched = both.loc[("none", pair)], both.loc[("weight", pair)]
        assert matched["loss_b"] == pytest.approx(plain["loss_b"], rel=1e-4)
        assert matched["barrier_loss_mid"] != plain["barrier_loss_mid"]
        assert matched["objective"] > 0
        assert np.isnan(plain["objective"])
        # Permuting keeps norms, and |a − b|² = |a|² + |b|² − 2 ⟨a, b⟩ with the inner product that matching maximises.
        assert matched["weight_norm"] == pytest.approx(plain["weight_norm"])
        assert matched["distance"] < plain["distance"]
        product = matched["weight_norm"] ** 2 - matched["distance"] ** 2 / 2
        assert product == pytest.approx(matched["objective"], rel=1e-3)


def test_pairs_share_masks_within_and_differ_between(study):
    _, rows = study
    w = rows[rows["variant"] == "w"]
    assert w["mask_seed"].nunique() == 2
    assert len({*w["seed_a"], *w["seed_b"]}) == 4
    standard = rows[(rows["variant"] == "standard") & (rows["alignment"] == "none")]
    assert list(standard["seed_a"]) == list(w["seed_a"])  # the same initial weights where variants share them


def test_the_summary_groups_by_config_with_intervals(study):
    folder, rows = study
    summary = read_table(folder / "results" / "lmc_summary.csv")
    assert len(summary) == 4
    for row in summary.to_dict("records"):
        part = rows[(rows["variant"] == row["variant"]) & (rows["alignment"] == row["alignment"])]
        assert row["barrier_loss_mid"] == pytest.approx(part["barrier_loss_mid"].mean())
        assert row["barrier_loss_mid_low"] < row["barrier_loss_mid"] < row["barrier_loss_mid_high"]
        assert row["loss"] == pytest.approx(part[["loss_a", "loss_b"]].to_numpy().mean())
        assert (row["loss_n"], row["pairs"], row["diverged"]) == (2, 2, 0)


def test_again_changes_nothing_and_more_pairs_add_rows(study, monkeypatch):
    folder, rows = study
    file = folder / "results" / "lmc.csv"
    before = file.read_text()
    lmc.run(_config(folder))
    assert file.read_text() == before  # the stored wall time too
    more = lmc.run(_config(folder, pairs=3, variants=("w",)))
    assert list(more["pair"]) == [0, 1, 2]
    table = read_table(file)
    assert len(table) == len(rows) + 1
    pd.testing.assert_frame_equal(_stable(table[table["pair"] < 2]), _stable(rows), check_dtype=False)


def test_another_setting_is_another_config(study):
    folder, rows = study
    other = lmc.run(_config(folder, variants=("w",), kappa=0.5, pairs=1))
    assert set(other["config"]).isdisjoint(rows["config"])
    assert list(other["kappa"].astype(str)) == ["0.5"]


def test_tuning_chooses_by_validation_loss_and_is_kept(tmp_path):
    config = _config(tmp_path, variants=("standard",), pairs=1, lrs=(1e-5, 1e-2))
    rows = lmc.run(config)
    tuning = read_table(tmp_path / "results" / "lmc_tuning.csv")
    assert list(tuning["lr"]) == [1e-5, 1e-2]
    best = tuning.loc[tuning["val_loss"].idxmin(), "lr"]
    assert list(tuning.loc[tuning["chosen"], "lr"]) == [best]
    assert set(rows["lr"]) == {best}
    assert set(tuning["seed"]).isdisjoint({*rows["seed_a"], *rows["seed_b"]})


def test_a_diverged_pair_is_a_row_that_says_so(tmp_path):
    rows = lmc.run(_config(tmp_path, variants=("standard",), pairs=1, lr=1e30))
    assert (rows["diverged_a"] > 0).all()
    assert rows["barrier_loss_mid"].isna().all()
    summary = read_table(tmp_path / "results" / "lmc_summary.csv")
    assert list(summary["diverged"]) == [1, 1]


def test_no_rate_is_chosen_where_all_diverge(tmp_path, capsys):
    args = [*ARGS, "--variants", "standard", "--pairs", "1", "--lrs", "1e30", "1e31", "--quiet"]
    assert lmc.main([*args, "--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]) == 1
    assert "every learning rate diverged for standard" in capsys.readouterr().err


def test_hashes_that_look_like_numbers_and_data_sets_called_na(tmp_path):
    """`9230513691e8` is a config hash and a number, `NA` a folder and a missing value: both are text here."""
    rows = lmc.run(_config(tmp_path, variants=("standard",), pairs=1, epochs=1, dataset_name="NA"))
    assert len(rows) == 2
    for name in ("lmc", "lmc_curves", "lmc_summary"):
        file = tmp_path / "results" / f"{name}.csv"
        file.write_text(file.read_text().replace(rows["config"].iloc[0], "9230513691e8"))
        assert set(read_table(file)["config"]) == {"9230513691e8"}
    summary = read_table(tmp_path / "results" / "lmc_summary.csv")
    assert set(summary["dataset"]) == {"NA"}
    from figures import lmc as figure

    assert next(file.name for file in figure.draw(tmp_path / "results")).startswith("lmc_mlp_NA_")


@pytest.mark.parametrize("variant", ["w-zero", "w-init", "w-scale", "bias"])
def test_controls_run(variant, tmp_path):
    options = {"align_asymmetric": True} if variant == "w-zero" else {}
    if variant == "w-scale":  # for the MLP it is the standard network
        options = {"arch": "resnet8", "width": 0.25}
    rows = lmc.run(_config(tmp_path, variants=(variant,), pairs=1, epochs=1, **options))
    assert sorted(rows["alignment"]) == ["none", "weight"]


def test_batch_norm_and_activation_matching(tmp_path):
    rows = lmc.run(
        _config(
            tmp_path, arch="resnet8", width=0.25, norm="batch", variants=("standard",), pairs=1, epochs=1,
            alignments=("none", "activation", "weight"),
        )
    )  # fmt: skip
    assert sorted(rows["alignment"]) == ["activation", "none", "weight"]
    assert rows["barrier_loss_mid"].notna().all()
    # Statistics are re-estimated at the end points too, the same way for every alignment.
    assert rows["loss_b"].max() == pytest.approx(rows["loss_b"].min(), rel=1e-3)


def _command(folder, *more):
    return [sys.executable, "-m", "studies.lmc", *ARGS, "--variants", "standard", "w", "--out",
            str(folder / "results"), "--runs", str(folder / "runs"), *more]  # fmt: skip


def test_killed_at_any_moment_the_same_table_comes_out(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    args = ["--epochs", "6", "--pairs", "2", "--quiet"]
    subprocess.run(_command(whole, *args), check=True)
    for wait in (0.5, 1.5):  # seconds after the first run's folder appears
        process = subprocess.Popen(_command(killed, *args), start_new_session=True)
        while not (killed / "runs" / "population").exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(wait)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(_command(killed, *args), check=True)
    tables = [read_table(folder / "results" / "lmc.csv") for folder in (whole, killed)]
    pd.testing.assert_frame_equal(*map(_stable, tables))
    curves = [read_table(folder / "results" / "lmc_curves.csv") for folder in (whole, killed)]
    pd.testing.assert_frame_equal(*(c.sort_values(list(c.columns[:6])).reset_index(drop=True) for c in curves))


def test_processes_change_no_bit_and_weights_are_equal_across_processes(tmp_path):
    for folder, jobs in (("one", "1"), ("two", "2")):
        subprocess.run(_command(tmp_path / folder, "--jobs", jobs, "--quiet"), check=True)
    one, two = (read_table(tmp_path / folder / "results" / "lmc.csv") for folder in ("one", "two"))
    pd.testing.assert_frame_equal(_stable(one), _stable(two))
    files = sorted((tmp_path / "one" / "runs" / "population").rglob("tensors.safetensors"))
    assert len(files) == 4  # two pairs of two variants
    for file in files:
        assert file.read_bytes() == (tmp_path / "two" / file.relative_to(tmp_path / "one")).read_bytes()


def test_a_damaged_run_is_named_and_retrained_on_request(tmp_path, capsys):
    args = [*ARGS, "--variants", "standard", "--pairs", "1", "--out", str(tmp_path / "results"), "--runs",
            str(tmp_path / "runs"), "--quiet"]  # fmt: skip
    assert lmc.main(args) == 0
    before = read_table(tmp_path / "results" / "lmc.csv")
    file = next((tmp_path / "runs" / "population").rglob("tensors.safetensors"))
    file.write_bytes(file.read_bytes()[:-100])
    assert lmc.main(args) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(file) in err
    assert "--retrain" in err
    assert lmc.main([*args, "--retrain"]) == 0
    pd.testing.assert_frame_equal(_stable(read_table(tmp_path / "results" / "lmc.csv")), _stable(before))


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lmc.main([*ARGS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "12 networks" in out
    assert "min of training" in out
    assert list(tmp_path.iterdir()) == []


def test_own_architecture_and_data_from_the_shell(tmp_path, monkeypatch):
    (tmp_path / "mine_lmc.py").write_text(
        "import torch\nfrom torch import nn\nfrom asym.data import Augment, Split, image_data\n"
        "def net(input_shape, classes):\n"
        "    c, h, w = input_shape\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, 12), nn.ReLU(), nn.Linear(12, classes))\n"
        "def toy():\n"
        "    g = torch.Generator().manual_seed(0)\n"
        "    x = torch.randint(0, 256, (60, 1, 4, 4), generator=g, dtype=torch.uint8)\n"
        "    y = (x.float().mean((1, 2, 3)) > 127).long()\n"
        "    s = [Split(x[i : i + 20].clone(), y[i : i + 20].clone()) for i in (0, 20, 40)]\n"
        "    return image_data('toy', train=s[0], val=s[1], test=s[2], class_names=('low', 'high'),\n"
        "                      mean=(127.0,), std=(70.0,), augment=Augment(0, False))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = lmc.run(
        lmc.Config(
            arch="mine_lmc:net", dataset="mine_lmc:toy", preset="smoke", pairs=1, quiet=True,
            out=tmp_path / "results", runs=tmp_path / "runs",
        )
    )  # fmt: skip
    assert set(rows["dataset"]) == {"toy"}
    assert sorted(rows["variant"].unique()) == ["sigma", "standard", "w"]
