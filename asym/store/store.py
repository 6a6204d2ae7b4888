"""A folder of runs: finds the one that a config determines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asym.store.hashing import config_hash
from asym.store.runs import CHECKPOINT, CONFIG, FINISHED, NAME, Run, read_config


class Store:
    """A folder of runs.

    Args:
        root: the folder; made when something is first written.
    """

    def __init__(self, root: str | Path):
        self.root = Path(root)

    def run(self, kind: str, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Run:
        """The run that this config determines, whether or not anything of it exists yet; creates nothing.

        Args:
            kind: what sort of thing it is, such as "population": a folder's name.
            config: everything that determines the result, and nothing else.
            defaults: see `config_hash`.

        Raises:
            ValueError: a bad kind or config.
            CorruptRun: the folder exists and its config.json is of another run or was altered.
        """
        run = self._run(kind, config, defaults)
        run.check_config()
        return run

    def discard(self, kind: str, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        """Delete the run that this config determines, whole or damaged, once no process holds it."""
        run = self._run(kind, config, defaults)
        with run.lock():
            run.discard()

    def _run(self, kind: str, config: Mapping[str, Any], defaults: Mapping[str, Any] | None) -> Run:
        if not NAME.fullmatch(kind):
            raise ValueError(f"kind: {kind!r} must start with a letter or digit and hold those, '_', '.', '-' only")
        return Run(self.root / kind / config_hash(config, defaults), config, defaults)

    def open(self, kind: str, name: str) -> Run:
        """An existing run by its hash, its config read from its config.json.

        Raises:
            FileNotFoundError: there is no such run.
            CorruptRun: its config.json is damaged.
        """
        path = self.root / kind / name
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: no such run")
        config, defaults = read_config(path)
        return Run(path, config, defaults)

    def folders(self) -> list[Path]:
        """The folders of all runs, sorted by kind and hash; a folder without any of a run's files is none."""
        return sorted(
            path
            for kind in _subfolders(self.root)
            for path in _subfolders(kind)
            if any((path / name).exists() for name in (CONFIG, CHECKPOINT, FINISHED))
        )


def _subfolders(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
