"""The Bayesian study end to end, on networks small enough for tests."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from asym.bayes.guides import DIAGONALS, GUIDES
from asym.bayes.posterior import Posterior
from asym.bayes.priors import FANS
from asym.populations import Architecture
from asym.store import read_table
from studies import bnn, bnn_plane, bnn_setup
from studies.tables import VOLATILE

FAST = {"preset": "smoke", "train_size": 100, "eval_images": 40, "quiet": True}
ARGS = ["--preset", "smoke", "--train-size", "100", "--eval-images", "40"]


def _config(folder, **options):
    return bnn.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


def _stable(table):
    key = ["variant", "method", "config", "instance"]
    return table.drop(columns=list(VOLATILE)).sort_values(key).reset_index(drop=True)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bnn")
    return folder, bnn.run(_config(folder, variants=("standard", "w", "standard-equal")))


def test_one_row_for_each_variant_method_weight_and_instance(study):
    _, rows = study
    found = rows.groupby(["variant", "method", "kl_weight"], dropna=False)["instance"].apply(list)
    for variant in ("standard", "w", "standard-equal"):
        for weight in (0.125, 1.0):
            assert found[variant, "vi", weight] == [0, 1]
        own = rows[rows["variant"] == variant]
        assert list(own.loc[own["method"] == "deterministic", "instance"]) == [0, 1]
        assert list(own.loc[own["method"] == "ensemble", "ensemble"]) == [2]
    assert rows["config"].nunique() == 3 * 4


def test_measures_are_those_of_the_stored_predictions(study):
    folder, rows = study
    measured = ["test_nll", "test_acc", "test_ece", "test_ace", "test_brier"]
    assert rows[measured].notna().all().all()
    single = rows["method"] != "ensemble"
    assert rows.loc[single, ["train_nll", "train_acc"]].notna().all().all()
    vi = rows[rows["method"] == "vi"]
    assert vi[["half_acc", "kl"]].notna().all().all()
    bins = read_table(folder / "results" / "bnn_reliability.csv")
    for row in rows.to_dict("records"):
        own = bins[(bins["config"] == row["config"]) & (bins["instance"] == row["instance"])]
        own = own[(own["method"] == row["method"]) & (own["bins"] == "width")]
        assert (len(own), own["count"].sum()) == (15, 40)
        gap = (own["count"] * (own["accuracy"] - own["confidence"]).abs()).sum() / 40
        assert row["test_ece"] == pytest.approx(gap)
        assert row["test_acc"] == pytest.approx((own["count"] * own["accuracy"]).sum() / 40)


def test_curves_have_every_epoch(study):
    folder, _ = study
    curves = read_table(folder / "results" / "bnn_curves.csv")
    vi = curves[curves["method"] == "vi"]
    assert vi.groupby(["config", "instance"])["epoch"].apply(list).map(lambda e: e == [1, 2]).all()
    assert vi[["train_nll", "kl", "test_acc"]].notna().all().all()


def test_variants_share_seeds_and_equal_size_is_equal(study):
    _, rows = study
    one = rows[(rows["method"] == "vi") & (rows["kl_weight"] == 1.0)]
    seeds = one.groupby("variant")["seed"].apply(list)
    assert seeds["standard"] == seeds["w"] == seeds["standard-equal"]
    assert one["mask_seed"].nunique() == 2
    params = one.groupby("variant")["params"].first()
    assert params["w"] < params["standard"]
    assert abs(params["standard-equal"] - params["w"]) < 0.06 * params["w"]
    for variant in ("standard", "w"):  # mean and four factors of each random entry, norms once
        norms = 2 * 8 * 32
        assert one[one["variant"] == variant]["params_posterior"].iloc[0] == 5 * (params[variant] - norms) + norms


def test_equal_width_of_published_networks():
    for arch in ("mlp-8", "resnet20"):
        whole = Architecture(arch, (3, 32, 32), 10)
        same = dataclasses.replace(whole, width=bnn_setup.equal_width(whole, whole.trainable))
        assert same.trainable == whole.trainable
        narrow = Architecture(arch, (3, 32, 32), 10, bnn_setup.equal_width(whole, int(0.84 * whole.trainable)))
        assert narrow.trainable == pytest.approx(0.84 * whole.trainable, rel=0.03)


def test_differences_are_paired_where_seeds_are_shared(study):
    folder, rows = study
    table = read_table(folder / "results" / "bnn_differences.csv")
    assert set(table["measure"]) >= {"test_nll", "test_acc", "half_acc", "test_ece"}
    one = table[(table["kl_weight"] == 1.0) & (table["measure"] == "test_nll")].set_index(["reference", "variant"])
    assert one.loc[("standard", "w"), "test"] == "paired"
    assert one.loc[("standard", "standard-equal"), "test"] == "welch"
    assert one.loc[("standard-equal", "w"), "test"] == "welch"
    vi = rows[(rows["method"] == "vi") & (rows["kl_weight"] == 1.0)]
    nll = vi.pivot(index="instance", columns="variant", values="test_nll")
    row = one.loc[("standard", "w")]
    assert row["difference"] == pytest.approx((nll["w"] - nll["standard"]).mean())
    assert row["low"] < row["difference"] < row["high"]


def test_ensembles_average_probabilities(study):
    _, rows = study
    own = rows[(rows["variant"] == "w") & (rows["method"].isin(["deterministic", "ensemble"]))]
    single = own[own["method"] == "deterministic"]["test_nll"]
    together = own[own["method"] == "ensemble"]["test_nll"].iloc[0]
    assert together <= single.mean() + 1e-9  # Jensen: −log of a mean is at most the mean of −logs


def test_again_changes_nothing(study):
    folder, _ = study
    files = {f: f.read_text() for f in (folder / "results").glob("*.csv")}
    bnn.run(_config(folder, variants=("standard", "w", "standard-equal")))
    assert {f: f.read_text() for f in (folder / "results").glob("*.csv")} == files


def test_figures(study):
    from figures import bnn as figure

    folder, _ = study
    names = {file.name for file in figure.draw(folder / "results")}
    assert {"bnn_mlp-8_layer_digits_2-epochs_100-images_smoke_curves.png",
            "bnn_mlp-8_layer_digits_2-epochs_100-images_smoke_reliability.pdf"} <= names  # fmt: skip


def test_names_are_those_of_the_library():
    assert bnn.GUIDES == GUIDES
    assert bnn.DIAGONALS == DIAGONALS
    assert bnn.PRIORS == FANS


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--guide", "fullrank"], "--guide"),
        (["--guide", "normal", "--rank", "2"], "--rank"),
        (["--rank", "0"], "--rank"),
        (["--guide", "normal", "--diagonal", "constant"], "--diagonal"),
        (["--prior", "wide"], "--prior"),
        (["--prior-precision", "0"], "--prior-precision"),
        (["--kl-weights", "0"], "--kl-weights"),
        (["--variants", "v"], "--variants"),
        (["--archs", "mlp-9"], "--archs"),
        (["--chains", "4"], "--chains"),
        (["--sampler", "nuts", "--rank", "2"], "--rank"),
        (["--sampler", "nuts", "--tree-depth", "7"], "--tree-depth"),
        (["--sampler", "nuts", "--images", "100000"], "--images"),
        (["--sampler", "nuts", "--hidden", "5", "--features", "2"], "distinct"),
        (["--archs", "mlp-8/group"], "norm"),
    ],
)
def test_bad_input_is_one_line(args, word, tmp_path, capsys):
    base = ["--preset", "smoke", "--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert bnn.main([*base, *args]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert word in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bnn.main([*ARGS, "--variants", "w", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "2 networks" in out
    assert "together" in out
    assert list(tmp_path.iterdir()) == []


def test_what_diverges_is_a_row_that_says_so(tmp_path, monkeypatch, capsys):
    original = Posterior.initial

    def poisoned(self, networks, seeds):
        theta = original(self, networks, seeds)
        theta[0, 0] = float("nan")
        return theta

    monkeypatch.setattr(Posterior, "initial", poisoned)
    args = [*ARGS, "--variants", "w", "--methods", "vi", "--kl-weights", "1"]
    places = ["--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert bnn.main([*args, *places]) == 0
    rows = read_table(tmp_path / "results" / "bnn.csv").sort_values("instance")
    assert list(rows["diverged"]) == [1, 0]
    assert list(rows["test_nll"].isna()) == [True, False]
    assert "(+1 diverged)" in capsys.readouterr().out


@pytest.mark.slow
def test_killed_and_resumed_gives_the_same_rows(tmp_path):
    args = [*ARGS, "--variants", "w", "--methods", "vi", "--kl-weights", "1", "--epochs", "30", "--quiet"]

    def command(name):
        places = ["--out", str(tmp_path / name / "results"), "--runs", str(tmp_path / name / "runs")]
        return [sys.executable, "-m", "studies.bnn", *args, *places]

    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command("killed"), env=environment)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed" / "runs").glob("**/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for name in ("killed", "whole"):
        subprocess.run(command(name), env=environment, check=True)
    killed, whole = (read_table(tmp_path / name / "results" / "bnn.csv") for name in ("killed", "whole"))
    pd.testing.assert_frame_equal(_stable(killed), _stable(whole))


def test_sampling_end_to_end(tmp_path, capsys):
    args = ["--sampler", "nuts", "--preset", "smoke", "--variants", "standard", "w", "--draws", "16", "--warmup", "10",
            "--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]  # fmt: skip
    assert bnn.main(args) == 0
    assert "R̂ weights" in capsys.readouterr().out
    file = tmp_path / "results" / "bnn_nuts.csv"
    rows = read_table(file).set_index(["variant", "activation"])
    assert dict(rows["copies_predicted"]) == {
        ("standard", "tanh"): 8, ("w", "tanh"): 1, ("standard", "relu"): 2, ("w", "relu"): 1
    }  # fmt: skip
    assert rows.loc[("w", "tanh"), "params"] == rows.loc[("standard", "tanh"), "params"] - 2
    numbers = [c for c in rows if c.startswith(("ess", "distance", "test"))]
    assert np.isfinite(rows[numbers].to_numpy(dtype=float)).all()
    assert (rows["distance"] <= 1).all()
    assert (tmp_path / "results" / "figures" / "bnn_nuts_rhat.png").exists()
    assert (tmp_path / "results" / "figures" / "bnn_plane.png").exists()
    before = file.read_text()
    assert bnn.main([*args, "--quiet"]) == 0
    assert file.read_text() == before


def test_modes_of_the_plane_are_those_of_the_group():
    found = {variant: bnn_plane.modes(bnn_plane.posterior(variant, 0)[2]) for variant in bnn_plane.VARIANTS}
    assert found["standard"] == 8  # 2! · 2²
    assert found["w"] == 1
    assert found["sigma"] < 8
    _, _, log_p = bnn_plane.posterior("standard", 0)
    grid = log_p.reshape(bnn_plane.SIDE, bnn_plane.SIDE)
    np.testing.assert_allclose(grid, grid.T, atol=1e-8)
    np.testing.assert_allclose(grid, grid[::-1], atol=1e-8)
    w = bnn_plane.posterior("w", 0)[2].reshape(grid.shape)
    assert np.abs(w - w.T).max() > 1
