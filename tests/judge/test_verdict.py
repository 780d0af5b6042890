"""One status for everything that may happen to a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import pytest

from pytest_flashinfer.data.model import Status
from pytest_flashinfer.judge import verdict
from pytest_flashinfer.judge.comparison import Comparison
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
