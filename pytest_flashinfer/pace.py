"""How long the cases of a search take, and so which of them are called repeatedly."""

from __future__ import annotations

import time
from dataclasses import dataclass

SLOW_SECONDS = 0.06  # per case on average: beyond it, not every case is called repeatedly
REPEATED_EVERY = 4


@dataclass
class Pace:
    """Measures the cases that it is entered for; all are called repeatedly once a failure is to be shrunk."""

    large: bool = False  # the cases are so large that even the first few had better be called once
    failing: bool = False
    cases: int = 0
    seconds: float = 0.0
    _start: float = 0.0

    @property
    def repeat(self) -> bool:
        """Whether the next case is called repeatedly."""
        slow = self.large or self.seconds > SLOW_SECONDS * self.cases
        return self.failing or not slow or (self.cases + self.large) % REPEATED_EVERY == 0

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._start
        self.cases += 1
