"""On a card the first two processes get ready at the same time."""

from __future__ import annotations

import time

from pytest_flashinfer.judge.oracle.client import HANDLER
from pytest_flashinfer.worker.errors import WorkerDied
from pytest_flashinfer.worker.pool import SOLVE, Pool


def test_a_process_of_each_kind_is_begun_and_then_handed_out():
    pool = Pool("cpu")
    try:
        seen = []
        pool.begin(HANDLER, lambda: seen.append(dict(pool._warm)))
        begun = dict(pool._warm)
        assert seen == [{}]  # the fork-server was still importing torch
        assert set(begun) == {SOLVE, HANDLER}
        assert pool.worker(HANDLER, successor=False) is begun[HANDLER]
        assert pool.worker(SOLVE, successor=False) is begun[SOLVE]
    finally:
        pool.close()


def test_nobody_waits_for_this_process_where_the_others_can_be_started():
    pool = Pool("cpu")
    try:
        pool._nursery.wait_ready()
        assert pool._nursery.ready
        seen = []
        pool.begin(HANDLER, lambda: seen.append(set(pool._warm)))
        assert seen == [{SOLVE, HANDLER}]
    finally:
        pool.close()


def test_the_next_one_waits_for_what_is_being_prepared():
    pool = Pool("cpu")
    try:
        pool.begin(HANDLER, lambda: None)
        other = pool._warm[HANDLER]
        slow = type("Slow", (), {"preparing": True, "alive": True, "start": other.start, "close": other.close})
        pool._warm[HANDLER] = slow
        first = pool.worker()
        assert set(pool._warm) == {HANDLER}
        slow.preparing = False
        assert pool.worker(HANDLER) is slow
        assert set(pool._warm) == {SOLVE, HANDLER}
        second = pool.worker()
        assert second is not first
        assert second.alive
    finally:
        pool.close()


def test_who_is_being_prepared_says_when_that_is_over():
    pool = Pool("cpu")
    try:
        pool.warm(SOLVE)
        worker = pool._warm[SOLVE]
        deadline = time.monotonic() + 60
        while worker.preparing and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not worker.preparing
        assert worker.protections is None  # nobody waited for it
        worker.start()
        assert worker.protections
        assert not worker.preparing
    finally:
        pool.close()


def test_that_none_can_be_had_is_for_whoever_needs_one(monkeypatch):
    pool = Pool("cpu")

    def refuse(handler=SOLVE):
        raise WorkerDied("no fork-server can be started")

    monkeypatch.setattr(pool, "warm", refuse)
    try:
        pool.begin(HANDLER, lambda: None)
    finally:
        pool.close()
