"""Configs made in a notebook: a string for a path, a list or a single value for a tuple, as one would write them."""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints


def settle(config: Any) -> None:
    """Turn a frozen config's values, in place, into the types of its fields: `str` to `Path`, list or one to tuple.

    Commands give the declared types already and come out as they are; so do values that fit no declared type, which
    the config's own checks then name.
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = _settled(getattr(config, field.name), hints[field.name])
        object.__setattr__(config, field.name, value)


def _settled(value: Any, hint: Any) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if Path in options and isinstance(value, str):
        return Path(value)
    for option in options:
        if get_origin(option) is tuple and value is not None:
            items = value if isinstance(value, list | tuple) else (value,)
            return tuple(_settled(item, get_args(option)[0]) for item in items)
    return value
