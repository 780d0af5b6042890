"""What NVML says of a card while it is timed, on an NVML that is simulated."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from pytest_flashinfer.worker.clock_monitor import Watch


class Nvml(ModuleType):
    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_FI_DEV_PERF_POLICY_POWER = range(3)

    def __init__(self):
        super().__init__("pynvml")
        self.bits, self.power, self.unknown, self.refused = 1, 100, 0, set()

    def nvmlInit(self):  # noqa: N802
        self._may("nvmlInit")

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        self._may("nvmlDeviceGetHandleByUUID")
        return f"handle of {uuid}"

    def nvmlDeviceGetMaxClockInfo(self, _handle, kind):  # noqa: N802
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 2619}[kind]

    def nvmlDeviceGetClockInfo(self, _handle, _kind):  # noqa: N802
        return 1755

    def nvmlDeviceGetFieldValues(self, _handle, fields):  # noqa: N802
        assert fields == [self.NVML_FI_DEV_PERF_POLICY_POWER]
        self._may("nvmlDeviceGetFieldValues")
        return [SimpleNamespace(nvmlReturn=self.unknown, value=SimpleNamespace(ullVal=self.power))]

    def nvmlDeviceGetCurrentClocksEventReasons(self, _handle):  # noqa: N802
        self._may("nvmlDeviceGetCurrentClocksEventReasons")
        return self.bits

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):  # noqa: N802
        return f"parent of {handle}"

    def _may(self, name):
        if name in self.refused:
            raise self.NVMLError("not supported")


@pytest.fixture
def nvml(monkeypatch):
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def watched(watch, body=lambda: None):
    with watch.throttling() as facts:
        body()
    return facts


def test_a_card_at_its_own_pace(nvml):
    watch = Watch("GPU-1")
    assert watched(watch) == {"throttle": [], "sm_mhz": 1755}
    assert watch.clocks() == {"sm_max_mhz": 1980, "memory_max_mhz": 2619}


def test_reasons_of_now_and_of_meanwhile(nvml):
    def hot():
        nvml.power += 5
        nvml.bits = 0x40 | 0x2

    assert watched(Watch("GPU-1"), hot)["throttle"] == ["hardware thermal slowdown", "power cap"]


@pytest.mark.parametrize(("unknown", "throttle"), [(0, ["power cap"]), (3, [])])
def test_a_counter_that_the_card_lacks_says_nothing(nvml, unknown, throttle):
    def capped():
        nvml.power += 5

    nvml.unknown = unknown
    assert watched(Watch("GPU-1"), capped)["throttle"] == throttle


@pytest.mark.parametrize(
    ("refused", "facts"),
    [
        ("nvmlInit", {}),
        ("nvmlDeviceGetHandleByUUID", {}),
        ("nvmlDeviceGetFieldValues", {"throttle": ["power brake"], "sm_mhz": 1755}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttle": [], "sm_mhz": 1755}),
    ],
)
def test_what_the_driver_does_not_tell_is_left_out(nvml, refused, facts):
    nvml.refused.add(refused)
    nvml.bits = 0x80
    assert watched(Watch("GPU-1")) == facts


def test_a_slice_is_asked_about_through_its_card(nvml):
    assert Watch("MIG-1")._handle == "parent of handle of MIG-1"


def test_without_a_card_nothing_is_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    watch = Watch("")
    assert watched(watch) == {}
    assert watch.clocks() == {}
