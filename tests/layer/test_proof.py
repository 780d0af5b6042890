"""Of drawn cases together, each output has to be told from cheap answers under what is tolerated."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.cases.proof import Lack, Proof
from pytest_flashinfer.judge.comparison.record import Comparison
from pytest_flashinfer.judge.oracle.truth import SAMPLED, OutputTruth, Truth
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.judge.tolerance import Tolerance, parse

NAMES = ("y", "z")
SIZES = {"tiny": 1e-4, "usual": 1.0}  # beside an absolute tolerance of 1e-3


def value(name: str, kind: str) -> OutputTruth:
    x = torch.linspace(-1, 1, 16) * SIZES.get(kind, 0.0)
    undecided = torch.ones(16, dtype=torch.bool) if kind == "undecided" else None
    if kind == "empty":
        x = x[:0]
    return OutputTruth(name, "float32", x, x.double(), torch.full(x.shape, 1e-6, dtype=torch.float64), undecided)


def lacking(cases: list[dict[str, str]], *more: OutputTruth) -> str:
    proof = Proof(parse(" ".join(f"{name}:rtol=1e-3 {name}:atol=1e-3" for name in NAMES)), None, {})
    case: Any = SimpleNamespace(workload=None, values={})
    for kinds in cases:
        outputs = {name: value(name, kind) for name, kind in kinds.items()} | {each.name: each for each in more}
        assert proof.lacking(case, Truth(outputs), dict) == ""
    found = proof.lacking_of_all()
    return "" if found is None else found[0]


def test_an_output_that_is_the_same_in_every_case_does_not_hide_what_others_prove() -> None:
    flag = OutputTruth("overflows", "int32", torch.zeros(4, dtype=torch.int32))
    assert lacking([{"y": "tiny"}, {"y": "usual"}], flag) == ""
    assert "the tolerance of y proves nothing" in lacking([{"y": "tiny"}, {"y": "tiny"}], flag)


def test_what_one_output_proves_is_no_proof_of_another() -> None:
    drawn = OutputTruth("ids", "int32", torch.arange(4, dtype=torch.int32), how=SAMPLED)
    assert "of z" in lacking([{"y": "usual", "z": "tiny"}, {"y": "usual", "z": "zero"}], drawn)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, st.sampled_from([*SIZES, "zero", "empty", "undecided"])))))
def test_an_output_lacks_proof_where_a_cheap_answer_was_refused_and_never_told(cases: list[dict[str, str]]) -> None:
    kinds = {name: {each[name] for each in cases} for name in NAMES}
    without = [name for name in NAMES if "tiny" in kinds[name] and "usual" not in kinds[name]]
    found = lacking(cases)
    assert bool(found) == bool(without)
    assert not found or any(f"the tolerance of {name} proves nothing" in found for name in without)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "the reference proves nothing of y here: with the bound (up to 2) zeros would pass, max|reference| is 1;"),
        ("equal_nan=true", "the reference proves nothing of y here: "),
        ("z:atol=9", "the reference proves nothing of y here: "),
        ("scale=2", None),
        ("y:atol=9", None),
        ("required_matched_ratio=0.1", None),
    ],
)
def test_a_listed_case_that_proves_nothing_is_blamed_on_the_reference_unless_somebody_tolerates_it(words, said) -> None:
    x = torch.linspace(-1, 1, 16)
    wide = {"y": OutputTruth("y", "float32", x, x.double(), torch.full(x.shape, 2.0, dtype=torch.float64))}
    case: Any = SimpleNamespace(
        workload=SimpleNamespace(uuid="w"), values={}, nbytes=64, definition=SimpleNamespace(name="d")
    )
    probed: dict[Any, Lack | None] = {}
    for _ in range(2):  # kept for the next solution
        proof = Proof(parse(words), None, probed)
        if said is None:
            assert "the tolerance of y proves nothing" in proof.lacking(case, Truth(wide), dict)
        else:
            with pytest.raises(ReferenceFailed) as raised:
                proof.lacking(case, Truth(wide), dict)
            assert str(raised.value).startswith(said)
            assert "tighten" not in str(raised.value)
    tight = {"y": replace(wide["y"], allowance=torch.full(x.shape, 1e-6, dtype=torch.float64))}
    assert Proof(Tolerance(), None, {}).lacking(case, Truth(tight), dict) == ""


def test_so_is_one_whose_own_check_accepts_zeros() -> None:
    x = torch.linspace(1, 2, 16)
    truth = Truth({"y": OutputTruth("y", "float32", x, x.double(), torch.full(x.shape, 1e-6, dtype=torch.float64))})
    case: Any = SimpleNamespace(
        workload=SimpleNamespace(uuid="w"), values={}, nbytes=64, definition=SimpleNamespace(name="d")
    )
    with pytest.raises(ReferenceFailed, match=r"^the definition's own check proves nothing"):
        Proof(Tolerance(), lambda *_: None, {}).lacking(case, truth, lambda: {"y": x})
    assert "own check" in Proof(parse("rtol=9"), lambda *_: None, {}).lacking(case, truth, lambda: {"y": x})


def test_what_nobody_looked_at_is_said_once_for_all_solutions() -> None:
    probed: dict[Any, Lack | None] = {}
    found = Comparison("ids", ok=True, untested="only the range is judged")
    with pytest.warns(pytest.PytestWarning, match="^draw: ids: only the range is judged$"):
        Proof(Tolerance(), None, probed).note(found, "draw")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Proof(Tolerance(), None, probed).note(found, "draw")
        Proof(Tolerance(), lambda *_: None, {}).note(found, "draw")  # its own check looks at it
        Proof(Tolerance(), None, {}).note(Comparison("ids", ok=True), "draw")
    with pytest.warns(pytest.PytestWarning, match="^other: ids"):
        Proof(Tolerance(), None, probed).note(found, "other")
