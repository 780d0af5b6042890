"""The card's clock on a card that is simulated: time passes when work is enqueued."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_flashinfer.worker import cupti, device_clock
from pytest_flashinfer.worker.clockwork import Clockwork
from pytest_flashinfer.worker.cupti import CuptiError, Record
from pytest_flashinfer.worker.device_clock import DeviceClock

GAP = 1000  # ns between two activities


class Card:
    value = 9
    null_seconds = 2e-6
    flush_seconds = 33e-6
    new_mark = Clockwork.new_mark

    def __init__(self):
        self.l2 = SimpleNamespace(empty=lambda: self.work("sweep", 33_000), release_persisting=lambda: None)
        self.events, self.times = (0, 1, 2, 3), [0, 0, 0, 0]
        self._serial = 0
        self.now, self.busy_until, self.calls = 0, 0, 0
        self.records, self.spun, self.slowness = [], [], 1

    def work(self, name, nanoseconds, size=0, value=-1):
        self.calls += 1
        self.now += GAP
        self.records.append(Record(self.now, self.now + nanoseconds, self.calls, name, size, value))
        self.now += nanoseconds

    def aside(self, name, nanoseconds):
        self.calls += 1
        self.records.append(Record(self.now + GAP, self.now + GAP + nanoseconds, self.calls, name))
        self.busy_until = self.now + GAP + nanoseconds

    def mark(self, size):
        self.work("memset", 700, size, self.value)

    def spin(self, seconds):
        self.spun.append(seconds)
        self.work("spin", int(self.slowness * seconds * 1e9))

    def record(self, event):
        self.times[event] = self.now + GAP // 2

    def elapsed(self, first, second):
        return (self.times[second] - self.times[first]) * 1e-9

    def synchronize(self):
        self.now = max(self.now, self.busy_until)


class Tracer:
    def __init__(self, card):
        self.card, self.armed, self.rate, self.dropped, self.lose = card, 0, 1.0, 0, False

    def arm(self):
        if not self.armed:
            self.card.records.clear()
        self.armed = 1

    def disarm(self):
        self.armed = 0

    def drain(self):
        kept = [] if self.lose else self.card.records
        scaled = [each._replace(start=int(each.start * self.rate), end=int(each.end * self.rate)) for each in kept]
        return scaled, self.dropped


@pytest.fixture
def card(monkeypatch):
    card = Card()
    monkeypatch.setattr(device_clock, "clockwork", lambda _: card)
    card.tracer = Tracer(card)
    monkeypatch.setattr(cupti, "tracer", lambda: card.tracer)
    return card


def taken(clock, call, launches=3):
    for _ in range(launches):
        with clock.span():
            call()
    return clock.read()


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_spans_come_from_the_records_between_the_marks(card, cache):
    clock = DeviceClock("cuda:0", cache)

    def call():
        card.work("a", 5000)
        card.work("b", 2000)

    for span in taken(clock, call):
        assert span.seconds == pytest.approx(8e-6)
        assert span.kernels == ("a", "b")
        assert (span.source, span.late) == ("cupti", False)
        assert span.event_seconds == pytest.approx(9e-6)
        assert span.host_seconds > 0
    assert card.tracer.armed == 0
    assert clock.read() == []


def test_calls_that_are_skipped_are_in_no_reading(card):
    clock = DeviceClock("cuda:0", "warm")
    for nanoseconds in (9000, 4000):
        for _ in range(3):
            with clock.span():
                card.work("warm", nanoseconds)
        assert clock.skip() == pytest.approx([nanoseconds * 1e-9 + 1e-6] * 3)
    assert clock.skip() == []
    spans = taken(clock, lambda: card.work("k", 2000), launches=2)
    assert [(span.kernels, span.source) for span in spans] == [(("k",), "cupti")] * 2
    assert [span.seconds for span in spans] == pytest.approx([2e-6] * 2)
    assert card.tracer.armed == 0


def test_only_a_cold_call_is_preceded_by_the_flush(card):
    for cache, flushes in (("cold", 3), ("warm", 0)):
        clock = DeviceClock("cuda:0", cache)
        card.records.clear()
        taken(clock, lambda: card.work("k", 1000))
        assert sum(record.name == "sweep" for record in card.records) == flushes


class Host:
    """The host's clock: each look at it is `step` nanoseconds after the last one."""

    def __init__(self, clock, monkeypatch, step):
        self.now, self.step = 10**12, step
        monkeypatch.setattr(clock, "_now", self.look)

    def look(self):
        self.now += self.step
        return self.now

    def spend(self, nanoseconds):
        self.now += nanoseconds


def test_the_head_start_follows_the_host_part_of_a_call_and_is_bounded(card, monkeypatch):
    clock = DeviceClock("cuda:0", "warm")
    host = Host(clock, monkeypatch, 100_000)
    taken(clock, lambda: card.work("k", 1000))
    assert card.spun == pytest.approx([605e-6, 485e-6, 205e-6]), "that of a call right after another is its own"
    host.step = 9_000_000
    taken(clock, lambda: card.work("k", 1000))
    assert card.spun[3:] == pytest.approx([485e-6, 5e-3, 5e-3]), "the first one follows a break"


def test_a_call_of_several_kernels_that_outruns_its_head_start_says_so(card, monkeypatch):
    clock = DeviceClock("cuda:0", "warm")
    Host(clock, monkeypatch, 6_000_000)  # longer than any head start
    spans = taken(clock, lambda: (card.work("a", 1000), card.work("b", 1000)))
    assert {span.note for span in spans} == {"the host took longer than its head start: its pace may show"}
    assert {span.note for span in taken(clock, lambda: card.work("a", 1000))} == {""}, "one kernel waits for nobody"
    quick = DeviceClock("cuda:0", "warm")
    Host(quick, monkeypatch, 20_000)
    assert {span.note for span in taken(quick, lambda: (card.work("a", 1000), card.work("b", 1000)))} == {""}


def test_a_slow_call_keeps_the_next_head_starts_long(card, monkeypatch):
    clock = DeviceClock("cuda:0", "warm")
    host = Host(clock, monkeypatch, 10_000)
    late = iter([0, 0, 90_000, 0, 0])
    taken(clock, lambda: (host.spend(next(late)), card.work("k", 1000)), launches=5)
    assert card.spun[2:] == pytest.approx([25e-6, 2 * 100e-6 + 5e-6, 2 * 80e-6 + 5e-6])


def test_a_call_after_a_break_has_the_head_start_of_such_calls(card, monkeypatch):
    clock = DeviceClock("cuda:0", "warm")
    host = Host(clock, monkeypatch, 20_000)
    taken(clock, lambda: card.work("k", 1000))
    for share in (0.8, 0.8**2, 0.8**3):
        host.spend(5_000_000)
        taken(clock, lambda: card.work("k", 1000), launches=2)
        assert card.spun[-2:] == pytest.approx([2 * share * 300e-6 + 5e-6, 45e-6])


@pytest.mark.parametrize("slowness", [1, 3])
def test_a_head_start_that_takes_longer_than_asked_is_not_the_call_s_time(card, monkeypatch, slowness):
    clock = DeviceClock("cuda:0", "warm")
    Host(clock, monkeypatch, 1_500_000)
    card.slowness = slowness
    (span,) = taken(clock, lambda: card.work("k", 1000), launches=1)
    ahead = slowness * card.spun[0] + 2 * GAP * 1e-9 + 700e-9
    assert span.wall_seconds == pytest.approx(3e-3 - ahead, abs=2e-9)


def test_a_stream_that_the_caller_does_not_wait_for_is_late(card):
    (span,) = taken(DeviceClock("cuda:0"), lambda: card.aside("k", 90_000), launches=1)
    assert span.late
    assert span.seconds == pytest.approx(90e-6)


def test_without_cupti_events_are_used_and_the_reason_is_kept(card, monkeypatch):
    def none():
        raise CuptiError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)")

    monkeypatch.setattr(cupti, "tracer", none)
    clock = DeviceClock("cuda:0")
    (span,) = taken(clock, lambda: card.work("k", 5000), launches=1)
    assert span.source == "events"
    assert span.seconds == pytest.approx(6e-6 - 2e-6)
    assert clock.fallback.startswith("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS")
    assert span.note == clock.fallback


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lose": True}, "records are incomplete"),
        ({"dropped": 4}, "dropped 4 records"),
        ({"rate": 2.1}, "does not run at the rate"),
    ],
)
def test_records_that_cannot_be_trusted_are_replaced_by_events(card, change, reason):
    clock = DeviceClock("cuda:0")
    vars(card.tracer).update(change)
    spans = taken(clock, lambda: card.work("k", 5000))
    assert {span.source for span in spans} == {"events"}
    assert reason in clock.fallback
    vars(card.tracer).update(lose=False, dropped=0, rate=1.0)
    assert taken(clock, lambda: card.work("k", 5000))[0].source == "cupti"


def test_calls_of_one_measurement_have_one_clock(card):
    clock = DeviceClock("cuda:0")

    def call():
        card.work("k", 5000)
        if card.calls > 6:  # another client takes what came before
            card.records[:] = card.records[-2:]

    assert {span.source for span in taken(clock, call)} == {"events"}
    assert "incomplete" in clock.fallback


def test_one_call_in_which_the_host_was_held_up_does_not_discredit_the_records(card):
    clock = DeviceClock("cuda:0")

    def call():
        card.work("k", 5000)
        if card.calls < 10:
            card.times[1] -= 400_000  # the first event came long before the mark

    assert {span.source for span in taken(clock, call, launches=5)} == {"cupti"}


def test_events_that_read_too_much_about_every_short_call_do_not_discredit_the_records(card):
    clock = DeviceClock("cuda:0")

    def call():
        card.work("k", 2000)
        card.times[1] -= 9_000  # of 12 us that they read then

    assert {span.source for span in taken(clock, call, launches=5)} == {"cupti"}


def test_a_call_that_raises_leaves_no_span(card):
    clock = DeviceClock("cuda:0")
    with pytest.raises(ZeroDivisionError), clock.span():
        _ = 1 / 0
    assert len(taken(clock, lambda: card.work("k", 1000), launches=2)) == 2
