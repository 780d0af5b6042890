"""Work goes on side by side, timing alone; a process that works lets one that times go first."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from pytest_flashinfer.worker.card_sharing import Turns
from pytest_flashinfer.worker.lock import LockedOut


@pytest.fixture
def turns(tmp_path):
    """Make the turns of further processes: each has descriptors of its own, and flock goes by those."""
    made = []

    def make(settle=lambda: None):
        made.append(Turns("GPU-1", settle, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def in_thread(body):
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def test_work_goes_on_beside_work(turns):
    with turns().working(), turns().working(), turns().working():
        pass


def test_timing_waits_for_work_that_does_not_pause(turns):
    words = "GPU-1 was not free for 0.05 s"
    with turns().working(), pytest.raises(LockedOut, match=words), turns().alone(most=0.05):
        pytest.fail("it timed beside work")
    with turns().alone(most=0.05):
        pass


def test_two_do_not_time_at_once(turns):
    with turns().alone(), pytest.raises(LockedOut), turns().alone(most=0.05):
        pytest.fail("two timed")


def test_work_pauses_between_calls_once_its_device_is_idle(turns):
    seen = []
    worker, timer = turns(lambda: seen.append("settled")), turns()

    def time_something():
        with timer.alone(most=20):
            seen.append("timed")

    with worker.working():
        worker.give_way()
        assert seen == []  # nobody waits
        thread = in_thread(time_something)
        while "timed" not in seen:
            worker.give_way()
        thread.join(20)
        worker.give_way()
    assert seen == ["settled", "timed", "settled"]


def test_who_works_goes_on_only_after_the_timing(turns):
    worker, timer = turns(), turns()
    order = []

    def work():
        with worker.working():
            order.append("work")

    with timer.alone():
        thread = in_thread(work)
        time.sleep(0.05)
        order.append("timing ends")
    thread.join(20)
    assert order == ["timing ends", "work"]


def test_many_that_work_do_not_keep_one_from_timing(turns):
    over = threading.Event()

    def work():
        own = turns()
        while not over.is_set():
            with own.working():
                for _ in range(10):
                    own.give_way()
                    time.sleep(0.0005)

    threads = [in_thread(work) for _ in range(6)]
    with turns().alone(most=20):
        pass
    over.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_an_item_that_works_may_time_in_between(turns):
    own, other = turns(), turns()
    with own.working():
        with own.alone(most=1), pytest.raises(LockedOut), other.alone(most=0.05):
            pytest.fail("two timed")
        with pytest.raises(LockedOut), other.alone(most=0.05):
            pytest.fail("its work had ended")
    with other.alone(most=1):
        pass


def test_an_error_ends_both(turns):
    own = turns()
    with pytest.raises(ZeroDivisionError), own.working(), own.alone():
        _ = 1 / 0
    with turns().alone(most=0.05):
        pass


def test_on_the_cpu_only_timing_takes_turns(turns, tmp_path):
    one, two = turns(settle=None), turns(settle=None)
    with one.working(), two.alone(most=0.05):
        one.give_way()
        with pytest.raises(LockedOut), one.alone(most=0.05):
            pytest.fail("two timed")


def test_without_a_place_for_locks_work_goes_on_and_timing_says_so(tmp_path):
    own = Turns("GPU-1", lambda: None, tmp_path / "none")
    with own.working():
        own.give_way()
    with pytest.raises(LockedOut, match="cannot be opened"), own.alone():
        pytest.fail("without a lock")


def test_a_device_that_fails_keeps_nobody_waiting(turns):
    def fails():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    broken = turns(fails)
    with pytest.raises(RuntimeError, match="illegal"), broken.working():
        pass
    with turns().alone(most=0.05):
        pass


def test_a_process_forked_off_meanwhile_does_not_keep_the_card(turns):
    read, write = os.pipe()
    with turns().alone():
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    try:
        with turns().alone(most=0.05):
            pass
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_a_lock_that_cannot_be_made_costs_no_descriptors(turns, tmp_path):
    mine = turns()
    with mine.alone():
        pass
    (second,) = (path for path in tmp_path.iterdir() if not path.read_text())
    second.unlink()
    second.mkdir()
    other = turns()
    with other.working():
        pass
    before = open_descriptors()
    for _ in range(3):
        with other.working():
            pass
    assert open_descriptors() == before
