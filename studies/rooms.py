"""Where a study's work is done: modules that are imported when it begins, so that help and bad flags answer at once."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rooms:
    """The modules of `studies` behind one study, by name."""

    setup: str
    """Has `prepare(config)`: checks everything that can be checked, plans the work, writes no table and no network."""
    work: str
    """Has `execute(config, prepared)`: does the work, keeps the tables, returns the rows that belong to the config."""
    plan: str = ""
    """Has `plan_text(config, prepared)`: what a run would cost; by default the module of the work."""
    text: str = ""
    """Has `summary_text(config, prepared, rows)`: the table of the terminal; by default the module of the work."""

    def prepare(self, config: Any) -> Any:
        """What `execute` needs."""
        return _module(self.setup).prepare(config)

    def execute(self, config: Any, prepared: Any) -> Any:
        """The study's rows."""
        return _module(self.work).execute(config, prepared)

    def run(self, config: Any) -> Any:
        """Prepare and execute."""
        return self.execute(config, self.prepare(config))

    def plan_text(self, config: Any, prepared: Any) -> str:
        """What `--dry-run` prints."""
        return _module(self.plan or self.work).plan_text(config, prepared)

    def summary_text(self, config: Any, prepared: Any, rows: Any) -> str:
        """What is printed at the end."""
        return _module(self.text or self.work).summary_text(config, prepared, rows)


def _module(name: str) -> Any:
    return importlib.import_module(f"studies.{name}")
