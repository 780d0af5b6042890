from __future__ import annotations

import ctypes
import struct

import pytest

from pytest_flashinfer.worker import cupti
from pytest_flashinfer.worker.cupti import CuptiError, Tracer, demangle, find, parse

KERNEL, MEMCPY, MEMSET, PEER = 10, 1, 2, 22


def record(kind, *, start=1000, end=3000, word=0, size=0, name=0):  # noqa: PLR0913 - the fields of a record
    raw = bytearray(216)
    struct.pack_into("<I", raw, 0, kind)
    struct.pack_into("<I", raw, 4, word)
    struct.pack_into("<Q", raw, 8, size)
    struct.pack_into("<QQ", raw, 16, start, end)
    struct.pack_into("<I", raw, {KERNEL: 92, MEMCPY: 44, MEMSET: 44, PEER: 60}[kind], 5)
    if kind == KERNEL:
        struct.pack_into("<Q", raw, 104, name)
    return ctypes.create_string_buffer(bytes(raw), len(raw))


def parsed(*arguments, **fields):
    return parse(bytes(8) + record(*arguments, **fields).raw, 8)


def test_records_of_every_kind():
    name = ctypes.create_string_buffer(b"_Z3runPf")
    kernel = parsed(KERNEL, name=ctypes.addressof(name))
    assert kernel == (1000, 3000, 5, "run(float*)", 0, -1)
    assert parsed(KERNEL).name == "kernel"
    assert parsed(MEMSET, word=200, size=64) == (1000, 3000, 5, "memset", 64, 200)
    assert parsed(MEMCPY, word=8, size=4096) == (1000, 3000, 5, "memcpy DtoD", 4096, -1)
    assert parsed(PEER, word=10, size=1).correlation == 5


def test_records_without_times_or_of_other_kinds_are_left_out():
    assert parsed(MEMSET, start=0, end=0) is None
    assert parse(struct.pack("<I", 33) + bytes(200)) is None


def test_names_are_demangled_only_where_they_are_mangled():
    assert demangle(b"_ZN2at6native4copyEv") == "at::native::copy()"
    assert demangle(b"triton_rmsnorm_kernel") == "triton_rmsnorm_kernel"


def test_the_libcupti_of_torch_is_preferred_to_tritons():
    maps = (
        "7f00-7f01 r-xp 0 00:00 0   /site/triton/backends/nvidia/lib/cupti/libcupti.so.12\n"
        "7f02-7f03 r-xp 0 00:00 0   /site/nvidia/cu13/lib/libcupti.so.13\n"
    )
    assert find(maps) == "/site/nvidia/cu13/lib/libcupti.so.13"


def test_no_libcupti_is_said_in_one_line(monkeypatch, tmp_path):
    import torch

    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    with pytest.raises(CuptiError, match="no libcupti is loaded"):
        find("")
    with pytest.raises(CuptiError, match="cannot open shared object file"):
        Tracer(str(tmp_path / "libcupti.so"))


class Fake:
    """A libcupti that hands out one buffer of records."""

    def __init__(self, version=130000, enable=0):
        self.version, self.enable, self.disabled = version, enable, []

    def __getattr__(self, name):
        if not name.startswith("cupti"):
            raise AttributeError(name)
        return Call(lambda *arguments: self.answer(name, *arguments))

    def answer(self, name, *arguments):
        if name == "cuptiGetVersion":
            arguments[0]._obj.value = self.version
        elif name == "cuptiActivityRegisterCallbacks":
            self.request, self.complete = arguments
        elif name == "cuptiActivityEnable":
            return self.enable
        elif name == "cuptiActivityDisable":
            self.disabled.append(arguments[0])
        elif name == "cuptiGetResultString":
            arguments[1]._obj.value = b"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
        elif name == "cuptiActivityFlushAll":
            self.deliver()
        elif name == "cuptiActivityGetNextRecord":
            return self.step(*arguments)
        return 0

    def deliver(self):
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
        self.request(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
        assert size.value >= 432
        assert most.value == 0
        raw = record(MEMSET, word=1, size=4).raw + record(KERNEL).raw
        ctypes.memmove(buffer.value, raw, len(raw))
        self.complete(None, 0, buffer.value, size.value, len(raw))

    @staticmethod
    def step(address, valid, pointer):
        at = pointer._obj.value
        at = address if at is None else at + 216
        if at >= address + valid:
            return 12
        pointer._obj.value = at
        return 0


class Call:
    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)


def test_the_tracer_walks_the_buffers_that_it_gave_out(monkeypatch):
    monkeypatch.setattr(cupti.ctypes, "CDLL", lambda _: Fake())
    tracer = Tracer("fake")
    tracer.arm()
    for _ in range(3):
        records, dropped = tracer.drain()
        assert [each.name for each in records] == ["memset", "kernel"]
        assert dropped == 0
    assert len(tracer._free) == 2
    assert not tracer._in_use


def test_another_client_is_reported_and_everything_switched_off_again(monkeypatch):
    fake = Fake(enable=39)
    monkeypatch.setattr(cupti.ctypes, "CDLL", lambda _: fake)
    with pytest.raises(CuptiError, match=r"MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED \(39\)"):
        Tracer("fake").arm()
    assert fake.disabled == list(cupti.KINDS)


@pytest.mark.parametrize("version", [12, 200, 140000])
def test_a_version_whose_records_are_not_known_is_refused(monkeypatch, version):
    monkeypatch.setattr(cupti.ctypes, "CDLL", lambda _: Fake(version))
    with pytest.raises(CuptiError, match=f"version {version} is not known"):
        Tracer("fake")
