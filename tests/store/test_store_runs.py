import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pandas as pd
import pytest
import torch

from asym.store import CorruptRun, Run, Store

CONFIG = {"arch": "mlp", "lr": 0.1, "seeds": (0, 1)}
TABLE = pd.DataFrame({"epoch": [0, 1], "loss": [0.1, float("nan")], "name": ["a", "b"]})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture
def finished(store: Store) -> Run:
    run = store.run("population", CONFIG)
    run.finish({"w": torch.arange(6.0).reshape(2, 3)}, {"history": TABLE}, {"wall_s": 1.5})
    return run


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_asking_for_a_run_creates_nothing(store: Store):
    run = store.run("population", CONFIG)
    assert run.path == store.root / "population" / run.hash
    assert not store.root.exists()
    assert not run.finished
    assert run.load_checkpoint() is None
    run.verify()
    assert not store.root.exists()


def test_a_finished_run_gives_back_what_was_kept(store: Store, finished: Run):
    run = store.run("population", {**CONFIG, "seeds": [0, 1]})
    assert run.finished
    assert torch.equal(run.tensors()["w"], torch.arange(6.0).reshape(2, 3))
    pd.testing.assert_frame_equal(run.table("history"), TABLE)
    assert run.tables() == ["history"]
    assert run.state() == {"wall_s": 1.5}
    assert run.config == {"arch": "mlp", "lr": 0.1, "seeds": [0, 1]}
    assert store.open("population", run.hash).config == run.config
    assert json.loads((run.path / "config.json").read_text())["config"] == run.config
    run.verify()


def test_nothing_is_pickled_and_nothing_is_left_over(finished: Run):
    assert sorted(path.name for path in finished.path.iterdir()) == [
        "config.json",
        "finished.json",
        "table-history.parquet",
        "tensors.safetensors",
    ]


def test_a_run_without_tensors_or_tables(store: Store):
    run = store.run("measure", {"a": 1})
    run.finish({})
    assert run.tensors() == {}
    assert run.tables() == []
    assert run.state() == {}
    run.verify()
    with pytest.raises(KeyError, match="history"):
        run.table("history")


def test_what_is_not_finished_cannot_be_read(store: Store):
    run = store.run("population", CONFIG)
    for read in (run.tensors, run.state, lambda: run.table("history")):
        with pytest.raises(FileNotFoundError, match="the run is not finished"):
            read()


def test_checkpoints_follow_each_other_and_go_when_finished(store: Store):
    run = store.run("population", CONFIG)
    for epoch in (1, 2):
        run.save_checkpoint({"w": torch.full((3,), epoch)}, {"epoch": epoch, "lr": 0.1})
        tensors, state = store.run("population", CONFIG).load_checkpoint() or ({}, {})
        assert tensors["w"].tolist() == [epoch] * 3
        assert state == {"epoch": epoch, "lr": 0.1}
    assert len(list(run.path.glob("checkpoint-*.safetensors"))) == 1
    run.finish({"w": torch.zeros(1)})
    assert list(run.path.glob("checkpoint*")) == []
    assert run.load_checkpoint() is None


def test_training_may_write_into_a_loaded_checkpoint(store: Store):
    run = store.run("population", CONFIG)
    run.save_checkpoint({"w": torch.ones(3)}, {})
    (run.load_checkpoint() or ({}, {}))[0]["w"].add_(1)
    assert (run.load_checkpoint() or ({}, {}))[0]["w"].tolist() == [1, 1, 1]


def test_a_finished_run_is_written_once(finished: Run):
    with pytest.raises(RuntimeError, match="the run is finished"):
        finished.finish({})
    with pytest.raises(RuntimeError, match="the run is finished"):
        finished.save_checkpoint({}, {})
    finished.discard()
    assert not finished.path.exists()
    finished.finish({"w": torch.zeros(1)})
    assert finished.tensors()["w"].tolist() == [0]


@pytest.mark.parametrize("kind", ["", "a/b", "..", ".hidden", "a b"])
def test_a_kind_is_a_folder_name(store: Store, kind: str):
    with pytest.raises(ValueError, match="kind"):
        store.run(kind, CONFIG)


def test_a_table_name_is_a_file_name_and_nothing_is_written_before(store: Store):
    run = store.run("population", CONFIG)
    with pytest.raises(ValueError, match=r"tables: '\.\./x'"):
        run.finish({}, {"../x": TABLE})
    with pytest.raises(ValueError, match=r"state\.x: Tensor does not go into JSON"):
        run.finish({}, {}, {"x": torch.ones(1)})
    assert not run.path.exists()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("tensors.safetensors", lambda run: run.tensors()),
        ("table-history.parquet", lambda run: run.table("history")),
        ("finished.json", lambda run: run.state()),
    ],
)
@pytest.mark.parametrize(
    "harm",
    [damage, lambda path: path.write_bytes(path.read_bytes()[:-20]), lambda path: path.write_bytes(b"")],
    ids=["one bit", "truncated", "empty"],
)
def test_a_damaged_result_is_named_with_the_remedy(store: Store, finished: Run, name: str, read, harm):
    harm(finished.path / name)
    run = store.run("population", CONFIG)
    for look in (read, Run.verify):
        with pytest.raises(CorruptRun) as caught:
            look(run)
        message = str(caught.value)
        assert message.startswith(str(run.path / name))
        assert f"delete the folder {run.path} or pass --retrain" in message
        assert "\n" not in message
    assert run.finished
    store.discard("population", CONFIG)
    assert not store.run("population", CONFIG).finished


def test_a_missing_file_of_a_result_is_named(finished: Run):
    (finished.path / "tensors.safetensors").unlink()
    with pytest.raises(CorruptRun, match=r"tensors\.safetensors: the file is missing"):
        finished.tensors()


def test_damage_after_the_first_reading_is_seen(finished: Run):
    finished.tensors()
    damage(finished.path / "tensors.safetensors")
    with pytest.raises(CorruptRun, match="checksum mismatch"):
        finished.tensors()


@pytest.mark.parametrize("which", ["checkpoint.json", "checkpoint-*.safetensors"])
def test_a_damaged_checkpoint_is_named(store: Store, which: str):
    run = store.run("population", CONFIG)
    run.save_checkpoint({"w": torch.arange(50.0)}, {"epoch": 3})
    (path,) = run.path.glob(which)
    damage(path)
    for look in (run.load_checkpoint, run.verify):
        with pytest.raises(CorruptRun) as caught:
            look()
        assert caught.value.path == path


def test_a_config_of_another_run_is_refused(store: Store, finished: Run):
    other = store.run("population", {"arch": "resnet20"})
    other.finish({})
    (finished.path / "config.json").write_bytes((other.path / "config.json").read_bytes())
    with pytest.raises(CorruptRun, match=f"describes run {other.hash}, not {finished.hash}"):
        store.run("population", CONFIG)


def test_an_altered_config_is_refused(store: Store, finished: Run):
    path = finished.path / "config.json"
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(CorruptRun, match="the file was altered"):
        store.run("population", CONFIG)
    with pytest.raises(CorruptRun, match="the file was altered"):
        finished.verify()


def test_a_config_that_only_lacks_later_fields_is_accepted(store: Store):
    store.run("population", {"arch": "mlp", "n": 3}, {"n": 1}).finish({})
    later = store.run("population", {"arch": "mlp", "n": 3, "norm": None}, {"n": 1, "norm": None})
    assert later.finished
    later.verify()


def test_a_result_without_its_config_is_refused(store: Store, finished: Run):
    (finished.path / "config.json").unlink()
    with pytest.raises(CorruptRun, match=r"config\.json: the file is missing beside finished\.json"):
        store.run("population", CONFIG)


def test_opening_what_is_not_there(store: Store):
    with pytest.raises(FileNotFoundError, match="no such run"):
        store.open("population", "0" * 12)


def test_the_error_survives_a_process_boundary(finished: Run):
    error = CorruptRun(finished.path / "x", "torn")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, ValueError)


def test_a_held_run_is_waited_for(store: Store):
    seen: list[bool] = []
    held, go = threading.Event(), threading.Event()

    def first() -> None:
        run = store.run("population", CONFIG)
        with run.lock():
            held.set()
            go.wait(30)
            run.finish({})

    def second() -> None:
        run = store.run("population", CONFIG)
        with run.lock():
            seen.append(run.finished)

    workers = [threading.Thread(target=first), threading.Thread(target=second)]
    workers[0].start()
    assert held.wait(30)
    with (
        pytest.raises(TimeoutError, match="another process is working on it"),
        store.run("population", CONFIG).lock(0),
    ):
        pass
    workers[1].start()
    go.set()
    for worker in workers:
        worker.join(30)
    assert seen == [True]


def test_the_lock_is_let_go_after_an_error(store: Store):
    run = store.run("population", CONFIG)
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    with run.lock(timeout=0):
        pass


KILLED = textwrap.dedent("""
    import os, signal, sys
    import torch
    from asym import files
    from asym.store import Store
    from asym.store.upkeep import prune
    from pathlib import Path

    action, root = sys.argv[1], Path(sys.argv[2])
    calls = left = 0

    def deadly(function):
        def call(*args, **kwargs):
            global calls
            calls += 1
            if calls == left:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return call

    for left in range(1, 100):
        run = Store(root / str(left)).run("population", {"a": 1})
        run.save_checkpoint({"w": torch.full((1000,), 1.0)}, {"epoch": 1})
        child = os.fork()
        if child == 0:  # dies before its n-th change to the disk
            os.chmod, os.fsync, os.replace = deadly(os.chmod), deadly(os.fsync), deadly(os.replace)
            Path.unlink = deadly(Path.unlink)
            if action == "save":
                run.save_checkpoint({"w": torch.full((1000,), 2.0)}, {"epoch": 2})
            else:
                run.finish({"w": torch.full((1000,), 2.0)}, {}, {"epoch": 2})
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            break
        run = Store(root / str(left)).run("population", {"a": 1})
        run.verify()
        tensors, state = (run.tensors(), run.state()) if run.finished else run.load_checkpoint()
        assert tensors["w"].unique().tolist() == [state["epoch"]], (left, state)
        with run.lock(timeout=0):
            if not run.finished:
                run.save_checkpoint({"w": torch.full((1000,), 3.0)}, {"epoch": 3})
                assert run.load_checkpoint()[1] == {"epoch": 3}
                assert len(list(run.path.glob("checkpoint-*.safetensors"))) == 1
        prune(Store(root / str(left)))
        assert list(run.path.rglob(".tmp*")) == []
        print(left, state["epoch"])
    """)


@pytest.mark.skipif(os.name == "nt", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("action", ["save", "finish"])
def test_a_kill_at_any_step_of_a_write_leaves_a_whole_state(tmp_path: Path, action: str):
    command = [sys.executable, "-c", KILLED, action, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    epochs = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert epochs == sorted(epochs)  # the old state up to one step, the new one from there
    assert set(epochs) == {1, 2}
    assert len(epochs) >= 8
