"""What a search says of the time that Triton spent compiling: time in which no size was tried."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flashinfer.worker.outcome import Compilation

MANY: Final = 8  # compilations of one kernel, and
OFTEN: Final = 0.25  # of the cases, and
LONG: Final = 0.2  # of the time, from which on it is worth a warning
VARIED: Final = 4  # values of one constant, which no specialisation on 1 and on multiples of 16 explains


def spent(compiled: Sequence[Compilation], seconds: float) -> float:
    """Return how long compiling took, by what the worker says, but no longer than `seconds`, the judge's own."""
    return min(seconds, sum(each.seconds for each in compiled))


def report(compiled: Sequence[Compilation], cases: int, seconds: float) -> str:
    """Return what was compiled in `cases` cases that took `seconds`, and which constants had it compiled anew."""
    kernel, count = Counter(each.kernel for each in compiled).most_common(1)[0]
    times = "once" if len(compiled) == 1 else f"{len(compiled)} times"
    took = f"{spent(compiled, seconds):.1f} s of their {seconds:.1f} s"
    text = f"Triton compiled {times} in {cases} cases, {took}, {count} of them `{kernel}`"
    varied = _varied([each for each in compiled if each.kernel == kernel])
    if varied:
        return f"{text}: {varied}; pass it as a plain argument, not as tl.constexpr, and it compiles once"
    if count > VARIED:
        return f"{text}: for other values of its arguments; see do_not_specialize of triton.jit"
    return text


def is_wasteful(compiled: Sequence[Compilation], cases: int, seconds: float) -> bool:
    """Say whether one kernel was compiled for many of the cases, and whether that took much of their time."""
    count = max(Counter(each.kernel for each in compiled).values(), default=0)
    return count >= max(MANY, OFTEN * cases) and spent(compiled, seconds) >= LONG * seconds


def _varied(compiled: Sequence[Compilation]) -> str:
    """Return the constant that had the most values, where those are many."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for each in compiled:
        for name, value in each.constants.items():
            values[name].add(value)
    name = max(values, key=lambda name: len(values[name]), default="")
    if len(values[name]) < VARIED:
        return ""
    return f"its constant `{name}` had {len(values[name])} values"
