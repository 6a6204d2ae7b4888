"""One run = one folder named by the hash of what determines it.

    root/<kind>/<hash>/config.json               what was asked for, readable back
                       checkpoint-*.safetensors  ┐ the last checkpoint; the JSON names its tensors and is
                       checkpoint.json           ┘ replaced last, so the pair is always of one moment
                       tensors.safetensors       ┐
                       table-<name>.parquet      │ the result; finished.json holds the checksums of all
                       finished.json             ┘ and is written last: it is what makes a run finished

Every file is written to a temporary name and renamed (`asym.files`), so a process may be killed at any
moment and the folder holds the last state that was complete. Several processes may work on one store if
each holds `Run.lock()` while it trains.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asym.files import sha256_file, temporary_name, write_text
from asym.store.errors import CorruptRun
from asym.store.hashing import canonical, config_hash, without_defaults

if TYPE_CHECKING:
    import pandas
    import torch

CONFIG = "config.json"
CHECKPOINT = "checkpoint.json"
FINISHED = "finished.json"
TENSORS = "tensors.safetensors"
LOCKS = ".locks"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Run:
    """One run of a store; made by `Store.run`.

    Attributes:
        path: its folder, which may not exist yet.
        hash: the folder's name.
        config: the config as plain JSON values.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None):
        self.path = path
        self.hash = path.name
        self.config: dict[str, Any] = canonical(config)
        self._defaults: dict[str, Any] = canonical(defaults or {})
        self._checked: dict[str, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {'finished' if self.finished else 'unfinished'})"

    @property
    def finished(self) -> bool:
        """Whether the result is there."""
        return (self.path / FINISHED).exists()

    @contextmanager
    def lock(self, timeout: float | int | None = None) -> Iterator[Run]:
        """Hold this run alone, among all processes; waits for whoever holds it.

        Look at `finished` after entering: another process may have done the work meanwhile.

        Args:
            timeout: seconds to wait; None waits for ever.

        Raises:
            TimeoutError: not got within the timeout.
        """
        from filelock import FileLock, Timeout

        path = self.path.parent.parent / LOCKS / f"{self.path.parent.name}-{self.hash}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=-1 if timeout is None else timeout)
        try:
            lock.acquire()
        except Timeout:
            raise TimeoutError(f"{self.path}: another process is working on it") from None
        try:
            yield self
        finally:
            lock.release()

    def save_checkpoint(self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by this one; if the process dies meanwhile the old one stays.

        Args:
            tensors: named tensors of any shape, type and device; they come back on the CPU with the same
                bits.
            state: plain JSON values.

        Raises:
            ValueError: a state that JSON would not give back.
            RuntimeError: the run is finished.
        """
        from asym.store.formats import plain, write_sealed, write_tensors

        self._must_be_open()
        state = plain(state, "state")
        self._write_config()
        name = f"checkpoint-{secrets.token_hex(4)}.safetensors"
        write_tensors(self.path / name, tensors)
        write_sealed(self.path / CHECKPOINT, {"files": self._seal([name]), "state": state})
        for path in self.path.glob("checkpoint-*.safetensors"):
            if path.name != name:
                path.unlink(missing_ok=True)

    def load_checkpoint(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """The last checkpoint (tensors, state), or None if there is none.

        Raises:
            CorruptRun: it is there and damaged; names the file.
        """
        from asym.store.formats import read_sealed, read_tensors

        if not (self.path / CHECKPOINT).exists():
            return None
        body = read_sealed(self.path / CHECKPOINT)
        self._check(body["files"])
        (name,) = body["files"]
        # Cloned: the file is deleted by the next checkpoint, and training writes into these tensors.
        return {key: value.clone() for key, value in read_tensors(self.path / name).items()}, body["state"]

    def finish(
        self,
        tensors: Mapping[str, torch.Tensor],
        tables: Mapping[str, pandas.DataFrame] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the result; the run is finished when this returns and not before. Removes the checkpoint.

        Args:
            tensors: named tensors.
            tables: named tables; a table's index is not kept.
            state: plain JSON values.

        Raises:
            ValueError: a bad name or state.
            RuntimeError: the run is finished already (`discard` it first).
        """
        from asym.store.formats import plain, write_frame, write_sealed, write_tensors

        self._must_be_open()
        for name in tables or {}:
            if not NAME.fullmatch(name):
                raise ValueError(f"tables: {name!r} must be letters, digits, '_', '.' and '-'")
        state = plain(state or {}, "state")
        self._write_config()
        write_tensors(self.path / TENSORS, tensors)
        for name, frame in (tables or {}).items():
            write_frame(self.path / _table_file(name), frame)
        files = [TENSORS, *map(_table_file, tables or {})]
        write_sealed(self.path / FINISHED, {"files": self._seal(files), "state": state})
        for path in (self.path / CHECKPOINT, *self.path.glob("checkpoint-*.safetensors")):
            path.unlink(missing_ok=True)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The result's tensors, memory-mapped, after their checksum was compared (once per file and object).

        Raises:
            FileNotFoundError: the run is not finished.
            CorruptRun: a file is damaged; names it.
        """
        from asym.store.formats import read_tensors

        self._check(self._result()["files"], TENSORS)
        return read_tensors(self.path / TENSORS)

    def table(self, name: str) -> pandas.DataFrame:
        """One table of the result; raises as `tensors`, and KeyError for a name that was not written."""
        from asym.store.formats import read_frame

        files = self._result()["files"]
        if _table_file(name) not in files:
            raise KeyError(f"table {name!r}: {self.path} has {self.tables()}")
        self._check(files, _table_file(name))
        return read_frame(self.path / _table_file(name))

    def tables(self) -> list[str]:
        """The names of the result's tables."""
        names = [name for name in self._result()["files"] if name != TENSORS]
        return [name.removeprefix("table-").removesuffix(".parquet") for name in names]

    def state(self) -> dict[str, Any]:
        """The result's state; raises as `tensors`."""
        return self._result()["state"]

    def verify(self) -> None:
        """Compare every checksum of the result, or of the checkpoint where there is no result yet.

        Raises:
            CorruptRun: something is damaged; names the file.
        """
        self.check_config()
        self._checked.clear()
        if self.finished:
            self._check(self._result()["files"])
        else:
            self.load_checkpoint()

    def discard(self) -> None:
        """Delete everything of this run, so that it can be trained again."""
        if self.path.exists():
            # Renamed first: the run is gone in one step, also if deleting is interrupted.
            doomed = self.path.parent / temporary_name(self.hash)
            self.path.rename(doomed)
            shutil.rmtree(doomed) if doomed.is_dir() else doomed.unlink()
        self._checked.clear()

    def check_config(self) -> None:
        """Compare the folder's config.json, where there is one, with the folder's name and with this run.

        Raises:
            CorruptRun: they disagree, or results are there without a config.json.
        """
        if self.path.exists() and not self.path.is_dir():
            raise CorruptRun(self.path, "is a file, and should be a run's folder")
        if not (self.path / CONFIG).exists():
            for name in (FINISHED, CHECKPOINT):
                if (self.path / name).exists():
                    raise CorruptRun(self.path / CONFIG, f"the file is missing beside {name}")
            return
        config, defaults = read_config(self.path)
        if without_defaults(config, defaults) != without_defaults(self.config, self._defaults):
            raise CorruptRun(self.path / CONFIG, "describes another run than the one asked for")

    def _write_config(self) -> None:
        self.check_config()
        if not (self.path / CONFIG).exists():
            content = {"hash": self.hash, "config": self.config, "defaults": self._defaults}
            write_text(self.path / CONFIG, json.dumps(content, indent=1, sort_keys=True) + "\n")

    def _result(self) -> dict[str, Any]:
        from asym.store.formats import read_sealed

        if not self.finished:
            raise FileNotFoundError(f"{self.path}: the run is not finished")
        body = read_sealed(self.path / FINISHED)
        if not isinstance(body.get("files"), dict) or TENSORS not in body["files"] or "state" not in body:
            raise CorruptRun(self.path / FINISHED, "does not describe a result")
        return body

    def _must_be_open(self) -> None:
        if self.finished:
            raise RuntimeError(f"{self.path}: the run is finished; discard() it before writing it again")

    def _seal(self, names: list[str]) -> dict[str, str]:
        return {name: sha256_file(self.path / name) for name in names}

    def _check(self, files: Mapping[str, str], only: str | None = None) -> None:
        for name, expected in files.items():
            if only not in (None, name):
                continue
            path = self.path / name
            try:
                status = path.stat()
                version = (status.st_size, status.st_mtime_ns)
                if self._checked.get(name) == version:
                    continue
                found = sha256_file(path)
            except FileNotFoundError:
                raise CorruptRun(path, "the file is missing") from None
            except OSError as error:
                raise CorruptRun(path, f"cannot be read ({error.strerror})") from None
            if found != expected:
                raise CorruptRun(path, "checksum mismatch (the file is truncated or was altered)")
            self._checked[name] = version


def _table_file(name: str) -> str:
    return f"table-{name}.parquet"


def read_config(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Config and defaults of a run's folder; CorruptRun if its config.json does not determine that folder's name."""
    from asym.store.formats import read_json

    content = read_json(path / CONFIG)
    try:
        config, defaults = content["config"], content["defaults"]
        name = config_hash(config, defaults)
    except (KeyError, TypeError, ValueError):
        raise CorruptRun(path / CONFIG, "does not hold a config") from None
    if name != path.name:
        raise CorruptRun(path / CONFIG, f"describes run {name}, not {path.name} (the file was altered)")
    return config, defaults
