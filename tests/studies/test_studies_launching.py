"""Flags of launchers: what cannot be is one line, before anything is done."""

import pytest

from studies import audit, lmc


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--launcher", "dask"), ["--launcher", "dask", "slurm"]),
        (("--gpus-per-worker", "0.5"), ["--gpus-per-worker", "--launcher ray or slurm"]),
        (("--slurm", "partition=gpu"), ["--slurm", "--launcher slurm"]),
        (("--launcher", "ray", "--slurm", "partition=gpu"), ["--slurm", "--launcher slurm"]),
        (("--launcher", "ray", "--gpus-per-worker", "2"), ["--gpus-per-worker", "2.0", "at most 1"]),
        (("--launcher", "slurm", "--gpus-per-worker", "0.4"), ["--gpus-per-worker", "0.4", "0.25"]),
        (("--launcher", "slurm", "--slurm", "partition"), ["--slurm", "'partition'", "name=value"]),
        (("--launcher", "slurm", "--slurm", "partitoin=gpu"), ["--slurm", "partitoin", "partition"]),
        (("--launcher", "slurm", "--slurm", "time=1:00"), ["--slurm", "time=1:00", "minutes"]),
        (("--launcher", "slurm", "--slurm", "mem_gb=0"), ["--slurm", "mem_gb=0", "gigabytes"]),
        (("--launcher", "slurm", "--slurm", "cluster=debug"), ["--slurm", "cluster=debug", "cluster=local"]),
        (("--launcher", "slurm", "--slurm", "qos=a", "qos=b"), ["--slurm", "qos", "twice"]),
        (("--launcher", "ray", "--device", "cuda"), ["--device", "cuda", "--gpus-per-worker"]),
        (("--launcher", "ray", "--gpus-per-worker", "1", "--device", "cpu"), ["--device", "cpu", "cuda"]),
    ],
    ids=str,
)
def test_flags_that_cannot_be_are_one_line(args, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert lmc.main(["--arch", "mlp", *args]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named_before_anything_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("studies.launching.importlib.util.find_spec", lambda name: None)
    for launcher, library in (("ray", "ray"), ("slurm", "submitit")):
        assert lmc.main(["--launcher", launcher]) == 2
        err = capsys.readouterr().err
        assert f"needs the library {library}" in err
        assert f'pip install -e ".[{launcher}]"' in err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lmc.main(["--launcher", "slurm"]) == 2
    assert "sbatch" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--gpus-per-worker: has no meaning here"):
        audit.ROOMS.prepare(audit.Config(launcher="ray", gpus_per_worker=0.5))
    assert list(tmp_path.iterdir()) == []
