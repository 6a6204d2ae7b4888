"""The worker's side of a task on another machine, and the sign of life of its command."""

import dataclasses
import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from launch_tasks import odd

from asym.populations.remote import Failed, Place, Pulse, beating, call


def test_errors_that_cannot_travel_come_as_their_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with beating(tmp_path / "launch") as beat:
        place = Place.here(beat, 60.0)
        outcome = pickle.loads(call(place, pickle.dumps((odd, [()])), 1))
        assert beat.exists()
    assert not beat.exists()
    assert isinstance(outcome, Failed)
    assert (type(outcome.error), str(outcome.error)) == (RuntimeError, "Odd: 12")


def test_a_worker_that_sees_other_folders_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = dataclasses.replace(Place.here(tmp_path / "runs" / "launch" / "beat", 60.0), seen_s=0.0)
    with pytest.raises(FileNotFoundError, match=rf"--runs: {tmp_path}/runs on the worker .* all workers see"):
        place.enter()
    gone = dataclasses.replace(place, folder=str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="where the command was started, is not there"):
        gone.enter()
    with beating(tmp_path / "runs" / "launch") as beat:
        monkeypatch.chdir("/")
        dataclasses.replace(place, beat=str(beat)).enter()
        assert Path.cwd() == tmp_path


def test_silence_is_counted_from_the_last_change(tmp_path):
    beat = tmp_path / "beat"
    beat.touch()
    pulse = Pulse(str(beat), 0.0)
    assert [pulse.silence(1.0), pulse.silence(11.0)] == [0.0, 10.0]
    os.utime(beat, ns=(5, 5))  # whatever the time of day says
    assert [pulse.silence(12.0), pulse.silence(13.0)] == [0.0, 1.0]
    beat.unlink()
    assert pulse.silence(20.0) == 8.0


def test_workers_end_when_nothing_is_heard_of_the_command(tmp_path):
    script = tmp_path / "command.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, time
            from pathlib import Path
            from asym.populations import Launcher, run_tasks

            def work(folder):
                with open(os.path.join(folder, "pid.new"), "w") as stream:
                    stream.write(str(os.getpid()))
                os.rename(os.path.join(folder, "pid.new"), os.path.join(folder, "pid"))
                time.sleep(200)

            if __name__ == "__main__":
                folder = Path(sys.argv[1])
                slurm = {"cluster": "local"}
                launcher = Launcher(engine="slurm", folder=folder, at_once=1, slurm=slurm, patience_s=8.0)
                run_tasks(work, [(str(folder),)], launcher=launcher)
            """
        )
    )
    command = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    deadline = time.monotonic() + 150
    while not (tmp_path / "pid").exists():
        assert command.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    command.kill()
    command.wait()
    worker = int((tmp_path / "pid").read_text())
    while _running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _running(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")
