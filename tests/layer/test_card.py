"""What one process has of a card, and what is said where its memory does not suffice."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.run.card import Card
from pytest_flashinfer.worker.cudart import CudaError
from pytest_flashinfer.worker.device import Device
from pytest_flashinfer.worker.memory import MemoryShort


def card(sharers=1, kind="cuda", index=0):
    return Card(Device(kind, index, name="C", memory=80 << 30, uuid="GPU-1"), sharers, lambda: None)


def test_what_is_kept_is_shared_and_what_is_used_for_a_moment_is_not():
    assert (card(8).memory, card(8).whole) == (10 << 30, 80 << 30)
    assert (card(kind="cpu").memory, card(kind="cpu").whole) == (0, 0)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory. Tried"), CudaError(2, "out of memory")])
@pytest.mark.parametrize(("sharers", "hint"), [(1, "another program may use it"), (3, "run fewer processes on it")])
def test_too_little_memory_is_one_line(monkeypatch, error, sharers, hint):
    monkeypatch.setattr(torch.cuda, "mem_get_info", {"cuda:2": (3 << 30, 80 << 30)}.get)
    monkeypatch.setattr(torch.cuda, "memory_allocated", {"cuda:2": 2 << 30}.get)
    line = rf"the memory of cuda:2 does not suffice to judge this \(2.0 GiB held here, 3.0 of 80.0 GiB free\): {hint}"
    with pytest.raises(MemoryShort, match=line), card(sharers, index=2).memory_needed():
        raise error


@pytest.mark.parametrize(
    ("sharers", "again", "times"), [(3, True, 3), (3, False, 1), (1, True, 1)], ids=["shared", "only once", "alone"]
)
@pytest.mark.parametrize("short", [1, 2, 9])
def test_a_check_waits_for_what_others_use_for_a_moment(monkeypatch, sharers, again, times, short):
    def check():
        asked.append(True)
        if len(asked) <= short:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried")

    asked, slept = [], []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (3 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda name: 0)
    monkeypatch.setattr("pytest_flashinfer.run.card.time.sleep", slept.append)
    with pytest.raises(MemoryShort) if short >= times else contextlib.nullcontext():
        card(sharers).run(check, again=again)
    assert len(asked) == min(short + 1, times)
    assert slept == [2.0, 8.0][: len(asked) - 1]


@pytest.mark.parametrize("error", [ValueError("out of memory"), CudaError(700, "an illegal memory access")])
def test_other_errors_stay_what_they_are(error):
    with pytest.raises(type(error)), card().memory_needed():
        raise error


@pytest.mark.parametrize("used", [True, False])
def test_only_a_device_that_this_process_uses_is_waited_for(monkeypatch, used):
    asked = []
    fake = SimpleNamespace(is_initialized=lambda: used, synchronize=asked.append)
    monkeypatch.setattr(torch, "cuda", fake)
    assert card().turns.settle is not None
    card().turns.settle()
    assert asked == (["cuda:0"] if used else [])


def held(**nbytes):
    return {f"{what}_bytes": {"all": {"current": count}} for what, count in nbytes.items()}


def test_what_a_test_leaves_unused_of_its_own_card_is_given_back(monkeypatch):
    given_back = []
    fakes = {
        "is_initialized": lambda: True,
        "memory_stats_as_nested_dict": {"cuda:2": held(reserved=9 << 30, allocated=1 << 30)}.get,
        "empty_cache": lambda: given_back.append(True),
    }
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(**fakes))
    with card(index=2).memory_needed():
        pass
    assert given_back


def test_torch_is_not_imported_to_wait_for_a_device(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    card().turns.settle()
    assert "torch" not in sys.modules
