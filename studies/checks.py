"""Checks of flags, each one line that names the flag, the value and the valid choices."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path


class InputError(ValueError):
    """Bad input, found before any work; its text is one line that names the flag, the value and the valid choices."""


def check_choice(flag: str, value: str, choices: Sequence[str]) -> None:
    """Raise an `InputError` that lists the choices, unless `value` is one."""
    if value not in choices:
        raise InputError(f"--{flag}: unknown {value!r}; valid: {', '.join(choices)}{_close(value, choices)}")


def check_least(flag: str, value: float | None, least: float) -> None:
    """Raise an `InputError` if a number is given and lies below `least`."""
    if value is not None and not least <= value < float("inf"):
        raise InputError(f"--{flag}: got {value}, must be a finite number of at least {least}")


def check_folder(flag: str, folder: Path) -> None:
    """Raise an `InputError` unless files can be written to a folder that exists or can be made.

    A nameless temporary file is opened in the nearest folder that exists, and gone at once.
    """
    nearest = next(path for path in (folder, *folder.resolve().parents) if path.exists() or path.is_symlink())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise InputError(f"--{flag}: cannot write to {folder} ({nearest}: {error.strerror})") from None


def check_positive(flag: str, value: float | None) -> None:
    """Raise an `InputError` if a number is given and is not positive and finite."""
    if value is not None and not 0 < value < float("inf"):
        raise InputError(f"--{flag}: got {value}, must be a positive number")


def check_once(flag: str, values: Sequence[float] | None) -> None:
    """Raise an `InputError` if a number is given twice."""
    if values is not None and len(set(values)) < len(values):
        raise InputError(f"--{flag}: given twice in {' '.join(f'{value:g}' for value in values)}")


def check_values(flag: str, values: Sequence[float] | None) -> None:
    """Raise an `InputError` unless numbers, if they are given, are some, positive and each given once."""
    if values is not None and not values:
        raise InputError(f"--{flag}: got none, give one or more")
    for value in values or ():
        check_positive(flag, value)
    check_once(flag, values)


def _close(value: str, choices: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(value, choices, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
