import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from asym.files import temporary_name
from asym.store import Store
from asym.store.__main__ import main
from asym.store.upkeep import describe, find_damage, prune


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "runs")
    store.run("a", {"n": 1}).finish({"w": torch.zeros(100)})
    store.run("b", {"n": 2}).save_checkpoint({"w": torch.zeros(10)}, {})
    return store


@pytest.fixture
def abandoned(store: Store) -> Path:
    run = store.run("a", {"n": 1})
    code = "from asym.files import temporary_name; print(temporary_name('x'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    path = run.path / done.stdout.strip()
    path.mkdir()
    (path / ".tmpAbCdEf").touch()
    return path


def test_describe(store: Store):
    first, second = describe(store)
    assert (first.kind, first.hash, first.state) == ("a", store.run("a", {"n": 1}).hash, "finished")
    assert (second.kind, second.hash, second.state) == ("b", store.run("b", {"n": 2}).hash, "checkpoint")
    assert first.size == sum(path.stat().st_size for path in store.run("a", {"n": 1}).path.iterdir()) > 400


def test_other_folders_are_no_runs(store: Store):
    (store.root / "cache" / "0123456789ab").mkdir(parents=True)
    (store.root / "notes.txt").write_text("mine")
    assert len(store.folders()) == 2
    prune(store, unfinished=True)
    assert (store.root / "cache" / "0123456789ab").exists()


def test_find_damage_looks_at_every_run(store: Store):
    assert find_damage(store) == []
    (store.run("a", {"n": 1}).path / "tensors.safetensors").write_bytes(b"")
    (store.run("b", {"n": 2}).path / "config.json").write_text("{}")
    assert [error.path.name for error in find_damage(store)] == ["tensors.safetensors", "config.json"]


def test_prune_takes_what_dead_processes_left(store: Store, abandoned: Path):
    ours = abandoned.parent / temporary_name("y")
    ours.touch()
    assert prune(store, dry_run=True) == [abandoned]
    assert abandoned.exists()
    assert prune(store) == [abandoned]
    assert not abandoned.exists()
    assert ours.exists()
    assert prune(store) == []
    assert store.run("b", {"n": 2}).load_checkpoint() is not None


def test_prune_takes_unfinished_runs_when_asked_but_not_held_ones(store: Store):
    held, free = store.run("b", {"n": 2}), store.run("b", {"n": 3})
    free.save_checkpoint({}, {})
    with held.lock():
        assert prune(store, unfinished=True, dry_run=True) == [free.path]
        assert free.path.exists()
        assert prune(store, unfinished=True) == [free.path]
    assert held.path.exists()
    assert not free.path.exists()
    assert prune(store, unfinished=True) == [held.path]
    assert store.run("a", {"n": 1}).finished


def test_prune_removes_unfinished_runs_with_a_damaged_config(store: Store):
    run = store.run("b", {"n": 2})
    (run.path / "config.json").write_text("{}")
    assert prune(store, unfinished=True) == [run.path]


def test_list(store: Store, capsys: pytest.CaptureFixture[str]):
    os.utime(store.run("a", {"n": 1}).path, (0, 0))
    for path in store.run("a", {"n": 1}).path.iterdir():
        os.utime(path, (0, 0))
    assert main(["list", "--runs", str(store.root)]) == 0
    head, first, second, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["kind", "hash", "state", "size", "age"]
    assert first.split()[:3] == ["a", store.run("a", {"n": 1}).hash, "finished"]
    assert first.endswith(" d")
    assert second.split()[:3] == ["b", store.run("b", {"n": 2}).hash, "checkpoint"]
    assert total.startswith("2 runs, 1 finished, ")


def test_verify_exits_1_and_names_the_file(store: Store, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", "--runs", str(store.root)]) == 0
    assert capsys.readouterr().out == "2 runs, 0 damaged\n"
    path = store.run("a", {"n": 1}).path / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert main(["verify", "--runs", str(store.root)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}: checksum mismatch")
    assert last == "2 runs, 1 damaged"


def test_prune_command(store: Store, abandoned: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["prune", "--runs", str(store.root), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{abandoned}\n1 would be deleted\n"
    assert main(["prune", "--runs", str(store.root), "--unfinished"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 deleted"
    assert len(store.folders()) == 1


def test_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for command in ("list", "verify", "prune"):
        assert main([command, "--runs", str(tmp_path)]) == 0
    assert "0 runs, 0 finished" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["lst"], [], ["list", "--unfinished"], ["list", "--runs", "no/such/folder"]])
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], tmp_path: Path):
    # Also: none of this loads torch, so it answers at once.
    code = f"import sys; from asym.store.__main__ import main; sys.exit(main({arguments}))"
    command = [sys.executable, "-c", f"import sys; sys.modules['torch'] = None; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_help_exits_0():
    done = subprocess.run([sys.executable, "-m", "asym.store", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "verify" in done.stdout
