"""What becomes of a solution's calls when its worker dies in the middle of them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.judge.tolerance import Tolerance
from pytest_flashinfer.judging import Compare
from pytest_flashinfer.outputs.properties import Record
from pytest_flashinfer.solution_call import Failed
from pytest_flashinfer.testing import UnderTest
from pytest_flashinfer.worker.case import Case
from pytest_flashinfer.worker.errors import BuildFailed, CallFailed, WorkerDied, WorkerTimedOut
from pytest_flashinfer.worker.guards import Violation

from .contracts import ROWS


def case(n=3, variant="first"):
    values = {"x": torch.randn(n, 8), "z": None, "scale": 2.0}
    return Case(ROWS, {"n": n, "m": 1, "h": 8}, Recipe(0), values, {"y": (n, 8)}, variant=variant)


CASES = [case(variant=name) for name in ("first", "same_ends", "permuted")]


class FakeKernel:
    """Gives right answers until `error` ends the call number `after`, or, with `after` = 3, what follows the calls."""

    def __init__(self, error=None, after=0, *, build_failed=False, violations=()):
        self.error, self.after, self.build_failed = error, after, build_failed
        self.solution = None
        self.violations = violations

    def calls(self, cases, *, cache=None, warm=None):
        for number, each in enumerate(cases):
            if self.error is not None and number == self.after:
                raise self.error
            outputs = {"y": each.values["x"] * each.values["scale"]}
            yield SimpleNamespace(
                outputs=outputs,
                violations=self.violations,
                unwritten={},
                log=f"call {number}\n",
                span=None,
                compiled=(),
                round_trip=0.1,
            )
        if self.error is not None and self.after >= len(CASES):
            raise self.error


def judge(calls):
    """Return the summary of the first call that is wrong, and the item's facts."""
    item = SimpleNamespace(user_properties=[])
    compare = Compare(Tolerance(), Record(item))
    failed = None
    for call in calls:
        right = call.case.values["x"] * call.case.values["scale"]
        allowance = right.abs().double() * 1e-6 + 1e-6
        try:
            compare(call, Truth({"y": OutputTruth("y", "float32", right, right.double(), allowance)}))
        except Failed as error:
            failed = error
            break
    return failed, dict(item.user_properties)


ENDS = [
    (WorkerDied("signal SIGSEGV", "last words"), "RUNTIME_ERROR", "the worker died: signal SIGSEGV"),
    (WorkerTimedOut(2.0), "TIMEOUT", "no answer within 2 s; the worker was killed"),
    (CallFailed("exception", "ValueError: odd", "Traceback"), "RUNTIME_ERROR", "ValueError: odd"),
]
KINDS = ("dies", "hangs", "raises")


@pytest.mark.parametrize(
    ("kind", "tensor", "passes"),
    [("input", "z", True), ("input", "x", False), ("guard", "z", False), ("alias", "z", False)],
)
def test_a_call_may_change_what_the_reference_turns_out_to_write_into(kind, tensor, passes):
    mutated = set()
    calls = UnderTest(FakeKernel(violations=[Violation(kind, tensor, "odd")]), mutated=mutated).run(CASES)
    failed, facts = judge(calls)
    assert (failed.verdict.summary, facts["status"]) == ("odd", "RUNTIME_ERROR")
    with pytest.raises(Failed, match="odd"):
        _ = calls[0].outputs
    mutated.add("z")  # the reference is asked later
    assert (judge(calls)[0] is None) == passes
    with contextlib.nullcontext() if passes else pytest.raises(Failed, match="odd"):
        assert "y" in calls[0].outputs


@pytest.mark.parametrize(
    ("error", "known"), [(each[0], kind == "raises") for each, kind in zip(ENDS, KINDS, strict=True)], ids=KINDS
)
def test_what_calls_took_is_known_of_a_process_that_lives(error, known):
    """A process that follows has compiled nothing yet: its calls have to be warmed up as the first ones were."""
    kernel = UnderTest(FakeKernel(error, 1))
    cases = [replace(each, workload=SimpleNamespace(uuid="w")) for each in CASES]
    kernel.run(cases)
    assert ("w" in kernel.took, "w" in kernel.called) == (known, known)


def test_right_calls_pass():
    calls = UnderTest(FakeKernel()).run(CASES)
    assert [call.case for call in calls] == CASES
    failed, facts = judge(calls)
    assert failed is None
    assert facts["status"] == "PASSED"


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize(("error", "status", "words"), ENDS, ids=["dies", "hangs", "raises"])
def test_the_call_that_ended_badly_is_blamed(error, status, words, after):
    calls = UnderTest(FakeKernel(error, after)).run(CASES)
    assert len(calls) == after + 1, "what came before it is judged, what comes after never happened"
    assert [call.error for call in calls] == [None] * after + [error]
    failed, facts = judge(calls)
    assert failed.verdict.status == facts["status"] == status
    assert words in failed.verdict.summary
    assert failed.case is CASES[after]
    assert f"call: {CASES[after].variant}" in failed.text()


@pytest.mark.parametrize(("error", "status", "words"), ENDS, ids=["dies", "hangs", "raises"])
def test_an_end_after_the_last_call_is_not_overlooked(error, status, words):
    """A worker that dies while its late writes are looked for has not passed."""
    calls = UnderTest(FakeKernel(error, 3)).run(CASES)
    assert len(calls) == 3
    failed, _ = judge(calls)
    assert failed.verdict.status == status
    assert failed.case is CASES[-1]


@pytest.mark.parametrize("later", ["in_full", "closer"])
@pytest.mark.parametrize("wrong", [False, True])
def test_nobody_is_blamed_by_another_cases_bound_or_without_a_closer_look(wrong, later):
    [call] = UnderTest(FakeKernel()).run([case()])
    value = call.outputs["y"] + 1e-3
    full = Truth({"y": OutputTruth("y", "float32", value, None, torch.full((3, 8), 1e-6 if wrong else 1e-2))})
    borrowed = replace(full, outputs={"y": OutputTruth("y", "float32", value, None, torch.zeros(3, 8))})
    compare = Compare(Tolerance(), Record(SimpleNamespace(user_properties=[])))
    assert not compare.verdict(call, borrowed).passed
    assert compare.verdict(call, replace(borrowed, **{later: lambda: full})).passed is not wrong


def test_a_closer_look_that_fails_excuses_nobody():
    def fails():
        raise ReferenceFailed("no answer within 120 s")

    [call] = UnderTest(FakeKernel()).run([case()])
    truth = Truth({"y": OutputTruth("y", "float32", call.outputs["y"] + 1, None, torch.zeros(3, 8))})
    compare = Compare(Tolerance(), Record(SimpleNamespace(user_properties=[])))
    verdict = compare.verdict(call, replace(truth, closer=fails))
    assert verdict.status == "INCORRECT_NUMERICAL"
    assert verdict.details.endswith("no closer look at what rounding decides: no answer within 120 s")
    with pytest.raises(ReferenceFailed):
        compare.verdict(call, replace(truth, in_full=fails))


def test_a_borrowed_bound_says_nothing_of_the_tolerance():
    [call] = UnderTest(FakeKernel()).run([case()])
    call = replace(call, case=replace(call.case, workload=SimpleNamespace(uuid="w")))
    truth = Truth({"y": OutputTruth("y", "float32", call.outputs["y"], None, torch.full((3, 8), 1e6))})
    compare = Compare(Tolerance(), Record(SimpleNamespace(user_properties=[])))
    compare(call, replace(truth, in_full=lambda: truth))
    for judged in (lambda: compare(call, truth), lambda: compare.check_reference(call.case, truth)):
        with pytest.raises(ReferenceFailed, match="the reference proves nothing of y"):
            judged()


def test_a_bound_by_which_hardly_any_answer_is_wrong_is_said_to_be_one():
    """Zeros do not pass where one row has a bound of its own."""
    [call] = UnderTest(FakeKernel()).run([case()])
    call = replace(call, case=replace(call.case, workload=SimpleNamespace(uuid="w")))
    value = call.outputs["y"]
    allowance = torch.full((3, 8), 1e100, dtype=torch.float64)
    allowance[0] = 1e-6
    truth = Truth({"y": OutputTruth("y", "float32", value, value.double(), allowance)})
    compare = Compare(Tolerance(), Record(SimpleNamespace(user_properties=[])))
    with pytest.warns(pytest.PytestWarning, match="y: an honest .* largest value: hardly any answer is wrong"):
        compare(call, truth)


def test_so_is_one_that_is_mostly_a_matter_of_rounding():
    [call] = UnderTest(FakeKernel()).run([case()])
    call = replace(call, case=replace(call.case, workload=SimpleNamespace(uuid="w")))
    undecided = torch.ones(3, 8, dtype=torch.bool)
    undecided[0] = False
    truth = Truth({"y": OutputTruth("y", "float32", call.outputs["y"], undecided=undecided, exact=True)})
    compare = Compare(Tolerance(), Record(SimpleNamespace(user_properties=[])))
    with pytest.warns(pytest.PytestWarning, match="y: most of it is a matter of rounding: hardly any answer is wrong"):
        compare(call, truth)


def test_a_wrong_answer_before_the_end_is_what_is_reported():
    kernel = FakeKernel(WorkerDied("signal SIGSEGV"), 1)
    calls = UnderTest(kernel).run(CASES)
    calls[0].result.outputs["y"] += 1
    failed, _ = judge(calls)
    assert failed.verdict.status == "INCORRECT_NUMERICAL"


def test_outputs_of_a_call_that_ended_badly_cannot_be_read():
    [call] = UnderTest(FakeKernel(WorkerDied("exit status 0"))).run(CASES)
    with pytest.raises(Failed, match="exit status 0"):
        call.outputs  # noqa: B018


@pytest.mark.parametrize(
    ("error", "status"),
    [(BuildFailed("SyntaxError: odd"), "COMPILE_ERROR"), (WorkerDied("exit status 3"), "RUNTIME_ERROR")],
)
def test_what_does_not_build_fails_at_once_and_blames_no_case(error, status):
    with pytest.raises(Failed) as caught:
        UnderTest(FakeKernel(error, build_failed=True)).run(CASES)
    assert caught.value.verdict.status == status
    assert caught.value.case is None


def test_what_was_printed_is_kept_until_it_is_taken():
    under_test = UnderTest(FakeKernel(WorkerDied("signal SIGSEGV", "last words"), 2))
    under_test.run(CASES)
    assert under_test.take_log() == "call 0\ncall 1\nlast words"
    assert under_test.take_log() == ""


def test_errors_of_calls_that_passed_are_not_those_of_one_that_did_not():
    [call] = UnderTest(FakeKernel()).run([case()])
    item = SimpleNamespace(user_properties=[])
    compare = Compare(Tolerance(), Record(item))
    value, limit = call.outputs["y"], torch.full((3, 8), 1e-2)

    def told(truth_value):
        truth = Truth({"y": OutputTruth("y", "float32", truth_value, None, limit)}, nan_inputs=True)
        with contextlib.suppress(Failed):
            compare(call, truth)
        return dict(item.user_properties)

    assert told(value + 5e-3)["bound_share"] == pytest.approx(0.5, rel=0.01)
    lost = (value + 1e-3).index_fill(0, torch.tensor([0]), torch.nan)
    assert "bound_share" not in told(lost), "what is finite is within the bound"
    assert told(value + 2e-2)["bound_share"] == pytest.approx(2, rel=0.01)
    assert told(value + 2e-2)["max_abs"] == pytest.approx(2e-2, rel=0.01)


@pytest.mark.parametrize("right_before", [True, False])
def test_an_answer_to_the_call_before_is_known_as_one(right_before):
    """Who is wrong in the same way twice, as a search lets happen, need not keep anything."""
    first, second = UnderTest(FakeKernel()).run([case(), case()])
    compare = Compare(Tolerance(), Record(SimpleNamespace(user_properties=[])))
    right, stale = first.outputs["y"], second.case.values["x"] * second.case.values["scale"]
    with contextlib.nullcontext() if right_before else pytest.raises(Failed):
        known = right if right_before else right + 1
        compare(first, Truth({"y": OutputTruth("y", "float32", known, known.double(), torch.full((3, 8), 1e-6))}))
    second.result.outputs["y"] = right.clone()
    with pytest.raises(Failed) as raised:
        compare(second, Truth({"y": OutputTruth("y", "float32", stale, stale.double(), torch.full((3, 8), 1e-6))}))
    assert ("the output is the previous call's answer" in raised.value.text()) == right_before
