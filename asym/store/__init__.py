"""Results on disk: runs (one folder each, named by what determines it) and CSV tables.

`python -m asym.store list|verify|prune` looks after a folder of runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asym.store.errors import CorruptRun
from asym.store.hashing import config_hash
from asym.store.runs import Run
from asym.store.store import Store

if TYPE_CHECKING:
    from asym.store.tables import read_table, update_table

__all__ = ["CorruptRun", "Run", "Store", "config_hash", "read_table", "update_table"]


def __getattr__(name: str) -> Any:
    # Tables need pandas, which takes a second to load; hashes and listings do without.
    if name in ("read_table", "update_table"):
        from asym.store import tables

        return getattr(tables, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
