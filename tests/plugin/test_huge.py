"""--fib-huge: sizes beyond the reach of 32-bit offsets, here of 12 bits so that a CPU can do it."""

from __future__ import annotations

import pytest

from pytest_flashinfer.inputs.sizes import beyond_int32
from pytest_flashinfer.search import huge

from .repository import GOOD, Repository

OVERFLOWS = "def run(x, w):\n    y = x * w + 1\n    y.view(-1)[1 << 12 :] = 0\n    return y\n"
SHORT = "def run(x, w):\n    raise MemoryError('CUDA out of memory. Tried to allocate 16 GiB')\n"
BROKEN = "import nothing_of_the_kind\n"


@pytest.fixture
def room(monkeypatch):
    """Lowers what counts as huge; returns what sets the room that there is for it, in bytes."""
    monkeypatch.setattr(beyond_int32, "_OFFSETS", 1 << 12)
    return lambda size: monkeypatch.setattr(huge, "room_on", lambda device: size)


def repository_of(root, **more):
    made = Repository(root)
    made.define()
    made.sizes(4)
    for name, source in more.items():
        made.solve(name, source)
    return made


def test_without_the_option_there_is_no_such_item(tmp_path):
    done = repository_of(tmp_path, good=GOOD).run("-k", "good")
    assert done.outcomes("test_huge") == {}
    assert done["test_sizes[good]"].outcome == "passed"


def test_what_overflows_fails_with_the_size_and_what_does_not_passes(tmp_path, room):
    room(1 << 30)
    made = repository_of(tmp_path, good=GOOD, overflows=OVERFLOWS, short=SHORT, broken=BROKEN)
    done = made.run("--fib-huge", "-m", "slow", "--fib-seed=3")
    assert done.outcomes() == {
        "test_huge[good]": "passed",
        "test_huge[overflows]": "failure",
        "test_huge[short]": "skipped",
        "test_huge[broken]": "failure",
    }
    assert done["test_huge[good]"].properties["tried"] == "1"
    failed = done["test_huge[overflows]"]
    assert failed.properties["status"] == "INCORRECT_NUMERICAL"
    assert "case: n=513" in failed.text
    assert "--fib-huge --fib-seed=3" in failed.text
    assert "n=513 could not be judged: " in done["test_huge[short]"].message
    assert done["test_huge[broken]"].properties["status"] == "COMPILE_ERROR"
    assert "test_huge" in made.run("--fib-huge", "--collect-only", "-q").output
    assert made.run("--fib-huge", "-m", "not slow", "-k", "overflows").outcomes("test_huge") == {}


def test_where_memory_does_not_suffice_the_item_says_what_would(tmp_path, room):
    room(1000)
    done = repository_of(tmp_path, good=GOOD).run("--fib-huge", "-m", "slow")
    assert done["test_huge[good]"].outcome == "skipped"
    assert "n=513 needs some 0 GiB, and cpu has 0 GiB for it" in done["test_huge[good]"].message


def test_a_cpu_is_too_slow_for_it(tmp_path):
    done = repository_of(tmp_path, good=GOOD).run("--fib-huge", "-m", "slow")
    assert "not tried on the CPU: --fib-huge needs a card" in done["test_huge[good]"].message


def test_a_definition_that_cannot_grow_says_so(tmp_path, room):
    room(1 << 30)
    made = Repository(tmp_path)
    made.define(axes={"n": {"type": "const", "value": 4}, "h": {"type": "const", "value": 8}})
    made.lines({"uuid": "w", "axes": {}, "inputs": {"x": {"type": "random"}, "w": {"type": "random"}}})
    made.solve("good", GOOD)
    done = made.run("--fib-huge", "-m", "slow")
    assert "no size takes a tensor" in done["test_huge[good]"].message
