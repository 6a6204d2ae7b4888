"""Readers of published zoos: from files to tables, what such zoos cannot say, and what stops before any work."""

import numpy as np
import pandas as pd
import pytest
from published_zoos import asymmetric_files, small_cnn_files

from asym.data.zoos import split_runs
from asym.store import CorruptRun, config_hash, read_table
from studies import metanet, metanet_files
from studies.metanet_read import TEST_SHARE, VAL_SHARE, open_zoo

FAST = {"preset": "smoke", "reader_width": 2, "epochs": 2, "lrs": (1e-3,), "sizes": (), "quiet": True}


def config(folder, **options):
    return metanet.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


def test_the_small_cnn_zoo_is_read_like_a_zoo_of_our_own(tmp_path):
    files = tmp_path / "zoo"
    files.mkdir()
    weights = small_cnn_files(files, runs=30)
    given = config(tmp_path, files=files, readers=("stats", "hyper-boost", "gmn+gauge", "scale-gmn"))
    rows = metanet.run(given)
    assert set(rows["reader"]) == {"stats", "hyper-boost", "gmn+gauge", "scale-gmn"}
    assert set(rows["variant"]) == {"files"}
    assert set(rows["dataset"]) == {"zoo"}
    assert set(rows["networks"]) == {30}
    assert np.isfinite(rows["tau"][rows["reader"] != "hyper-boost"]).all()  # 18 networks are one leaf: no order
    (zoo,) = open_zoo(str(tmp_path / "runs"), config_hash(metanet_files.zoo_config(files))).parts
    biases = np.sort(zoo.tensors["convs.0.bias"].numpy().ravel())
    np.testing.assert_array_equal(biases, np.sort(weights[1::2, :16].ravel()))  # every second row is of the last step
    assert set(zoo.table["activation"]) == {"relu", "tanh"}
    assert {"lr", "weight_decay", "dropout"} <= set(zoo.table)
    again = metanet.run(given)
    assert again.equals(rows)
    # A zoo smaller than a reader's batch is estimated by what there is of it.
    assert metanet.main(["--preset", "smoke", "--files", str(files), "--dry-run", "--readers", "gmn",
                         "--runs", str(tmp_path / "none"), "--out", str(tmp_path / "none")]) == 0  # fmt: skip
    # Damage of the kept zoo is found before work starts.
    tensors = next((tmp_path / "runs").glob("zoo*/**/*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-8])
    with pytest.raises(CorruptRun, match="retrain"):
        metanet.ROOMS.prepare(given)
    assert read_table(tmp_path / "results" / "metanet_zoos.csv")["kept"].tolist() == [30]


def test_the_zoo_of_asymmetric_networks_is_read_by_readers_that_need_no_chain(tmp_path):
    files = tmp_path / "zoo"
    files.mkdir()
    asymmetric_files(files, np.linspace(30.0, 80.0, 12).tolist())
    rows = metanet.run(config(tmp_path, files=files))
    assert set(rows["reader"]) == {"stats"}  # of the preset's: no chains, no hyper-parameters
    assert set(rows["arch"]) == {"files"}


def test_files_that_change_are_another_zoo_in_the_same_process(tmp_path):
    files = tmp_path / "zoo"
    files.mkdir()
    asymmetric_files(files, np.linspace(30.0, 80.0, 12).tolist())
    first = metanet.run(config(tmp_path, files=files))
    asymmetric_files(files, np.linspace(80.0, 30.0, 12).tolist())
    second = metanet.run(config(tmp_path, files=files))
    assert set(first["config"]).isdisjoint(second["config"])
    fresh = metanet.run(config(tmp_path / "fresh", files=files))
    assert second["mae"].tolist() == fresh["mae"].tolist() != first["mae"].tolist()


def test_networks_too_small_for_a_reader_stop_before_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(metanet_files, "FEWEST", 10**9)
    files = tmp_path / "zoo"
    files.mkdir()
    asymmetric_files(files, np.linspace(30.0, 80.0, 12).tolist())
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert metanet.main(["--preset", "smoke", "--files", str(files), "--readers", "dmc", *places]) == 2
    assert "--readers: dmc needs networks of 1000000000 weights or more" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_zoo_smaller_than_the_curve_of_the_preset_is_read(tmp_path):
    files = tmp_path / "zoo"
    files.mkdir()
    small_cnn_files(files, runs=15)
    prepared = metanet.ROOMS.prepare(config(tmp_path, files=files, readers=("stats",), sizes=None))
    assert prepared.defaults.networks == 15


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--networks", "100"], "--networks: has no meaning with --files"),
        (["--variants", "w"], "--variants: has no meaning with --files"),
        (["--data-dir", "zoo"], "--data-dir: has no meaning with --files"),
        (["--readers", "stats"], "3 networks of 3 trainings (files), too few to split"),
        (["--readers", "scale-gmn"], "--readers: scale-gmn cannot read"),
        (["--readers", "hyper-boost"], "--readers: hyper-boost cannot read"),
        (["--files", "nowhere"], "--files: nowhere is not a folder"),
        (["--files", "."], "no files *.pt"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, args, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    asymmetric_files(tmp_path / "zoo")
    if "--files" not in args:
        args = ["--files", "zoo", *args]
    assert metanet.main(["--preset", "smoke", *args]) == 2
    err = capsys.readouterr().err
    assert word in err
    assert err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["zoo"]


@pytest.mark.parametrize(
    ("column", "value", "word"),
    [
        ("config.activation", "swish", "zoo: metrics.csv.gz: config.activation is 'swish'; valid: relu, tanh, gelu"),
        ("modeldir", "/zoo/0", "has 30 networks of 1 trainings (values of modeldir), too few to split"),
    ],
)
def test_a_table_that_no_reader_can_use_is_one_line(tmp_path, capsys, column, value, word):
    files = tmp_path / "zoo"
    files.mkdir()
    small_cnn_files(files, runs=30)
    table = pd.read_csv(files / "metrics.csv.gz").assign(**{column: value})
    table.to_csv(files / "metrics.csv.gz", index=False)
    places = ["--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert metanet.main(["--preset", "smoke", "--files", str(files), *places]) == 2
    err = capsys.readouterr().err
    assert f"--files: {files}" in err
    assert word in err
    assert err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["zoo"]


@pytest.mark.parametrize("runs", range(12, 60))
def test_enough_trainings_give_two_networks_to_every_split(runs):
    parts = split_runs(range(runs), val=VAL_SHARE, test=TEST_SHARE, seed=0)
    assert metanet_files.ENOUGH == 12
    assert min(map(len, parts.values())) >= 2


def test_other_files_are_another_zoo(tmp_path):
    asymmetric_files(tmp_path, (50.0, 60.0))
    before = metanet_files.zoo_config(tmp_path)
    assert metanet_files.zoo_config(tmp_path) == before
    asymmetric_files(tmp_path, (50.0, 60.0, 70.0))
    assert metanet_files.zoo_config(tmp_path) != before


def test_changed_contents_are_another_zoo_though_names_and_sizes_stay(tmp_path):
    asymmetric_files(tmp_path, (50.0, 60.0))
    before = metanet_files.zoo_config(tmp_path)
    first = min(tmp_path.glob("*.pt"))
    size = first.stat().st_size
    data = bytearray(first.read_bytes())
    data[size // 2] ^= 1
    first.write_bytes(bytes(data))
    assert first.stat().st_size == size
    assert metanet_files.zoo_config(tmp_path) != before
