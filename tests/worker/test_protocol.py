"""Frames: what is written is read, and what no worker would write is refused."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.worker import protocol
from pytest_flashinfer.worker.protocol import (
    FROM_WORKER,
    HEADER,
    MAX_DEPTH,
    Channel,
    Disconnected,
    ProtocolError,
    decode,
    encode,
)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    yield Channel(left, FROM_WORKER), Channel(right, FROM_WORKER)
    left.close()
    right.close()


@given(st.dictionaries(st.text(), plain, max_size=4))
def test_what_is_encoded_is_decoded(message):
    assert decode(encode(message)[HEADER.size :]) == message


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_decode_or_be_refused(data):
    try:
        decoded = decode(data)
    except ProtocolError:
        decoded = {}
    assert isinstance(decoded, dict)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"3",
        b"\xff\xfe",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
        b'{"a":[' + b"0," * 200_000 + b"0]}",
    ],
    ids=lambda body: f"{len(body)}-{body[:12]!r}",
)
def test_hostile_bodies_are_refused(body):
    with pytest.raises(ProtocolError):
        decode(body)


def test_a_frame_that_arrives_in_pieces_is_one_frame(pair):
    ours, theirs = pair
    data = encode({"id": 7, "text": "x" * 1000})
    for start in range(0, len(data), 13):
        assert ours.take() is None
        theirs.sock.sendall(data[start : start + 13])
        ours.feed()
    assert ours.take() == {"id": 7, "text": "x" * 1000}
    assert not ours.pending


def test_a_length_above_the_limit_is_refused_before_its_body_comes(pair):
    ours, theirs = pair
    theirs.sock.sendall(struct.pack("!I", FROM_WORKER + 1))
    ours.feed()
    with pytest.raises(ProtocolError, match="claims"):
        ours.take()


def test_the_end_of_the_stream_is_told_apart_from_silence(pair):
    ours, theirs = pair
    assert ours.feed() is False
    theirs.sock.close()
    with pytest.raises(Disconnected):
        ours.feed()


def test_one_who_looks_all_the_time_takes_what_comes_and_gives_up_in_time(pair):
    ours, theirs = pair
    start = time.monotonic()
    assert ours.poll(0.05) is None
    assert 0.05 <= time.monotonic() - start < 5
    frame = encode({"a": 1}) + encode({"b": 2})
    later = threading.Timer(0.05, theirs.sock.sendall, [frame[:9]])
    later.start()
    assert ours.poll(0.1) is None, "half a frame is none"
    later.join()
    theirs.sock.sendall(frame[9:])
    assert [ours.poll(5), ours.poll(0)] == [{"a": 1}, {"b": 2}]
    theirs.sock.close()
    with pytest.raises(Disconnected):
        ours.poll(5)


@pytest.mark.parametrize("soon", [0.0, 0.01, 5.0])
def test_a_worker_takes_what_comes_soon_and_what_comes_later(pair, soon, tmp_path):
    ours, theirs = pair
    with (tmp_path / "file").open("w") as handle:
        later = threading.Timer(0.1, ours.send, [{"a": 1, "fds": 1}, [handle.fileno()]])
        later.start()
        message, fds = theirs.receive(max_fds=1, soon=soon)
        later.join()
    assert message == {"a": 1}
    assert len(fds) == 1
    os.close(fds[0])


def test_descriptors_reach_the_worker_and_none_come_back(pair, tmp_path):
    ours, theirs = pair
    (tmp_path / "f").write_text("inside")
    with (tmp_path / "f").open() as file:
        ours.send({"do": "map", "fds": 1}, [file.fileno()], timeout=5)
    message, fds = theirs.receive(max_fds=1)
    assert message == {"do": "map"}
    with open(fds[0]) as received:  # noqa: PTH123 - a descriptor
        assert received.read() == "inside"
    with (tmp_path / "f").open() as file:
        theirs.send({"id": 1}, [file.fileno()], timeout=5)
    ours.feed()
    assert ours.take() == {"id": 1}
    assert not ours._fds


def test_a_message_larger_than_its_limit_is_not_sent(monkeypatch):
    monkeypatch.setattr(protocol, "FROM_JUDGE", 50)
    with pytest.raises(ProtocolError, match="over the limit"):
        encode({"text": "x" * 100})
