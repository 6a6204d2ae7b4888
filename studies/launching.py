"""The flags that send a study's tasks to other machines: what they mean together, and the launcher that they make."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asym.names import LAUNCHERS, SLURM_OPTIONS

if TYPE_CHECKING:
    from asym.populations.launch import Launcher

LIBRARIES = {"ray": "ray", "slurm": "submitit"}
"""Extra → the library that it brings."""


def check_launch(config: Any) -> None:
    """Check the flags against each other.

    Raises:
        ValueError: naming the flag, the value and what is valid.
    """
    if config.launcher not in LAUNCHERS:
        raise ValueError(f"--launcher: unknown {config.launcher!r}; valid: {', '.join(LAUNCHERS)}")
    if config.slurm and config.launcher != "slurm":
        raise ValueError("--slurm: has no meaning without --launcher slurm")
    gpus = config.gpus_per_worker
    if config.launcher == "local":
        if gpus is not None:
            raise ValueError("--gpus-per-worker: has no meaning without --launcher ray or slurm")
        return
    if gpus is not None and not 0 < gpus <= 1:
        raise ValueError(f"--gpus-per-worker: got {gpus}, must be above 0 and at most 1")
    slurm_options(config.slurm)
    if gpus is not None and config.launcher == "slurm" and abs(1 / gpus - round(1 / gpus)) > 0.05:
        raise ValueError(f"--gpus-per-worker: got {gpus}, must be one over a whole number (1, 0.5, 0.25) with slurm")
    valid = ("auto", "cpu") if gpus is None else ("auto", "cuda")
    if config.device not in valid:
        other = "without" if gpus is None else "with"
        raise ValueError(
            f"--device: got {config.device!r}, must be {' or '.join(valid)} with --launcher {config.launcher} {other} "
            f"--gpus-per-worker"
        )


def slurm_options(given: Sequence[str]) -> dict[str, str]:
    """`name=value` words as a dictionary.

    Raises:
        ValueError: for what is no such word, an unknown name, or a value that cannot be.
    """
    found: dict[str, str] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals or not value:
            raise ValueError(f"--slurm: got {word!r}, must be name=value, such as partition=gpu")
        if name not in SLURM_OPTIONS:
            raise ValueError(f"--slurm: unknown {name!r}; valid: {', '.join(SLURM_OPTIONS)}")
        if name in found:
            raise ValueError(f"--slurm: {name} is given twice")
        if name == "time" and not (value.isdecimal() and int(value) > 0):
            raise ValueError(f"--slurm: got {word!r}, must be a whole number of minutes")
        if name == "mem_gb" and not (value.replace(".", "", 1).isdecimal() and float(value) > 0):
            raise ValueError(f"--slurm: got {word!r}, must be a positive number of gigabytes")
        if name == "cluster" and value not in ("slurm", "local"):
            raise ValueError(f"--slurm: got {word!r}, must be cluster=slurm or cluster=local")
        found[name] = value
    return found


def check_engine(config: Any) -> None:
    """Find out now that the engine cannot be used from here.

    Raises:
        ValueError: naming the extra that is missing, or that there is no Slurm.
    """
    if config.launcher == "local":
        return
    if importlib.util.find_spec(LIBRARIES[config.launcher]) is None:
        raise ValueError(
            f"--launcher: {config.launcher} needs the library {LIBRARIES[config.launcher]}; "
            f'pip install -e ".[{config.launcher}]"'
        )
    local = slurm_options(config.slurm).get("cluster") == "local"
    if config.launcher == "slurm" and not local and shutil.which("sbatch") is None:
        raise ValueError("--launcher: slurm needs sbatch, which is not on this machine; start on a login node")


def launcher_of(config: Any) -> Launcher | None:
    """What `run_tasks` takes as its launcher: None for processes of this machine."""
    if config.launcher == "local":
        return None
    from asym.populations.launch import Launcher

    return Launcher(
        engine=config.launcher,
        folder=config.runs,
        at_once=config.jobs,
        gpus=config.gpus_per_worker or 0.0,
        slurm=slurm_options(config.slurm),
    )
