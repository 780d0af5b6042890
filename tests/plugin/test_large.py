"""Outputs too large to be held wide: judged for some rows after the other, with the whole said of what fails."""

from __future__ import annotations

import pytest

from pytest_flashinfer.judge.oracle import chunked_truth, client, rowwise
from pytest_flashinfer.worker import arena, produced

from .repository import GOOD, Repository

LAST = "def run(x, w):\n    y = x * w + 1\n    y[-1, 3] += 1\n    return y\n"
OVERRIDE = """
import pytest

@pytest.fixture
def compare():
    def compare(call, truth):
        assert (call.outputs["y"] - truth.outputs["y"].native).abs().max() < 1e-5

    return compare
"""


@pytest.fixture
def asked(monkeypatch):
    """Lower what counts as large, and note how the reference is asked."""
    found = []
    monkeypatch.setattr(rowwise, "MANY", 100)
    monkeypatch.setattr(rowwise, "AT_ONCE", 256)
    monkeypatch.setattr(chunked_truth, "_nbytes", lambda spec: 1 << 40)
    for module in (arena, produced):
        monkeypatch.setattr(module, "LARGE", 1 << 10)
    for name in ("ask", "ask_rows"):
        monkeypatch.setattr(client.Oracle, name, noted(getattr(client.Oracle, name), found))
    return found


def noted(function, found):
    def note(*arguments, **named):
        found.append(function.__name__)
        return function(*arguments, **named)

    return note


def repository_of(root, **more):
    made = Repository(root)
    made.define()
    made.sizes(64)
    for name, source in more.items():
        made.solve(name, source)
    return made


def test_what_passes_is_seen_in_parts_and_what_fails_as_a_whole(tmp_path, asked):
    good = repository_of(tmp_path / "good", good=GOOD).run("--fib-scope=full", "-k", "not test_sizes")
    assert set(good.outcomes().values()) == {"passed"}, good.output
    assert set(asked) == {"ask_rows"}
    asked.clear()
    wrong = repository_of(tmp_path / "wrong", wrong=LAST).run("-k", "test_correct")["test_correct"]
    assert wrong.outcome == "failure"
    assert "all misses in row 63 of 64 (the last), column 3 of 8" in wrong.text
    assert "ask" in asked


def test_an_override_of_compare_has_the_whole(tmp_path, asked):
    repository = repository_of(tmp_path, good=GOOD, wrong=LAST)
    repository.write("definitions/elementwise/conftest.py", OVERRIDE)
    done = repository.run("-k", "test_correct")
    assert {name.partition("[")[2][:4]: outcome for name, outcome in done.outcomes("test_correct").items()} == {
        "good": "passed",
        "wron": "failure",
    }
    assert "ask" in asked
