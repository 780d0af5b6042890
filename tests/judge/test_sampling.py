"""Sampled ids: the distribution is read from the reference, honest samplers pass, others do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import strategies as st

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.comparison.vacuity import probe
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import SAMPLED, OutputSpec, OutputTruth
from pytest_flashinfer.judge.sampling.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.judge.sampling.draws import Draws

ROWS, IDS = 48, 31


def probabilities() -> torch.Tensor:
    return torch.softmax(2 * torch.randn(ROWS, IDS, generator=torch.Generator().manual_seed(4)), -1)


def top_k_in_order(probs: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    ordered, ids = torch.sort(probs, dim=-1, descending=True, stable=True)
    kept = torch.where(torch.arange(IDS)[None, :] < k[:, None], ordered, 0.0)
    return ids.gather(1, torch.multinomial(kept, 1))[:, 0]


def top_k_row_by_row(probs: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    samples = torch.empty(ROWS, dtype=torch.int64)
    for row in range(ROWS):
        if int(k[row]) == 1:
            samples[row] = probs[row].argmax()
            continue
        limit = probs[row].sort(descending=True).values[int(k[row]) - 1]
        samples[row] = torch.multinomial(torch.where(probs[row] >= limit, probs[row], 0.0), 1).squeeze(0)
    return samples


def by_noise(probs: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    del k
    return (probs / torch.empty_like(probs).exponential_()).argmax(-1)


def truth_of(reference: Callable[..., torch.Tensor]) -> OutputTruth:
    k = torch.arange(ROWS) % 9 + 1
    specs = {"samples": OutputSpec("int64", (ROWS,))}
    found = evaluate(reference, {"probs": probabilities(), "k": k}, specs, sampling=True)
    assert found.how == SAMPLED
    assert probe(found) == []
    return found.outputs["samples"]


@pytest.mark.parametrize("reference", [top_k_in_order, top_k_row_by_row])
def test_the_distribution_is_read_where_it_is_drawn_from(reference: Callable[..., torch.Tensor]) -> None:
    truth = truth_of(reference)
    assert truth.probabilities is not None
    k = torch.arange(ROWS) % 9 + 1
    ordered = probabilities().sort(-1, descending=True)
    expected = torch.where(torch.arange(IDS)[None, :] < k[:, None], ordered.values, 0.0)
    expected = torch.zeros(ROWS, IDS).scatter_(1, ordered.indices, expected / expected.sum(-1, keepdim=True))
    torch.testing.assert_close(truth.probabilities, expected)


def rounds(truth: OutputTruth, sample: Callable[[], torch.Tensor], number: int = 80) -> str:
    draws: dict[str, Draws] = {}
    torch.manual_seed(9)
    for _ in range(number):
        found = compare(sample(), truth, draws=draws)
        if not found.ok:
            return found.text
    return ""


def test_honest_samplers_pass() -> None:
    truth = truth_of(top_k_in_order)
    assert truth.probabilities is not None
    mass = truth.probabilities
    assert rounds(truth, lambda: torch.multinomial(mass, 1)[:, 0]) == ""
    assert rounds(truth, lambda: by_noise(mass, mass)) == ""


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (lambda mass: torch.multinomial(probabilities(), 1)[:, 0], "not in the support"),
        (lambda mass: torch.full((ROWS,), IDS), "not in the support"),
        (lambda mass: mass.argmax(-1), "do not follow the reference's distribution"),
        (lambda mass: torch.multinomial((mass > 0).float(), 1)[:, 0], "do not follow the reference's distribution"),
        (lambda mass: torch.multinomial(mass**1.5, 1)[:, 0], "do not follow the reference's distribution"),
    ],
)
def test_wrong_samplers_fail(sample: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    truth = truth_of(top_k_in_order)
    assert words in rounds(truth, lambda: sample(truth.probabilities))  # type: ignore[arg-type]


def test_a_reference_that_tells_no_distribution_is_judged_by_range_only() -> None:
    truth = truth_of(by_noise)
    assert truth.probabilities is None
    assert "not known" in compare(torch.zeros(ROWS, dtype=torch.int64), truth).summary
    assert not compare(torch.full((ROWS,), -1), truth).ok
    padded = replace(truth, native=torch.where(torch.arange(ROWS) % 2 == 0, truth.native, -1))
    assert compare(padded.native.clone(), padded).ok, "the reference pads with -1"
    assert not compare(padded.native - 1, padded).ok


def test_draws_of_many_calls_are_told_apart_where_those_of_one_are_not() -> None:
    """One row a call, as a search for sizes has it: of a single draw nothing is known."""
    mass = torch.softmax(torch.arange(8.0), -1)[None]
    ids = torch.zeros(1, dtype=torch.int64)
    truth = OutputTruth("ids", "int64", ids, how=SAMPLED, probabilities=mass, support=mass > 0)
    generator = torch.Generator().manual_seed(3)
    honest: dict[str, Draws] = {}
    for _ in range(1000):
        assert compare(torch.multinomial(mass, 1, generator=generator)[:, 0], truth, draws=honest).ok
    greedy: dict[str, Draws] = {}
    refused = [not compare(mass.argmax(-1), truth, draws=greedy).ok for _ in range(200)]
    assert any(refused)
    assert sum(refused) <= 8, "it is looked at whenever there are half as many again"


@pytest.mark.parametrize("equal", [2, 8])
def test_of_equally_likely_ids_at_the_edge_each_may_be_drawn(equal: int) -> None:
    """A sampler that keeps all above a threshold keeps all of them, one that sorts those with the least ids."""

    def reference(probs: torch.Tensor) -> torch.Tensor:
        ordered, ids = torch.sort(probs, dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        return ids.gather(1, torch.multinomial(torch.where(before < 0.75, ordered, 0.0), 1))[:, 0]

    row = torch.tensor([0.6, *[0.3 / equal] * equal, 0.02, 0.01, 0.0])
    specs = {"samples": OutputSpec("int64", (4,))}
    truth = evaluate(reference, {"probs": row.expand(4, -1).contiguous()}, specs, sampling=True).outputs["samples"]
    for number in range(len(row)):
        assert compare(torch.full((4,), number), truth).ok == (number <= equal), number


@pytest.mark.parametrize("given", [True, False])
def test_where_a_seed_decides_what_is_drawn_only_the_support_is_judged(*, given: bool) -> None:
    """The reference takes a seed, or states one: a solution may give the same ids for the same contents."""

    def seeded(probs: torch.Tensor, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed if given else 0)
        return torch.multinomial(probs, 1, generator=generator)[:, 0]

    truth = told(seeded, seed=3) if given else told(lambda probs: seeded(probs, 0))
    assert truth.seeded
    mass = truth.probabilities
    assert mass is not None
    assert rounds(truth, lambda: torch.multinomial(mass, 1, generator=torch.Generator().manual_seed(3))[:, 0]) == ""
    assert not compare(torch.full((ROWS,), IDS), truth).ok


def test_a_seed_may_be_taken_from_an_input_that_the_reference_does_not_use() -> None:
    assert told(lambda probs, philox_seed: torch.multinomial(probs, 1)[:, 0], philox_seed=3).seeded
    assert told(lambda probs: torch.multinomial(probs, 1)[:, 0]).seeded is False
    for name in ("seed", "rng", "rng_state", "random_u", "uniform_samples", "gumbel_noise", "noise1", "generators"):
        assert told(lambda probs, _: torch.multinomial(probs, 1)[:, 0], **{name: 3}).seeded, name
    for name in ("denoised", "uniformity", "strngth", "operand", "reseeding"):
        assert not told(lambda probs, _: torch.multinomial(probs, 1)[:, 0], **{name: 3}).seeded, name
    reseeds = told(lambda probs: torch.manual_seed(0) and torch.multinomial(probs, 1)[:, 0])
    assert reseeds.seeded


def told(reference: Callable[..., torch.Tensor], **inputs: int) -> OutputTruth:
    specs = {"samples": OutputSpec("int64", (ROWS,))}
    return evaluate(reference, {"probs": probabilities(), **inputs}, specs, sampling=True).outputs["samples"]


def candidates_first(probs: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Draw among fewer places than there are ids."""
    best = probs.topk(5, dim=-1)
    kept = torch.where(torch.arange(5)[None, :] < k[:, None], best.values, 0.0)
    return best.indices.gather(1, torch.multinomial(kept, 1))[:, 0]


def test_fewer_candidates_than_ids_may_be_drawn_from() -> None:
    truth = truth_of(candidates_first)
    assert truth.probabilities is not None
    assert truth.probabilities.shape == (ROWS, IDS)
    k = torch.arange(ROWS) % 9 + 1
    assert rounds(truth, lambda: candidates_first(probabilities(), k)) == ""
    assert "not in the support" in rounds(truth, lambda: torch.multinomial(probabilities(), 1)[:, 0])


def test_several_may_be_drawn_of_each_row() -> None:
    def reference(probs: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(probs, 3, replacement=True)

    specs = {"samples": OutputSpec("int64", (ROWS, 3))}
    truth = evaluate(reference, {"probs": probabilities()}, specs, sampling=True).outputs["samples"]
    assert truth.probabilities is not None
    assert truth.probabilities.shape == (ROWS, IDS), "once for all draws of a row"
    torch.testing.assert_close(truth.probabilities, probabilities())
    assert rounds(truth, lambda: reference(probabilities()), 20) == ""
    assert "do not follow" in rounds(truth, lambda: torch.multinomial(probabilities() ** 2, 3, replacement=True), 20)


def without_replacement(reference: Callable[..., torch.Tensor], **inputs: torch.Tensor) -> OutputTruth:
    specs = {"samples": OutputSpec("int64", (ROWS, 3))}
    return evaluate(reference, inputs, specs, sampling=True).outputs["samples"]


def test_without_replacement_ids_are_in_the_support_and_none_twice_in_a_row() -> None:
    probs = probabilities()
    probs[:, 20:] = 0.0
    truth = without_replacement(lambda probs: torch.multinomial(probs, 3).sort(-1).values, probs=probs)
    assert truth.probabilities is None, "sorted ids do not show which draw they are"
    truth = without_replacement(lambda probs: torch.multinomial(probs, 3), probs=probs)
    for _ in range(8):
        found = compare(torch.multinomial(probs, 3), truth)
        assert found.ok
        assert "without replacement" in found.untested
    assert rounds(truth, lambda: torch.multinomial(probs, 3).sort(-1).values, 4) == "", "the order is nobody's business"
    assert "not in the support" in compare(torch.full((ROWS, 3), 20), truth).text
    twice = torch.arange(3).repeat(ROWS, 1)
    assert compare(twice, truth).ok
    twice[5, 2] = 0
    found = compare(twice, truth)
    assert found.text.startswith("samples[5, 2]: id 0 is drawn from its row before"), found.text
    assert found.n_bad == 1


def test_without_replacement_a_row_of_few_weights_is_filled_up_with_any_others() -> None:
    probs = torch.zeros(ROWS, IDS)
    probs[:, 2:4] = 0.5
    truth = without_replacement(lambda probs: torch.multinomial(probs, 3), probs=probs)
    for other in (0, 4, IDS - 1):
        assert compare(torch.tensor([3, other, 2]).repeat(ROWS, 1), truth).ok
    assert not compare(torch.tensor([3, 2, 3]).repeat(ROWS, 1), truth).ok


@drawn(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4))
def test_an_id_that_is_drawn_again_is_found_in_its_own_row_only(rows: list[list[int]]) -> None:
    ids, mass = torch.tensor(rows), torch.full((len(rows), 5), 0.2)
    truth = OutputTruth("ids", "int64", ids, how=SAMPLED, probabilities=mass, support=mass > 0, times=3, distinct=True)
    assert compare(ids, truth).n_bad == sum(3 - len(set(row)) for row in rows)


def test_rows_that_are_certain_may_be_drawn_beside_others_without_replacement() -> None:
    def reference(probs: torch.Tensor) -> torch.Tensor:
        drawn = torch.multinomial(probs, 3)
        drawn[0] = probs[0].argmax()
        return drawn

    def row_by_row(probs: torch.Tensor) -> torch.Tensor:
        rows = [torch.multinomial(row, 3) for row in probs[1:]]
        return torch.stack([probs[0].argmax().expand(3), *rows])

    assert without_replacement(reference, probs=probabilities()).probabilities is None, "a draw is not shown"
    truth = without_replacement(row_by_row, probs=probabilities())
    assert compare(row_by_row(probabilities()), truth).ok
    again = row_by_row(probabilities())
    again[1, 1] = again[1, 0]
    assert not compare(again, truth).ok


def test_what_is_drawn_after_another_draw_and_depends_on_it_has_no_known_distribution() -> None:
    def reference(probs: torch.Tensor) -> torch.Tensor:
        first = torch.multinomial(probs, 1)
        return torch.cat([first, torch.multinomial(probs.scatter(1, first, 0.0), 1)], dim=1)

    given = {"probs": probabilities()[:1]}
    truth = evaluate(reference, given, {"samples": OutputSpec("int64", (1, 2))}, sampling=True).outputs["samples"]
    for first in range(4):
        assert compare(torch.tensor([[first, 30]]), truth, inputs=given).ok


def test_many_draws_of_a_row_take_no_more_memory_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ids, times = 4, 512, 64
    probs = torch.softmax(torch.randn(rows, ids, generator=torch.Generator().manual_seed(4)), -1)
    made: list[Capture] = []
    init = Capture.__init__

    def noted(self: Capture, shift: int) -> None:
        init(self, shift)
        made.append(self)

    monkeypatch.setattr(Capture, "__init__", noted)
    specs = {"samples": OutputSpec("int64", (rows, times))}
    reference = lambda probs: torch.multinomial(probs, times, replacement=True)  # noqa: E731
    truth = evaluate(reference, {"probs": probs}, specs, sampling=True).outputs["samples"]
    assert truth.probabilities is not None
    assert truth.probabilities.nbytes == probs.nbytes
    assert {len(each.draws) for each in made} == {rows * times}
    assert {len({id(draw.row.weights) for draw in each.draws}) for each in made} == {rows}


def test_where_the_distribution_is_not_known_ids_are_those_that_there_are() -> None:
    k = torch.ones(ROWS, dtype=torch.int64)
    given = {"probs": probabilities(), "k": k}
    found = evaluate(by_noise, given, {"samples": OutputSpec("int64", (ROWS,))}, sampling=True).outputs["samples"]
    assert found.probabilities is None
    largest = max(ROWS, IDS)
    for value, right in ((0, True), (IDS - 1, True), (largest, False), (2**31 - 1, False), (-1, False)):
        compared = compare(torch.full((ROWS,), value), found, inputs=given)
        assert compared.ok is right, value
        assert right or f"id {value} is none that an input has a place for, or lists" in compared.text
        assert "nan" not in compared.text
        assert bool(compared.untested) is right


def candidates(*, alike: bool = False) -> dict[str, torch.Tensor]:
    """Return weights of five candidates a row, and which ids these are: far more ids than any axis is long."""
    generator = torch.Generator().manual_seed(7)
    probs = torch.softmax(torch.randn(ROWS, 5, generator=generator), -1)
    ids = torch.randint(0, 32000, (5,) if alike else (ROWS, 5), generator=generator, dtype=torch.int32)
    return {"probs": probs, "candidates": ids}


def listed_by_noise(probs: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    return candidates.gather(1, by_noise(probs, probs)[:, None])[:, 0]


def listed_by_draw(probs: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    place = torch.multinomial(probs, 1)
    return candidates[place[:, 0].long()] if candidates.ndim == 1 else candidates.gather(1, place)[:, 0]


def of_candidates(reference: Callable[..., torch.Tensor], given: dict[str, torch.Tensor]) -> OutputTruth:
    specs = {"samples": OutputSpec("int32", (ROWS,))}
    return evaluate(reference, given, specs, sampling=True).outputs["samples"]


def test_candidates_may_be_ids_beyond_every_axis() -> None:
    given = candidates()
    for truth in (of_candidates(listed_by_noise, given), of_candidates(listed_by_draw, given)):
        assert compare(listed_by_noise(**given), truth, inputs=given).ok
        assert not compare(torch.full((ROWS,), 32000, dtype=torch.int32), truth, inputs=given).ok


@pytest.mark.parametrize("alike", [True, False])
def test_candidates_are_drawn_as_their_weights_say(*, alike: bool) -> None:
    given = candidates(alike=alike)
    truth = of_candidates(listed_by_draw, given)
    assert truth.probabilities is not None
    assert truth.probabilities.shape == given["probs"].shape, "as many columns as there are weights"
    assert rounds(truth, lambda: listed_by_draw(**given), 16) == ""
    swapped = given | {"candidates": given["candidates"].flip(-1)}
    assert "do not follow" in rounds(truth, lambda: listed_by_draw(**swapped), 16)
    if not alike:
        other = given["candidates"].roll(1, 0)
        assert "not in the support" in compare(other[:, 0].contiguous(), truth, inputs=given).text


def test_a_candidate_may_be_listed_twice() -> None:
    given = candidates()
    for ids in (given["candidates"], given["candidates"] % 5):
        ids[:, 3] = ids[:, 1]
        twice = given | {"candidates": ids}
        truth = of_candidates(listed_by_draw, twice)
        assert rounds(truth, lambda twice=twice: listed_by_draw(**twice), 16) == ""  # type: ignore[misc]


def test_a_reference_that_makes_ids_of_its_own_sets_no_limit() -> None:
    given = candidates()
    truth = of_candidates(lambda probs, candidates: listed_by_noise(probs, candidates) + 7, given)
    assert compare(listed_by_noise(**given) + 7, truth, inputs=given).ok
    assert not compare(torch.full((ROWS,), -3, dtype=torch.int32), truth, inputs=given).ok


def test_logits_that_float32_makes_equal_may_be_told_apart() -> None:
    """By a sampler that chooses candidates by the logits themselves."""

    def reference(logits: torch.Tensor) -> torch.Tensor:
        best = torch.softmax(logits, -1).topk(8, dim=-1)
        return best.indices.gather(1, torch.multinomial(best.values, 1))[:, 0]

    logits = 1e-9 * torch.randn(ROWS, IDS, generator=torch.Generator().manual_seed(6))
    truth = evaluate(reference, {"logits": logits}, {"samples": OutputSpec("int64", (ROWS,))}, sampling=True)
    best = logits.topk(8, dim=-1)
    assert compare(best.indices[:, 0], truth.outputs["samples"]).ok
    assert compare(best.indices[:, 7], truth.outputs["samples"]).ok


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_ids_without_a_sign_are_judged_as_others_are(dtype: torch.dtype) -> None:
    def by_draw(probs: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(probs, 1)[:, 0].to(dtype)

    def by_rank(probs: torch.Tensor) -> torch.Tensor:
        return (probs.cumsum(-1) < torch.rand(len(probs), 1)).sum(-1).clamp(max=IDS - 1).to(dtype)

    inputs = {"probs": probabilities()}
    for reference in (by_draw, by_rank):
        specs = {"samples": OutputSpec(str(dtype).removeprefix("torch."), (ROWS,))}
        truth = evaluate(reference, inputs, specs, sampling=True).outputs["samples"]
        assert compare(by_draw(**inputs), truth, inputs=inputs).ok
        assert not compare(torch.full((ROWS,), ROWS, dtype=dtype), truth, inputs=inputs).ok
        listed = {**inputs, "ids": torch.arange(ROWS + 1).to(dtype)}
        assert compare(torch.full((ROWS,), ROWS, dtype=dtype), truth, inputs=listed).ok is (reference is by_rank)


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, 1e-45), (torch.float16, 6e-8)])
def test_weights_that_torch_itself_loses_are_no_support(dtype: torch.dtype, least: float) -> None:
    probs = torch.zeros(ROWS, IDS, dtype=dtype)
    probs[:, :2], probs[:, 2] = 0.5, least
    truth = without_replacement(lambda probs: torch.multinomial(probs, 3), probs=probs)
    assert compare(torch.tensor([0, 1, 7]).expand(ROWS, 3), truth).ok
    assert not compare(torch.tensor([0, 1, 1]).expand(ROWS, 3), truth).ok
