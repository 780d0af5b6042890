"""A case of no rows has a truth like any other: whoever cannot do it is told so, whatever the reference computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.comparison.topk import compare_topk
from pytest_flashinfer.judge.comparison.vacuity import probe
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, inadmissible
from pytest_flashinfer.judge.sampling.verdict import compare_samples
from pytest_flashinfer.judge.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Callable


def topk(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.topk(torch.softmax(x, -1), min(2, x.shape[-1]), dim=-1)
    return found.values / found.values.sum(-1, keepdim=True), found.indices.int()


def ordered(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.sort(x, dim=-1, descending=True, stable=True)
    return found.values, found.indices.int()


def largest(x: torch.Tensor) -> torch.Tensor:
    return x.argmax(-1).int()


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale.clamp_min(1e-6)).to(torch.int8), scale


def normed(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6), x.shape[-1:])


def attended(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = x @ x.transpose(-1, -2)
    return torch.softmax(scores, -1) @ x, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("shape", [(0, 4), (0, 3, 4), (3, 0, 4), (0,), (3, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reference", [topk, ordered, largest, quantised, normed, attended])
def test_no_elements_have_a_truth_by_which_none_is_right(
    reference: Callable[[torch.Tensor], object], dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    x = torch.empty(shape, dtype=dtype)
    try:
        made = reference(x)
    except (IndexError, RuntimeError):
        pytest.skip("the reference needs a row, or an element in each")
    values = made if isinstance(made, tuple) else (made,)
    specs = {f"y{at}": OutputSpec(name_of(each.dtype), tuple(each.shape)) for at, each in enumerate(values)}
    truth = evaluate(reference, {"x": x}, specs)
    assert truth.how == "lifted"
    if any(each.isnan().any() for each in values):
        return  # a mean of nothing
    assert inadmissible(truth) is None
    assert not any(each.refused for each in probe(truth, Tolerance(), inputs={"x": x}))
    for value, output in zip(values, truth.outputs.values(), strict=True):
        assert compare(value, output).ok
        if value.dtype is torch.int32:
            assert all(compare_topk(value, output, {"x": x}, ranked=ranked).ok for ranked in (False, True))


def test_a_sampler_of_no_rows_may_look_its_draws_up() -> None:
    def sampled(probs: torch.Tensor) -> torch.Tensor:
        ordered = torch.sort(probs, dim=-1, descending=True)
        return ordered.indices[torch.arange(len(probs)), torch.multinomial(ordered.values, 1)[:, 0]].int()

    specs = {"ids": OutputSpec("int32", (0,))}
    truth = evaluate(sampled, {"probs": torch.empty(0, 8)}, specs, sampling=True)
    assert compare_samples(torch.empty(0, dtype=torch.int32), truth.outputs["ids"], {}).ok
