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
_COUNTERS: Final = {"power cap": "NVML_PERF_POLICY_POWER", "thermal": "NVML_PERF_POLICY_THERMAL"}


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
        before = self._held_back()
        yield facts
        if self._handle is None:
            return
        after = self._held_back()
        reasons = {name for name, time in after.items() if time > before.get(name, time)}
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # older bindings
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        reasons |= {name for bit, name in _REASONS.items() if int(bits or 0) & bit}
        facts["throttle"] = sorted(reasons)
        clock = self._ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")
        if clock is not None:
            facts["sm_mhz"] = int(clock)

    def _held_back(self) -> dict[str, int]:
        """Return for how long the card has been held back so far, by reason, in the driver's own unit."""
        found = {name: self._ask("nvmlDeviceGetViolationStatus", policy) for name, policy in _COUNTERS.items()}
        return {name: int(status.violationTime) for name, status in found.items() if status is not None}

    def _ask(self, function: str, constant: str = "") -> Any:
        """Call a function of NVML on the card; `None` where it, or its constant, is unknown or refused."""
        call: Callable[..., Any] | None = getattr(self._nvml, function, None)
        value = getattr(self._nvml, constant, None) if constant else None
        if call is None or (constant and value is None):
            return None
        try:
            return call(self._handle, value) if constant else call(self._handle)
        except self._nvml.NVMLError:
            return None
