"""Ids of a long top-k: rounding decides their order in nearly each row, and which ids they are all the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.comparison.id_sets import countable, held, limit, replaced
from pytest_flashinfer.judge.comparison.vacuity import probe
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, Truth, inadmissible
from pytest_flashinfer.judge.tolerance import parse

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, KEYS, K = 4, 900, 256


def indexer(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The ids of the best keys, of which each has a scale, by a sum over heads; -1 where there are not as many."""
    scores = torch.relu(q.float() @ (keys.float() * scale[:, None]).T).sum(dim=1)
    return padded(scores.topk(min(K, len(keys)), dim=-1).indices)


def coarse(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The same with scaled keys held in 16 bits."""
    scaled = (keys.float() * scale[:, None]).bfloat16().float()
    return padded(torch.relu(q.float() @ scaled.T).sum(dim=1).topk(min(K, len(keys)), dim=-1).indices)


def padded(best: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(best.int(), (0, K - best.shape[1]), value=-1)


def inputs(many: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(ROWS, 8, 64, generator=generator).to(torch.float8_e4m3fn)
    keys = torch.randn(many, 64, generator=generator).to(torch.float8_e4m3fn)
    return {"q": q, "keys": keys, "scale": 0.5 + torch.rand(many, generator=generator)}


@pytest.fixture(scope="module", params=[KEYS, 200], ids=["selected", "all"])
def many(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def whole(many: int) -> Truth:
    return evaluate(indexer, inputs(many), {"ids": OutputSpec("int32", (ROWS, K))})


@pytest.fixture
def truth(whole: Truth) -> OutputTruth:
    found = whole.outputs["ids"]
    assert found.undecided is not None
    assert float(found.undecided.float().mean()) > 0.5, "else there is nothing to see"
    assert found.replaced is not None
    return found


def test_another_order_is_right(truth: OutputTruth, many: int) -> None:
    other = coarse(**inputs(many))
    assert truth.native is not None
    assert not torch.equal(other, truth.native)
    assert compare(other, truth).ok


@pytest.mark.parametrize("name", ["int16", "uint16", "uint64"])
def test_ids_are_ids_in_every_dtype_that_holds_them(name: str) -> None:
    dtype, given = getattr(torch, name), inputs(200)
    found = evaluate(lambda *x: whole_rows(indexer, dtype, *x), given, {"ids": OutputSpec(name, (ROWS, 200))})
    ids = found.outputs["ids"]
    right, other = whole_rows(indexer, dtype, *given.values()), whole_rows(coarse, dtype, *given.values())
    assert not torch.equal(right.long(), other.long())
    assert compare(other, ids).ok
    wrong = right.long()
    wrong[:, :100] = wrong[:, 100:]
    assert not compare(wrong.to(dtype), ids).ok


def whole_rows(function: Callable[..., torch.Tensor], dtype: torch.dtype, *given: torch.Tensor) -> torch.Tensor:
    """Ids without padding, which unsigned integers have no number for."""
    return function(*given)[:, :200].to(dtype)


def test_such_a_case_is_a_fair_test_and_no_cheap_answer_passes(whole: Truth, truth: OutputTruth) -> None:
    assert truth.undecided is not None
    assert inadmissible(whole) is None
    assert probe(whole) == []


def with_values(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The best keys with their scores."""
    scores = torch.relu(q.float() @ (keys.float() * scale[:, None]).T).sum(dim=1)
    best = scores.topk(min(K, len(keys)), dim=-1)
    return padded(best.indices), torch.nn.functional.pad(best.values, (0, K - best.values.shape[1]))


def test_values_beside_the_ids_are_judged_where_their_order_is_a_matter_of_rounding(many: int) -> None:
    specs = {"ids": OutputSpec("int32", (ROWS, K)), "scores": OutputSpec("float32", (ROWS, K))}
    found = evaluate(with_values, inputs(many), specs)
    scores = found.outputs["scores"]
    assert scores.undecided is None
    assert inadmissible(found) is None
    assert scores.native is not None
    given = inputs(many)
    scaled = (given["keys"].float() * given["scale"][:, None]).bfloat16().float()
    other = torch.relu(given["q"].float() @ scaled.T).sum(dim=1).topk(min(K, many), dim=-1).values
    assert compare(torch.nn.functional.pad(other, (0, K - other.shape[1])), scores).ok
    for wrong in (torch.zeros_like(scores.native), 1.01 * scores.native, scores.native.roll(1, 0)):
        assert not compare(wrong, scores).ok


def near_ties() -> dict[str, torch.Tensor]:
    """Eight queries for which the first two of 64 keys differ by less than an honest kernel's rounding."""
    keys = torch.randn(64, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
    keys[0, 0] = 0.125
    q = keys[:1].repeat(8, 1)
    keys[1] = keys[0]
    keys[1, 0] *= 1 + 2.0**-7  # one step of its dtype
    return {"q": q, "keys": keys, "scale": torch.full((64,), 0.7)}


def test_values_of_other_ids_are_let_pass_where_rounding_chooses() -> None:
    """What is gathered by ids differs wholly where another one is chosen."""
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
    given = {**near_ties(), "x": x}

    def gathered(
        q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ids = (q.float() @ (keys.float() * scale[:, None]).T).topk(1, dim=-1).indices
        return ids.int(), x[ids[:, 0]]

    specs = {"ids": OutputSpec("int32", (8, 1)), "y": OutputSpec("float32", (8, 5))}
    found = evaluate(gathered, given, specs, closely=True).outputs["y"]
    assert found.native is not None
    assert compare(given["x"][:1].expand(8, 5).clone(), found).ok
    assert compare(given["x"][1:2].expand(8, 5).clone(), found).ok
    assert not compare(20 * found.native, found).ok


def test_other_ids_are_not(truth: OutputTruth) -> None:
    native, allowed = truth.native, truth.replaced
    assert native is not None
    assert allowed is not None
    assert truth.undecided is not None
    assert truth.held is not None
    row = int(truth.undecided.any(dim=1).nonzero()[0])
    free = (~truth.held[row]).nonzero().flatten()[:allowed]
    some = native.clone()
    some[row, free] = torch.arange(len(free), dtype=torch.int32) + 5000
    assert compare(some, truth).ok
    place = int(truth.held[row].nonzero()[0])  # one that all runs have, whatever the noise
    some[row, place] = 6000
    found = compare(some, truth)
    assert not found.ok
    assert f"ids row {row}: {len(free) + 1} of {K} ids are not the reference's, such as" in found.text
    assert f"missing there, and not nearly the last: {int(native[row, place])}" in found.text
    assert f"bound: {allowed} ids" in found.text
    assert found.problem == "values"


def test_the_best_ids_have_to_be_there(truth: OutputTruth) -> None:
    native = truth.native
    assert native is not None
    some = native.clone()
    some[:, 0] = 5000  # the best of each row; of 4 allowed ones a row loses one
    assert not compare(some, truth).ok


@pytest.mark.parametrize("name", ["zeros", "one for all", "the first ones", "of another row", "of another page"])
def test_cheap_answers_are_not(truth: OutputTruth, many: int, name: str) -> None:
    native = truth.native
    assert native is not None
    answers = {
        "zeros": torch.zeros_like(native),
        "one for all": native[:, :1].expand_as(native),
        "the first ones": torch.arange(K, dtype=torch.int32).expand_as(native),
        "of another row": native.roll(1, 0),
        "of another page": native.where(native < 0, native + many),
    }
    of_all = many < K and name == "of another row"
    assert compare(answers[name], truth).ok is of_all


def test_a_stated_limit_is_the_only_one(truth: OutputTruth) -> None:
    assert truth.native is not None
    assert compare(torch.zeros_like(truth.native), truth, parse("ids:atol=1000")).ok


def test_a_stated_share_of_ids_is_the_only_one(truth: OutputTruth) -> None:
    assert truth.native is not None
    other = truth.native.clone()
    other[:, :8] = 5000
    assert not compare(other, truth).ok
    assert compare(other, truth, parse("ids:required_matched_ratio=0.9")).ok


def test_how_many_ids_may_be_others() -> None:
    assert [limit(most, K) for most in (0, 1, 31, 63, 64)] == [4, 8, 128, 256, 256]
    assert limit(0, 3) == 3


def test_where_all_ids_may_be_others_nothing_is_said() -> None:
    """The best of two that noise cannot tell apart: no wrong answer is told from a right one, and none is believed."""
    given = near_ties()

    def best(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (q.float() @ (keys.float() * scale[:, None]).T).topk(1, dim=-1).indices.int()

    found = evaluate(best, given, {"ids": OutputSpec("int32", (8, 1))}, closely=True)
    assert inadmissible(found) == "ids: most of it is a matter of rounding"
    assert probe(found) == []


ids = st.lists(st.integers(-1, 9), min_size=5, max_size=5)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=4))
def test_what_is_counted(pairs: list[tuple[list[int], list[int]]]) -> None:
    """Ids of the one that the other does not hold; of ids that are there twice one counts, of padding each."""
    mine, theirs = [_once(one, 100) for one, _ in pairs], [_once(other, 200) for _, other in pairs]
    found = replaced(torch.tensor(mine).int(), torch.tensor(theirs).int())
    rows = zip(mine, theirs, strict=True)
    assert found.tolist() == [sum((Counter(one) - Counter(other)).values()) for one, other in rows]
    again = replaced(torch.tensor([one for one, _ in pairs]).int(), torch.tensor(theirs).int())
    assert again.tolist() == found.tolist(), "one that is there again is as wrong as any other"


def _once(row: list[int], other: int) -> list[int]:
    """Replace ids that are there before by `other` ones."""
    return [each if each < 0 or each not in row[:place] else other + place for place, each in enumerate(row)]


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (torch.tensor([[1, 2, -1, -1]]), True),
        (torch.tensor([[1, 1, -1, -1]]), False),
        (torch.tensor([1, 2]), False),
        (torch.tensor([[1.0, 2.0]]), False),
        (torch.tensor([[1, 2]]).to(torch.int8), False),
        (torch.zeros(0, 4, dtype=torch.int32), False),
    ],
)
def test_what_is_a_row_of_ids(rows: torch.Tensor, counts: bool) -> None:  # noqa: FBT001
    assert countable(rows) is counts


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=4))
def test_what_is_held(pairs: list[tuple[list[int], list[int]]]) -> None:
    one, other = (torch.tensor([pair[place] for pair in pairs], dtype=torch.int32) for place in (0, 1))
    found = held(one, other)
    for (mine, theirs), row in zip(pairs, found.tolist(), strict=True):
        left = theirs.count(-1)
        expected = []
        for each in mine:
            expected.append(left > 0 if each == -1 else each in theirs)
            left -= each == -1
        assert row == expected
