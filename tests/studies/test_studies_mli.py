"""The interpolation study end to end, on networks small enough for tests."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from asym.data import load
from asym.intervals import share_interval
from asym.models import build
from asym.nn import Variant
from asym.populations import Layout
from asym.populations.zoos import draw_recipes
from asym.store import read_table
from studies import mli
from studies.mli_paths import losses, shape_of
from studies.mli_tables import MEANS, SHARES
from studies.tables import VOLATILE

FAST = {"arch": "mlp", "width": 0.0625, "preset": "smoke", "train_size": 200, "eval_images": 50, "quiet": True}
ARGS = ["--arch", "mlp", "--width", "0.0625", "--preset", "smoke", "--train-size", "200", "--eval-images", "50"]


def _config(folder, **options):
    return mli.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


def _stable(table):
    return table.drop(columns=list(VOLATILE)).sort_values(["variant", "network"]).reset_index(drop=True)


@pytest.fixture(scope="module", params=["mlp", "small-cnn"])
def study(request, tmp_path_factory):
    """One network at a time, and three trained together."""
    folder = tmp_path_factory.mktemp("mli")
    options = {"arch": request.param, "width": 1.0 if request.param == "mlp" else 0.25}
    return folder, mli.run(_config(folder, **options)), options


def test_families_are_paired_by_their_hyper_parameters(study):
    _, rows, _ = study
    drawn = draw_recipes("resnet8", 3, 0, epochs_scale=0.2, fixed={"batch_size": 64})
    for _, family in rows.groupby("variant"):
        family = family.sort_values("network")
        for field in ("lr", "weight_decay", "smoothing", "epochs", "warmup", "batch_size"):
            assert list(family[field]) == [getattr(recipe, field) for recipe in drawn]
        assert family["seed"].nunique() == 3
        assert family["mask_seed"].nunique() == 1
    assert set(rows["variant"]) == {"standard", "sigma", "w"}
    assert rows["config"].nunique() == 3


def test_columns_of_the_contract(study):
    _, rows, _ = study
    wanted = ["study", "preset", "config", "arch", "dataset", "variant", "network", "seed", "params", *MEANS, *SHARES,
              "diverged", *VOLATILE]  # fmt: skip
    assert set(wanted) <= set(rows.columns)
    assert rows[wanted].notna().all().all()


def test_measures_are_those_of_the_curves(study):
    folder, rows, _ = study
    curves = read_table(folder / "results" / "mli_curves.csv")
    for row in rows.to_dict("records"):
        curve = curves[(curves["config"] == row["config"]) & (curves["network"] == row["network"])].sort_values("lam")
        assert np.allclose(curve["lam"], np.linspace(0, 1, 25))
        for loss in ("smooth", "train", "test"):
            y = curve[f"{loss}_loss"].to_numpy()
            assert row[f"{loss}_delta"] == max(y[i + 1] - y[i] for i in range(24))
            assert row[f"{loss}_monotone"] == all(y[i + 1] <= y[i] for i in range(24))
            second = [y[i + 1] - 2 * y[i] + y[i - 1] for i in range(1, 24)]
            assert row[f"{loss}_local_convexity"] == pytest.approx(np.mean([s >= 0 for s in second]))
            for name, end in (("global_convexity", y[-1]), ("global_convexity_second", y[1])):
                below = [y[i] <= y[0] + (end - y[0]) * i / 24 for i in range(1, 24)]
                assert row[f"{loss}_{name}"] == pytest.approx(np.mean(below), abs=1e-9)
            assert (row[f"{loss}_loss_start"], row[f"{loss}_loss"]) == (y[0], y[-1])


def test_all_images_give_the_loss_of_a_plain_pass(tmp_path):
    rows = mli.run(_config(tmp_path, networks=1, eval_images=500, variants=("w",)))
    row, data = rows.iloc[0], load("digits", train_size=200)
    network = build("mlp", input_shape=(1, 8, 8), classes=10, width=0.0625,
                    variant=Variant("w", mask_seed=int(row["mask_seed"])), seed=int(row["seed"])).eval()  # fmt: skip

    def smooth_loss():
        with torch.no_grad():
            logits = network(data.normalise(data.train.images))
        return F.cross_entropy(logits, data.train.labels, label_smoothing=row["smoothing"]).item()

    assert row["smooth_loss_start"] == pytest.approx(smooth_loss(), rel=1e-5)
    file = next((tmp_path / "runs" / "population").rglob("tensors.safetensors"))
    Layout.trainable(network).load_(network, load_file(file)["theta"][0])
    assert row["smooth_loss"] == pytest.approx(smooth_loss(), rel=1e-5)
    assert row["smooth_loss"] < row["smooth_loss_start"]


def test_losses_by_hand():
    logits, labels = torch.tensor([[0.0, 0.0], [np.log(3.0), 0.0]]), torch.tensor([0, 1])
    smooth, plain, accuracy = losses(logits, labels, 0.2)
    assert plain == pytest.approx((np.log(2) + np.log(4)) / 2)
    uniform = (np.log(2) + (np.log(4) + np.log(4 / 3)) / 2) / 2
    assert smooth == pytest.approx(0.8 * plain + 0.2 * uniform)
    assert smooth == pytest.approx(F.cross_entropy(logits, labels, label_smoothing=0.2).item(), rel=1e-6)
    assert accuracy == 0.5


def test_the_summary_has_intervals_and_counts(study):
    folder, rows, _ = study
    table = read_table(folder / "results" / "mli_summary.csv")
    assert len(table) == 3
    for row in table.to_dict("records"):
        family = rows[rows["variant"] == row["variant"]]
        assert row["smooth_delta"] == pytest.approx(family["smooth_delta"].mean())
        assert row["smooth_delta_low"] < row["smooth_delta"] < row["smooth_delta_high"]
        assert row["smooth_monotone"] == pytest.approx(family["smooth_monotone"].astype(float).mean())
        wilson = share_interval(int(family["smooth_monotone"].sum()), 3)
        assert (row["smooth_monotone_low"], row["smooth_monotone_high"]) == pytest.approx((wilson.low, wilson.high))
        assert (row["smooth_monotone_n"], row["networks"], row["diverged"]) == (3, 3, 0)
    assert len(read_table(folder / "results" / "mli_by_lr.csv")) >= 3


def test_again_changes_nothing_and_more_networks_add_rows(study):
    folder, rows, options = study
    before = {file.name: file.read_text() for file in (folder / "results").glob("*.csv")}
    mli.run(_config(folder, **options))
    assert {file.name: file.read_text() for file in (folder / "results").glob("*.csv")} == before
    if options["arch"] == "mlp":
        more = mli.run(_config(folder, networks=4, variants=("w",), **options))
        assert sorted(more["network"]) == [0, 1, 2, 3]
        old = rows[rows["variant"] == "w"]
        pd.testing.assert_frame_equal(_stable(more[more["network"] < 3]), _stable(old), check_dtype=False)


def test_a_fixed_recipe_is_another_config(tmp_path):
    rows = mli.run(_config(tmp_path, networks=2, variants=("standard",), lr=0.01, epochs=2, smoothing=0.0))
    assert (set(rows["lr"]), set(rows["epochs"]), set(rows["smoothing"])) == ({0.01}, {2}, {0.0})
    assert rows["weight_decay"].nunique() == 2
    assert list(rows["smooth_delta"]) == list(rows["train_delta"])  # no smoothing: the same loss
    other = mli.run(_config(tmp_path, networks=1, variants=("standard",), epochs=2, smoothing=0.0))
    assert set(other["config"]).isdisjoint(rows["config"])
    table = read_table(tmp_path / "results" / "mli_by_lr.csv")
    assert list(table["networks"]) == [2, 1]


def test_networks_that_diverge_are_rows_that_say_so(tmp_path, capsys):
    config = _config(tmp_path, networks=2, variants=("standard", "w"), lr=1e30, epochs=1, quiet=False)
    args = [*ARGS, "--networks", "2", "--variants", "standard", "w", "--lr", "1e30", "--epochs", "1"]
    assert mli.main([*args, "--out", str(config.out), "--runs", str(config.runs)]) == 0
    assert "+2 diverged" in capsys.readouterr().out
    rows = read_table(config.out / "mli.csv")
    assert (rows["diverged"] > 0).all()
    assert rows["smooth_delta"].isna().all()
    assert rows["smooth_monotone"].isna().all()
    table = read_table(config.out / "mli_summary.csv")
    assert list(table["diverged"]) == [2, 2]
    assert list(table["smooth_monotone_n"]) == [0, 0]
    assert (config.out / "figures").exists()


def test_a_diverged_curve_has_no_shape():
    curve = pd.DataFrame(
        dict.fromkeys(("smooth_loss", "train_loss", "test_loss", "train_acc", "test_acc"), [np.nan] * 5)
    )
    row = shape_of(curve, diverged=True)
    assert row["smooth_monotone"] is None
    assert np.isnan(row["smooth_delta"])


def _command(folder, *more):
    places = ["--out", str(folder / "results"), "--runs", str(folder / "runs")]
    chosen = ["--variants", "standard", "w", "--networks", "2", "--quiet"]
    return [sys.executable, "-m", "studies.mli", *ARGS, *chosen, *places, *more]


def test_killed_and_on_two_processes_the_same_tables_come_out(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(_command(whole, "--jobs", "2"), check=True)
    process = subprocess.Popen(_command(killed), start_new_session=True)
    while not (killed / "runs" / "mli").exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(_command(killed), check=True)
    for name in ("mli", "mli_curves", "mli_summary", "mli_matched"):
        one, two = (read_table(folder / "results" / f"{name}.csv") for folder in (whole, killed))
        order = list(mli.TABLES[name])
        volatile = [c for c in VOLATILE if c in one]
        one, two = (t.drop(columns=volatile).sort_values(order).reset_index(drop=True) for t in (one, two))
        pd.testing.assert_frame_equal(one, two)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--arch", "resnet9"], "resnet8"),
        (["--variants", "standard", "asym"], "w-init"),
        (["--variants", "w", "w"], "named twice"),
        (["--networks", "0"], "--networks"),
        (["--epochs-scale", "0"], "--epochs-scale"),
        (["--epochs-scale", "0.5", "--epochs", "5"], "--epochs"),
        (["--smoothing", "1"], "--smoothing"),
        (["--lr", "-1"], "--lr"),
        (["--points", "2"], "--points"),
        (["--kappa", "1", "--variants", "standard"], "--kappa"),
        (["--variants", "w-scale"], "w-scale"),
        (["--dataset", "no-such-data"], "digits"),
        (["--dataset", "digits-graph"], "digits-graph"),
        (["--arch", "gnn", "--dataset", "digits-graph"], "digits-graph"),
    ],
)
def test_bad_input_is_one_line(args, word, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = ["--preset", "smoke"] if "--arch" in args else ["--preset", "smoke", "--arch", "mlp"]
    assert mli.main([*base, *args]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert word in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert mli.main([*ARGS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "9 networks" in out
    assert "min of training and measuring" in out
    assert list(tmp_path.iterdir()) == []


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom studies import mli\n"
        "try:\n    mli.main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
