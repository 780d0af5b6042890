"""Outputs that are written into an input: judged by what was there when the call returned, in both styles."""

from __future__ import annotations

import time
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.oracle.truth import OutputSpec
from pytest_flashinfer.judge.reference.call import InvalidReferenceError, name_results
from pytest_flashinfer.worker import results
from pytest_flashinfer.worker.arena import Arena, InputPieces
from pytest_flashinfer.worker.case import Case
from pytest_flashinfer.worker.runner import Output

F32 = torch.float32
Y = Output("y", (4, 8), F32)
NEW = Output("new", (4, 8), F32, optional=True, inplace="x")
# How a call may answer: the name says whether there are destinations.
STYLES = {
    "destination": ("def run(x, y):", "y.fill_(1)"),
    "left out": ("def run(x):", "return {'y': torch.ones(4, 8)}"),
    "itself": ("def run(x):", "return torch.ones(4, 8), x"),
    "a view of it": ("def run(x):", "return torch.ones(4, 8), x.view(4, 8)"),
}
# work that is done by what takes the place of a function of the harness, once the result is copied
AT_LAST = """
import sys, torch
solve = sys.modules["pytest_flashinfer.worker.solve"]
whole = solve._reread
def do_last(job):
    def reread(*arguments):
        solve._reread = whole
        job()
        whole(*arguments)
    solve._reread = reread
"""
BY_THREAD = """
import queue, threading, time, torch
jobs = queue.SimpleQueue()
def work():
    while True:
        job = jobs.get(); time.sleep(0.05); job()
threading.Thread(target=work, daemon=True).start()
"""
# work that is done by whoever copies the input
AT_COPY = """
import sys, time, torch
copies = sys.modules["pytest_flashinfer.worker.copies"]
todo, whole = [], copies.snapshot
def snapshot(*arguments):
    while todo: todo.pop()()
    return whole(*arguments)
copies.snapshot = snapshot
"""


def kinds(result):
    return [violation.kind for violation in result.violations]


def build(lab, style, statement, ahead="import torch\n"):
    head, answer = STYLES[style]
    return lab.build(f"{ahead}{head}\n    {statement}\n    {answer}\n", destination=style == "destination")


@pytest.mark.parametrize("style", STYLES)
def test_what_a_call_wrote_is_judged(lab, style):
    runner = build(lab, style, "x.add_(1)")
    contents = [lab.randn(4, 8) for _ in range(3)]
    for result, x in zip(lab.run_many(runner, [{"x": x} for x in contents], [Y, NEW]), contents, strict=True):
        assert not result.violations
        assert torch.equal(result.outputs["new"], x + 1)
        assert result.outputs["y"].eq(1).all()


@pytest.mark.parametrize("style", STYLES)
def test_what_is_written_before_the_reply_is_late(lab, style):
    runner = build(lab, style, "do_last(lambda: x.add_(1))", AT_LAST)
    contents = [{"x": lab.randn(4, 8)} for _ in range(3)]
    results = lab.run_many(runner, contents, [Y, NEW])
    for result, each in zip(results, contents, strict=True):
        assert [(each.kind, each.tensor) for each in result.violations] == [("late", "new")]
        assert torch.equal(result.outputs["new"], each["x"])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("end", ["settled", "called again", "called otherwise"])
def test_what_is_written_after_the_reply_is_late(lab, style, end):
    runner = build(lab, style, "jobs.put(lambda: x.add_(1))", BY_THREAD)
    x = lab.randn(4, 8)
    first = runner.run({"x": x}, [Y, NEW])
    assert torch.equal(first.outputs["new"], x)
    assert not first.violations
    time.sleep(0.3)
    if end == "settled":
        runner.settle()
    else:
        runner.run({"x": x}, [Y, NEW], moved=end == "called otherwise")
    assert [(each.kind, each.tensor) for each in first.violations] == [("late", "new")]


@pytest.mark.parametrize("style", STYLES)
def test_what_is_written_while_the_input_is_copied_is_paid_for_on_the_cpu(lab, style):
    runner = build(lab, style, "todo.append(lambda: (time.sleep(0.1), x.add_(1)))", AT_COPY)
    x = lab.randn(4, 8)
    [result] = lab.run_many(runner, [{"x": x}], [Y, NEW], cache="cold")
    assert torch.equal(result.outputs["new"], x + 1)
    assert result.span.seconds >= 0.1


def test_who_returns_a_tensor_of_its_own_is_judged_by_that(lab):
    runner = lab.build("def run(x):\n    return x + 1\n", destination=False)
    x = lab.randn(4, 8)
    [result] = lab.run_many(runner, [{"x": x}], [NEW])
    assert not result.violations
    assert torch.equal(result.outputs["new"], x + 1)


@pytest.mark.parametrize("outputs", [[Y, NEW], [NEW, Y]], ids=["last", "first"])
def test_only_what_is_not_written_into_an_input_need_be_returned(lab, outputs):
    x = lab.randn(4, 8)
    result = lab.run("def run(x):\n    return x.add_(1) * 2\n", {"x": x}, outputs, destination=False)
    assert not result.violations
    assert torch.equal(result.outputs["new"], x + 1)
    assert torch.equal(result.outputs["y"], (x + 1) * 2)


def test_returned_values_are_those_of_the_same_outputs_as_of_a_reference():
    cpu = torch.device("cpu")
    for kinds in (each for count in range(1, 4) for each in product(("own", "optional", "inplace"), repeat=count)):
        names = [f"{kind}{number}" for number, kind in enumerate(kinds)]
        inputs = {name: torch.tensor(-1.0) for name in names}
        specs = {
            name: OutputSpec("float32", (), kind == "optional", name if kind == "inplace" else None)
            for name, kind in zip(names, kinds, strict=True)
        }
        outputs = [
            {"name": name, "optional": kind != "own", "inplace": name if kind == "inplace" else None}
            for name, kind in zip(names, kinds, strict=True)
        ]
        for given in range(len(names) + 2):
            values = tuple(torch.tensor(float(number)) for number in range(given))
            found, problems = results.pair(values, outputs)
            try:
                named = name_results(values, specs, inputs, cpu)
            except InvalidReferenceError:
                assert problems, (names, given)
            else:
                assert not problems, (names, given)
                told = {name: each for name, each in named.items() if each is not None and each >= 0}
                assert found == told, (names, given)


def test_floats_of_8_bits_may_stand_for_bytes_and_for_nothing_else():
    definition = Definition(
        "d", "op", {"n": Axis("var")}, {}, {name: TensorSpec(("n",), name) for name in ("uint8", "int8", "float32")}, ""
    )
    found = Case(definition, {"n": 3}, Recipe(1), {}, dict.fromkeys(definition.outputs, (3,))).outputs
    assert torch.float8_e4m3fn in found[0].also
    assert torch.float8_e8m0fnu in found[0].also
    assert {dtype.itemsize for dtype in found[0].also} == {1}
    assert not {torch.int8, torch.bool} & set(found[0].also)
    assert found[1].also == found[2].also == ()


def test_an_input_that_was_turned_does_not_hold_what_was_returned(lab):
    runner = lab.build("def run(x):\n    return x.add_(1).t_()\n", destination=False)
    x = lab.randn(4, 4)
    [result] = lab.run_many(runner, [{"x": x}], [Output("new", (4, 4), F32, inplace="x")])
    assert kinds(result) == ["input"]
    assert torch.equal(result.outputs["new"], (x + 1).t())


@pytest.mark.parametrize("returned", ["x", "x.view(2, 16).view(4, 8)", "x.clone()"])
def test_what_lies_in_an_input_is_filled_anew_later(lab, returned):
    runner = lab.build(f"def run(x):\n    x.add_(1)\n    return {returned}\n", destination=False)
    for _ in range(3):
        results = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(2)], [NEW])
        assert [kinds(result) for result in results] == [[], []]
        time.sleep(0.06)


@pytest.mark.parametrize("limit", [None, 1024], ids=["small", "large"])
@pytest.mark.parametrize(
    ("beside", "spoilt"),
    [("", False), ("x.add_(1)", False), ("x.zero_()", True), ("x[1:].add_(1)", True), ("x[3, 7] += 0.5", True)],
    ids=["left alone", "the same", "zeroed", "half written", "one element"],
)
def test_an_input_may_not_be_spoilt_beside_what_is_returned(lab, monkeypatch, limit, beside, spoilt):
    if limit is not None:
        monkeypatch.setattr("pytest_flashinfer.worker.guarded_memory.IMAGE_LIMIT", limit)
    source = f"def run(x):\n    new = x + 1\n    {beside or 'pass'}\n    return new\n"
    contents = [{"x": lab.randn(4, 8)} for _ in range(2)]
    for result, each in zip(
        lab.run_many(lab.build(source, destination=False), contents, [NEW]), contents, strict=True
    ):
        assert kinds(result) == ["input"] * spoilt
        assert torch.equal(result.outputs["new"], each["x"] + 1)
    if spoilt:
        assert str(result.violations[0]) == (
            "input x was modified and does not hold new, which was returned as another tensor"
        )


@pytest.mark.parametrize("answer", ["shape: x[:2]", "object: x.to_sparse()", "device: x.to('meta')"])
def test_a_result_of_another_form_is_not_read_from_the_input(lab, answer):
    kind, _, result = answer.partition(": ")
    result = lab.run(f"def run(x):\n    return {result}\n", outputs=[NEW], destination=False)
    assert kinds(result) == [kind]
    assert not result.outputs


@pytest.mark.parametrize("limit", [None, 1024], ids=["small", "large"])
@pytest.mark.parametrize("destination", [True, False])
def test_strided_inputs_may_be_written_into(lab, monkeypatch, limit, destination):
    if limit is not None:
        monkeypatch.setattr("pytest_flashinfer.worker.guarded_memory.IMAGE_LIMIT", limit)
    answer = "" if destination else "\n    return x"
    runner = lab.build(f"def run(x):\n    x.add_(1){answer}\n", outputs=(), destination=destination)
    cases = (lab.randn(6, 20)[:, 3:11], lab.randn(8, 6).t(), lab.randn(0, 8))
    for x in cases:
        result = runner.run({"x": x}, [Output("new", tuple(x.shape), F32, inplace="x")])
        assert not runner.settle()
        assert not result.violations
        assert torch.equal(result.outputs["new"], x + 1)


def test_an_absent_input_has_no_output_written_into_it(lab):
    runner = lab.build("def run(x, y):\n    y.fill_(1)\n")
    result = runner.run({"x": None}, [Y, NEW])
    assert not result.violations
    assert list(result.outputs) == ["y"]


def test_inputs_that_somebody_else_laid_into_shared_memory_are_not_those_of_a_call():
    pieces = InputPieces()
    first, second = Arena("cpu", pieces), Arena("cpu", pieces)
    first.claim()
    second.claim()
    assert first.claimed, "on the CPU nothing is shared"
    for each in (first, second):
        each._shared = [SimpleNamespace()]
    assert second.claimed
    assert not first.claimed
    first.claim()
    assert first.claimed
    assert not second.claimed
