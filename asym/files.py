"""Files that are either whole or absent: temporary name on the same disk, fsync, rename; SHA-256 checksums.

A reader never sees half a file, and a process that is killed in the middle of a write leaves the old file
as it was, beside a temporary folder whose name says which process wrote there, so that it can be told from
one still in use.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_TEMPORARY = re.compile(r"^\.tmp-(?P<pid>\d+)-(?P<host>[0-9a-f]{8})-[0-9a-f]{8}-")
_A_DAY = 86_400.0
_UMASK = os.umask(0)  # can only be read by setting it
os.umask(_UMASK)


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file as a whole or not at all.

    Args:
        path: the file to write; an existing one is replaced in one step.
        write: called with a temporary path on the same disk, must create that file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A folder, not a file: some writers (safetensors) put temporary files of their own beside what they write.
    folder = path.parent / temporary_name(path.name)
    folder.mkdir()
    try:
        temporary = folder / path.name
        write(temporary)
        os.chmod(temporary, 0o666 & ~_UMASK)  # the same writers make files that only their owner can read
        sync(temporary)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync(path.parent)


def stamps(folder: Path, pattern: str = "*") -> tuple[tuple[Path, int, int], ...]:
    """File, size and time of change of the files of a folder that match: a key that changes with them."""
    found = ((file, file.stat()) for file in sorted(folder.glob(pattern)) if file.is_file())
    return tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in found)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with Unix line ends, as a whole or not at all."""
    replace_file(path, lambda temporary: temporary.write_bytes(text.encode()))


def sync(path: Path) -> None:
    """Ask the operating system to put a file's bytes, or a folder's list of names, onto the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder; its renames are journalled.
        return
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_files(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Names and checksums of files, in order of their names: what names a folder of data."""
    return [(file.name, sha256_file(file)) for file in sorted(files)]


def temporary_name(name: str) -> str:
    """A fresh name that says which process on which machine is writing `name`."""
    return f".tmp-{os.getpid()}-{_host()}-{secrets.token_hex(4)}-{name}"


def remove_abandoned(folder: Path, *, recursive: bool = False, dry_run: bool = False) -> list[Path]:
    """Delete what dead processes left in a folder (and below it); returns what it was, sorted."""
    found = folder.rglob(".tmp-*") if recursive else folder.glob(".tmp-*")
    doomed = sorted(path for path in found if is_abandoned(path))
    if not dry_run:
        for path in doomed:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return doomed


def is_abandoned(path: Path) -> bool:
    """Whether the process that made a temporary file or folder is gone.

    Decided by the process number on the same machine; on any machine what is older than a day is abandoned.
    """
    found = _TEMPORARY.match(path.name)
    if found is None:
        return False
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    if age > _A_DAY:
        return True
    return found["host"] == _host() and not _is_alive(int(found["pid"]))


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # signal 0 would end the process there; leave it to the age of the file.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
