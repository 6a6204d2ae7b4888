"""Readers and editors of implicit networks by name and add-ons, such as `gmn+matched+gauge`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from asym.metanets import READERS, Reader, build
from asym.metanets.editing import EDITORS
from asym.symmetry.chain import Chain

REFERENCE = "scale-gmn"
"""The reader whose number of parameters `+matched` takes."""
AUGMENT = 2.0
"""Where units have signs alone, any factor above 1 means random signs."""


def sizes_of(task: str, name: str, size: int) -> dict[str, Any]:
    """Options of a reader that make it `size` wide: the one number by which it is matched to another."""
    if not name.startswith("nfn"):
        return {"width": size}
    return (
        {"channels": (size, size)}
        if task == "edit"
        else {"channels": (size, size, max(1, size // 3)), "width": 4 * size}
    )


def build_reader(task: str, reader: str, frame: Chain, classes: int, width: int, sign: str, seed: int) -> Any:
    """A reader (task classify) or an editor (task edit) by name and add-ons.

    Raises:
        ValueError: naming the reader, if there is none of that name for the task.
    """
    name, *add_ons = reader.split("+")
    among = EDITORS if task == "edit" else READERS
    out = {} if task == "edit" else {"out": classes}
    options: dict[str, Any] = {"gauge": "gauge" in add_ons, "shuffle": "shuffle" in add_ons}
    options |= {"augment": AUGMENT} if "augment" in add_ons else {}
    make = functools.partial(build, among=among, seed=seed, **out)
    if name.startswith(REFERENCE):
        options["sign"] = sign
    if "matched" in add_ons:
        wanted = parameters(lambda size: make(REFERENCE, frame, width=size, sign=sign), width)
        own = {"sign": sign} if name.startswith(REFERENCE) else {}
        options |= sizes_of(
            task, name, matched_size(lambda s: make(name, frame, **sizes_of(task, name, s), **own), wanted)
        )
    elif "gmn" in name:
        options["width"] = width
    return make(name, frame, **options)


def parameters(make: Callable[[int], Reader], size: int) -> int:
    """Parameters of a reader of a size, without memory for them."""
    with torch.device("meta"):
        return sum(p.numel() for p in make(size).parameters())


def matched_size(make: Callable[[int], Reader], wanted: int) -> int:
    """The size at which a reader comes closest to a number of parameters, at least 1."""
    low, high = 1, 2
    while parameters(make, high) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if parameters(make, middle) < wanted else (low, middle)
    return min((low, high), key=lambda size: abs(parameters(make, size) - wanted))
