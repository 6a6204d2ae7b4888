"""The ablations end to end on networks small enough for tests, and their measures on numbers worked out by hand."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from asym.models import count
from asym.nn import Variant
from asym.populations import runs as runs_module
from asym.store import read_table
from studies import ablate, ablate_measure, ablate_work, lmc
from studies.ablate_factors import FACTORS
from studies.tables import VOLATILE

SMALL = {"arch": "mlp", "width": 0.0625, "preset": "smoke", "train_size": 200, "eval_images": 50, "points": 5,
         "quiet": True}  # fmt: skip
ARGS = ["--arch", "mlp", "--preset", "smoke", "--train-size", "200", "--eval-images", "50", "--points", "5", "--quiet"]


def _config(folder: Path, factor: str, **options):
    places = {"out": folder / "results", "runs": folder / "runs"}
    return ablate.Config(factor=factor, **{**SMALL, **places} | options)


def _table(folder: Path, factor: str, what: str = "") -> pd.DataFrame:
    return read_table(folder / "results" / f"{ablate.table_name(factor)}{what}.csv")


def _places(folder: Path) -> list[str]:
    return ["--out", str(folder / "results"), "--runs", str(folder / "runs")]


def _stable(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=list(VOLATILE)).sort_values(list(ablate.KEY)).reset_index(drop=True)


class Study:
    """One folder in which each factor is run once, when a test first asks for it."""

    def __init__(self, folder: Path):
        self.folder, self.rows = folder, {}

    def table(self, factor: str, what: str = "") -> pd.DataFrame:
        if factor not in self.rows:
            self.rows[factor] = ablate.run(_config(self.folder, factor, **self.options(factor)))
        return _table(self.folder, factor, what)

    @staticmethod
    def options(factor: str):
        return {"grid": 3} if factor == "plane" else {}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Study(tmp_path_factory.mktemp("ablate"))


def _never(*args, **kwargs):
    raise AssertionError("trained again")


@pytest.mark.parametrize("factor", FACTORS)
def test_every_level_has_a_row_a_pair_with_end_points_and_an_interval(factor, study):
    rows = study.table(factor)
    assert not rows.duplicated(list(ablate.KEY)).any()
    assert set(rows.groupby(["level", "variant", "alignment"])["pair"].apply(tuple)) == {(0, 1)}
    assert len(study.rows[factor]) == len(rows)
    assert set(rows["factor"]) == {factor}
    ends = ["loss_a", "loss_b", "acc_a", "acc_b"] if "loss_a" in rows else ["loss", "acc", "loss_worst", "acc_worst"]
    measured = ["barrier_loss_mid", "barrier_acc_mid", *ends]
    told = ["study", "preset", "config", "arch", "dataset", "seed_a", "mask_seed", "params", "lr", "epochs", "wall_s",
            "device", "torch", "commit", "diverged_a", "diverged_b", "epochs_to_target"]  # fmt: skip
    assert set(measured + told) <= set(rows.columns)
    assert rows[measured].notna().all().all()
    summary = study.table(factor, "_summary")
    assert len(summary) == len(rows) / 2
    for row in summary.to_dict("records"):
        part = rows[(rows["level"] == row["level"]) & (rows["variant"] == row["variant"])]
        part = part[part["alignment"] == row["alignment"]]
        assert row["barrier_loss_mid"] == pytest.approx(part["barrier_loss_mid"].mean())
        assert row["barrier_loss_mid_low"] <= row["barrier_loss_mid"] <= row["barrier_loss_mid_high"]
        assert (row["barrier_loss_mid_n"], row["pairs"], row["diverged"]) == (2, 2, 0)
        assert row["loss_low"] <= row["loss"] <= row["loss_high"]


def test_networks_are_those_of_the_connectivity_study(study, tmp_path, monkeypatch):
    zero = study.table("zero")
    study.table("gate")
    monkeypatch.setattr(runs_module, "train_chunk", _never)
    options = {**SMALL, "runs": study.folder / "runs", "out": tmp_path}
    rows = lmc.run(lmc.Config(variants=("standard", "sigma", "w"), **options))
    zero = zero.set_index(["variant", "alignment", "pair"])["barrier_loss_mid"]
    for row in rows[rows["variant"] != "sigma"].to_dict("records"):
        assert zero[row["variant"], row["alignment"], row["pair"]] == row["barrier_loss_mid"]


@pytest.mark.parametrize("factor", ["init", "merge", "plane", "temperature"])
def test_again_changes_nothing_and_trains_nothing(factor, study, monkeypatch):
    study.table(factor)
    files = sorted((study.folder / "results").glob(f"{ablate.table_name(factor)}*.csv"))
    before = [file.read_text() for file in files]
    monkeypatch.setattr(runs_module, "train_chunk", _never)
    ablate.run(_config(study.folder, factor, **study.options(factor)))
    assert [file.read_text() for file in files] == before


def test_all_factors_are_planned_and_run_in_their_order(tmp_path, monkeypatch):
    done = []

    def note(config, prepared):
        done.extend(part.name for part in prepared)
        return pd.DataFrame()

    monkeypatch.setattr(ablate_work, "execute", note)
    ablate.run(_config(tmp_path, "all"))
    assert done == list(FACTORS)


def test_a_merge_of_two_is_the_middle_of_their_line(study):
    key = ["variant", "alignment", "pair"]
    merged = study.table("merge")
    two, three = (merged[merged["k"] == k].set_index(key) for k in (2, 3))
    lines = study.table("zero").set_index(key).loc[two.index]
    np.testing.assert_allclose(two["barrier_loss_mid"], lines["barrier_loss_mid"], atol=1e-5)
    np.testing.assert_allclose(two["loss"], (lines["loss_a"] + lines["loss_b"]) / 2, rtol=1e-6)
    assert (two["barrier_loss_mid"] - three["barrier_loss_mid"]).abs().min() > 1e-4


def test_the_centre_of_the_plane_is_a_merge_of_three(study):
    key = ["variant", "alignment", "pair"]
    merged = study.table("merge")
    three = merged[merged["k"] == 3].set_index(key)["loss_mid"]
    centre = study.table("plane").set_index(key)["loss_mid"]
    np.testing.assert_allclose(centre, three.loc[centre.index], rtol=1e-5)
    grid = study.table("plane", "_grid")
    assert set(grid["pair"]) == {0}
    assert (grid.groupby(["variant", "alignment"]).size() == 3 * 3 + 3).all()


def test_calibration_changes_losses_and_no_accuracy(study):
    key = ["variant", "alignment", "pair"]
    rows = study.table("temperature").set_index(key)
    lines = study.table("zero").set_index(key).loc[rows.index]
    np.testing.assert_allclose(rows["barrier_loss_mid"], lines["barrier_loss_mid"], atol=1e-5)
    np.testing.assert_allclose(rows["barrier_acc_max"], lines["barrier_acc_max"], atol=1e-9)
    assert (rows["temperature_mid"] > 0).all()
    assert (rows["barrier_calibrated_mid"] - rows["barrier_loss_mid"]).abs().min() > 1e-4


def test_a_shorter_training_is_the_beginning_of_the_full_one(study):
    rows = study.table("time")
    full = rows[(rows["value"] == 2) & (rows["variant"] == "w")].set_index("pair")["loss_a"]
    whole = study.table("zero")
    whole = whole[(whole["variant"] == "w") & (whole["alignment"] == "none")].set_index("pair")["loss_a"]
    assert full.to_dict() == whole.to_dict()
    lengths: dict[float, set[int]] = {}
    for file in (study.folder / "runs" / "population").rglob("table-history.parquet"):
        history = pd.read_parquet(file)
        lengths.setdefault(history["train_loss"].iloc[0], set()).add(int(history["epoch"].max()))
    assert sum(epochs == {1, 2} for epochs in lengths.values()) == 4  # two pairs of two variants begin alike


def test_the_smaller_standard_network_has_the_w_network_s_size(study):
    rows = study.table("equal-params")
    size = rows.groupby("level")["params"].first()
    near, far = (abs(size[level] - size["W"]) for level in ("standard, W's parameter count", "standard"))
    assert near < 0.1 * far
    row = rows[rows["level"] == "standard, W's parameter count"].iloc[0]
    shape = {"input_shape": (1, 8, 8), "classes": 10}
    assert row["params"] == count("mlp", variant=Variant(), width=row["width"], **shape)[0]


def test_the_rate_is_tuned_once_for_a_variant_or_at_each_level(tmp_path):
    options = {"lrs": (1e-4, 1e-2), "pairs": 1, "levels": (1.0, 27.0)}
    rows = ablate.run(_config(tmp_path, "bias", **options))
    tuning = _table(tmp_path, "tuning") if (tmp_path / "results" / "ablate_tuning.csv").exists() else pd.DataFrame()
    assert sorted(tuning["variant"]) == ["bias", "bias", "standard", "standard"]
    assert tuning.groupby("variant")["chosen"].sum().tolist() == [1, 1]
    assert rows[rows["variant"] == "bias"]["lr"].nunique() == 1
    ablate.run(_config(tmp_path, "bias", retune=True, **options))
    again = _table(tmp_path, "tuning")
    assert len(again) == 8
    assert set(again["seed"]).isdisjoint({*rows["seed_a"], *rows["seed_b"]})


def test_what_was_measured_before_a_failure_is_kept_and_the_rest_follows(study, tmp_path, monkeypatch):
    whole, calls = study.table("gate"), []

    def fails_late(group):
        calls.append(group)
        if len(calls) == 3:
            raise RuntimeError("power cut")
        return ablate_measure.measure_group(group)

    monkeypatch.setattr(ablate_work, "measure_group", fails_late)
    with pytest.raises(RuntimeError, match="power cut"):
        ablate.run(_config(tmp_path, "gate"))
    assert len(_table(tmp_path, "gate")) == 2
    monkeypatch.setattr(ablate_work, "measure_group", ablate_measure.measure_group)
    ablate.run(_config(tmp_path, "gate"))
    pd.testing.assert_frame_equal(_stable(_table(tmp_path, "gate")), _stable(whole))


@pytest.mark.parametrize("factor", ["gate", "merge", "plane", "temperature"])
def test_diverged_networks_are_rows_that_say_so(factor, tmp_path):
    rows = ablate.run(_config(tmp_path, factor, lr=1e30, pairs=1))
    assert (rows["diverged_a"] > 0).all()
    assert rows[["barrier_loss_mid", "barrier_acc_mid"]].isna().all().all()
    summary = _table(tmp_path, factor, "_summary")
    assert (summary["diverged"] == 1).all()
    assert (summary["barrier_loss_mid_n"] == 0).all()


BAD = [
    ([], "--factor"),
    (["--factor", "kapa"], "kappa-nfix"),
    (["--factor", "lr", "--lr", "0.1"], "--lr: contradicts"),
    (["--factor", "warmup", "--warmup", "1"], "--warmup: contradicts"),
    (["--factor", "syre", "--weight-decay", "1"], "--weight-decay: contradicts"),
    (["--factor", "all", "--levels", "1"], "--levels"),
    (["--factor", "all", "--lr", "0.1"], "--lr: contradicts --factor lr (one of all)"),
    (["--factor", "zero", "--levels", "1"], "--levels"),
    (["--factor", "lr", "--levels", "1", "1"], "twice"),
    (["--factor", "lr", "--levels", "-1"], "--levels"),
    (["--factor", "lr", "--levels"], "--levels"),
    (["--factor", "merge", "--levels", "1"], "at least 2"),
    (["--factor", "merge", "--levels", "2.5"], "whole"),
    (["--factor", "time", "--levels", "30", "--epochs", "20"], "--levels"),
    (["--factor", "time", "--schedule", "cosine"], "--schedule"),
    (["--factor", "lr", "--retune"], "--retune"),
    (["--factor", "bias", "--retune", "--lr", "1e-3"], "--retune"),
    (["--factor", "bias", "--lr", "1e-3", "--lrs", "1e-3", "1e-2"], "--lrs"),
    (["--factor", "bias", "--grid", "9"], "--grid"),
    (["--factor", "plane", "--grid", "1"], "--grid"),
    (["--factor", "bias", "--arch", "small-cnn"], "norms"),
    (["--factor", "bias", "--target-accuracy", "90"], "--target-accuracy"),
    (["--factor", "bias", "--points", "24"], "--points"),
    (["--factor", "bias", "--epochs", "3", "--warmup", "5"], "--warmup"),
    (["--factor", "bias", "--arch", "resnet19"], "resnet20"),
    (["--factor", "bias", "--dataset", "digit"], "digits"),
    (["--factor", "bias", "--pairs", "0"], "--pairs"),
    (["--factor", "bias", "--out", "/dev/null/x"], "--out"),
]


@pytest.mark.parametrize(("args", "word"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_bad_input(args, word, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ablate.main(args) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1, err
    assert word in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_table_is_not_adopted(tmp_path, capsys):
    (tmp_path / "ablate_gate.csv").write_text("a,b\n1,2\n")
    assert ablate.main(["--factor", "gate", *ARGS, "--out", str(tmp_path), "--runs", str(tmp_path / "runs")]) == 2
    assert "ablate_gate.csv" in capsys.readouterr().err


def test_a_damaged_run_is_named_before_work_starts(tmp_path, capsys):
    args = ["--factor", "merge", "--pairs", "1", "--width", "0.0625", *ARGS, *_places(tmp_path)]
    assert ablate.main(args) == 0
    for kind in ("population", "merge"):
        file = next(f for f in sorted((tmp_path / "runs" / kind).rglob("*")) if f.suffix in (".safetensors", ".json")
                    and f.name not in ("config.json",))  # fmt: skip
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        assert ablate.main(args) == 2
        assert "--retrain" in capsys.readouterr().err
        file.write_bytes(content)
    assert ablate.main(args) == 0


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ablate.main(["--factor", "merge", "--width", "0.0625", *ARGS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "together: 16 networks" in out  # two groups of four for each of two variants
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_factors_and_needs_nothing_heavy():
    code = (
        "import sys\nfrom studies import ablate\n"
        "try:\n    ablate.main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in FACTORS)
    assert "--target-accuracy" in done.stdout
