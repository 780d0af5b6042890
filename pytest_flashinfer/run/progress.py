"""What the item at work is doing: shown behind the current line of a terminal, gone when the next thing is printed."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.run.distribution import is_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

SAVE, ERASE, RESTORE = "\x1b7", "\x1b[K", "\x1b8"
NARROWEST = 12  # columns, below which nothing is shown
SECONDS_BETWEEN = 0.1  # at least, between two steps of the same thing


class Progress:
    """Writes to pytest's terminal, past its capturing, only where somebody watches.

    The cursor stays where pytest left it, so nothing that pytest prints moves, and a log holds no word of it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._last = 0.0

    @contextmanager
    def doing(self, text: str) -> Iterator[None]:
        """Show `text` while the block runs."""
        self._write(text)
        try:
            yield
        finally:
            self._write("")

    def step(self, text: str) -> None:
        """Show `text` in place of what was shown, unless that was just now."""
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN:
            self._last = now
            self._write(text)

    def clear(self) -> None:
        """Leave nothing behind."""
        self._write("")

    def _reporter(self) -> Any:
        """Return pytest's reporter where it writes to a terminal that understands cursor movements, else `None`."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or is_worker(self.config) or os.environ.get("TERM", "dumb") == "dumb":
            return None
        return reporter if reporter.isatty and reporter.verbosity >= 0 else None

    def _write(self, text: str) -> None:
        reporter = self._reporter()
        if reporter is None:
            return
        writer = reporter._tw  # noqa: SLF001 - pytest has no other way to the file that it writes to
        room = writer.fullwidth - writer.width_of_current_line - 2
        if room < NARROWEST:
            return
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            shown = f" {text[:room]}" if text else ""
            writer._file.write(f"{SAVE}{shown}{ERASE}{RESTORE}")  # noqa: SLF001
            writer._file.flush()  # noqa: SLF001
