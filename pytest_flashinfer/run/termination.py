"""SIGTERM as what Ctrl-C is to pytest: batch systems end a run so, and what it has found is to be written."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from subprocess import Popen


class Termination:
    """The hooks of the process that writes what a run has found, and of those that SIGINT does not reach."""

    def __init__(self) -> None:
        self._others: list[Popen[bytes]] = []  # processes of pytest-xdist

    def pytest_sessionstart(self) -> None:
        """Take SIGTERM over, unless somebody else has or this is no place to do so: Python allows the main thread only.

        Processes that are started meanwhile do not inherit it: `exec` and the sandbox both reset it.
        """
        if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._interrupt)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Know a process that runs items, if it is one of this machine."""
        process = getattr(getattr(node.gateway, "_io", None), "popen", None)
        if process is not None:
            self._others.append(process)

    def _interrupt(self, number: int, frame: Any) -> NoReturn:
        """Interrupt the others as well, as a terminal does with Ctrl-C: else they have seconds for their items."""
        for process in self._others:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM if _ignores_sigint() else signal.SIGINT)
        signal.default_int_handler(number, frame)

    def pytest_unconfigure(self) -> None:
        """Give it back, if it is still ours."""
        if _is_main() and signal.getsignal(signal.SIGTERM) == self._interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def register(config: pytest.Config) -> None:
    """Have SIGTERM interrupt this process of pytest-xdist where SIGINT does not, and is to be left so.

    A shell without a terminal starts what it runs in the background so, and it is inherited.
    """
    if _ignores_sigint():
        config.pluginmanager.register(Termination(), "flashinfer-termination")


def _ignores_sigint() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
