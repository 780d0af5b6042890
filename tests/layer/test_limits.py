"""Where a run has its card's limits from: a data sheet, a measurement while nobody times, or nowhere."""

from __future__ import annotations

import pytest

from pytest_flashinfer.judge.performance import probing
from pytest_flashinfer.judge.performance.cards import Limits
from pytest_flashinfer.run.card import Card
from pytest_flashinfer.worker import card_sharing, lock
from pytest_flashinfer.worker.device import Device

FOUND = Limits(1e12, {"float16": 1e14}, "measured")


@pytest.fixture
def limits(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "shared_folder", lambda: tmp_path)

    def of(name, kind="cuda"):
        return Card(Device(kind, name=name, uuid="GPU-1"), 1, lambda: "pool").limits

    return of


def test_the_cpu_has_none(limits):
    assert limits("AMD EPYC", "cpu") is None


def test_a_listed_card_is_not_measured(limits, monkeypatch):
    monkeypatch.setattr(probing, "measured", lambda _: pytest.fail("measured"))
    assert limits("NVIDIA H100 80GB HBM3").source == "data sheet"


def test_another_is_measured_alone(limits, monkeypatch, tmp_path):
    def measured(pool):
        with pytest.raises(lock.LockedOut), lock.card_lock("GPU-1", tmp_path, most=0):
            pass
        return FOUND if pool == "pool" else None

    monkeypatch.setattr(probing, "measured", measured)
    assert limits("NVIDIA New") is FOUND


def test_a_card_that_is_never_free_has_none(limits, monkeypatch):
    def never(*_):
        raise lock.LockedOut("GPU-1 was not free")

    monkeypatch.setattr(card_sharing, "card_lock", never)
    assert limits("NVIDIA New") is None
