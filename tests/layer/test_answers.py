"""Truths are asked for once, kept unchanged, and let go when they take too much memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.data.model import Definition, TensorSpec, Workload
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle import answers as module
from pytest_flashinfer.judge.oracle import bound_reuse
from pytest_flashinfer.judge.oracle.answers import Answers
from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth
from pytest_flashinfer.judge.reference import process
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.worker.card_sharing import Turns
from pytest_flashinfer.worker.case import Case
from pytest_flashinfer.worker.errors import BuildFailed, CallFailed, WorkerDied, WorkerTimedOut

DEFINITION = Definition(
    "d", "op", {}, {"x": TensorSpec(("n",), "float32")}, {"y": TensorSpec(("n",), "float32")}, "def run(x): return x"
)


class FakeOracle:
    """Answers with `scratch`, which the next question overwrites as the arena would be; `script` holds errors."""

    asked = 0
    native = 0
    hosts: list[bool] = []  # noqa: RUF012 - of each test anew
    begun: list[object] = []  # noqa: RUF012 - of each test anew
    options: dict[str, object] = {}  # noqa: RUF012 - of the last question
    built = 0
    script: list[Exception | None] = []  # noqa: RUF012 - of each test anew
    build_error: Exception | None = None

    def __init__(self, worker, device, mutated):
        self.worker = worker

    def build(self, *arguments, **named):
        FakeOracle.built += 1
        if FakeOracle.build_error is not None:
            raise FakeOracle.build_error

    def ask(self, values, specs, *, native=False, host=False, **options):
        FakeOracle.asked += 1
        FakeOracle.options = options
        FakeOracle.hosts.append(host)
        FakeOracle.native += native
        error = FakeOracle.script.pop(0) if FakeOracle.script else None
        if error is not None:
            raise error
        y = values["x"] * 2
        if native:
            return Truth({"y": OutputTruth("y", "float32", y, None, torch.full_like(y, 1e-9))})
        return Truth({"y": OutputTruth("y", "float32", y, y.double(), y.abs().double() * 1e-3)})

    def begin(self, values, specs, **options):
        FakeOracle.begun.append(values)
        if FakeOracle.script:
            raise FakeOracle.script.pop(0)

    def close(self):
        pass


@pytest.fixture
def answers(monkeypatch):
    monkeypatch.setattr(process, "Oracle", FakeOracle)
    fresh = {"asked": 0, "native": 0, "hosts": [], "begun": [], "built": 0, "script": [], "build_error": None}
    for name, value in fresh.items():
        monkeypatch.setattr(FakeOracle, name, value)
    worker = SimpleNamespace(alive=True, close=lambda: None)
    pool = SimpleNamespace(device="cpu", worker=lambda handler: worker, turns=Turns("cpu"))
    made = Answers(pool, DEFINITION, timeout=1.0)
    yield made
    made.close()


def case(n=4, fill=1.0, **more):
    values = {"x": torch.full((n,), fill)}
    return Case(DEFINITION, {"n": n}, Recipe(0), values, {"y": (n,)}, **more)


def test_a_truth_is_asked_for_once(answers):
    first, again = answers.answer(case()), answers.answer(case())
    assert first is again
    assert FakeOracle.asked == 1


def test_a_case_called_elsewhere_has_the_same_truth(answers):
    assert answers.answer(case()) is answers.answer(case().elsewhere())
    assert FakeOracle.asked == 1


@pytest.mark.parametrize(
    "other", [case(5), case(variant="1 fresh"), case().with_values({"x": torch.zeros(4)}, "0 same_ends")]
)
def test_other_inputs_have_a_truth_of_their_own(answers, other):
    first = answers.answer(case())
    assert answers.answer(other) is not first
    assert torch.equal(answers.answer(other).outputs["y"].native, 2 * other.values["x"])
    assert torch.equal(first.outputs["y"].native, torch.full((4,), 2.0))


def test_a_reference_is_run_again_on_a_few_cases_and_on_none_that_shows_nothing(answers):
    asked = []
    for name in "abcde":
        answers.answer(case(n=0 if name == "b" else 4, variant=name))
        asked.append(FakeOracle.options["again"])
    assert asked == [True, False, True, True, False]


def test_one_that_gives_other_results_says_nothing_of_any_case(answers):
    known = case(variant="a")
    answers.answer(known)
    FakeOracle.script = [CallFailed("unsteady", "y[0] is 1 and then 2")]
    for each in (case(variant="b"), case(variant="c"), known, replace(case(variant="d"), bound_of=known)):
        with pytest.raises(ReferenceFailed, match="1 and then 2"):
            answers.answer(each)
    assert FakeOracle.asked == 2


def test_the_longest_unused_truth_goes_first(answers, monkeypatch):
    """A case of n = 4 takes 16 bytes natively, 32 in the wide copy and 32 for the bound."""
    answers.kept.near = 2 * 80
    one, two, three = (case(variant=name) for name in "abc")
    for each in (one, two, one, three):  # `two` is the one unused for longest
        answers.answer(each)
    assert FakeOracle.asked == 3
    answers.answer(one)
    assert FakeOracle.asked == 3
    answers.answer(two)
    assert FakeOracle.asked == 4


def test_a_case_with_the_bound_of_another_runs_natively(answers):
    known = replace(case(), values={"x": torch.tensor([1.0, -8.0, 2.0, 0.0])})
    reusing = replace(case(fill=8.0, variant="timed 0"), bound_of=known)
    found = answers.answer(reusing)
    assert (FakeOracle.asked, FakeOracle.native) == (2, 1)
    y = found.outputs["y"]
    assert torch.equal(y.allowance, torch.full((4,), 4 * 16e-3))
    assert y.how == "native, with the bound of another call's contents"
    assert compare(y.native + 0.06, y).ok
    assert not compare(y.native + 0.07, y).ok
    assert not compare(answers.answer(known).outputs["y"].native, y).ok, "an answer to other contents"
    answers.answer(reusing)
    assert FakeOracle.asked == 2


def test_a_borrower_has_a_truth_of_its_own_before_anybody_is_blamed(answers):
    reusing = replace(case(variant="timed 0"), bound_of=case(fill=0.5))
    full = answers.answer(reusing).in_full()
    assert (FakeOracle.asked, FakeOracle.native) == (3, 1)
    assert full.outputs["y"].wide is not None
    assert full.in_full is None
    assert answers.answer(replace(reusing, bound_of=None)) is full
    assert answers.answer(reusing).outputs["y"].wide is None


def test_a_borrowers_own_truth_has_to_be_a_fair_test_as_well(answers, monkeypatch):
    fair, unfair = (replace(case(variant=f"timed {n}"), bound_of=case(fill=0.5)) for n in (0, 1))
    found = answers.answer_if_fair(fair)
    assert answers.answer(replace(fair, bound_of=None)) is found.in_full()
    why = {False: None, True: "cancellation"}
    monkeypatch.setattr(module, "inadmissible", lambda truth: why[truth.outputs["y"].wide is not None])
    found = answers.answer_if_fair(unfair)
    with pytest.raises(ReferenceFailed, match="cancellation"):
        found.in_full()


def test_a_closer_look_is_taken_once_where_there_are_integers(answers, monkeypatch):
    assert answers.answer(case()).closer is None
    ids = {"y": TensorSpec(("n",), "int32")}
    monkeypatch.setattr(answers, "definition", replace(DEFINITION, outputs=ids))
    found = answers.answer(case())
    assert "closely" not in FakeOracle.options
    closer = found.closer()
    assert FakeOracle.options["closely"]
    assert closer.closer is None
    asked = FakeOracle.asked
    assert answers.answer(case()).closer() is closer
    assert FakeOracle.asked == asked


def test_much_that_a_closer_look_leaves_open_does_not_make_the_rest_an_unfair_test(answers, monkeypatch):
    monkeypatch.setattr(answers, "definition", replace(DEFINITION, outputs={"y": TensorSpec(("n",), "int32")}))
    found = answers.answer_if_fair(case())
    monkeypatch.setattr(module, "inadmissible", lambda truth: "a matter of rounding")
    assert found.closer().outputs.keys() == {"y"}


def test_whether_a_drawn_case_is_a_fair_test_is_found_out_once(answers, monkeypatch):
    monkeypatch.setattr(module, "inadmissible", lambda truth: "cancellation")
    with pytest.raises(ReferenceFailed, match="cancellation"):
        answers.answer_if_fair(case())
    monkeypatch.setattr(module, "inadmissible", None)
    with pytest.raises(ReferenceFailed, match="cancellation"):
        answers.answer_if_fair(case().elsewhere())


@pytest.mark.parametrize("listed", [None, Workload("w", {"n": 4}, {})])
def test_what_the_reference_has_nan_for_is_left_open_where_nan_shows_leaks(answers, listed):
    """In a drawn case as in the line that replays it."""
    copied = replace(DEFINITION, description="Rows are copied bit for bit.")
    spilt = replace(case(workload=listed), recipe=Recipe(0, family="nan"))
    spilt.values["x"][1] = torch.nan
    assert answers.answer(spilt).outputs["y"].undecided is None, "this contract says nothing"
    answers.close()
    found = answers.answer(replace(spilt, definition=copied))
    assert found.outputs["y"].undecided.tolist() == [False, True, False, False]
    zero = torch.tensor([2.0, 0.0, 2.0, 2.0])
    assert compare(zero, found.outputs["y"], equal_nan=True).ok
    assert not compare(torch.full((4,), torch.nan), found.outputs["y"], equal_nan=True).ok


def rebound(native, known, allowance, **more):
    allowance = torch.as_tensor(allowance, dtype=torch.float64).expand(known.shape)
    other = OutputTruth("y", "float32", known, known.double(), allowance, **more)
    return bound_reuse.with_bound(OutputTruth("y", "float32", native), bound_reuse.reusable_bound(other)).allowance


def test_what_overflows_or_is_undecided_gives_no_bound():
    known = torch.tensor([[1.0, float("inf")], [1.0, 1.0]])
    allowance, unsure = [[1e-3, 1e30], [1e-3, 1e20]], torch.tensor([[False, False], [False, True]])
    assert float(rebound(torch.ones(2, 2), known, allowance, undecided=unsure).max()) < 1e-2
    assert rebound(torch.ones(2, 2), known, allowance, undecided=torch.ones(2, 2).bool()) is None, "by dtype"


def test_a_large_row_gives_a_small_one_no_more_than_its_share():
    rows = torch.tensor([[1e3], [1.0], [1e-3]]) * torch.ones(3, 4)
    found = rebound(rows, rows, 1e-2 * rows.double())
    assert torch.allclose(found, 4e-2 * rows)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16])
def test_values_of_all_lengths_give_the_bound_that_they_would_in_float32(dtype):
    known, native = torch.tensor([[2.0, -8.0], [0.5, float("nan")]]), torch.tensor([[4.0, -1.0], [0.0, 64.0]])
    found = rebound(native.to(dtype), known.to(dtype), 1e-3)
    assert torch.equal(found, rebound(native, known, 1e-3))


@pytest.mark.parametrize("known", [torch.zeros(2, 3), torch.ones(5, 3)])
@pytest.mark.parametrize("shape", [(), (4,), (4, 1), (0, 3), (3, 0)])
def test_rows_of_zeros_and_other_shapes_give_and_take_bounds(known, shape):
    found = rebound(torch.ones(shape), known, 1e-3)
    assert found is None if 0 in shape else found.shape == shape
    assert found is None or torch.allclose(found, torch.tensor(4e-3))


@pytest.mark.parametrize("shape", [(4, 0, 0), (4, 0), (0, 5), (0,), (2, 0, 3)])
def test_of_an_output_without_elements_no_bound_is_used_again(shape):
    assert rebound(torch.ones(2, 3), torch.zeros(shape), 1e-3) is None


def test_where_the_other_case_has_no_truth_neither_has_this_one(answers):
    FakeOracle.script = [CallFailed("reference", "raised")]
    with pytest.raises(ReferenceFailed, match="raised"):
        answers.answer(replace(case(variant="timed 0"), bound_of=case()))


def test_a_truth_larger_than_the_memory_is_kept_until_the_next(answers, monkeypatch):
    answers.kept.near = 1
    assert answers.answer(case()) is answers.answer(case())
    answers.answer(case(5))
    answers.answer(case())
    assert FakeOracle.asked == 3


def test_a_reference_that_dies_is_started_anew(answers):
    FakeOracle.script.append(WorkerDied("signal SIGSEGV"))
    with pytest.raises(ReferenceFailed, match="the reference's process"):
        answers.answer(case())
    assert answers.answer(case(5)).outputs["y"].native is not None
    assert FakeOracle.built == 2


def test_a_reference_that_hung_is_started_anew_for_smaller_cases_only(answers):
    answers.answer(case(3))
    FakeOracle.script.append(WorkerTimedOut(3.0))
    with pytest.raises(ReferenceFailed, match=r"no answer within 3 s; .*; --fib-reference-timeout gives it more"):
        answers.answer(case(5))
    for size in (6, 7):
        with pytest.raises(ReferenceFailed, match="not asked again: it gave no answer in time on inputs of 20 bytes"):
            answers.answer(case(size))
    assert answers.answer(case(4)).outputs["y"].native is not None
    assert (FakeOracle.asked, FakeOracle.built, answers.hung) == (3, 2, "")


@pytest.mark.parametrize("place", ["question", "import"])
def test_a_reference_that_hung_when_it_was_asked_first_is_asked_no_more(answers, place):
    if place == "import":
        FakeOracle.build_error = WorkerTimedOut(3.0)
    else:
        FakeOracle.script.append(WorkerTimedOut(3.0))
    with pytest.raises(ReferenceFailed, match="no answer within 3 s"):
        answers.answer(case())
    with pytest.raises(ReferenceFailed, match="not asked again"):
        answers.answer(case(1))
    assert (FakeOracle.asked, FakeOracle.built) == (place == "question", 1)
    assert "not asked again" in answers.hung


def test_a_failure_is_remembered_too(answers):
    FakeOracle.script.append(CallFailed("reference", "ValueError: odd"))
    for _ in range(3):
        with pytest.raises(ReferenceFailed, match="ValueError: odd"):
            answers.answer(case())
    assert FakeOracle.asked == 1


def test_a_remembered_failure_holds_no_old_frames(answers):
    FakeOracle.script.append(CallFailed("reference", "ValueError: odd"))
    depths = []
    for _ in range(3):
        with pytest.raises(ReferenceFailed) as caught:
            answers.answer(case())
        depths.append(len(caught.traceback))
    assert depths[1] == depths[2]


def test_a_reference_that_cannot_be_loaded_says_so_about_every_case(answers):
    FakeOracle.build_error = BuildFailed("ImportError: no module named odd")
    for n in range(1, 4):
        with pytest.raises(ReferenceFailed, match="ImportError: no module named odd"):
            answers.answer(case(n))
    assert FakeOracle.built == 1, "it is not tried again for each case"
    assert FakeOracle.asked == 0


def test_nothing_is_kept_after_the_end(answers):
    answers.answer(case())
    answers.close()
    answers.answer(case())
    assert FakeOracle.asked == 2


@pytest.fixture
def on_a_card(answers):
    answers.pool.device = "cuda:0"
    return answers


def test_the_host_finds_the_truth_about_a_small_drawn_case(on_a_card):
    found = on_a_card.answer(case())
    assert FakeOracle.hosts == [True]
    assert on_a_card.answer(case()).outputs is found.outputs
    full = found.in_full()
    assert FakeOracle.hosts == [True, False], "before anybody is blamed the card is asked"
    assert full.in_full is None
    found.in_full()
    assert len(FakeOracle.hosts) == 2


def test_the_card_finds_the_truth_about_large_listed_and_integer_cases(on_a_card):
    listed = Workload("0" * 32, {"n": 4}, {})
    integers = replace(DEFINITION, outputs={"y": replace(DEFINITION.outputs["y"], dtype="int32")})
    for each in (case(1 << 16), case(workload=listed), replace(case(), definition=integers)):
        on_a_card.answer(each)
    assert FakeOracle.hosts == [False] * 3


def test_a_small_case_and_the_one_whose_bound_it_has_are_both_found_on_the_host(on_a_card):
    reusing = replace(case(variant="timed 0"), bound_of=case(fill=0.5))
    full = on_a_card.answer(reusing).in_full()
    assert FakeOracle.hosts == [True, True, False]
    assert full.outputs["y"].wide is not None


def test_a_reference_that_only_runs_on_the_card_is_not_tried_on_the_host_again(on_a_card):
    FakeOracle.script = [CallFailed("reference", "the reference raised: no CUDA tensor", "", "")]
    assert on_a_card.answer(case()).in_full is None
    on_a_card.answer(case(5))
    assert FakeOracle.hosts == [True, False, False]


def test_a_reference_that_fails_on_both_is_still_tried_on_the_host(on_a_card):
    FakeOracle.script = [CallFailed("reference", "the reference raised", "", "")] * 2
    with pytest.raises(ReferenceFailed, match="raised"):
        on_a_card.answer(case())
    on_a_card.answer(case(5))
    assert FakeOracle.hosts == [True, False, True]


@pytest.mark.parametrize("doubt", ["unfair", "widened"])
def test_a_case_that_the_reference_does_badly_on_the_host_is_the_cards(on_a_card, monkeypatch, doubt):
    ask = FakeOracle.ask

    def on_the_host_badly(self, *args, host=False, **options):
        found = ask(self, *args, host=host, **options)
        widened = {"unfair": 9.0, "widened": 2.0}[doubt] if host else 1.0
        outputs = {name: replace(each, widened=widened) for name, each in found.outputs.items()}
        return replace(found, outputs=outputs)

    monkeypatch.setattr(FakeOracle, "ask", on_the_host_badly)
    assert on_a_card.answer_if_fair(case()).in_full is None
    assert on_a_card.answer_if_fair(case().elsewhere()).outputs["y"].widened == 1.0
    assert FakeOracle.hosts == [True, False]
    on_a_card.answer(case(5))
    assert FakeOracle.hosts == [True, False, True, False], "another case may do well"


def test_a_truth_that_the_host_finds_is_begun_while_calls_go_on(on_a_card):
    on_a_card.answer(case())
    other = case(5)
    listed = Workload("0" * 32, {"n": 4}, {})
    nothing = (case(), case(1 << 16), case(workload=listed), replace(case(variant="0 fresh"), bound_of=case()))
    for each in (other, *nothing):
        on_a_card.prefetch(each)
    assert [id(values) for values in FakeOracle.begun] == [id(other.values)]
    on_a_card.portable = False
    on_a_card.prefetch(case(6))
    assert len(FakeOracle.begun) == 1


def test_nothing_is_begun_on_the_cpu_or_before_the_reference_is_there(answers):
    answers.answer(case())
    answers.prefetch(case(5))
    answers.close()
    answers.pool.device = "cuda:0"
    answers.prefetch(case(5))
    assert not FakeOracle.begun


def test_what_cannot_be_begun_is_asked_for_as_ever(on_a_card):
    on_a_card.answer(case())
    FakeOracle.script = [WorkerDied("killed")]
    on_a_card.prefetch(case(5))
    assert on_a_card.answer(case(5)).outputs
