"""The study of readers of transformers end to end, on networks small enough for tests."""

import re
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from transformer_files import published

from asym.rank_metrics import kendall
from asym.store import read_table
from asym.symmetry.attention import FACTORS, RESIDUAL_FACTORS
from figures import transformer_metanet as figures
from studies import transformer_metanet as study
from studies.tables import VOLATILE
from studies.transformer_metanet_read import MOVES, open_zoo, read, splits_of
from studies.transformer_metanet_setup import items, reading

FAST = {"preset": "smoke", "networks": 20, "readers": ("nfn", "stats", "hyper-boost"), "quiet": True}
ARGS = ["--preset", "smoke", "--networks", "20", "--readers", "nfn", "stats", "hyper-boost"]


def _config(folder, **options):
    return study.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transformers")
    return folder, study.run(_config(folder))


def test_rows_and_their_columns(done):
    folder, rows = done
    wanted = {"study", "preset", "config", "arch", "dataset", "kind", "reader", "threshold", "split", "tau", "r2",
              "mae", "params", "seed", "reader_seed", "train_networks", "test_networks", *VOLATILE}  # fmt: skip
    assert wanted <= set(rows.columns)
    assert len(rows) == 2 * (3 + 3 + 2)  # zoos × (random, held out, augmented without hyper-parameters)
    assert set(rows["kind"]) == {"one-seed", "many-seeds"}
    summary = read_table(folder / "results" / "transformer_metanet_summary.csv")
    assert len(summary) == len(rows)
    differences = read_table(folder / "results" / "transformer_metanet_differences.csv")
    assert set(differences["other_reader"]) == {"nfn"}


def test_tau_is_that_of_the_kept_predictions_and_nfn_does_not_move(done):
    folder, rows = done
    config = _config(folder)
    prepared = study.ROOMS.prepare(config)
    item = next(i for i in items(config, prepared) if i.reader == "nfn" and i.part == "random")
    result = read(reading(config, prepared, item, 0))
    row = rows[(rows["reader"] == "nfn") & (rows["split"] == "random") & (rows["kind"] == item.family.kind)].iloc[0]
    truth, test = result.predictions["truth"], result.predictions["test"]
    assert row["tau"] == pytest.approx(kendall(truth, test), nan_ok=True)
    assert set(MOVES) < set(result.predictions)
    moves = read_table(folder / "results" / "transformer_metanet_moves.csv")
    published = moves[(moves["reader"] == "nfn") & moves["move"].isin(FACTORS)]
    assert len(published) == 2 * 5
    assert published["largest_difference"].max() < 1e-4
    assert moves[(moves["reader"] == "nfn") & (moves["move"] == "relu-scale")]["largest_difference"].min() > 1e-6
    assert moves[(moves["reader"] == "stats") & (moves["move"] == "query-key")]["largest_difference"].min() > 1e-6


def test_published_layers_are_at_chance_about_pairs_of_heads(done):
    folder, _ = done
    heads = read_table(folder / "results" / "transformer_metanet_heads.csv")
    blind = heads[heads["reader"] == "nfn-encoder"]
    assert len(blind) == 2
    assert (blind["largest_difference"] < 1e-4).all()
    assert (heads[heads["reader"] == "nfn-heads"]["largest_difference"] > 1e-6).all()


def test_one_seed_starts_alike_and_held_out_rates_are_apart(done):
    folder, _ = done
    config = _config(folder)
    prepared = study.ROOMS.prepare(config)
    for item in items(config, prepared):
        zoo = open_zoo(reading(config, prepared, item, 0))
        assert zoo.zoo.table["seed"].nunique() == (1 if item.family.kind == "one-seed" else len(zoo.zoo))
        if item.part == "held-out":
            places = splits_of(reading(config, prepared, item, 0), zoo)
            rates = {name: set(zoo.zoo.table["lr"].to_numpy()[part]) for name, part in places.items()}
            assert not rates["test"] & (rates["train"] | rates["val"])
            assert not np.intersect1d(places["train"], places["val"]).size


def test_again_changes_nothing(done):
    folder, rows = done
    before = {file.name: file.read_text() for file in (folder / "results").glob("*.csv")}
    again = study.run(_config(folder))
    assert {file.name: file.read_text() for file in (folder / "results").glob("*.csv")} == before
    pd.testing.assert_frame_equal(again, rows)


def test_figures(done):
    folder, _ = done
    files = figures.draw(folder / "results")
    assert {file.suffix for file in files} == {".png", ".pdf"}
    assert all(file.stat().st_size > 1000 for file in files)


def test_a_lost_reading_is_done_again_alone(done, tmp_path):
    folder, rows = done
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    lost = next((copy / "runs" / "transformer-metanet").iterdir())
    shutil.rmtree(lost)
    shutil.rmtree(copy / "results")
    again = study.run(_config(copy))
    key = ["kind", "reader", "split", "repeat"]
    stable = [c for c in rows.columns if c not in (*VOLATILE, "epoch_s")]
    left, right = (t.sort_values(key)[stable].reset_index(drop=True) for t in (again, rows))
    pd.testing.assert_frame_equal(left, right)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--readers", "nfm"], "unknown 'nfm'.*did you mean nfn"),
        (["--readers", "nfn+gauge"], "valid: canonical"),
        (["--thresholds", "1.5"], "fractions"),
        (["--dim", "5"], "two heads"),
        (["--networks", "3"], "at least 20"),
        (["--spreads", "0"], "positive"),
        (["--thresholds", "0", "0.5", "0"], "--thresholds: given twice in 0 0.5 0"),
        (["--zoos", "two-seeds"], "one-seed"),
        (["--files", "nowhere"], "is not a folder"),
        (["--dataset", "digits-graph"], "no images"),
        (["--skip", "everything"], "held-out"),
        (["--arch", "mlp"], "transformer-causal"),
        (["--arch", "transformer", "--readers", "flat+canonical"], "not known for --arch transformer"),
        (["--dataset", "ag_news", "--data-dir", "nowhere"], "nowhere is not a folder"),
        (["--spreads"], "--spreads: got none"),
        (["--spreads", "2", "--skip", "augmented"], "--spreads: has no meaning with augmented in --skip"),
        (["--readers", "hyper-boost+canonical"], r"--readers: hyper-boost\+canonical reads no weights"),
        (["--readers", "stats+"], "add-on ''; valid: canonical"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(extra, message, tmp_path, capsys):
    folders = ["--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    base = [] if extra[0] == "--files" else ARGS
    assert study.main([*base, *extra, *folders]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(message, err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("reader", "library", "instead"),
    [("xgboost", "xgboost", "boost"), ("lightgbm", "lightgbm", "boost"), ("lightgbm-forest", "lightgbm", "forest")],
)
def test_a_missing_library_stops_before_work(reader, library, instead, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    folders = ["--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert study.main([*ARGS, "--readers", "nfn", reader, *folders]) == 2
    err = capsys.readouterr().err
    assert f"--readers: {reader} needs the library {library}, which is not installed" in err
    assert f'pip install -e ".[boost]", or read with {instead}, which works without' in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_dry_run_writes_nothing(tmp_path, capsys):
    folders = ["--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert study.main([*ARGS, "--dry-run", *folders]) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arch", "dataset"), [("transformer", "docstrings"), ("transformer-causal", "characters")], ids=str
)
def test_zoos_on_text_of_ordinary_transformers_and_of_language_models(arch, dataset, tmp_path):
    rows = study.run(_config(
        tmp_path, arch=arch, dataset=dataset, zoos=("many-seeds",), readers=("nfn-heads", "stats"),
        skip=("held-out", "augmented", "heads"),
    ))  # fmt: skip
    assert set(rows["dataset"]) == {dataset}
    moves = read_table(tmp_path / "results" / "transformer_metanet_moves.csv")
    moves = moves[moves["reader"] == "nfn-heads"].set_index("move")["largest_difference"]
    known = RESIDUAL_FACTORS if arch == "transformer" else FACTORS
    assert moves[list(known)].max() < 1e-4
    assert ("out" in moves.index) == (arch != "transformer")  # where it is no symmetry nobody is asked about it
    assert moves["next-shift"] > 1e-6
    assert all(f"_{arch}_" in file.name for file in figures.draw(tmp_path / "results"))


def test_a_threshold_that_leaves_too_few_of_a_trained_zoo_says_what_can_be_given(tmp_path, capsys):
    folders = ["--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    alone = ["--zoos", "many-seeds", "--skip", "held-out", "augmented", "heads", "moves", "--quiet"]
    words = [*ARGS[:4], "--readers", "stats", *alone, *folders]
    assert study.main([*words, "--thresholds", "0", "0.999"]) == 1
    err = capsys.readouterr().err
    found = re.search(r"--thresholds: 0\.999 leaves \d networks of 20, 10 are needed; valid: up to (\S+);", err)
    assert found
    assert err.count("\n") == 1
    assert "same command" not in err
    assert not list(tmp_path.glob("results/*"))  # readers below other thresholds have not been trained in vain
    assert study.main([*words, "--thresholds", found[1]]) == 0


def small_files(folder, count=24):
    """Accuracies of 10 % to 99 %."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for k in range(count):
        accuracy = int(torch.randint(1000, 9900, (1,), generator=generator))
        torch.save(published(k, width=0.125), folder / f"r{k}_75_{accuracy}.pt")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--arch", "transformer"], "--arch: has no meaning with --files"),
        (["--zoos", "one-seed"], "--zoos: has no meaning with --files"),
        (["--spreads", "2"], "--spreads: has no meaning with --files"),
        (["--data-dir", "."], "--data-dir: has no meaning with --files"),
        (["--heads", "3"], r"--heads: 3 do not divide the 4 rows of .*; valid: 1, 2, 4$"),
        (
            ["--thresholds", "0.999"],
            r"--thresholds: 0\.999 leaves 0 networks of 24, 10 are needed; valid: up to 0\.\d+$",
        ),
        (["--files", "few"], "--files: few has 4 networks that can be read, 10 are needed"),
        (["--files", "none"], "--files: zoo: none has no file <run>_75_<acc>.pt"),
    ],
)
def test_bad_input_about_files_is_one_line_and_writes_nothing(extra, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small_files(tmp_path / "zoo")
    small_files(tmp_path / "few", 4)
    (tmp_path / "none").mkdir()
    files = [] if extra[0] == "--files" else ["--files", "zoo"]
    assert study.main(["--preset", "smoke", "--readers", "stats", *files, *extra]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(message, err.strip())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few", "none", "zoo"]


def test_published_files_are_read(tmp_path):
    folder = tmp_path / "MNIST-Transformers"
    small_files(folder)
    (folder / "cut_75_7000.pt").write_bytes(b"nothing")
    rows = study.run(study.Config(
        preset="smoke", files=folder, readers=("nfn", "stats"), quiet=True, skip=("heads", "moves"),
        dataset_name="published", out=tmp_path / "results", runs=tmp_path / "runs",
    ))  # fmt: skip
    assert set(rows["reader"]) == {"nfn", "stats"}
    assert set(rows["dataset"]) == {"published"}
    zoos = read_table(tmp_path / "results" / "transformer_metanet_zoos.csv")
    assert zoos[["kept", "left_out"]].iloc[0].tolist() == [24, 1]
