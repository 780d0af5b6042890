"""One status for everything that may happen to a call."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import get_args

import pytest

from pytest_flashinfer.data.model import Status
from pytest_flashinfer.data.raised import traced
from pytest_flashinfer.judge import verdict
from pytest_flashinfer.judge.comparison.record import Comparison
from pytest_flashinfer.judge.verdict import decide


@dataclass
class Event:
    kind: str
    message: str = "what happened\nmore"

    @property
    def detail(self) -> str:
        return self.message


OK = Comparison(
    "y", ok=True, n_total=4, share=0.5, max_abs=1e-3, max_rel=1e-2, lines=("y: ok, 50% of the bound spent",)
)


def failed(problem: str) -> Comparison:
    return Comparison(
        "y",
        ok=False,
        problem=problem,
        n_bad=1,
        n_total=4,
        max_abs=2.0,
        max_rel=1.0,
        share=3.0,
        lines=("y[0]: off", "2"),
    )  # type: ignore[arg-type]


def test_passed_carries_the_share_and_the_errors() -> None:
    found = decide([OK])
    assert found.passed
    assert (found.summary, found.max_abs, found.share) == ("y: ok, 50% of the bound spent", 1e-3, 0.5)


@pytest.mark.parametrize(
    ("kind", "status"),
    [("build", "COMPILE_ERROR"), ("timeout", "TIMEOUT"), ("died", "RUNTIME_ERROR"), ("exception", "RUNTIME_ERROR")],
)
def test_errors_of_the_worker(kind: str, status: str) -> None:
    found = decide(error=Event(kind))
    assert (found.status, found.summary, found.max_abs) == (status, "what happened", None)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        ("shape", "INCORRECT_SHAPE"),
        ("missing", "INCORRECT_SHAPE"),
        ("dtype", "INCORRECT_DTYPE"),
        ("values", "INCORRECT_NUMERICAL"),
        ("nonfinite", "INCORRECT_NUMERICAL"),
        ("reference", "INVALID_REFERENCE"),
    ],
)
def test_problems_of_an_output(problem: str, status: str) -> None:
    found = decide([OK, failed(problem)])
    assert found.status == status
    assert found.summary == "y[0]: off"
    assert found.details == "y[0]: off\n2"
    assert (found.max_abs == 2.0) == (status == "INCORRECT_NUMERICAL")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("guard", "RUNTIME_ERROR"),
        ("input", "RUNTIME_ERROR"),
        ("late", "REWARD_HACK"),
        ("left", "REWARD_HACK"),
        ("clock", "REWARD_HACK"),
        ("swapped", "REWARD_HACK"),
        ("unwritten", "INCORRECT_NUMERICAL"),
        ("count", "INCORRECT_SHAPE"),
        ("never heard of", "RUNTIME_ERROR"),
    ],
)
def test_broken_rules_fail_right_values(kind: str, status: str) -> None:
    assert decide([OK], violations=[Event(kind)]).status == status


def test_the_most_telling_finding_leads_and_all_are_told() -> None:
    found = decide([failed("values")], violations=[Event("unwritten", "not written"), Event("late", "changed later")])
    assert (found.status, found.summary) == ("REWARD_HACK", "changed later")
    assert "not written" in found.details
    assert "y[0]: off" in found.details


def test_every_status_of_the_format_can_be_given() -> None:
    given = {*verdict._VIOLATIONS.values(), *verdict._ERRORS.values(), *verdict._PROBLEMS.values(), "PASSED"}
    assert given == set(get_args(Status))


@dataclass
class Raised:
    detail: str
    traceback: str
    kind: str = "exception"


def raised_by(source: str) -> Raised:
    """What the worker of a solution of this source sends."""
    file = f"/cache/solutions/{'0' * 32}/sources/main.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, object] = {}
    exec(compile(source, file, "exec"), names)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        names["run"]()  # type: ignore[operator]
    return Raised(f"{caught.type.__name__}: {caught.value}", traced(caught.value, caught.value.__traceback__))


def test_however_long_an_exception_is_its_place_is_told() -> None:
    found = decide(error=raised_by("def run():\n    raise ValueError('B' * 50000)\n"))
    assert found.summary.startswith("ValueError: BBB")
    assert len(found.summary) < 500
    assert found.details == "at main.py:2 in run: raise ValueError('B' * 50000)"


def test_some_lines_of_a_long_exception_are_its_own_words() -> None:
    found = decide(error=raised_by("def run():\n    raise ValueError('\\n'.join(f'line {n}' for n in range(99)))\n"))
    assert found.summary == "ValueError: line 0"
    lines = found.details.splitlines()
    assert lines[:2] == ["| line 1", "| line 2"]
    assert lines[-2:] == ["[... 90 more lines ...]", lines[-1]]
    assert lines[-1].startswith("at main.py:2 in run")


CHAINED = """
def helper():
    assert 1 == 3, "mine:" + chr(10) + "must be 3"

def run():
    try:
        helper()
    except AssertionError as error:
        raise RuntimeError("no"){}
"""


def test_a_cause_is_told_with_its_words_and_its_place_behind_what_was_raised_from_it() -> None:
    found = decide(error=raised_by(CHAINED.format(" from error")))
    assert (found.summary, found.details.splitlines()) == (
        "RuntimeError: no",
        [
            'at main.py:9 in run: raise RuntimeError("no") from error',
            "caused by AssertionError: mine:",
            "| must be 3",
            "at main.py:7 in run: helper()",
            'at main.py:3 in helper: assert 1 == 3, "mine:" + chr(10) + "must be 3"',
        ],
    )


def test_what_was_being_handled_is_named_and_not_to_blame() -> None:
    found = decide(error=raised_by(CHAINED.format("")))
    assert found.details.splitlines() == [
        "while handling AssertionError: mine:",
        'at main.py:3 in helper: assert 1 == 3, "mine:" + chr(10) + "must be 3"',
        'at main.py:9 in run: raise RuntimeError("no")',
    ]
    assert len(decide(error=raised_by(CHAINED.format(" from None"))).details.splitlines()) == 1


def test_a_chain_is_as_long_as_somebody_reads() -> None:
    source = "def run(n=90):\n    try:\n        1 / 0 if n == 0 else run(n - 1)\n    except Exception as error:\n"
    found = decide(error=raised_by(f"{source}        raise ValueError(n) from error\n"))
    assert found.details.count("caused by ValueError") == 3
    assert len(found.details.splitlines()) < 20
