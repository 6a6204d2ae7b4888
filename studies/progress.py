"""Progress on stderr: a bar with an estimate of the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

PLAIN_EVERY_S = 30.0


class Progress:
    """Counts work done against a total.

    Args:
        total: amount of work, in units of the caller's choice.
        label: what is being done.
        quiet: whether to show nothing.
    """

    def __init__(self, total: float, label: str, *, quiet: bool = False) -> None:
        self.total, self.label, self.done = max(total, 1e-9), label, 0.0
        self.start = self.last = time.monotonic()
        self.quiet, self.bar = quiet, None
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm

            form = "{desc} {percentage:3.0f}% |{bar}| {elapsed} gone, {remaining} left"
            self.bar = tqdm(total=round(self.total, 3), desc=label, bar_format=form, file=sys.stderr)

    def add(self, amount: float) -> None:
        """Record work done."""
        self.done += amount
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(min(amount, self.bar.total - self.bar.n))
        elif not self.quiet and now - self.last > PLAIN_EVERY_S and self.done < self.total:
            self.last = now
            left = (now - self.start) * (self.total - self.done) / max(self.done, 1e-9)
            print(f"{self.label}: {self.done / self.total:.0%}, about {_duration(left)} left", file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
        elif not self.quiet and kind is None:
            print(f"{self.label}: done in {_duration(time.monotonic() - self.start)}", file=sys.stderr)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
