"""The name of a run: a hash of what determines it.

    hash = first 12 hexadecimal digits of SHA-256(canonical JSON of config without what equals its default)

Leaving defaults out means that a field added later, with a default that does what was done before, keeps
every old name; this is how a store outlives the code that filled it.

Canonical: keys sorted, no spaces, tuples are lists, NumPy scalars are Python's, and a float with an
integral value is the integer (a flag `--lr 1` and a default of `1.0` are the same run). NaN and infinity
are refused.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

HASH_LENGTH = 12


def config_hash(config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> str:
    """The run's name: 12 hexadecimal digits.

    Args:
        config: nested mappings, sequences, dataclasses, strings, numbers, booleans and None.
        defaults: what a missing entry means, nested like config; entries equal to it do not count.

    Raises:
        ValueError: an entry that has no canonical form (NaN, a path, an array, a key that is no string);
        says which.
    """
    return _digest(without_defaults(canonical(config), canonical(defaults or {})))


def _digest(canonical_config: Any) -> str:
    text = json.dumps(canonical_config, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def canonical(value: Any, where: str = "config") -> Any:
    """Plain JSON values with one spelling each; see the module's text."""
    value = _unpack(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where}: {value} cannot determine a run; use a finite number or None")
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{where}: keys must be strings, got {key!r}")
        return {key: canonical(entry, f"{where}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(entry, f"{where}[{index}]") for index, entry in enumerate(value)]
    if isinstance(value, PurePath):
        raise ValueError(f"{where}: {value} is a path; a run is determined by contents (a fingerprint), not by places")
    raise ValueError(
        f"{where}: {type(value).__name__} has no canonical form; use None, booleans, numbers, texts, lists, mappings"
    )


def _unpack(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if _is_numpy_scalar(value):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _is_numpy_scalar(value: Any) -> bool:
    # NumPy itself is not imported: a command that only lists runs does without.
    return type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0


def without_defaults(config: Any, defaults: Any) -> Any:
    """A canonical config without the entries that equal their default, level by level."""
    if not isinstance(config, Mapping) or not isinstance(defaults, Mapping):
        return config
    kept = {}
    for key, value in config.items():
        if key not in defaults:
            kept[key] = value
        elif isinstance(value, Mapping) and isinstance(defaults[key], Mapping):
            inner = without_defaults(value, defaults[key])
            if inner:
                kept[key] = inner
        elif not _same(value, defaults[key]):
            kept[key] = value
    return kept


def _same(a: Any, b: Any) -> bool:
    # True == 1 in Python, but not in a config.
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
