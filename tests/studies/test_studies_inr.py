"""The study of implicit networks end to end, on networks small enough for tests."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from asym.data import load
from asym.populations.sirens import SirenRecipe, fit_sirens, pieces_of, unit_images
from asym.store import read_table
from figures import inr as figure
from studies import inr, inr_read
from studies.inr_build import build_reader, matched_size, parameters
from studies.inr_read import dilate, load_sets, moved
from studies.inr_tables import MEAN_IMAGE, NO_EDIT, OF_TASK, picture
from studies.tables import VOLATILE

FAST = {"preset": "smoke", "train_size": 40, "fit_steps": 30, "siren_width": 5, "reader_width": 4, "epochs": 1,
        "quiet": True}  # fmt: skip
ARGS = [arg for flag in ("train-size 40", "fit-steps 30", "siren-width 5", "reader-width 4", "epochs 1")
        for arg in f"--{flag}".split()]  # fmt: skip


def _config(folder, **options):
    return inr.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


def _tables(folder):
    found = {}
    for name, key in inr.TABLES.items():
        table = read_table(folder / "results" / f"{name}.csv")
        drop = [c for c in (*VOLATILE, "epoch_s") if c in table]
        found[name] = table.drop(columns=drop).sort_values(list(key)).reset_index(drop=True)
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inr")
    return folder, inr.run(_config(folder)), inr.ROOMS.prepare(_config(folder))


@pytest.fixture(scope="module")
def sets(study):
    folder, _, plan = study
    return load_sets(tuple(plan.pieces), plan.data, str(folder / "runs"), "cpu")


def test_columns_of_the_contract(study):
    _, rows, _ = study
    trained = rows[~rows["reader"].isin([NO_EDIT, MEAN_IMAGE])]
    assert len(trained) == 2 * 2 * 2
    wanted = ["study", "preset", "config", "dataset", "task", "reader", "instance", "seed", "siren", "start", "params",
              "train_images", "fits", "epochs", "lr", "diverged", *VOLATILE]  # fmt: skip
    assert trained[wanted].notna().all().all()
    for task, names in {"classify": ("accuracy", "accuracy_moved", "nll"), "edit": ("mse", "mse_relative")}.items():
        assert trained.loc[trained["task"] == task, list(names)].notna().all().all()
    assert trained.groupby("instance")["seed"].nunique().eq(1).all()
    assert trained["seed"].nunique() == 2


def test_rows_without_a_network_by_hand(study, sets):
    _, rows, plan = study
    data = plan.data.load()
    targets = dilate(unit_images(data, "test").flatten(2), (8, 8), "cross")
    mean = dilate(unit_images(data, "train").flatten(2), (8, 8), "cross").mean(0)
    by = rows[rows["task"] == "edit"].set_index("reader")["mse"]
    assert by[MEAN_IMAGE] == pytest.approx(float((targets - mean).square().mean()), rel=1e-5)
    drawn = sets.rendered(sets.stack.rows(sets.places("test")))
    assert by[NO_EDIT] == pytest.approx(float((drawn - targets).square().mean()), rel=1e-5)
    assert rows.set_index("reader").loc[NO_EDIT, "mse_relative"] == 1
    shares = rows[rows["task"] == "edit"]
    np.testing.assert_allclose(shares["mse_relative"], shares["mse"] / by[NO_EDIT])


def test_networks_show_their_images(study, sets):
    folder, _, _ = study
    table = read_table(folder / "results" / "inr_fits.csv").set_index("split")
    assert table["networks"].to_dict() == {"train": 40, "val": 200, "test": 500}
    for split in table.index:
        places = sets.places(split)
        errors = (sets.rendered(sets.stack.rows(places)) - sets.images[places]).square().mean((1, 2))
        assert table.loc[split, "psnr"] == pytest.approx(float(-10 * errors.log10().mean()), rel=1e-4)
        assert table.loc[split, "psnr_least"] <= table.loc[split, "psnr_low"] < table.loc[split, "psnr"]


def test_differences_are_those_of_the_summary(study):
    folder, _, _ = study
    summary = read_table(folder / "results" / "inr_summary.csv").set_index(["task", "reader"])
    table = read_table(folder / "results" / "inr_differences.csv")
    assert len(table) == 1 + 6
    for row in table.to_dict("records"):
        measure = OF_TASK[row["task"]]
        both = [summary.loc[(row["task"], row[c]), measure] for c in ("reader", "other")]
        assert row["difference"] == pytest.approx(both[0] - both[1], abs=1e-9)
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["n"] == 500


def test_what_respects_the_symmetry_does_not_see_the_move(study):
    """And what does not, does: errors of edits of moved networks in single precision."""
    _, rows, _ = study
    rows = rows[rows["instance"] == 0]
    by = {(row["task"], row["reader"]): row for row in rows.to_dict("records")}
    kept, lost = by["edit", "scale-gmn"], by["edit", "flat"]
    assert kept["mse_moved"] == pytest.approx(kept["mse"], rel=1e-4)
    assert by["classify", "scale-gmn"]["nll_moved"] == pytest.approx(by["classify", "scale-gmn"]["nll"], rel=1e-4)
    assert abs(by["classify", "flat"]["nll_moved"] / by["classify", "flat"]["nll"] - 1) > 1e-3
    assert lost["mse_moved"] != pytest.approx(lost["mse"], rel=1e-7)


@torch.no_grad()
def test_laws_of_the_whole_pipeline_in_double_precision(sets):
    """From fitted networks to answers and images: error over the spread of answers, and readers that must fail."""
    stack = sets.stack.rows(sets.places("train")).to(torch.float64)
    other, x = moved(stack, 3), sets.x.double()
    drawn = [sets.network.stacked(s.tensors, x) for s in (stack, other)]
    assert float((drawn[0] - drawn[1]).abs().max()) < 1e-12
    assert any(not torch.equal(stack.tensors[k], other.tensors[k]) for k in stack.tensors)
    error = {}
    for sign in ("canonicalise", "symmetrise"):
        for name in ("scale-gmn", "scale-gmn-b", "gmn", "flat"):
            reader = build_reader("classify", name, stack.chain, 10, 6, sign, 0).double().eval()
            reader.observe(stack)
            a, b = reader(stack), reader(other)
            error[sign, name] = float(((a - b).abs().amax(0) / a.std(0)).max())
            if name.startswith("scale-gmn"):
                assert error[sign, name] < 1e-6
                editor = build_reader("edit", name, stack.chain, 10, 6, sign, 0).double().eval()
                images = [sets.network.stacked(editor.edit(s).tensors, x) for s in (stack, other)]
                change = float((images[0] - drawn[0]).abs().max())
                assert float((images[0] - images[1]).abs().max()) < 1e-8 * change
            else:
                assert error[sign, name] > 1e-2


@pytest.mark.parametrize("task", ["classify", "edit"])
def test_matched_readers_have_as_many_parameters(task, sets):
    def size(reader):
        return parameters(lambda _: build_reader(task, reader, sets.stack.chain, 10, 16, "canonicalise", 0), 0)

    wanted = size("scale-gmn")
    for name in inr.EDITORS if task == "edit" else inr.READERS:
        assert abs(size(f"{name}+matched") / wanted - 1) < 0.1, name
    assert size("gmn") < wanted / 1.4


def test_matched_size_is_the_nearest():
    def linear(size):
        return torch.nn.Linear(size, 10, bias=False)

    assert [matched_size(linear, wanted) for wanted in (1, 94, 96, 1000)] == [1, 9, 10, 100]


def test_dilation_by_hand():
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 1, 1], image[0, 0, 3, 3] = 1.0, 0.5
    cross, square = (dilate(image.flatten(2), (4, 4), f).view(4, 4).tolist() for f in ("cross", "square"))
    assert cross == [[0, 1, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0.5], [0, 0, 0.5, 0.5]]
    assert square == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0.5], [0, 0, 0.5, 0.5]]


def test_pictures_come_back(study):
    folder, _, _ = study
    image = torch.tensor([[0.0, 0.2, 1.0, 1.3, -1.0, 0.5]])
    assert picture(image) == "#0033ffff0080"
    row = {"channels": 1, "height": 2, "width": 3, "image": 0, "pixels": picture(image)}
    assert figure.pixels_of(row).tolist() == [[0, 51, 255], [255, 0, 128]]
    with pytest.raises(ValueError, match="pixels of image 0 are not"):
        figure.pixels_of(row | {"width": 4})
    table = read_table(folder / "results" / "inr_images.csv")
    assert set(table["reader"]) == {"target", NO_EDIT, MEAN_IMAGE, "flat", "scale-gmn"}
    assert len(table) == 5 * 6


def test_again_changes_nothing_and_more_adds_rows(study):
    folder, _, _ = study
    before = {file.name: file.read_text() for file in (folder / "results").glob("*.csv")}
    inr.run(_config(folder))
    assert {file.name: file.read_text() for file in (folder / "results").glob("*.csv")} == before
    old = _tables(folder)["inr"]
    more = inr.run(_config(folder, instances=3, tasks=("classify",), readers=("flat",)))
    assert sorted(more["instance"]) == [0, 1, 2]
    new = _tables(folder)["inr"]
    kept = new[(new["instance"] < 2)].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, old, check_dtype=False)


def test_an_interrupted_study_goes_on_and_gives_the_same_tables(study, tmp_path, monkeypatch):
    folder, _, _ = study
    whole = {file.name for file in (folder / "runs" / "inr").iterdir()}
    real, calls = inr_read.fit, []

    def dies(*args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(inr_read, "fit", dies)
    with pytest.raises(KeyboardInterrupt):
        inr.run(_config(tmp_path))
    done = [file for file in (tmp_path / "runs" / "inr").iterdir() if (file / "finished.json").exists()]
    assert len(done) == 2
    assert len(read_table(tmp_path / "results" / "inr.csv")) == 2 + 2
    monkeypatch.setattr(inr_read, "fit", real)
    inr.run(_config(tmp_path))
    assert {file.name for file in (tmp_path / "runs" / "inr").iterdir()} <= whole
    old, new = _tables(folder), _tables(tmp_path)
    for name, table in new.items():
        key = list(inr.TABLES[name])
        if name != "inr_summary":  # the other folder's has met an instance more
            pd.testing.assert_frame_equal(old[name].merge(table[key], on=key), table, check_dtype=False)


def test_readers_that_diverge_are_rows_that_say_so(tmp_path):
    rows = inr.run(_config(tmp_path, lr=1e30, epochs=3, readers=("flat",), tasks=("classify",)))
    assert (rows["diverged"] > 0).all()
    assert rows["accuracy"].isna().all()
    assert list(read_table(tmp_path / "results" / "inr_summary.csv")["diverged"]) == [2]


def test_networks_that_diverge_are_counted(tmp_path, capsys):
    places = ["--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs"), "--quiet"]
    assert inr.main(["--preset", "smoke", *ARGS, "--fit-lr", "1e38", *places]) == 1
    assert "every network of split train diverged; lower --fit-lr" in capsys.readouterr().err
    assert set(read_table(tmp_path / "results" / "inr_fits.csv")["diverged"]) == {40, 200, 500}


def test_start_values_are_of_each_seed_or_of_one():
    data = load("digits", train_size=20)
    images = unit_images(data, "train")[:3]
    for shared, distinct in ((False, 3), (True, 1)):
        recipe = SirenRecipe(width=4, steps=1, shared=shared, lr=1e-9)
        (piece,) = pieces_of(data, "train", recipe)
        rows, _ = fit_sirens(images, piece.seeds[:3], recipe)
        assert len(torch.unique(rows.round(decimals=5), dim=0)) == distinct
    first, second = pieces_of(data, "train", SirenRecipe(), fits=2)
    assert not set(first.seeds) & set(second.seeds)
    assert pieces_of(data, "train", SirenRecipe(), fits=1) == [first]
    assert int(data.train.images.max()) == 16
    assert float(unit_images(data, "train").max()) == 1


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--tasks", "paint"], "classify, edit"),
        (["--readers", "flatt"], "flat"),
        (["--readers", "flat+gauge+gauge"], "twice"),
        (["--readers", "flat+big"], "matched"),
        (["--readers", "flat", "flat"], "named twice"),
        (["--readers", "stats", "--tasks", "edit"], "none of stats can edit"),
        (["--footprint", "cross", "--tasks", "classify"], "--footprint"),
        (["--instances", "0"], "--instances"),
        (["--fits", "0"], "--fits"),
        (["--omega", "-1"], "--omega"),
        (["--lr", "0"], "--lr"),
        (["--start", "zero"], "--start"),
        (["--dataset", "digits-graph"], "no images"),
        (["--dataset", "no-such-data"], "digits"),
        (["--train-size", "5000"], "--train-size"),
    ],
)
def test_bad_input_is_one_line(args, word, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert inr.main(["--preset", "smoke", *args]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert word in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert inr.main(["--preset", "smoke", *ARGS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "740 implicit networks 2-5-5-1" in out
    assert "8 trainings on 40 networks" in out
    assert "edit scale-gmn: " in out
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_its_tables_and_draws(study, capsys):
    folder, _, _ = study
    places = ["--out", str(folder / "results"), "--runs", str(folder / "runs")]
    assert inr.main(["--preset", "smoke", *ARGS, *places]) == 0
    out = capsys.readouterr().out
    assert "dilating the image" in out
    assert "mean-image" in out
    assert sorted(file.name for file in (folder / "results" / "figures").iterdir()) == [
        "inr_digits_smoke.pdf",
        "inr_digits_smoke.png",
    ]


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom studies import inr\n"
        "try:\n    inr.main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_names_of_readers_are_those_that_there_are():
    from asym.metanets import READERS
    from asym.metanets.editing import EDITORS
    from asym.models.siren import STARTS

    assert set(inr.READERS) <= set(READERS)
    assert tuple(EDITORS) == inr.EDITORS
    assert inr.STARTS == STARTS
