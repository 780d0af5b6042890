"""Small arenas of a card are filled from the host and looked at there; the host's memory stands in for the card's."""

from __future__ import annotations

import time

import pytest
import torch

from pytest_flashinfer.worker import runner as runners
from pytest_flashinfer.worker.host_image import Staged
from pytest_flashinfer.worker.runner import Output

Y = Output("y", (4, 8), torch.float32)


@pytest.fixture
def staged(lab, monkeypatch):
    monkeypatch.setattr(runners, "pristine_of", Staged)
    return lab


def found(result):
    return [(each.kind, each.tensor) for each in result.violations]


def test_calls_on_the_same_storage_see_their_own_inputs_and_yield_their_own_results(staged):
    runner = staged.build("def run(x, y):\n    y.copy_(x * 2)\n")
    contents = [{"x": staged.randn(4, 8)} for _ in range(3)]
    results = staged.run_many(runner, contents, [Y])
    assert all(torch.equal(each.outputs["y"], given["x"] * 2) for each, given in zip(results, contents, strict=True))
    assert not any(map(found, results))


@pytest.mark.parametrize("keep", [True, False])
def test_results_are_out_of_reach_once_they_were_looked_at(staged, keep):
    source = """
        import threading, time
        def spoil(y):
            time.sleep(0.05); y.fill_(7.0)
        def run(x, y):
            y.copy_(x)
            threading.Thread(target=spoil, args=(y,)).start()
    """
    runner = staged.build(source)
    x = staged.randn(4, 8)
    result = runner.run({"x": x}, [Y], keep=keep)
    time.sleep(0.2)
    assert torch.equal(result.outputs["y"], x)
    assert found(result) == []
    runner.settle()
    assert found(result) == [("late", "y")]


def test_a_late_change_is_found_by_the_next_call(staged):
    source = """
        import threading, time
        def work(x, y):
            time.sleep(0.03); y.copy_(x * 2)
        def run(x, y):
            threading.Thread(target=work, args=(x, y)).start()
    """
    runner = staged.build(source)
    first = runner.run({"x": staged.randn(4, 8)}, [Y])
    time.sleep(0.2)
    runner.run({"x": staged.randn(4, 8)}, [Y])
    assert sorted(found(first)) == [("late", "y"), ("unwritten", "y")]


@pytest.mark.parametrize(
    ("statement", "violation"),
    [
        ("y[:3] = x[:3]", ("unwritten", "y")),
        ("y.copy_(x); x[0, 0] = 9.0", ("input", "x")),
        ("y.copy_(x); torch.as_strided(y, (40,), (1,), 0).fill_(1.0)", ("guard", "y")),
    ],
)
def test_what_a_call_must_not_do_is_seen(staged, statement, violation):
    result = staged.run(f"import torch\ndef run(x, y):\n    {statement}\n")
    assert violation in found(result)


def test_what_is_written_into_an_input_is_read_there(staged):
    runner = staged.build("def run(x):\n    x += 1\n    return x\n", outputs=("y",), destination=False)
    x = staged.randn(4, 8)
    result = runner.run({"x": x}, [Output("y", (4, 8), torch.float32, inplace="x")])
    assert torch.equal(result.outputs["y"], x + 1)
    assert found(result) == []
