"""The worker's loop without a process around it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_flashinfer.worker import child
from pytest_flashinfer.worker.cudart import CudaError


@pytest.fixture
def worker(monkeypatch):
    """A worker on a card that is not there; `order` says what it did."""
    order = []
    monkeypatch.setattr(child.cudart, "synchronize", lambda: order.append("waited"))
    worker = child.Worker(channel=None, policy=None, protections={})
    worker.device = "cuda:0"
    worker.handler = SimpleNamespace(call=lambda *_: order.append("wrote") or {"done": True})
    return SimpleNamespace(loop=worker, order=order)


def test_an_answer_leaves_when_what_the_handler_wrote_is_there(worker):
    assert worker.loop.do_call({"request": {}}, []) == {"done": True}
    assert worker.order == ["wrote", "waited"]


@pytest.mark.parametrize(
    ("error", "said"),
    [(NotImplementedError(), "NotImplementedError"), (KeyError("x"), "KeyError: 'x'"), (OSError("a:"), "OSError: a:")],
)
def test_an_error_is_told_by_its_type_and_what_it_says(error, said):
    assert child._failure(error)["error"]["message"] == said


class Hostile(Exception):  # noqa: N818 - a solution's
    def __str__(self):
        raise KeyError("no words")


@pytest.mark.parametrize("error", [ValueError("B" * 50_000), Hostile()], ids=["long", "hostile"])
def test_whatever_an_error_says_its_frames_are_told(error):
    def run():
        raise error

    with pytest.raises(type(error)) as caught:
        run()
    said = child._failure(caught.value)["error"]
    assert said["message"].startswith(type(error).__name__)
    assert f'File "{__file__}"' in said["traceback"]
    assert "in run" in said["traceback"]
    assert len(said["traceback"]) < 16_000


def test_on_the_cpu_there_is_nothing_to_wait_for(worker):
    worker.loop.device = "cpu"
    assert worker.loop.do_call({"request": {}}, []) == {"done": True}
    assert worker.order == ["wrote"]


def test_an_error_that_only_shows_while_waiting_is_the_answer(worker, monkeypatch):
    def fail():
        raise CudaError(700, "an illegal memory access was encountered")

    monkeypatch.setattr(child.cudart, "synchronize", fail)
    monkeypatch.setattr(child.cudart, "lost", lambda: "an illegal memory access was encountered")
    reply, last = worker.loop._answer({"do": "call", "request": {}}, [])
    assert reply["error"]["kind"] == "device"
    assert last
