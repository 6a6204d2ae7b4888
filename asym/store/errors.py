"""What a damaged run is reported as."""

from __future__ import annotations

from pathlib import Path


class CorruptRun(ValueError):
    """A file of a run is missing, truncated, altered, or belongs to another run.

    Attributes:
        path: the file.
        reason: what is wrong with it.
    """

    def __init__(self, path: Path, reason: str):
        # Both go to the base class, so that the error survives the way back from a worker process.
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        remedy = f"delete the folder {self.path.parent} or pass --retrain to train this run again"
        return f"{self.path}: {self.reason}; {remedy}"
