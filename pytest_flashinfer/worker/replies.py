"""The replies of a worker, which are read with distrust."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker.clock import Span
from pytest_flashinfer.worker.guards import Violation
from pytest_flashinfer.worker.log import printable
from pytest_flashinfer.worker.outcome import Compilation

if TYPE_CHECKING:
    from collections.abc import Mapping

_CUT = 1000  # characters of one message
_NAME = 60  # of a kernel, a parameter or its value
_ROWS = 64  # compilations of one call
_LEAST = 1e-9  # seconds: all clocks of a worker count in steps of that, or longer ones
_LONGEST = 1e9  # seconds


def as_list(value: object) -> list[Any]:
    """Return `value` where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def names(reply: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of texts of a reply."""
    return tuple(printable(str(name)[:_CUT]) for name in as_list(reply.get(key)))


def problems(reply: Mapping[str, Any]) -> list[Violation]:
    """Return what the worker found wrong with a result (kind, output, message); rows of another form are dropped."""
    rows = [row for row in as_list(reply.get("problems")) if isinstance(row, list) and len(row) == 3]  # noqa: PLR2004
    return [Violation(*(printable(str(part)[:_CUT]) for part in row)) for row in rows]


def compilations(reply: Mapping[str, Any]) -> tuple[Compilation, ...]:
    """Return what Triton compiled during a call; rows of another form are dropped."""
    rows = [row for row in as_list(reply.get("compiled"))[:_ROWS] if isinstance(row, list) and len(row) == 3]  # noqa: PLR2004
    return tuple(
        Compilation(_name(kernel), spent, {_name(key): _name(value) for key, value in constants.items()})
        for kernel, spent, constants in rows
        if isinstance(spent, (int, float)) and math.isfinite(spent) and spent >= 0 and isinstance(constants, dict)
    )


def _name(value: object) -> str:
    return printable(str(value)[:_NAME]).replace("\n", " ")


def no_time(reply: Mapping[str, Any]) -> list[Violation]:
    """Say what in a reply cannot be a time: an honest clock gives finite ones of a nanosecond or more.

    `seconds` may be 0 where a card's clock saw no activity; times for a cross-check may be 0, or left out on the CPU.
    """
    idle = reply.get("source") in ("cupti", "events")
    least = {"host_seconds": _LEAST, "seconds": _LEAST, "event_seconds": 0.0, "wall_seconds": 0.0}
    for key, smallest in least.items():
        value = reply.get(key)
        if key not in reply or (value is None and not smallest) or (idle and key == "seconds" and value == 0):
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not smallest <= value <= _LONGEST:
            said = printable(repr(value)[:_NAME])
            return [Violation("clock", "", f"the worker's clock says {said} for {key}, which is no time of a call")]
    return []


def span(reply: Mapping[str, Any], kernels: tuple[str, ...] = ()) -> Span:
    """Return what a worker's clock said about one call; what cannot be a time is 0, see `no_time`.

    `kernels` are the names that it knows of: a call has their numbers, and what is none of these is left out.
    """
    ran = [each for each in as_list(reply.get("kernels")) if type(each) is int and 0 <= each < len(kernels)]
    each = tuple(map(_seconds, as_list(reply.get("kernel_seconds"))))
    source = reply.get("source")
    return Span(
        seconds(reply, "seconds"),
        seconds(reply, "host_seconds"),
        _optional_seconds(reply, "event_seconds"),
        _optional_seconds(reply, "wall_seconds"),
        kernels=tuple(kernels[each] for each in ran),
        kernel_seconds=each,
        late=reply.get("late") is True,
        source=source if source in ("cupti", "events") else "wall",
        note=printable(str(reply.get("note") or "")[:_CUT]),
    )


def _optional_seconds(reply: Mapping[str, Any], key: str) -> float | None:
    return None if reply.get(key) is None else seconds(reply, key)


def seconds(reply: Mapping[str, Any], key: str) -> float:
    """Return a duration of a reply, 0 where it is none."""
    return _seconds(reply.get(key))


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and _LEAST <= value <= _LONGEST else 0.0
