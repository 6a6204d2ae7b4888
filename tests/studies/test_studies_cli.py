"""The contract of every command: bad input is one line on stderr, exit code 2, and nothing written."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from studies import lmc
from studies.checks import InputError
from studies.cli import one_line, run_command
from studies.parsing import parse


@dataclasses.dataclass(frozen=True)
class Toy:
    """Settings."""

    names: tuple[str, ...] = ("a",)
    """Names."""
    count: int | None = None
    """A number."""
    runs: Path = Path("runs")
    """Folder."""

    def __post_init__(self):
        if self.count == 13:
            raise InputError("--count: got 13, must be another number")


def _parse(*args):
    return parse(Toy, args, prog="toy", description="A toy.")


@pytest.mark.parametrize(
    "args", [("--names", "a", "b"), ("--names", "a,b"), ("--names=a,b",), ("--names", "a,", "b")], ids=str
)
def test_lists_by_spaces_or_commas(args):
    assert _parse(*args, "--count", "3") == Toy(("a", "b"), 3)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--count", "many"), ["--count", "many"]),
        (("--counts", "3"), ["--counts", "--count"]),
        (("--count", "13"), ["--count", "13"]),
    ],
    ids=str,
)
def test_errors_are_one_line_that_names_flag_and_value(args, words):
    with pytest.raises(InputError) as caught:
        _parse(*args)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def _code(prepare=lambda c: c, execute=lambda p: None, args=()):
    return run_command(Toy, prepare, execute, prog="toy", description="A toy.", args=list(args))


def _raise(error):
    def function(_):
        raise error

    return function


@pytest.mark.parametrize(
    "error", [ValueError("bad\nvalue"), FileNotFoundError("no such thing"), InputError("--x: bad")]
)
def test_what_is_found_before_work_is_2(capsys, error):
    assert _code(prepare=_raise(error)) == 2
    err = capsys.readouterr().err
    assert err == f"toy: {one_line(error)}\n"


def test_what_fails_while_running_is_1_and_says_what_is_kept(capsys):
    assert _code(execute=_raise(RuntimeError("disk\nfull"))) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "disk full" in err
    assert "kept in runs" in err


def test_a_flag_found_wrong_while_running_is_not_to_be_tried_again(capsys):
    assert _code(execute=_raise(InputError("--x: too large, at most 3"))) == 1
    assert capsys.readouterr().err == (
        "toy: --x: too large, at most 3; finished networks and checkpoints are kept in runs\n"
    )


def test_an_interrupt_is_130(capsys):
    assert _code(execute=_raise(KeyboardInterrupt())) == 130
    assert "kept in runs" in capsys.readouterr().err


def test_done_is_0():
    assert _code() == 0


BAD = [
    (["--arch", "resnet19"], "resnet20"),
    (["--arch", "timm/resnet19x"], "timm"),
    (["--arch", "no.such.module:net"], "no.such.module"),
    (["--variants", "standard", "asym"], "w-init"),
    (["--variants", "w", "w"], "twice"),
    (["--variants"], "--variants"),
    (["--alignments", "git"], "weight"),
    (["--alignments", "weight", "--variants", "w"], "none"),
    (["--dataset", "digit"], "digits"),
    (["--dataset", "imagefolder:no/such/folder"], "no/such/folder"),
    (["--dataset", "cifar10", "--data-dir", "no/such/folder"], "no/such/folder"),
    (["--preset", "desktop"], "laptop"),
    (["--pairs", "-1"], "--pairs"),
    (["--pairs", "0"], "--pairs"),
    (["--epochs", "0"], "--epochs"),
    (["--lr", "-0.1"], "--lr"),
    (["--lr", "nan"], "--lr"),
    (["--lr", "0.1", "--lrs", "0.1", "0.2"], "--lrs"),
    (["--kappa", "-1"], "--kappa"),
    (["--kappa", "2", "--variants", "standard"], "--kappa"),
    (["--gate", "cosine", "--variants", "standard"], "--gate"),
    (["--variants", "syre"], "--weight-decay"),
    (["--syre-scale", "1", "--variants", "standard"], "--syre-scale"),
    (["--syre-scale", "1/d", "--variants", "syre", "--weight-decay", "1"], "--syre-scale"),
    (["--width", "0"], "--width"),
    (["--norm", "layer"], "norm"),
    (["--norm", "instance"], "--norm"),
    (["--points", "24"], "--points"),
    (["--n-fix-scale", "100", "--variants", "w"], "--n-fix-scale"),
    (["--arch", "mlp", "--variants", "w-scale"], "standard"),
    (["--kappa", "inf"], "--kappa"),
    (["--lrs"], "--lrs"),
    (["--epochs", "3", "--warmup", "5"], "--warmup"),
    (["--image-size", "8"], "--image-size"),
    (["--dataset-name", "a/b"], "--dataset-name"),
    (["--out", "/dev/null/x"], "--out"),
    (["--runs", "/proc/nope"], "--runs"),
    (["--width", "1e9"], "memory"),
    (["--jobs", "0"], "--jobs"),
    (["--device", "tpu"], "--device"),
    (["--device", "cuda:99"], "cuda:99"),
    (["--checkpoints", "a.pt"], "--checkpoints"),
    (["--checkpoints", "a.pt", "b.pt", "--variants", "standard"], "a.pt"),
    (["--checkpoints", "a.pt", "b.pt", "--variants", "standard", "--pairs", "3"], "--pairs"),
    (["--train-size", "10000000"], "--train-size"),
    (["--seeed", "3"], "--seed"),
    (["--epochs", "ten"], "ten"),
    (["stray"], "stray"),
]


@pytest.mark.parametrize(("args", "word"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_bad_input_of_lmc(args, word, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lmc.main(args) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1, err
    assert word in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a,b\n1,2\n", "config\nx\n"])
def test_a_foreign_table_is_not_adopted(name, tmp_path, capsys):
    (tmp_path / "lmc.csv").write_text(name)
    assert lmc.main(["--preset", "smoke", "--out", str(tmp_path), "--runs", str(tmp_path / "runs")]) == 2
    assert "lmc.csv" in capsys.readouterr().err
    assert (tmp_path / "lmc.csv").read_text() == name


def test_a_terminal_without_greek_gets_question_marks():
    code = "import sys; from studies import lmc; sys.exit(lmc.main(['--help']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0, done.stderr
    assert b"Gate of ? networks" in done.stdout


def test_whatever_a_user_s_module_raises_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine_cli.py").write_text("import sys\ndef stop(*a):\n    sys.exit(3)\ndef fail():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("stop", "fail"):
        assert lmc.main(["--arch", f"mine_cli:{name}"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_help_needs_nothing_heavy():
    """What makes help slow is importing torch and its like; none may be loaded before the flags are read."""
    code = (
        "import sys\nfrom studies import lmc\n"
        "try:\n    lmc.main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'matplotlib', 'scipy', 'timm'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--arch" in done.stdout
    for field in dataclasses.fields(lmc.Config):
        assert f"--{field.name.replace('_', '-')}" in done.stdout
