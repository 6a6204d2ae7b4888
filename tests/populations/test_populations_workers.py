"""Functions for worker processes live in a module that they can import: the standard library's, or this project's."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from asym.populations import WorkerLost, run_tasks
from asym.populations.workers import cpu_count


def test_here_results_come_in_order_with_ticks_and_one_thread():
    from asym.populations import tick

    seen, ticks = [], []

    def work(x):
        tick(x)
        return x * torch.get_num_threads()

    threads = torch.get_num_threads()
    assert run_tasks(work, [(1,), (2,), (3,)], on_tick=ticks.append, on_result=seen.append) == [1, 2, 3]
    assert (seen, ticks) == ([1, 2, 3], [1, 2, 3])
    assert torch.get_num_threads() == threads


def test_processes_give_results_in_order():
    assert run_tasks(pow, [(2, 3), (3, 2), (5, 1)], jobs=2) == [8, 9, 5]
    assert cpu_count() >= 1


def test_an_error_in_a_task_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        run_tasks(divmod, [(1, 1), (1, 0)], jobs=2)
    with pytest.raises(ZeroDivisionError):
        run_tasks(divmod, [(1, 0)])


def test_a_lost_worker_is_reported_with_what_to_do():
    with pytest.raises(WorkerLost, match="run the same command again"):
        run_tasks(os._exit, [(9,), (9,)], jobs=2)


def test_jobs_must_be_positive():
    with pytest.raises(ValueError, match="jobs"):
        run_tasks(pow, [(1, 1)], jobs=0)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="killing a process group is POSIX")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, time
            from asym.populations import run_tasks

            def work(folder, name):
                open(os.path.join(folder, name), "w").write(str(os.getpid()))
                time.sleep(120)

            if __name__ == "__main__":
                run_tasks(work, [(sys.argv[1], "a.pid"), (sys.argv[1], "b.pid")], jobs=2)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    files = [tmp_path / "a.pid", tmp_path / "b.pid"]
    deadline = time.monotonic() + 120
    while not all(file.exists() and file.read_text() for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    for pid in (int(file.read_text()) for file in files):
        while _alive(pid):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")
