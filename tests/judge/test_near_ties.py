"""Values that the reference's own rounding decides: no honest kernel is failed for them, no stated order is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, inadmissible, without_nan

if TYPE_CHECKING:
    from collections.abc import Callable


def routing(logits: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.softmax(logits @ weight, -1)
    found = torch.sort(scores, dim=-1, descending=True, stable=True)
    return found.values[:, :2], found.indices[:, :2].int()


def specs(rows: int) -> dict[str, OutputSpec]:
    return {"w": OutputSpec("float32", (rows, 2)), "ids": OutputSpec("int32", (rows, 2))}


def test_rows_decided_by_rounding_are_left_out_with_their_weights() -> None:
    weight = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    weight[:, 3] = weight[:, 5] * (1 + 2.0**-23)
    logits = torch.randn(64, 16, generator=torch.Generator().manual_seed(2))
    found = evaluate(routing, {"x": logits, "w": weight}, specs(64))
    undecided = found.outputs["ids"].undecided
    assert undecided is not None
    doubtful = undecided.any(dim=1)
    assert 0 < int(doubtful.sum()) < 64
    swapped = found.outputs["ids"].native.clone()
    swapped[doubtful] = swapped[doubtful].flip(1)
    assert compare(swapped, found.outputs["ids"]).ok
    wrong = found.outputs["ids"].native.clone()
    wrong[~doubtful] = wrong[~doubtful].flip(1)
    assert not compare(wrong, found.outputs["ids"]).ok


def test_exact_ties_keep_the_stated_order() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0], [3.0, 3.0, 3.0, 3.0]])

    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.softmax(x, -1)
        ids = torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :2]
        return scores.gather(1, ids), ids.int()

    found = evaluate(run, {"x": logits}, specs(2))
    assert found.outputs["ids"].undecided is None
    assert compare(torch.tensor([[1, 2], [0, 1]]).int(), found.outputs["ids"]).ok
    assert not compare(torch.tensor([[2, 1], [0, 1]]).int(), found.outputs["ids"]).ok


def test_overflow_of_the_reference_is_inadmissible() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return (x * x).mean(-1, keepdim=True).sqrt()

    x = torch.full((2, 4), 300.0).half()
    found = evaluate(run, {"x": x}, {"y": OutputSpec("float16", (2, 1))})
    assert "finite in only one" in (inadmissible(found) or "")
    assert compare(torch.full((2, 1), 300.0).half(), found.outputs["y"]).ok
    assert compare(torch.full((2, 1), torch.inf).half(), found.outputs["y"]).ok
    assert inadmissible(evaluate(run, {"x": x / 300}, {"y": OutputSpec("float16", (2, 1))})) is None


def test_nan_for_finite_inputs_is_inadmissible_and_for_nan_inputs_is_not() -> None:
    specs_ = {"y": OutputSpec("float32", (2, 4))}
    x = torch.tensor([[1.0, -1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    assert "NaN or inf" in (inadmissible(evaluate(lambda x: x.sqrt(), {"x": x}, specs_)) or "")
    x[0, 1] = torch.nan
    found = evaluate(lambda x: x.sqrt(), {"x": x}, specs_)
    assert inadmissible(found) is None
    assert found.nan_inputs


def test_nan_in_eight_bits_is_inadmissible_where_it_is_no_overflow() -> None:
    specs_ = {"y": OutputSpec("float8_e4m3fn", (2, 4))}

    def run(x: torch.Tensor) -> torch.Tensor:
        return x.sqrt().to(torch.float8_e4m3fn)

    x = torch.tensor([[1.0, -1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    found = evaluate(run, {"x": x}, specs_)
    assert inadmissible(found) == "y: the reference gives 1 NaN or inf for finite inputs"
    undecided = without_nan(found).outputs["y"].undecided
    assert undecided is not None
    assert undecided.nonzero().tolist() == [[0, 1]]
    assert inadmissible(evaluate(run, {"x": x.abs()}, specs_)) is None


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale


def test_a_quantised_value_at_a_boundary_may_go_either_way_and_no_other() -> None:
    x = torch.randn(8, 512, generator=torch.Generator().manual_seed(3))
    x[:, 0] = 1.27 * 3  # so that the scale is 0.03, and these lie half-way
    x[:, 1:5] = torch.tensor([0.045, 0.075, -0.105, 1.005])
    x.clamp_(-3.81, 3.81)
    specs_ = {"q": OutputSpec("int8", (8, 512)), "scale": OutputSpec("float32", (8, 1))}
    found = evaluate(quantise, {"x": x}, specs_).outputs
    undecided = found["q"].undecided
    assert undecided is not None
    assert bool(undecided[:, 1:5].any())
    assert int(undecided.sum()) <= 8 * 5
    assert found["scale"].undecided is None
    honest = torch.round(x * (127 / x.abs().amax(-1, keepdim=True))).clamp(-127, 127).to(torch.int8)
    assert compare(honest, found["q"]).ok
    assert not compare(honest + (torch.arange(512) == 77).to(torch.int8), found["q"]).ok


def test_what_nan_leads_to_may_be_left_open_and_nothing_else() -> None:
    """A kernel may take a row without a finite score for empty; other rows must not hear of it."""
    x = torch.tensor([[1.0, torch.nan], [torch.inf, 1.0], [2.0, 3.0]])
    found = without_nan(evaluate(lambda x: torch.softmax(x, -1), {"x": x}, {"y": OutputSpec("float32", (3, 2))}))
    right = torch.softmax(x, -1)
    zeros = torch.where(torch.tensor([[True], [True], [False]]), 0.0, right)
    for answer in (right, zeros):
        assert compare(answer, found.outputs["y"], equal_nan=True).ok
    assert not compare(torch.full_like(right, torch.nan), found.outputs["y"], equal_nan=True).ok


@pytest.mark.parametrize(
    "nearest",
    [
        torch.round,
        lambda r: torch.floor(r + 0.5),
        lambda r: torch.sign(r) * torch.floor(r.abs() + 0.5),
        lambda r: torch.copysign(torch.floor(r.abs() + 0.5), r),
        lambda r: torch.where(r < 0, -torch.floor(0.5 - r), torch.floor(r + 0.5)),
        lambda r: torch.trunc(r + torch.copysign(torch.full_like(r, 0.5), r)),
        lambda r: r + 0.5 * torch.sign(r),
        lambda r: torch.round(r + 128) - 128,
        lambda r: torch.round(r).to(torch.int32),
    ],
    ids=["round", "floor", "sign", "copysign", "where", "trunc", "cast", "offset", "int32"],
)
def test_a_cast_decides_nothing_that_was_rounded_before(nearest: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return nearest(x / x.abs().amax(-1, keepdim=True) * 127).to(torch.int8)

    x = torch.randn(8, 512, generator=torch.Generator().manual_seed(3))
    found = evaluate(run, {"x": x}, {"q": OutputSpec("int8", (8, 512))})
    assert inadmissible(found) is None
    undecided = found.outputs["q"].undecided
    assert undecided is None or int(undecided.sum()) < 8
    assert compare(run(x), found.outputs["q"]).ok
    assert not compare(run(x) + (torch.arange(512) == 77).to(torch.int8), found.outputs["q"]).ok


def test_a_case_that_rounding_decides_altogether_is_inadmissible() -> None:
    weight = torch.ones(16, 8) * torch.randn(16, 1, generator=torch.Generator().manual_seed(1))
    weight += torch.randn(16, 8, generator=torch.Generator().manual_seed(4)) * 1e-8
    logits = torch.randn(4, 16, generator=torch.Generator().manual_seed(2))
    assert "matter of rounding" in (inadmissible(evaluate(routing, {"x": logits, "w": weight}, specs(4))) or "")


def keep_top_k(probs: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    least = torch.sort(probs, dim=-1, descending=True).values.gather(1, k.long()[:, None] - 1)
    kept = torch.where(probs >= least, probs, torch.zeros_like(probs))
    return kept / kept.sum(-1, keepdim=True)


def test_a_threshold_taken_from_the_inputs_themselves_decides_for_sure() -> None:
    """The k-th largest value is at least as large as itself: no rounding of a kernel drops it, nor lets others in."""
    probs = torch.softmax(2 * torch.randn(4, 300, generator=torch.Generator().manual_seed(5)), -1)
    k = torch.tensor([1, 2, 5, 300], dtype=torch.int32)
    [found] = evaluate(keep_top_k, {"probs": probs, "k": k}, {"y": OutputSpec("float32", (4, 300))}).outputs.values()
    assert found.allowance is not None
    assert found.undecided is None
    assert float(found.allowance.max()) < 1e-4
    assert compare(keep_top_k(probs, k), found).ok
    assert not compare(keep_top_k(probs, (k + 1).clamp(max=300)), found).ok
    assert not compare(keep_top_k(probs, (k - 1).clamp(min=1)), found).ok


def test_a_threshold_on_rounded_values_leaves_room() -> None:
    def clipped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return torch.where(y >= y[:, :1], y, torch.zeros_like(y))

    x, w = torch.randn(4, 64), torch.randn(64, 8)
    w[:, 1] = w[:, 0].roll(0) * (1 + 2.0**-23)  # as good as the same, and which is larger is a matter of rounding
    [found] = evaluate(clipped, {"x": x, "w": w}, {"y": OutputSpec("float32", (4, 8))}).outputs.values()
    assert found.allowance is not None
    assert bool((found.allowance[:, 1] > 1e-3).any())


def of_softmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights, ids = torch.topk(torch.softmax(x.float(), -1), 4)
    return weights, ids.int()


def of_sigmoid(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights, ids = torch.topk(torch.sigmoid(x.float()), 4)
    return weights, ids.int()


@pytest.mark.parametrize("function", [of_softmax, of_sigmoid], ids=["softmax", "sigmoid"])
def test_scores_that_have_come_to_one_or_to_nothing_are_no_ties_that_anybody_stated(
    function: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> None:
    """A router may order the logits themselves."""
    x = 2000 * torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    outputs = {"w": OutputSpec("float32", (6, 4)), "ids": OutputSpec("int32", (6, 4))}
    found = evaluate(function, {"x": x}, outputs, closely=True).outputs  # as before anybody is blamed
    ids = torch.topk(x, 4).indices
    scores = torch.softmax(x, -1) if function is of_softmax else torch.sigmoid(x)
    assert compare(ids.int(), found["ids"]).ok
    assert compare(scores.gather(1, ids), found["w"]).ok
    least = torch.topk(x, 4, largest=False).indices
    assert not compare(scores.gather(1, least), found["w"]).ok


def test_equal_logits_stay_ties() -> None:
    x = torch.full((3, 8), -900.0)
    x[:, 2] = 0
    found = evaluate(of_softmax, {"x": x}, {"w": OutputSpec("float32", (3, 4)), "ids": OutputSpec("int32", (3, 4))})
    assert found.outputs["ids"].undecided is None
