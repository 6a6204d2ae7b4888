"""The three formats of a run's files: sealed JSON, safetensors, parquet. Nothing is pickled.

Sealed JSON is `{"body": ..., "sha256": ...}` with the checksum of the body, so that the file that holds the
checksums of all others has one itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas
import torch

from asym.files import replace_file, write_text
from asym.store.errors import CorruptRun


def plain(value: Any, where: str) -> Any:
    """A copy of a value as JSON gives it back: lists for tuples, Python's numbers for NumPy's. NaN is kept.

    Raises:
        ValueError: for a value that would not come back as it went in; says which.
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{where}: keys must be strings, got {key!r}")
        return {key: plain(entry, f"{where}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, f"{where}[{index}]") for index, entry in enumerate(value)]
    raise ValueError(f"{where}: {type(value).__name__} does not go into JSON; tensors belong among the tensors")


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON body with its checksum, as a whole or not at all."""
    body = plain(body, path.stem)
    write_text(path, json.dumps({"body": body, "sha256": _seal(body)}, indent=1, sort_keys=True) + "\n")


def read_sealed(path: Path) -> dict[str, Any]:
    """The body of a sealed JSON file.

    Raises:
        CorruptRun: if the file cannot be read, is no such JSON, or its checksum does not fit.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("body"), dict) or "sha256" not in content:
        raise CorruptRun(path, "has neither body nor checksum")
    if _seal(content["body"]) != content["sha256"]:
        raise CorruptRun(path, "checksum mismatch (the file was altered)")
    return content["body"]


def read_json(path: Path) -> Any:
    """What a JSON file holds; CorruptRun if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CorruptRun(path, "the file is missing") from None
    except (OSError, ValueError) as error:
        raise CorruptRun(path, f"cannot be read as JSON, truncated or altered ({_one_line(error)})") from None


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write named tensors of any device and layout as safetensors, as a whole or not at all."""
    from safetensors.torch import save_file

    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    owners: set[int] = set()
    for (
        name,
        tensor,
    ) in flat.items():  # the format refuses two names of one memory, such as tied or sliced weights
        if tensor.numel() and tensor.untyped_storage().data_ptr() in owners:
            flat[name] = tensor.clone()
        owners.add(tensor.untyped_storage().data_ptr())
    replace_file(path, lambda temporary: save_file(flat, temporary))


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Named tensors of a safetensors file, memory-mapped: read when touched; writes do not reach the file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        raise CorruptRun(path, "the file is missing") from None
    except (OSError, SafetensorError) as error:
        raise CorruptRun(path, f"cannot be read as safetensors, truncated or altered ({_one_line(error)})") from None


def write_frame(path: Path, frame: pandas.DataFrame) -> None:
    """Write a table as parquet, without its index, as a whole or not at all."""
    replace_file(path, lambda temporary: frame.to_parquet(temporary, index=False))


def read_frame(path: Path) -> pandas.DataFrame:
    """A table from parquet."""
    try:
        return pandas.read_parquet(path)
    except FileNotFoundError:
        raise CorruptRun(path, "the file is missing") from None
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise CorruptRun(path, f"cannot be read as parquet, truncated or altered ({_one_line(error)})") from None


def _seal(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
