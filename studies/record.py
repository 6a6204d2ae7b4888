"""Which command made which table: one row a command in `<out>/runs.csv`, kept by the command itself.

A command is spelt with the settings that differ from the study's defaults; where its files lie, how many processes
worked and what was printed changes no result and is left out.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

PLACES = [
    "out",
    "runs",
    "data_dir",
    "download",
    "device",
    "jobs",
    "launcher",
    "gpus_per_worker",
    "slurm",
    "retrain",
    "dry_run",
    "quiet",
    "debug",
]
"""Settings that are no part of a result."""
TABLE = "runs.csv"
KEY = ("study", "command")


def settings(config: Any) -> dict[str, Any]:
    """The settings of a config that differ from its class's defaults, without `PLACES`; lists and plain values."""
    out = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in PLACES and value != _default(field):
            out[field.name] = _plain(value)
    return out


def command(study: str, config: Any) -> str:
    """The command line that gives this config: `python -m studies.lmc --arch mlp --pairs 3`."""
    words = ["python", "-m", f"studies.{study}"]
    for name, value in settings(config).items():
        values = value if isinstance(value, list) else [value]
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else [str(v) for v in values]
    return shlex.join(words)


def keep(study: str, config: Any) -> None:
    """Add the command to the table of its results folder, or bring its row up to date."""
    import pandas as pd

    from asym.store import update_table
    from studies.tables import commit

    row = {
        "study": study,
        "command": command(study, config),
        "settings": json.dumps(settings(config), ensure_ascii=False),
        "commit": commit(),
    }
    update_table(config.out / TABLE, pd.DataFrame([row]), KEY, volatile=("commit",))


def _default(field: dataclasses.Field) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value
