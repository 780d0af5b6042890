"""What the driver says of a card while it is timed: clocks, and why they were lowered. Asked by the judge alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Bits of nvmlClocksEventReasons; that a card was idle, or runs at the clocks that were asked for, is no complaint.
_REASONS: Final = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
    0x80: "power brake",
}  # fmt: skip


class Watch:
    """One card, by its UUID. Whatever the driver does not tell is left out; without NVML nothing is said."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        if not uuid:
            return
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            if uuid.startswith("MIG-"):
                handle = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            self._nvml, self._handle = pynvml, handle

    def clocks(self) -> dict[str, int]:
        """Return the highest clocks of the card in MHz."""
        kinds = {"sm_max_mhz": "NVML_CLOCK_SM", "memory_max_mhz": "NVML_CLOCK_MEM"}
        found = {name: self._ask("nvmlDeviceGetMaxClockInfo", kind) for name, kind in kinds.items()}
        return {name: int(value) for name, value in found.items() if value is not None}

    @contextlib.contextmanager
    def throttling(self) -> Iterator[dict[str, Any]]:
        """Fill the yielded dict at the end of the body: `throttle` names reasons met meanwhile, `sm_mhz` a clock."""
        facts: dict[str, Any] = {}
        bits, capped = self._reasons(), self._capped()
        yield facts
        if self._handle is None:
            return
        bits |= self._reasons() | (0x04 if self._capped() > capped else 0)
        facts["throttle"] = sorted(name for bit, name in _REASONS.items() if bits & bit)
        clock = self._ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")
        if clock is not None:
            facts["sm_mhz"] = int(clock)

    def _reasons(self) -> int:
        """Return why the clocks are lower than they could be right now, as bits."""
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # older bindings
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return int(bits or 0)

    def _capped(self) -> int:
        """Return for how long its power limit has held the card back so far, in the driver's own unit.

        Microseconds at the limit show here. Heat lasts longer than a measurement, and its counter takes 0.8 ms to read.
        """
        found = self._ask("nvmlDeviceGetFieldValues", "NVML_FI_DEV_PERF_POLICY_POWER", several=True)
        return int(found[0].value.ullVal) if found and not found[0].nvmlReturn else 0

    def _ask(self, function: str, constant: str = "", *, several: bool = False) -> Any:
        """Call a function of NVML on the card; `None` where it, or its constant, is unknown or refused."""
        call: Callable[..., Any] | None = getattr(self._nvml, function, None)
        value = getattr(self._nvml, constant, None) if constant else None
        if call is None or (constant and value is None):
            return None
        try:
            return call(self._handle, [value] if several else value) if constant else call(self._handle)
        except self._nvml.NVMLError:
            return None
