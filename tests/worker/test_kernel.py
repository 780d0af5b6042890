"""What a kernel's runner is asked for, on one that is simulated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.data.model import Definition, Solution, SourceFile, TensorSpec
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.worker.card_sharing import Turns
from pytest_flashinfer.worker.case import Case
from pytest_flashinfer.worker.guards import Violation
from pytest_flashinfer.worker.kernel import Kernel

SOLUTION = Solution("s", "d", "me", "python", "main.py", "run", (SourceFile("main.py", ""),))


class FakeRunner:
    def __init__(self, *violations):
        self.done = []
        self.violations = violations

    def warm(self, *_):
        self.done.append("warm")

    def run(self, *_, **__):
        self.done.append("run")
        return SimpleNamespace(outputs={}, missing=(), violations=self.violations)

    def settle(self):
        pass

    read_clock = rest = settle


@pytest.mark.parametrize(("dtype", "ahead"), [("float32", ["warm"]), ("uint8", ["warm"]), ("int32", []), ("int64", [])])
@pytest.mark.parametrize("absent", [True, False])
def test_no_calls_ahead_move_a_position_out_of_range(monkeypatch, dtype, ahead, absent):
    state = TensorSpec(("n",), dtype, optional=True)
    outputs = {"new": TensorSpec(("n",), dtype, param="state", optional=True)}
    definition = Definition("d", "op", {}, {"state": state}, outputs, None)
    value = None if absent else torch.zeros(3, dtype=getattr(torch, dtype))
    case = Case(definition, {"n": 3}, Recipe(0), {"state": value}, {"new": (3,)})
    kernel, runner = Kernel(SimpleNamespace(device="cpu", turns=Turns("cpu")), definition, SOLUTION), FakeRunner()
    monkeypatch.setattr(kernel, "build", lambda: runner)
    list(kernel.calls([case], cache="cold", warm=case))
    assert runner.done == [*(["warm"] if absent else ahead), "run"]


@pytest.mark.parametrize(("dtype", "ahead"), [("float32", ["warm"]), ("int64", [])])
def test_what_a_call_was_seen_to_change_is_treated_as_what_it_may_change(monkeypatch, dtype, ahead):
    inputs = {"state": TensorSpec(("n",), dtype)}
    definition = Definition("d", "op", {}, inputs, {"y": TensorSpec(("n",), "float32")}, None)
    case = Case(definition, {"n": 3}, Recipe(0), {"state": torch.zeros(3, dtype=getattr(torch, dtype))}, {"y": (3,)})
    seen = [Violation("input", "state", ""), Violation("input", "made up", ""), Violation("guard", "y", "")]
    kernel, runner = Kernel(SimpleNamespace(device="cpu", turns=Turns("cpu")), definition, SOLUTION), FakeRunner(*seen)
    monkeypatch.setattr(kernel, "build", lambda: runner)
    list(kernel.calls([case]))
    assert kernel.written == {"state", "made up"}
    list(kernel.calls([case], cache="cold", warm=case))
    assert runner.done == ["run", *ahead, "run"]
