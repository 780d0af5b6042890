"""How much processor time a process had, and how long it waited for a processor, as the system counts both."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

_SCHEDULED = 2  # in a process's clock, as clock_getcpuclockid makes it: CPUCLOCK_SCHED of Linux
_OWN = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds so far, or between two readings.

    `worked`: what all threads of a process had. `queued`: for how long its first thread, or this one that waits for it,
    could have gone on and had no processor, as on a busy machine or where a container has used up its share.
    """

    worked: float = 0.0
    queued: float = 0.0

    def until(self, now: ProcessorTime) -> ProcessorTime:
        """Return what came between this reading and another one; nothing where one of them was not to be had."""
        if not (self.worked and now.worked):
            return ProcessorTime()
        return ProcessorTime(now.worked - self.worked, now.queued - self.queued)


def processor_time(pid: int) -> ProcessorTime:
    """Read the times of a process; zeros where the system does not tell."""
    try:
        queued = sum(int(each.read_bytes().split()[1]) for each in (_OWN, Path(f"/proc/{pid}/schedstat")))
        return ProcessorTime(time.clock_gettime(~pid << 3 | _SCHEDULED), queued * 1e-9)
    except OSError:
        return ProcessorTime()
