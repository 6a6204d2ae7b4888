"""The SAFFU study end to end on a small made-up text."""

import math
import shutil

import numpy as np
import pandas as pd
import pytest
from saffu_text import write_text

from asym.store import read_table
from figures import saffu as figures
from studies import saffu
from studies.saffu_quality import reached
from studies.saffu_tables import summary
from studies.saffu_work import IGNORED
from studies.tables import VOLATILE

FAST = (
    "--preset smoke --size 20 --bits 8 --hidden 6 --block 4 --radius 3 --contexts 300 --steps 6 --batch-size 24 "
    "--evaluate 60 --points 3 --repeats 1 --quiet"
)
TIMES = (*VOLATILE, *IGNORED, "seconds_to_unigram", "seconds_to_bigram", "seconds_to_trigram")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


def _main(text, folder, *flags):
    places = ["--dataset", f"text:{text}", "--out", str(folder / "out"), "--runs", str(folder / "runs")]
    return saffu.main([*FAST.split(), *places, *flags])


@pytest.fixture(scope="module")
def study(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saffu")
    assert _main(text, folder) == 0
    return folder


def _table(folder, name):
    return read_table(folder / "out" / f"saffu_{name}.csv")


def _texts(folder):
    return {file.name: file.read_text() for file in (folder / "out").glob("saffu_*.csv")}


def test_tables_have_their_keys_and_what_every_row_needs(study):
    for name, key in saffu.TABLES.items():
        if name.startswith("saffu_grid"):  # a part of its own, see test_studies_saffu_grid.py
            continue
        table = read_table(study / "out" / f"{name}.csv")
        assert not table.duplicated(list(key)).any(), name
        assert table[list(key)].notna().all().all(), name
    for part in ("connectivity", "architecture", "quality", "merging", "cost"):
        rows = _table(study, part)
        wanted = ["study", "preset", "config", "dataset", "wall_s", "device", "torch", "commit"]
        assert rows[wanted].notna().all().all()
    pairs = _table(study, "connectivity")
    assert pairs[["loss_a", "loss_b", "barrier_loss_mid", "barrier_loss_max", "params", "distance"]].notna().all().all()
    assert (
        pairs["barrier_loss_mid"] - (pairs["loss_mid"] - pairs[["loss_a", "loss_b"]].mean(axis=1))
    ).abs().max() < 1e-6


def test_cells_are_those_of_the_preset(study):
    pairs = _table(study, "connectivity")
    cells = pairs.groupby(["start", "steps", "alignment"]).size()
    assert set(cells) == {1}
    assert set(pairs["start"]) == {"explicit", "permuted", "random"}
    assert set(pairs[pairs["start"] == "permuted"]["alignment"]) == {"none", "weight", "activation", "known"}
    assert set(_table(study, "architecture")["model"]) == {"saffu", "saffu-w", "decoder", "decoder-labels"}
    arms = _table(study, "quality")
    assert {"unigram", "kneser-ney 3", "witten-bell 5", "explicit layer 2", "explicit only", "warm K=4", "warm W=0",
            "explicit output", "random + unigram", "random", "decoder", "decoder-flops", "lstm",
            "feed-forward"} <= set(arms["arm"])  # fmt: skip
    assert set(arms[arms["control"] == "shuffled"]["arm"]) >= {"unigram", "explicit only", "kneser-ney 3"}
    np.testing.assert_allclose(np.exp(arms["test_loss"]), arms["perplexity"])


def test_the_known_permutation_undoes_the_permuted_start(study):
    """Training commutes with permutations, so that the permuted network is the explicit one, permuted."""
    rows = _table(study, "connectivity").set_index(["start", "steps", "alignment"])
    plain, known = rows.loc[("explicit", 6, "none")], rows.loc[("permuted", 6, "known")]
    for column in ("loss_b", "loss_mid", "barrier_loss_mid", "distance"):
        assert known[column] == pytest.approx(plain[column], abs=2e-4)
    assert rows.loc[("permuted", 6, "none")]["distance"] > plain["distance"] + 0.05


def test_again_changes_nothing_and_more_repeats_add_rows(study, text, tmp_path):
    before = _texts(study)
    assert _main(text, study, "--parts", "connectivity", "merging") == 0
    assert _texts(study) == before
    shutil.copytree(study, tmp_path / "more")
    assert _main(text, tmp_path / "more", "--parts", "merging", "--repeats", "2") == 0
    old, new = _table(study, "merging"), _table(tmp_path / "more", "merging")
    assert (len(old), len(new)) == (3, 6)
    pd.testing.assert_frame_equal(new[new["repeat"] < 1].reset_index(drop=True), old, check_dtype=False)
    assert set(_table(tmp_path / "more", "merging_summary")["loss_average_n"]) == {2}


def test_lost_networks_are_trained_again_to_the_same_tables(study, text, tmp_path):
    shutil.copytree(study, tmp_path / "half")
    for kind in ("language-model", "language-model-line", "language-model-quality"):
        for run in sorted((tmp_path / "half" / "runs" / kind).iterdir())[::2]:
            shutil.rmtree(run)
    shutil.rmtree(tmp_path / "half" / "out")
    assert _main(text, tmp_path / "half", "--parts", "connectivity", "quality") == 0
    for name in ("connectivity", "connectivity_curves", "quality", "tuning"):
        a, b = (
            _table(folder, name).drop(columns=list(TIMES), errors="ignore") for folder in (study, tmp_path / "half")
        )
        pd.testing.assert_frame_equal(a, b)


@pytest.mark.parametrize("part", ["connectivity", "quality", "merging", "cost"])
def test_figures_are_drawn_from_what_is_there(study, tmp_path, monkeypatch, part):
    for file in (study / "out").glob(f"saffu_{part}*.csv"):
        shutil.copy(file, tmp_path)
    if part != "merging":  # one is enough to see files of both kinds; the others are drawn small

        def save_small(figure, folder, name):
            folder.mkdir()
            figure.savefig(folder / f"{name}.png", dpi=30)
            return [folder / f"{name}.png"]

        monkeypatch.setattr(figures, "save", save_small)
    files = figures.draw(tmp_path)
    assert {file.suffix for file in files} == ({".png", ".pdf"} if part == "merging" else {".png"})
    assert all(file.name.startswith(f"saffu_{part}_") and file.stat().st_size > 1000 for file in files)


def test_without_tables_the_command_is_named(tmp_path, capsys):
    assert figures.main(["--results", str(tmp_path)]) == 2
    assert "studies.saffu" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(text, tmp_path, capsys):
    assert _main(text, tmp_path, "--dry-run") == 0
    assert "networks" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (["--dataset", "digits"], "--dataset: unknown 'digits'; valid: pydoc, text:FOLDER"),
        (["--dataset", "text:/no/such"], "not a folder"),
        (["--bits", "3"], "--bits: codes of 3 bits tell 7 tokens apart, the vocabulary has 20; take at least 5"),
        (["--hidden", "4"], "--hidden: codes of 4 bits"),
        (["--block", "0", "--radius", "0"], "both 0"),
        (["--block", "4000"], "context of 4000 needs more"),
        (["--parts", "speed"], "valid: connectivity"),
        (["--starts", "noise-x"], "noise-SIZE"),
        (["--data", "other"], "disjoint, same"),
        (["--merge", "1"], "--merge: got 1, must be at least 2"),
        (["--merge", "9"], "9 networks cannot each have their own"),
        (["--points", "4"], "must be odd"),
        (["--fractions", "1.5"], "--fractions: got 1.5"),
        (["--fractions", "0.000001"], "--fractions: 1e-06 of"),
        (["--parts", "cost", "--designs", "3"], "--designs: has no meaning without grid among --parts"),
        (["--parts", "cost", "--merge", "3"], "--merge: has no meaning without merging among --parts"),
        (["--primings", "2", "2"], "--primings: given twice in 2 2"),
        (["--lrs", "0.1", "0.2", "--other-lrs", "0.1"], "tuned more"),
        (["--download"], "no meaning"),
        (["--steps", "0"], "--steps: got 0"),
        (["--split", "given"], "named train and test"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(text, tmp_path, capsys, flags, match):
    assert _main(text, tmp_path, *flags) == 2
    err = capsys.readouterr().err
    assert match in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_table_of_another_study_is_not_touched(text, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "saffu_cost.csv").write_text("a,b\n1,2\n")
    assert _main(text, tmp_path, "--parts", "cost") == 2
    assert "is not a table of this study" in capsys.readouterr().err


def test_when_a_loss_is_reached():
    curve = pd.DataFrame({"step": [0, 10, 20], "seconds": [0.0, 1.0, 2.0], "val_loss": [5.0, 4.0, 3.0]})
    found = reached(curve, {"unigram": 4.0, "trigram": 2.0})
    assert (found["steps_to_unigram"], found["seconds_to_unigram"]) == (10, 1)
    assert math.isnan(found["steps_to_trigram"])


def test_a_diverged_repeat_is_counted_and_not_averaged():
    rows = pd.DataFrame(
        {"config": "c", "start": "x", "k": 2, "lr": 0.1, "loss_average": [1.0, 3.0, np.nan], "diverged": [0, 0, 7]}
    )
    found = summary(rows, ("config", "start", "k", "lr"), ("loss_average",)).iloc[0]
    assert (found["loss_average"], found["loss_average_n"], found["diverged"]) == (2.0, 2, 1)
