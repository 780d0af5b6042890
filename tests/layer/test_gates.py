"""Which number a gate has for a definition, and what it says of a timing."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from pytest_flashinfer.data.model import Definition
from pytest_flashinfer.timing.gates import Gates, Lines

DEFINITION = Definition("scale_h8", "elementwise", {}, {}, {}, None)
NONE = {"min_speedup": (), "ini_min_speedup": (), "threshold": (), "ini_threshold": (), "baseline": None}


def item(*, named=False, **marks):
    """Return an item with marks of one number each, or what is given in its place."""
    found = {
        name: SimpleNamespace(args=() if named else (value,), kwargs={"factor": value} if named else {})
        for name, value in marks.items()
    }
    return SimpleNamespace(nodeid="a.json::test_speed[x-w]", get_closest_marker=found.get)


def judged(took, *, reference=100.0, marks=None, **options):
    gates = Gates(SimpleNamespace(**(NONE | options)), "CARD")
    return gates.judge(item(**marks or {}), DEFINITION, [took] * 10, lambda: reference)


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ([], None),
        (["2"], 2),
        (["50%"], 0.5),
        (["gemm:3"], None),
        (["elementwise: 3"], 3),
        (["scale_*:3", "scale_h8:4"], 4),
        (["scale_h8:4", "3"], 3),
    ],
)
def test_the_last_line_that_matches_counts(lines, value):
    assert Lines.parse(lines, "x").of(DEFINITION) == value


@pytest.mark.parametrize("text", ["fast", "", "-1", "gemm:", "nan", "0", "inf", "%", "1:2:x"])
def test_what_is_no_number(text):
    with pytest.raises(pytest.UsageError, match=r"--x: .*: write a number above 0, or NAME:NUMBER"):
        Lines.parse([text], "--x")
    with pytest.raises(pytest.UsageError, match=r"--x: .*: write a share such as 0.05 or 5%, or NAME:SHARE"):
        Lines.parse([text], "--x", shares=True)


@pytest.mark.parametrize("text", ["5", "gemm: 5", "1", "100%", "150 %", "1e300"])
def test_a_share_that_nothing_could_miss(text):
    said = rf"^{{}}: {re.escape(repr(text))} is \S+%: write a share below 1, as 0\.05 or 5%$"
    for options, where in (("threshold", "--fib-threshold"), ("ini_threshold", "ini key fib_threshold")):
        with pytest.raises(pytest.UsageError, match=said.format(where)):
            judged(80.0, **{options: (text,)})


@pytest.mark.parametrize("named", [True, False])
def test_a_mark_may_name_its_number(named):
    assert judged(80.0, marks={"named": named, "fib_min_speedup": 5}).status == "LOW_SPEEDUP"
    assert judged(80.0, marks={"named": named, "fib_min_speedup": 1.1}).failed == ""


@pytest.mark.parametrize("value", ["fast", -1, 0, float("nan"), float("inf"), None, (1, 2)])
def test_a_mark_without_a_number_is_said_to_be_none(value):
    said = rf"^mark fib_min_speedup\({re.escape(repr(value))}\): write one number above 0$"
    with pytest.raises(pytest.fail.Exception, match=said):
        judged(80.0, marks={"fib_min_speedup": value})


@pytest.mark.parametrize("text", ["5%", "0.05", "gemm:5 %", "99.9%"])
def test_a_share(text):
    assert judged(80.0, threshold=(text,)).failed == ""


def test_a_speedup_may_be_any_number():
    assert judged(80.0, min_speedup=("5",)).status == "LOW_SPEEDUP"
    assert judged(80.0, min_speedup=("100%",)).failed == ""


@pytest.mark.parametrize(
    ("options", "failed"),
    [
        ({}, False),
        ({"min_speedup": ("2",)}, True),
        ({"min_speedup": ("1.25",)}, False),
        ({"ini_min_speedup": ("elementwise:2",)}, True),
        ({"ini_min_speedup": ("2",), "min_speedup": ("1",)}, False),
        ({"ini_min_speedup": ("1",), "marks": {"fib_min_speedup": 2}}, True),
        ({"min_speedup": ("1",), "marks": {"fib_min_speedup": 2}}, False),
        ({"min_speedup": ("gemm:1",), "marks": {"fib_min_speedup": 2}}, True),
    ],
)
def test_command_line_then_mark_then_ini(options, failed):
    assert bool(judged(80.0, **options).failed) == failed


def test_a_speedup_over_nothing():
    assert judged(80.0, reference=None).failed == ""
    outcome = judged(80.0, reference=None, min_speedup=("1",))
    assert outcome.status == "NO_SPEEDUP"
    assert outcome.failed == "NO_SPEEDUP: the reference has no time, and 1x is demanded"


@pytest.fixture
def baseline(tmp_path):
    path = tmp_path / "base.json"
    bench = {"fullname": "a.json::test_speed[x-w]", "stats": {"data": [100.0] * 10}}
    path.write_text(json.dumps({"machine_info": {"flashinfer": {"card": "CARD"}}, "benchmarks": [bench]}))
    return path


@pytest.mark.parametrize(
    ("took", "options", "verdict"),
    [
        (102.0, {}, "SAME"),
        (80.0, {}, "FASTER"),
        (120.0, {}, "SLOWER"),
        (120.0, {"threshold": ("30%",)}, "SAME"),
        (120.0, {"threshold": ("gemm:30%",)}, "SLOWER"),
        (120.0, {"ini_threshold": ("scale*:0.3",)}, "SAME"),
        (120.0, {"marks": {"fib_threshold": 0.3}}, "SAME"),
        (102.0, {"marks": {"fib_threshold": 0.01}}, "SLOWER"),
    ],
)
def test_against_a_baseline(baseline, took, options, verdict):
    outcome = judged(took, baseline=baseline, **options)
    assert outcome.compared.verdict == verdict
    assert bool(outcome.failed) == (verdict == "SLOWER")


def test_a_mark_that_states_no_share_is_told_of(baseline):
    with pytest.raises(pytest.fail.Exception, match=r"^mark fib_threshold: 5\.0 is 500%: write a share below 1"):
        judged(120.0, baseline=baseline, marks={"fib_threshold": 5})


@pytest.mark.parametrize(("reference", "second"), [(100.0, "LOW_SPEEDUP: 0.833x is below 2x"), (None, "NO_SPEEDUP: ")])
def test_slower_is_said_before_a_low_speedup(baseline, reference, second):
    outcome = judged(120.0, baseline=baseline, min_speedup=("2",), reference=reference)
    assert outcome.status == "SLOWER"
    first, other = outcome.failed.splitlines()
    assert first.startswith("SLOWER: 120 s against 100 s (+20.0%")
    assert other.startswith(second)
    outcome = judged(100.0, baseline=baseline, min_speedup=("2",))
    assert (outcome.status, outcome.compared.verdict) == ("LOW_SPEEDUP", "SAME")


def test_a_speedup_far_too_low_has_digits_and_times_have_units(baseline):
    outcome = judged(0.2666, baseline=baseline, min_speedup=("1",), reference=1.12e-5)
    low = outcome.failed.splitlines()[-1]
    assert low == "LOW_SPEEDUP: 0.0000420x is below 1x (267 ms, the reference 11.2 us): measured twice"
