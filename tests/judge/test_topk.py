"""Ties may change places under the top-k comparison, and nothing else may."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.data.model import TensorSpec
from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.comparison.topk import is_ranked
from pytest_flashinfer.judge.oracle.truth import OutputTruth
from pytest_flashinfer.judge.tolerance import parse

SCORES = torch.tensor([[0.5, 2.0, 2.0, -1.0, 0.1], [1.0, 1.0, 1.0, 0.0, 3.0]])
IDS = torch.tensor([[1, 2], [4, 0]], dtype=torch.int32)
TRUTH = OutputTruth("ids", "int32", IDS)
TOPK = parse("ids:comparison=topk")


def judged(*rows: list[int]) -> tuple[bool, str]:
    found = compare(torch.tensor(rows, dtype=torch.int32), TRUTH, TOPK, inputs={"scale": 2.0, "scores": SCORES})
    return found.ok, found.summary


@pytest.mark.parametrize("rows", [([1, 2], [4, 0]), ([2, 1], [4, 1]), ([1, 2], [2, 4])])
def test_case07_ties_pass(rows: tuple[list[int], list[int]]) -> None:
    assert judged(*rows)[0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (([1, 1], [4, 0]), "ids row 0: chosen twice"),
        (([1, 2], [4, 3]), "ids row 1: not among the best by score: ids [4, 3], reference [4, 0]"),
        (([1, 9], [4, 0]), "ids row 0: outside the range"),
        (([1, -2], [4, 0]), "ids row 0: outside the range"),
        (([1, -1], [4, 0]), "ids row 0: not among the best"),
    ],
)
def test_everything_else_fails(rows: tuple[list[int], list[int]], words: str) -> None:
    ok, summary = judged(*rows)
    assert not ok
    assert summary.startswith(words)


def test_case07_ties_fail_without_the_top_k_comparison() -> None:
    swapped = torch.tensor([[2, 1], [4, 0]], dtype=torch.int32)
    assert not compare(swapped, TRUTH, inputs={"scores": SCORES}).ok


def test_without_scores_the_sets_must_be_equal() -> None:
    assert compare(IDS.flip(1), TRUTH, TOPK).ok
    assert not compare(torch.tensor([[1, 2], [4, 1]], dtype=torch.int32), TRUTH, TOPK).ok


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        ([0, 1, -1], [[0, 1, -1], [1, 0, -1]], [[0, 1, 2], [0, -1, -1], [0, 1, 3]]),
        ([0, 1, 2], [[0, 1, 2], [0, 1, 3], [3, 0, 1]], [[0, 1, -1], [0, -1, 1]]),
    ],
)
def test_padding_is_no_id_of_a_hidden_score(
    reference: list[int], right: list[list[int]], wrong: list[list[int]]
) -> None:
    scores = torch.tensor([[3.0, 2.0, -torch.inf, -torch.inf]])
    truth = OutputTruth("ids", "int32", torch.tensor([reference], dtype=torch.int32))
    for ids in (*right, *wrong):
        found = compare(torch.tensor([ids], dtype=torch.int32), truth, TOPK, inputs={"scores": scores})
        assert found.ok == (ids in right)
        assert found.ok or "another number of -1" in found.summary or "best by score" in found.summary


def test_padding_is_counted_and_undecided_rows_are_left_out() -> None:
    padded = OutputTruth("ids", "int32", torch.tensor([[1, -1, -1]], dtype=torch.int32))
    assert compare(padded.native.clone(), padded, TOPK).ok
    assert not compare(torch.tensor([[1, 2, -1]], dtype=torch.int32), padded, TOPK).ok
    undecided = torch.tensor([[True, True], [False, False]])
    truth = OutputTruth("ids", "int32", IDS, undecided=undecided)
    wrong = torch.tensor([[3, 4], [4, 0]], dtype=torch.int32)
    assert compare(wrong, truth, TOPK, inputs={"scores": SCORES}).ok


@pytest.mark.parametrize(("row", "ok"), [([1, -1], True), ([2, -1], True), ([3, -1], False), ([1, 2], False)])
def test_ties_pass_in_rows_that_are_padded(row: list[int], ok: bool) -> None:  # noqa: FBT001
    """Also where one of many is, and where the first id is not among the best."""
    scores = torch.tensor([[0.1, 0.9, 0.9, 0.2], [0.1, 0.9, 0.8, 0.2]])
    truth = OutputTruth("ids", "int32", torch.tensor([[1, -1], [1, 2]], dtype=torch.int32))
    answer = torch.tensor([row, [1, 2]], dtype=torch.int32)
    assert compare(answer, truth, TOPK, inputs={"scores": scores}).ok is ok


VALUES = OutputTruth("values", "float32", torch.tensor([[2.0, 2.0], [3.0, 1.0]]))


@pytest.mark.parametrize(
    ("rows", "ok"),
    [(([1, 2], [4, 0]), True), (([2, 1], [4, 2]), True), (([1, 2], [0, 4]), False)],
    ids=["same", "ties", "order"],
)
@pytest.mark.parametrize("inputs", [{"scores": SCORES}, {}], ids=["scores", "none"])
def test_where_values_go_with_the_ids_only_equal_scores_change_places(rows, ok, inputs) -> None:
    found = compare(torch.tensor(rows, dtype=torch.int32), TRUTH, TOPK, inputs=inputs, ranked=True)
    assert found.ok == (ok if inputs else list(map(list, rows)) == IDS.tolist())
    assert found.ok or "order" in found.summary


def test_which_output_has_the_values_is_told_by_what_is_declared() -> None:
    """Not by sizes, which may be the same by chance."""
    declared = {"ids": TensorSpec(("t", "k"), "int32"), "probs": TensorSpec(("t", "e"), "float32")}
    assert not is_ranked("ids", declared)
    assert not is_ranked("ids", {**declared, "counts": TensorSpec(("t", "k"), "int32")})
    assert is_ranked("ids", {**declared, "weights": TensorSpec(("t", "k"), "float32")})


def test_ids_that_the_reference_has_twice_are_no_fault() -> None:
    """Pages may be shared; in other rows each id is there once."""
    ids = torch.tensor([[5, 5, 4, 4], [1, 2, 3, 4]], dtype=torch.int32)
    truth = OutputTruth("ids", "int32", ids)
    assert compare(ids.clone(), truth, TOPK).ok
    assert compare(ids.flip(1), truth, TOPK).ok
    wrong = torch.tensor([[5, 5, 4, 4], [1, 2, 3, 3]], dtype=torch.int32)
    assert compare(wrong, truth, TOPK).summary.startswith("ids row 1: chosen twice")
    assert not compare(torch.tensor([[5, 4, 4, 4], [1, 2, 3, 4]], dtype=torch.int32), truth, TOPK).ok
