"""A case in which a cheap answer passes is refused, with the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.comparison.vacuity import probe, unalike
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, Truth
from pytest_flashinfer.judge.tolerance import Tolerance, parse

if TYPE_CHECKING:
    from collections.abc import Callable


def truth_of(function: Callable[..., Any], shape: tuple[int, ...], **inputs: Any) -> Truth:
    return evaluate(function, inputs, {"y": OutputSpec("float32", shape)})


def refused(truth: Truth, tolerance: Tolerance | None = None, **options: Any) -> list[str]:
    return [each.reason for each in probe(truth, tolerance, **options) if each.refused]


def test_case06_zeros_for_a_softmax_over_many_columns() -> None:
    x = torch.zeros(1, 65536).normal_(generator=torch.Generator().manual_seed(0))
    truth = truth_of(lambda x: torch.softmax(x, -1), (1, 65536), x=x)
    reasons = refused(truth, parse("atol=1e-2 rtol=1e-2"))
    start = "the tolerance of y proves nothing: with rtol 0.01, atol 0.01 zeros would pass, max|reference| is 0.00"
    assert reasons[0].startswith(start)
    assert any("the mean everywhere" in reason for reason in reasons)
    assert refused(truth) == []


def test_a_copy_and_the_previous_answer() -> None:
    x = torch.rand(4, 8) + 1
    truth = truth_of(lambda x: x * 1.001, (4, 8), x=x)
    loose = parse("rtol=1e-2")
    assert any("a copy of the input x would pass" in reason for reason in refused(truth, loose, inputs={"x": x}))
    assert any("previous answer" in reason for reason in refused(truth, loose, previous={"y": x * 1.002}))
    assert refused(truth, inputs={"x": x}) == []


def test_a_ratio_that_lets_zeros_pass_is_named() -> None:
    x = torch.zeros(100)
    x[:10] = 1.0
    reasons = refused(truth_of(lambda x: x * 2, (100,), x=x), parse("required_matched_ratio=0.9"))
    assert "required_matched_ratio 0.9 zeros would pass" in reasons[0]


def test_what_is_right_bit_for_bit_is_only_a_note() -> None:
    x = torch.randn(4, 8)
    copied = probe(truth_of(lambda x: x.clone(), (4, 8), x=x), inputs={"x": x})
    assert [(each.reason.partition(" is")[0], each.refused) for each in copied] == [("y: a copy of the input x", False)]
    zero = probe(truth_of(lambda x: x * 0, (4, 8), x=x))
    assert zero
    assert not any(each.refused for each in zero)


def test_no_elements_and_one_element_are_no_offence() -> None:
    assert probe(truth_of(lambda x: x / 3, (0, 8), x=torch.randn(0, 8))) == []
    assert refused(truth_of(lambda x: x / 3, (1, 1), x=torch.randn(1, 1))) == []


def test_inputs_are_others_where_most_of_each_differs() -> None:
    x, w = torch.randn(4, 8), torch.randn(8).to(torch.float8_e4m3fn)
    ids = torch.arange(4)
    inputs = {"x": x, "w": w, "ids": ids, "eps": 1e-6, "none": None}
    apart = {**inputs, "x": x + 1, "w": (w.float() + 3).to(torch.float8_e4m3fn)}
    assert unalike(inputs, apart)
    assert not unalike(inputs, {**apart, "w": w})
    assert not unalike(inputs, inputs)
    assert not unalike({"ids": ids}, {"ids": ids + 1})


def test_the_same_set_for_other_contents_is_no_sign_of_a_loose_tolerance() -> None:
    """All keys are among the best where there are no more than that."""
    ids = torch.tensor([[2, 0, 1], [0, 1, 2]], dtype=torch.int32)
    truth = Truth({"ids": OutputTruth("ids", "int32", ids)})
    assert probe(truth, parse("ids:comparison=topk"), previous={"ids": ids.flip(1)}) == []
    assert probe(truth, parse("ids:atol=5"), previous={"ids": ids.flip(1)}) != []
