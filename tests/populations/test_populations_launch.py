"""Tasks on Ray and on Slurm (here: submitit's processes that are treated like jobs).

Tasks live in `launch_tasks.py`: workers find it as this process does.
"""

import dataclasses
import os
import pickle
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pandas as pd
import pytest
import torch
from launch_tasks import EPOCHS, corrupt, die, family, train

from asym.data import load
from asym.names import LAUNCHERS
from asym.nn import Variant
from asym.populations import (
    Architecture,
    Launcher,
    Member,
    Population,
    Recipe,
    WorkerLost,
    chunks_of,
    plan_for,
    run_tasks,
)
from asym.populations import engines as engines_module
from asym.populations.engines import Lost
from asym.populations.remote import Done, Failed
from asym.store import CorruptRun, read_table
from studies import lmc
from studies.cli import CommonConfig
from studies.launching import check_engine, launcher_of
from studies.parsing import parse
from studies.tables import VOLATILE

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*subprocess .* is still running:ResourceWarning",  # those that Ray keeps until this process ends
    "ignore:.*Ray will no longer override accelerator:FutureWarning",
)


@pytest.fixture(scope="module")
def engine_options():
    """Ray is started once, for all tests of this file, with two workers."""
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = "local"
    yield {"ray": {"engine": "ray"}, "slurm": {"engine": "slurm", "slurm": {"cluster": "local"}}}
    import ray

    ray.shutdown()
    os.environ.pop("RAY_ADDRESS") if before is None else os.environ.update(RAY_ADDRESS=before)


@pytest.fixture
def launchers(engine_options, tmp_path):
    """Engine → launcher of two workers."""
    return {name: Launcher(folder=tmp_path / "runs", at_once=2, **o) for name, o in engine_options.items()}


@pytest.fixture(scope="module")
def population():
    data = load("digits", train_size=100)
    architecture = Architecture("mlp", data.input_shape, data.classes, width=1 / 32, variant=Variant("w"))
    recipe = Recipe(epochs=EPOCHS, lr=3e-3, batch_size=32)
    members = tuple(Member(seed=seed, mask_seed=7, recipe=recipe) for seed in range(4))
    population = Population(architecture, members, data.fingerprint)
    plan = dataclasses.replace(plan_for(population, "cpu"), chunk=2)
    return chunks_of(population, plan), plan


def _tensors(runs):
    return {path.parent.name: path.read_bytes() for path in Path(runs).glob("population/*/tensors.safetensors")}


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_a_population_trained_by_workers_of_which_one_is_killed_equals_the_local_one(
    engine, launchers, population, tmp_path
):
    chunks, plan = population
    local = run_tasks(train, [(str(tmp_path / "local"), chunk, plan, None) for chunk in chunks])
    marker, ticks, seen = tmp_path / "killed", [], []
    tasks = [(str(tmp_path / "runs"), chunk, plan, str(marker)) for chunk in chunks]
    found = run_tasks(train, tasks, launcher=launchers[engine], on_tick=ticks.append, on_result=seen.append)
    assert marker.exists()
    assert len(_tensors(tmp_path / "local")) == len(chunks) == 2
    assert _tensors(tmp_path / "runs") == _tensors(tmp_path / "local")
    for (theta, threads), (expected, _) in zip(found, local):
        assert torch.equal(theta, expected)
        assert threads == 1
    assert not torch.equal(local[0][0], local[1][0])
    assert len(seen) == 2
    assert sum(ticks) in (2 * 2 * EPOCHS, 2 * 2 * EPOCHS - 2, 2 * 2 * EPOCHS - 4)  # fewer if a checkpoint was found
    assert list((tmp_path / "runs" / "launch").glob(".tmp-*")) == []


def test_a_study_on_ray_gives_the_tables_of_the_local_one(launchers, tmp_path):
    tables = {}
    for launcher, jobs in (("local", 1), ("ray", 2)):
        config = lmc.Config(
            arch="mlp", width=1 / 32, preset="smoke", train_size=100, eval_images=20, quiet=True, epochs=1, jobs=jobs,
            variants=("w",), alignments=("none",), out=tmp_path / launcher, runs=tmp_path / f"runs-{launcher}",
            launcher=launcher,
        )  # fmt: skip
        (job,) = prepared = lmc.ROOMS.prepare(config)
        assert max(len(pickle.dumps(task)) for tasks in job.tasks.values() for task in tasks) < 20_000
        lmc.ROOMS.execute(config, prepared)
        for name in ("lmc", "lmc_curves", "lmc_summary"):
            table = read_table(tmp_path / launcher / f"{name}.csv").drop(columns=list(VOLATILE), errors="ignore")
            order = [c for c in ("variant", "alignment", "pair", "split", "lam") if c in table]
            tables[name, launcher] = table.sort_values(order).reset_index(drop=True)
    for name in ("lmc", "lmc_curves", "lmc_summary"):
        pd.testing.assert_frame_equal(tables[name, "local"], tables[name, "ray"], check_exact=True)
    assert _tensors(tmp_path / "runs-local") == _tensors(tmp_path / "runs-ray") != {}


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_a_task_that_always_loses_its_worker_is_given_up(engine, launchers, tmp_path):
    launcher = dataclasses.replace(launchers[engine], resubmissions=0)
    with pytest.raises(WorkerLost, match=r"lost its worker in attempt 1 of 1: .*run the same command again"):
        run_tasks(die, [(str(tmp_path / "deaths"),)], launcher=launcher)
    assert (tmp_path / "deaths").read_text() == "."


def test_an_error_of_a_task_arrives_as_itself(launchers, tmp_path):
    with pytest.raises(ZeroDivisionError) as caught:
        run_tasks(divmod, [(1, 1), (1, 0)], launcher=launchers["ray"])
    assert "Traceback" in caught.value.__notes__[0]
    with pytest.raises(CorruptRun, match=r"was altered; .*--retrain"):
        run_tasks(corrupt, [(tmp_path / "a" / "b",)], launcher=launchers["ray"])


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Commands of a Slurm that starts each job at once, as a process; the folder where it keeps what was submitted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    job = "SLURM_JOB_ID=7 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0"
    for name, text in {
        "sbatch": f'cp "$1" {folder}/submitted\n{job} sh "$1" >/dev/null 2>&1 &\necho "Submitted batch job 7"',
        "srun": f'while [ "$1" != "{sys.executable}" ]; do shift; done\nexec "$@"',
        "sacct": 'echo "JobID|State|NodeList"; echo "7|RUNNING|here"',
        "scancel": "true",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_a_slurm_job_asks_for_what_was_said_and_its_tasks_share_a_gpu(slurm, tmp_path):
    args = ["--launcher", "slurm", "--gpus-per-worker", "0.5", "--slurm", "partition=big", "time=90", "mem_gb=8"]
    config = parse(lmc.Config, [*args, "--runs", str(tmp_path / "runs")], prog="lmc", description="")
    check_engine(config)
    launcher = launcher_of(config)
    assert launcher is not None
    tasks = [(str(tmp_path), "a", "b"), (str(tmp_path), "b", "a")]
    (one, parent), (other, same) = run_tasks(family, tasks, launcher=launcher)
    assert one != other
    assert parent == same != os.getpid()
    asked = (slurm / "submitted").read_text()
    options = ("partition=big", "time=90", "mem=8GB", "gpus-per-node=1", "cpus-per-task=2", "job-name=asym")
    for option in options:
        assert f"#SBATCH --{option}\n" in asked, asked
    assert not (tmp_path / "runs" / "launch" / "7").exists()


class Fake:
    """An engine that does a call when asked for its outcome, and loses those that it is told to."""

    def __init__(self, at_once, losses):
        self.at_once, self.losses, self.count, self.flying, self.most, self.cancelled = at_once, losses, 0, {}, 0, []

    def submit(self, place, function, tasks):
        self.count += 1
        self.flying[self.count] = (function, tasks)
        self.most = max(self.most, len(self.flying))
        return self.count

    def wait(self, handles):
        return [max(handles)]  # the last one first

    def outcome(self, handle):
        function, tasks = self.flying.pop(handle)
        if handle in self.losses:
            return Lost("it died")
        try:
            return Done([function(*task) for task in tasks], 1.0)
        except ArithmeticError as error:
            return Failed(error)

    def cancel(self, handles):
        self.cancelled += handles


def _with(monkeypatch, fake, function, tasks, tmp_path, **options):
    monkeypatch.setattr(engines_module, "open_engine", lambda launcher: fake)
    return run_tasks(function, tasks, launcher=Launcher(engine="slurm", folder=tmp_path, **options))


def test_results_keep_their_order_and_losses_cost_their_task(monkeypatch, tmp_path):
    fake = Fake(at_once=2, losses=(2, 3))
    assert _with(monkeypatch, fake, abs, [(-i,) for i in range(5)], tmp_path) == [0, 1, 2, 3, 4]
    assert (fake.count, fake.most, fake.cancelled) == (5 + 2, 2, [])
    fake = Fake(at_once=2, losses=())
    assert _with(monkeypatch, fake, abs, [(-i,) for i in range(5)], tmp_path, gpus=0.5) == [0, 1, 2, 3, 4]
    assert fake.count == 3
    assert run_tasks(abs, [], launcher=Launcher(engine="ray", folder=tmp_path)) == []


def test_what_is_at_work_is_cancelled_when_a_task_fails_or_is_given_up(monkeypatch, tmp_path):
    fake = Fake(at_once=3, losses=())
    with pytest.raises(ZeroDivisionError):
        _with(monkeypatch, fake, divmod, [(1, 1), (1, 1), (1, 0), (1, 1)], tmp_path)
    assert (fake.cancelled, fake.count) == ([1, 2], 3)
    fake = Fake(at_once=3, losses=range(100))
    with pytest.raises(WorkerLost, match="attempt 3 of 3: it died; finished networks are kept"):
        _with(monkeypatch, fake, abs, [(1,), (2,)], tmp_path, resubmissions=2)
    assert fake.cancelled == [1]


def test_launchers_know_their_limits(tmp_path):
    def made(**options):
        return Launcher(folder=tmp_path, **options)

    assert made(engine="slurm").together == made(engine="ray", gpus=0.25).together == 1
    assert [made(engine="slurm", gpus=g).together for g in (1.0, 0.5, 0.33, 0.25)] == [1, 2, 3, 4]
    for options, name in (({"gpus": 1.5}, "gpus"), ({"gpus": 0.4}, "gpus"), ({"resubmissions": -1}, "resubmissions")):
        with pytest.raises(ValueError, match=name):
            made(engine="slurm", **options)
    assert get_args(get_type_hints(CommonConfig)["launcher"]) == LAUNCHERS
