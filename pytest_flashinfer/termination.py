"""SIGTERM as what Ctrl-C is to pytest: batch systems end a run so, and what it has found is to be written."""

from __future__ import annotations

import signal
import threading
from typing import Final

_AS_CTRL_C: Final = signal.default_int_handler


class Termination:
    """The hooks of the process that writes what a run has found."""

    def pytest_sessionstart(self) -> None:
        """Take SIGTERM over, unless somebody else has or this is no place to do so: Python allows the main thread only.

        Processes that are started meanwhile do not inherit it: `exec` and the sandbox both reset it.
        """
        alone = threading.current_thread() is threading.main_thread()
        if alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _AS_CTRL_C)

    def pytest_unconfigure(self) -> None:
        """Give it back, if it is still ours."""
        alone = threading.current_thread() is threading.main_thread()
        if alone and signal.getsignal(signal.SIGTERM) is _AS_CTRL_C:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
