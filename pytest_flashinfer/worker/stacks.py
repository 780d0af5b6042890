"""Where a worker's Python is when it crashes, exits or is given up: written into its log, and read from there.

What stands in the log is the worker's word: a stack is shown, and decides nothing.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from typing import NoReturn

end = os._exit  # which says nothing of where it was
SIGNAL = signal.SIGUSR1  # asks for the stack of a worker that is about to be killed
_LONGEST = 16_000  # characters of a stack
_DUMP = re.compile(
    r"(?:Fatal Python error: [^\n]*\n\n)?"
    r"Stack \(most recent call first\):\n"
    r"((?:  [^\n]*\n)+)(?:\n?Extension modules: [^\n]*\n?)?"
)


def tell(log: int) -> None:
    """Have this process write its stack to the descriptor `log` when it crashes or exits, and when `SIGNAL` comes.

    That of the thread that crashes or exits, or that takes the signal: as a rule the one that calls the solution.
    Of its child processes, which end so as well, none says where.
    """
    faulthandler.enable(log, all_threads=False)
    faulthandler.register(SIGNAL, log, all_threads=False)
    own, dump = os.getpid(), faulthandler.dump_traceback

    def _exit(status: int) -> NoReturn:
        if os.getpid() == own:
            dump(log, all_threads=False)
        end(status)

    os._exit = _exit


def split(log: str) -> tuple[str, str]:
    """Return a log without the stack that was written last, and that stack in the order of a traceback."""
    *_, found = (None, *_DUMP.finditer(log))
    if found is None:
        return log, ""
    frames = [line for line in found[1][:_LONGEST].splitlines() if line.startswith('  File "')]
    return log[: found.start()] + log[found.end() :], "\n".join(reversed(frames))
