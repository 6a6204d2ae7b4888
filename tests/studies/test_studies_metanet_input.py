"""What stops the accuracy-prediction study before any work, what a dry run leaves, and how light its help is."""

import subprocess
import sys

import pytest

from studies import metanet


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--readers", "gnn"], "gmn"),
        (["--readers", "gmn+scale"], "gauge"),
        (["--readers", "gmn+gauge+gauge"], "twice"),
        (["--variants", "w", "--readers", "gmn+gauge"], "--readers: gmn+gauge move networks along symmetries"),
        (
            ["--readers", "gmn+receiver"],
            "gmn has no form receiver; it takes gauge, augment, shuffle, no-edges, no-skips",
        ),
        (["--readers", "flat+no-skips"], "flat has no form no-skips; it takes gauge, augment, shuffle\n"),
        (["--readers", "scale-gmn+pinv"], "scale-gmn has no form pinv"),
        (["--readers", "scale-gmn-b+pinv+shipped"], "two forms of backward"),
        (["--readers", "scale-gmn-b+pinv", "--arch", "resnet8"], "reads chains of layers"),
        (["--readers", "hyper-boost+gauge"], "reads no weights"),
        (["--readers", "stats-boost+augment"], "fitted once"),
        (["--readers", "gmn", "gmn"], "named twice"),
        (["--readers", "gmn+no-skips+no-edges", "gmn+no-edges+no-skips"], "named twice"),
        (["--arch", "resnet20"], "resnet8"),
        (["--variants", "sigma"], "smaller"),
        (["--activations", "sine"], "relu-tanh"),
        (["--networks", "5"], "--networks"),
        (["--sizes", "39"], "--sizes"),
        (["--lr", "0"], "--lr"),
        (["--lr", "0.1", "--lrs", "0.1"], "--lrs"),
        (["--lrs", "0.1", "0.2", "0.1"], "--lrs: given twice in 0.1 0.2 0.1"),
        (["--sizes", "5", "5"], "--sizes: given twice in 5 5"),
        (["--target", "rank"], "logit"),
        (["--skip", "whole"], "curve"),
        (["--kappa", "1", "--variants", "standard"], "--kappa"),
        (["--dataset", "digits-graph"], "digits-graph"),
        (["--checkpoints", "0"], "--checkpoints"),
        (["--checkpoints", "1", "1"], "--checkpoints: named twice"),
        (["--checkpoints", "99"], "--checkpoints: got 99"),
        (["--widths", "0.5", "0.5"], "--widths: given twice in 0.5 0.5"),
        (["--widths", "-1"], "--widths: got -1.0, must be a positive number"),
        (["--checkpoints", "12", "--arch", "resnet8"], "--checkpoints: resnet8 is trained at rates that change"),
        (["--readers", "scale-gmn+canonicalise"], "add tanh to --activations"),
        (["--readers", "scale-gmn+"], "--readers: scale-gmn+ has the unknown add-on ''"),
        (["--depths", "0"], "--depths: got 0, must be a finite number of at least 1"),
        (["--depths", "2", "--arch", "resnet8"], "--widths and --depths: resnet8 has one shape"),
        (["--depths", "2", "3", "--readers", "gmn", "flat"], "--readers: flat reads networks of one shape, here are 2"),
        (["--depths", *map(str, range(1, 8)), "--widths", "1", "2", "3"], "--networks: got 20"),
        (["--widths", "0.2", "--depths", "1", "--readers", "dmc"], "--readers: dmc needs networks of at least 256"),
        (["--train-size", "3"], "--train-size"),
        (["--train-size", "1000000"], "--train-size"),
    ],
)
def test_bad_input_is_one_line(args, word, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = () if "--networks" in args or "--sizes" in args else ("--networks", "20")
    assert metanet.main(["--preset", "smoke", *few, *args]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert word in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert metanet.main(["--preset", "smoke", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "trainings of readers" in out
    assert list(tmp_path.iterdir()) == []


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom studies import metanet\n"
        "try:\n    metanet.main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
