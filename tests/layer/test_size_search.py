"""From a drawn failure to the line that replays it, and which cases are called repeatedly."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase

from pytest_flashinfer.cases.contents import Contents
from pytest_flashinfer.cases.default_inputs import DefaultInputs
from pytest_flashinfer.cases.making import KINDS, Cases
from pytest_flashinfer.data.model import Axis, Definition, InputSpec, TensorSpec
from pytest_flashinfer.data.traces import load_workloads
from pytest_flashinfer.data.workload_rules import check_workloads
from pytest_flashinfer.inputs.errors import InputsError, Unsatisfiable
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.axes import solve_axes
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.sizes.strategies import case_strategy
from pytest_flashinfer.inputs.workload_line import workload_line
from pytest_flashinfer.judge.reference.origin import ReferenceFailed, Unfair
from pytest_flashinfer.judge.verdict import Verdict
from pytest_flashinfer.search import size_search as module
from pytest_flashinfer.search.minimal_case import Search
from pytest_flashinfer.search.pace import Pace
from pytest_flashinfer.search.saved import Saved
from pytest_flashinfer.search.size_search import SizeSearch
from pytest_flashinfer.search.unjudged import Tally
from pytest_flashinfer.solution_call import Failed, describe
from pytest_flashinfer.worker.case import Case, shapes_of
from pytest_flashinfer.worker.outcome import Compilation
from tests.inputs.contracts import ALL, DELTA

from .contracts import ROWS, workload

WRONG = Verdict("INCORRECT_NUMERICAL", "y[0]: 1 instead of 2")


def same(one, other):
    if isinstance(one, torch.Tensor):
        raw = [each.contiguous().view(-1).view(torch.uint8) for each in (one, other)]
        return one.shape == other.shape and one.stride() == other.stride() and torch.equal(*raw)
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_line_replays_the_very_inputs(tmp_path, definition, data):
    axes, recipe = data.draw(case_strategy(definition, (), 4000, layouts=("contiguous", "strided")))
    values = make_inputs(definition, axes, recipe)
    path = tmp_path / "lines.jsonl"
    path.write_text(workload_line(definition, axes, recipe, values) + "\n")
    lines = load_workloads(path, definition.name)
    assert [str(fault) for fault in check_workloads(lines, definition) if fault.kind == "fault"] == []
    [workload] = [loaded.value for loaded in lines]
    again = Recipe.from_json(workload.extra["recipe"])
    assert again == recipe
    solved = solve_axes(definition, workload.axes)
    assert solved == axes
    replayed = make_inputs(definition, solved, again, workload=workload)
    assert {name: same(value, replayed[name]) for name, value in values.items()} == dict.fromkeys(values, True)


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
def test_a_line_makes_the_calls_that_failed_in_any_run_and_scope(tmp_path, definition):
    """Whichever call of a drawn case fails, with its scalars in the line: test_correct begins with the same calls."""
    maker, path = DefaultInputs(definition, "cpu", None), tmp_path / "lines.jsonl"
    for axes, recipe in islice(edge_cases(definition, max_elements=1 << 12), 8):
        drawn = Cases(Contents(definition, maker, maker, 7), KINDS).drawn(axes, recipe)
        for failed in drawn[:2]:
            path.write_text(workload_line(definition, axes, recipe, failed.values) + "\n")
            [loaded] = load_workloads(path, definition.name)
            repeated = Cases(Contents(definition, maker, maker, 8), KINDS[:1]).repeated(loaded.value)
            assert [each.variant for each in repeated[: len(drawn)]] == [each.variant for each in drawn]
            assert [each.moved for each in repeated[: len(drawn)]] == [each.moved for each in drawn]
            for one, other in zip(drawn, repeated, strict=False):
                alike = {name: same(value, other.values[name]) for name, value in one.values.items()}
                assert alike == dict.fromkeys(alike, True), one.variant


def test_a_line_is_one_line_of_plain_json_and_its_uuid_follows_from_the_case():
    def line(n, **recipe):
        return workload_line(ROWS, {"n": n, "m": 1, "h": 8}, Recipe(7, **recipe), {"scale": 2.0})

    assert "\n" not in line(3)
    workload = json.loads(line(3))["workload"]
    assert workload["axes"] == {"n": 3, "m": 1}, "constant axes belong to the definition"
    assert workload["inputs"] == {
        "x": {"type": "random"},
        "z": {"type": "random"},
        "scale": {"type": "scalar", "value": 2.0},
    }
    assert line(3) == line(3) == workload_line(ROWS, {"h": 8, "m": 1, "n": 3}, Recipe(7), {"scale": 2.0})
    uuids = {json.loads(text)["workload"]["uuid"] for text in (line(3), line(4), line(3, family="tiny"))}
    assert len(uuids) == 3


def test_a_constant_that_workloads_state_is_stated_in_the_line(tmp_path):
    """The definition leaves h open, the listed workloads say that it is 8."""
    stated = replace(ROWS, axes=ROWS.axes | {"h": Axis("const")})
    with pytest.raises(Failed) as caught:
        search(definition=stated, listed=[workload(4, axes={"n": 4, "m": 1, "h": 8})]).run(fails)
    path = tmp_path / "lines.jsonl"
    path.write_text(caught.value.hint.splitlines()[-1])
    lines = load_workloads(path, "rows_h8")
    assert lines[0].value.axes["h"] == 8
    assert [str(fault) for fault in check_workloads(lines, stated) if fault.kind == "fault"] == []


def test_an_input_that_was_absent_is_absent_from_the_line():
    workload = json.loads(workload_line(ROWS, {"n": 1, "m": 1}, Recipe(1, absent=frozenset({"z"})), {}))["workload"]
    assert "z" not in workload["inputs"]
    assert workload["recipe"]["absent"] == ["z"]


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(reading=0.0, monotonic=lambda: made.reading)
    monkeypatch.setattr("pytest_flashinfer.search.pace.time", made)
    return made


def paced(clock, *seconds, **state):
    pace, repeated = Pace(**state), []
    for each in seconds:
        repeated.append(pace.repeats())
        with pace:
            clock.reading += each
    return repeated


def test_large_cases_are_called_once_until_the_fourth(clock):
    assert paced(clock, *[0.0] * 8, large=True) == [False, False, False, True, False, False, False, True]
    assert paced(clock, 0.0, 0.0, large=True, failing=True) == [True, True]


def test_quick_cases_are_all_repeated(clock):
    assert paced(clock, *[0.01] * 10) == [True] * 10


def test_of_slow_cases_only_some_are(clock):
    repeated = paced(clock, *[1.0] * 13)
    assert repeated[0]
    assert 1 < sum(repeated) < 7


def test_of_those_none_that_takes_long(clock):
    pace, repeated = Pace(), []
    for expected in (0.0, 0.1, 0.1, 0.1, 9.0, 9.0, 0.1, 0.1, 0.1, 0.1):
        repeated.append(pace.repeats(expected))
        with pace:
            clock.reading += 0.1 + expected
    assert repeated == [True, False, False, False, False, False, True, False, False, False]


def test_one_slow_case_is_forgotten(clock):
    repeated = paced(clock, 1.0, *[0.001] * 40)
    assert not repeated[1]
    assert all(repeated[30:])


def test_once_something_failed_every_case_is_repeated(clock):
    assert paced(clock, *[1.0] * 9, failing=True) == [True] * 9


def test_time_of_a_case_that_raised_counts(clock):
    pace = Pace()
    with contextlib.suppress(ZeroDivisionError), pace:
        clock.reading += 1.0
        raise ZeroDivisionError
    assert (pace.cases, pace.seconds) == (1, 1.0)


class Item(SimpleNamespace):
    """What a search needs of an item."""

    def __init__(self, file=None, here="/nowhere"):
        config = SimpleNamespace(
            getoption=lambda name, default=None: default, invocation_params=SimpleNamespace(dir=Path(here))
        )
        super().__init__(nodeid="a.json::test_sizes[s]", name="test_sizes[s]", user_properties=[], config=config)
        self.getparent = lambda _: file
        self.warnings = []
        self.warn = lambda warning: self.warnings.append(str(warning))


def search(*, item=None, definition=ROWS, listed=(), solution=None, hung="", **options):
    options = {"layouts": "contiguous", "examples": 30, "seconds": 30.0, "seed": 1, "save_failures": False} | options
    progress = SimpleNamespace(step=lambda text: None, clear=lambda: None)
    session = SimpleNamespace(options=SimpleNamespace(**options), device=SimpleNamespace(kind="cpu"), progress=progress)
    solution = solution or under_test()
    reference = SimpleNamespace(native_seconds=0.0, hung=hung)
    return SizeSearch(item or Item(), definition, listed, session, solution, reference=reference)


def test_nothing_is_drawn_for_a_reference_that_hangs():
    with pytest.raises(ReferenceFailed, match="not asked again"):
        search(hung="the reference is not asked again").run(None)


def under_test(source="", **changes):
    """Return what a search needs of a solution."""
    sources = [SimpleNamespace(content=source)]
    solution = SimpleNamespace(sources=sources)
    known = {"took": {}, "called": set(), "compiled": [], "waited": 0.0, "close": lambda: None}
    return SimpleNamespace(**known | changes, solution=solution)


@pytest.fixture(autouse=True)
def _without_a_database(monkeypatch):
    monkeypatch.setattr(module, "Search", lambda *given, **named: Search(*given, **named | {"saved": Saved(None, b"")}))


def failure(axes, recipe):
    return Failed(WRONG, Case(ROWS, axes, recipe, {"scale": 0.5}, shapes_of(ROWS, axes)))


def test_a_failure_is_shrunk_and_explained():
    calls = []

    def check(axes, recipe, *, repeat):
        calls.append(repeat)
        if axes["n"] >= 3:
            raise failure(axes, recipe)

    with pytest.raises(Failed) as caught:
        search().run(check)
    text = caught.value.text()
    line = next(line for line in text.splitlines() if line.startswith("{"))
    assert json.loads(line)["workload"]["axes"]["n"] == 3
    assert "case: n=3" in text
    assert "y[0]: 1 instead of 2" in text.splitlines()[0]
    assert all(calls)


@given(st.permutations(["b", "m", "h", "z"]), st.sampled_from([{}, {"scale": 0.5}, {"low": 2, "scale": 0.5}]))
def test_a_case_is_named_in_the_order_of_its_definition_with_all_scalars(order, unusual):
    """Also that of an earlier run, whose sizes were kept in another order; a scalar may be a tensor."""
    inputs = {"x": TensorSpec(("m", "h"), "float32"), **dict.fromkeys(("scale", "mode"), TensorSpec(None, "float32"))}
    inputs["low"] = TensorSpec((), "int32")
    stated = {"z": Axis("var"), "m": Axis("var"), "h": Axis("const", 8)}
    definition = Definition("d", "other", stated, inputs, {"y": inputs["x"]}, "")
    axes = {name: number for number, name in enumerate(order)}
    values = {"x": torch.zeros(1), "scale": 0.5, "mode": "tanh", "low": torch.tensor(2)}
    text = describe(Case(definition, axes, Recipe(7, scalars=unusual), values, {}))
    low = ", low=2" if "low" in unusual else ""
    sizes = f"z={axes['z']}, m={axes['m']}, b={axes['b']}"
    assert text == f"{sizes}, scale=0.5, mode=tanh{low}; seed=7, family=normal, structure=mixed; call: first"


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_size_of_0_is_said_to_be_excludable_only_where_others_pass(everywhere):
    def check(axes, recipe, *, repeat):
        if everywhere or axes["n"] == 0:
            raise failure(axes, recipe)

    with pytest.raises(Failed) as caught:
        search().run(check)
    assert ("a constraint `n > 0` would exclude it" in caught.value.text()) is not everywhere


def test_a_size_of_0_is_not_blamed_for_what_fails_at_others_as_well():
    def check(axes, recipe, *, repeat):
        if recipe.seed % 2:
            raise failure(axes, recipe)

    with pytest.raises(Failed) as caught:
        search().run(check)
    assert caught.value.case.axes["n"] == 0
    assert "would exclude it" not in caught.value.text()


def test_a_failure_says_which_constraint_its_case_may_break():
    """What cannot be computed is not checked: the kernel may be right."""
    unread = replace(ROWS, constraints=("x.unfold(0, 1, 1).numel() > 0", "n >= 2"))
    with pytest.raises(Failed) as caught:
        search(definition=unread).run(fails)
    [said] = [line for line in caught.value.text().splitlines() if "need not satisfy" in line]
    assert said.endswith("a constraint: x.unfold(0, 1, 1).numel() > 0: function x.unfold() is not known here")
    with pytest.raises(Failed) as caught:
        search().run(fails)
    assert "need not satisfy" not in caught.value.text()


@pytest.mark.parametrize("status", ["INCORRECT_NUMERICAL", "RUNTIME_ERROR", "TIMEOUT"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_failure_that_only_other_cases_bring_about_is_said_to_be_one(status, kept):
    seen = []

    def check(axes, recipe, *, repeat):
        seen.append(axes["n"])
        if axes["n"] >= 3 and (len(seen) > 1 or not kept):
            raise Failed(Verdict(status, "odd"), failure(axes, recipe).case)

    with pytest.raises(Failed) as caught:
        search(solution=under_test(close=seen.clear)).run(check)
    told = "in a process of its own this case passes" in caught.value.text()
    assert told == (kept and status != "TIMEOUT")


def test_what_is_drawn_is_judged_over_many_calls_and_not_alone():
    closed = []
    one = search(solution=under_test(close=lambda: closed.append(1)), definition=replace(ROWS, op_type="sampling"))
    with pytest.raises(Failed) as caught:
        one.run(lambda axes, recipe, *, repeat: (_ for _ in ()).throw(failure(axes, recipe)))
    assert not closed
    assert "of its own" not in caught.value.text()


def test_whoever_gives_a_seed_gets_its_cases_and_not_those_of_earlier_runs(monkeypatch):
    given = []

    def noted(*each, **named):
        given.append(named["saved_last"])
        return Search(*each, **named)

    monkeypatch.setattr(module, "Search", noted)
    for seed in (None, 7):
        item = Item()
        item.config.getoption = lambda name, default=None, seed=seed: seed if name == "fib_seed" else default
        search(item=item).run(lambda axes, recipe, *, repeat: None)
    assert given == [False, True]


def test_facts_about_the_search_are_kept():
    item = Item()
    search(item=item).run(lambda axes, recipe, *, repeat: None)
    facts = dict(item.user_properties)
    assert 1 < facts["tried"] <= 30
    assert facts["out_of_time"] is False


def test_statistics_are_where_hypothesis_looks_for_them():
    item = Item()
    search(item=item, examples=200).run(lambda axes, recipe, *, repeat: None)
    assert item.hypothesis_statistics.startswith("a.json::test_sizes[s]:")
    assert "generate phase" in item.hypothesis_statistics


def test_statistics_say_that_time_was_up():
    item = Item()
    search(item=item, examples=10_000, seconds=0.05).run(lambda axes, recipe, *, repeat: time.sleep(0.01))
    assert item.hypothesis_statistics.startswith("a.json::test_sizes[s]:")
    assert "Stopped because time was up" in item.hypothesis_statistics


@pytest.mark.parametrize("error", [InputsError("no such page"), ReferenceFailed("the reference: odd")])
def test_where_no_case_could_be_judged_the_item_is_skipped(error):
    def check(axes, recipe, *, repeat):
        raise error

    with pytest.raises(pytest.skip.Exception, match=f"no case could be judged; most often: .*{error}"):
        search().run(check)


@pytest.mark.parametrize(("error", "once_more"), [(Unfair("y: cancels"), True), (ReferenceFailed("raised"), False)])
def test_the_family_of_an_unfair_case_is_tried_with_other_values(error, once_more):
    seen = {}

    def check(axes, recipe, *, repeat):
        same_kind = json.dumps([axes, {**recipe.to_json(), "seed": 0}], sort_keys=True)
        first = same_kind not in seen
        seen.setdefault(same_kind, []).append(recipe.seed)
        if recipe.family == "large" and first:
            raise error

    search(examples=60).run(check)
    large = [seeds for kind, seeds in seen.items() if '"large"' in kind]
    assert large
    assert all((seeds[0] + 1 in seeds) == once_more for seeds in large if seeds)


def test_cases_without_elements_are_no_pass():
    def check(axes, recipe, *, repeat):
        if axes["n"]:
            raise ReferenceFailed("the reference: odd")

    with pytest.raises(pytest.skip.Exception, match=r"only cases without elements could be judged, \d+ of .*: odd"):
        search().run(check)


def test_cases_without_elements_are_no_pass_either_where_all_of_them_could_be_judged():
    empty = replace(ROWS, constraints=("n <= 0",))
    with pytest.raises(pytest.skip.Exception, match=r"only cases without elements could be judged, (\d+) of \1; the"):
        search(definition=empty).run(lambda axes, recipe, *, repeat: None)


@pytest.mark.parametrize(("judged", "ends"), [(2, pytest.skip.Exception), (3, None)])
@pytest.mark.parametrize(
    ("usual", "text"),
    [
        (Unsatisfiable("(x == y).all()", "no rule"), r"constraint `\(x == y\).all\(\)` .* an `inputs` fixture"),
        (Unfair("y: cancels"), "y: cancels"),
        (ReferenceFailed("the reference raised"), "the reference raised"),
    ],
)
def test_where_hardly_a_case_could_be_judged_the_usual_reason_is_named(judged, ends, usual, text):
    calls = []

    def check(axes, recipe, *, repeat):
        calls.append(axes)
        if len(calls) == 10:
            raise Unsatisfiable("z < 1", "it fails now and then")
        if len(calls) > judged:
            raise usual

    item = Item()
    said = rf"cases could .*be judged; most often: .*{text}"
    with pytest.raises(ends, match=f"only 2 of 30 {said}") if ends else contextlib.nullcontext():
        search(item=item).run(check)
    assert bool(ends) or [re.search(f"27 of 30 {said}", each) is not None for each in item.warnings] == [True]


def test_a_pass_of_few_cases_says_so_where_it_had_the_usual_time(monkeypatch):
    def check(axes, recipe, *, repeat):
        clock.reading += 6.0

    clock = SimpleNamespace(reading=0.0)
    monkeypatch.setattr("pytest_flashinfer.search.minimal_case.time", SimpleNamespace(monotonic=lambda: clock.reading))
    item = Item()
    search(item=item, seconds=10.0).run(check)
    assert item.warnings == ["test_sizes[s]: only 7 cases in 10 s: give it more with --fib-seconds"]
    quick = Item()
    search(item=quick, seconds=0.3).run(check)  # whoever gives it little time knows
    assert quick.warnings == []


@pytest.mark.parametrize(
    ("options", "takes", "said"),
    [
        ({"seconds": 1.0}, 0.4, "4 cases in 1 s"),
        ({"seconds": 0.3}, 1.0, "2 cases in 0.3 s"),
        ({"seconds": 1.0, "layouts": "strided"}, 0.4, "4 cases in 1 s, none of them strided"),
        ({"seconds": 60.0, "layouts": "strided", "examples": 12}, 0.4, "12 cases in 60 s, none of them strided"),
        ({"seconds": 60.0, "examples": 3}, 0.4, None),  # which were asked for
        ({"seconds": 60.0, "layouts": "strided"}, 0.01, None),
        ({"seconds": 60.0}, 0.01, None),
    ],
)
def test_a_pass_of_few_cases_is_noted_however_little_time_it_had(monkeypatch, options, takes, said):
    def check(axes, recipe, *, repeat):
        clock.reading += takes
        if said and recipe.layout == "strided":
            raise InputsError("not here")

    clock = SimpleNamespace(reading=0.0)
    monkeypatch.setattr("pytest_flashinfer.search.minimal_case.time", SimpleNamespace(monotonic=lambda: clock.reading))
    item = Item()
    search(item=item, **options).run(check)
    assert dict(item.user_properties).get("fib_little") == (said and f"rows_h8: test_sizes[s]: {said}")
    assert item.warnings == []


@pytest.mark.parametrize(
    ("source", "waits", "native", "ends"),
    [
        ("import torch", 6.0, 1e-3, Failed),  # it sleeps, say
        ("import torch  # no triton", 6.0, 1e-3, Failed),
        ("import triton\n@triton.jit\ndef kernel(x): pass", 6.0, 1e-3, pytest.skip.Exception),  # interpreted
        ('"""\nimport triton\n"""\nimport torch', 6.0, 1e-3, Failed),
        ("import triton", 6.0, 1e-3, Failed),
        ("import torch", 6.0, 1.0, None),  # the reference is slow as well
        ("import torch", 1.0, 1e-3, None),  # something else took the time
    ],
)
def test_a_solution_whose_calls_take_the_time_does_not_pass(monkeypatch, source, waits, native, ends):
    def check(axes, recipe, *, repeat):
        clock.reading += 6.0
        solution.waited += waits
        asked.reference.native_seconds += native

    clock = SimpleNamespace(reading=0.0)
    for place in ("minimal_case", "pace"):
        monkeypatch.setattr(f"pytest_flashinfer.search.{place}.time", SimpleNamespace(monotonic=lambda: clock.reading))
    solution = under_test(source)
    asked = search(seconds=10.0, solution=solution)
    with pytest.raises(ends, match="only 7 cases could be tried in") if ends else contextlib.nullcontext():
        asked.run(check)
    search(seconds=0.3, solution=solution).run(check)  # whoever gives it little time knows


@pytest.mark.parametrize(
    ("source", "hangs", "fails"),
    [
        ("import triton\n@triton.jit\ndef kernel(x): pass", lambda n: n > 400, False),
        ("import triton\n@triton.jit\ndef kernel(x): pass", lambda n: n == 5, True),
        ("import torch", lambda n: n > 400, True),
    ],
    ids=["interpreted", "interpreted and small", "compiled"],
)
def test_a_long_case_that_triton_s_interpreter_does_not_end_is_no_failure(source, hangs, fails):
    def check(axes, recipe, *, repeat):
        sizes.append(axes["n"])
        if hangs(axes["n"]):
            hung.append(axes["n"])
            failed = failure(axes, recipe)
            failed.verdict = Verdict("TIMEOUT", "no answer within 60 s")
            raise failed

    sizes, hung = [], []
    item = Item()
    with pytest.raises(Failed) if fails else contextlib.nullcontext():
        search(item=item, solution=under_test(source), examples=100).run(check)
    assert hung
    assert fails or (len(sizes) > 80 and item.warnings == [])


def test_the_word_of_who_says_that_triton_compiled_makes_no_pass(monkeypatch):
    def check(axes, recipe, *, repeat):
        clock.reading += 6.0
        solution.waited += 6.0
        solution.compiled.append(Compilation("kernel", 6.0, {}))

    clock = SimpleNamespace(reading=0.0)
    for place in ("minimal_case", "pace"):
        monkeypatch.setattr(f"pytest_flashinfer.search.{place}.time", SimpleNamespace(monotonic=lambda: clock.reading))
    item, solution = Item(), under_test("import torch", compiled=[])
    item.add_report_section = lambda *section: None
    with pytest.raises(pytest.skip.Exception, match=r"only 7 cases .*: 42\.0 s went to Triton"):
        search(item=item, seconds=10.0, solution=solution).run(check)


def test_what_does_not_build_is_not_searched():
    calls = []

    def check(axes, recipe, *, repeat):
        calls.append(axes)
        raise Failed(Verdict("RUNTIME_ERROR", "the worker died while importing"))

    with pytest.raises(Failed) as caught:
        search().run(check)
    assert len(calls) == 1
    assert "workload line" not in caught.value.text()


def test_scalars_of_listed_workloads_are_drawn():
    scales = [InputSpec("scalar", value) for value in (0.25, 3)]
    listed = [replace(workload(4), inputs={"x": InputSpec("random"), "scale": scale}) for scale in scales]
    seen = set()
    search(listed=listed, examples=60).run(lambda axes, recipe, *, repeat: seen.add(recipe.scalars.get("scale")))
    assert {0.25, 3.0, None} <= seen


def test_a_scalar_that_the_reference_always_refuses_is_not_tried_a_third_time(monkeypatch):
    """It is a mode that other inputs rule out. What fails for another reason, or is no fair test, goes on."""
    around = "pytest_flashinfer.inputs.scalars.usual_values._AROUND"
    monkeypatch.setattr(around, (0.375, 2.5))  # each comes more often then
    errors = {3: ReferenceFailed("no such mode"), 5: Unfair("y: cancels")}
    scales = [InputSpec("scalar", value) for value in (3, 5)]
    listed = [replace(workload(4), inputs={"x": InputSpec("random"), "scale": scale}) for scale in scales]
    seen = Counter()

    def check(axes, recipe, *, repeat):
        scale = recipe.scalars.get("scale")
        seen[scale] += 1
        if scale in errors:
            raise errors[scale]

    search(listed=listed, examples=70).run(check)
    assert seen[3] == 2
    assert seen[5] > 2


def test_a_scalar_that_the_reference_took_once_goes_on():
    tally, odd, both = Tally(ROWS), Recipe(1, scalars={"scale": 3}), Recipe(1, scalars={"scale": 3, "mode": 1})
    for _ in range(2):
        tally.unjudged(ReferenceFailed("odd"), odd)
    assert tally.refused(odd)
    tally.unjudged(ReferenceFailed("odd"), both)
    tally.unjudged(ReferenceFailed("odd"), both)
    assert not tally.refused(Recipe(1, scalars={"mode": 1})), "what is known of the other scalar explains it"
    tally.judged({"n": 1}, odd)
    assert not tally.refused(odd)


def test_a_definition_that_cannot_be_satisfied_is_skipped_with_the_reason():
    with pytest.raises(pytest.skip.Exception, match="n"):
        search(definition=replace(ROWS, constraints=("n == n + 1",))).run(lambda *_, repeat: None)


def test_layouts_are_tried_only_where_they_are_asked_for():
    def layouts(asked):
        seen = set()
        search(layouts=asked, definition=DELTA).run(lambda axes, recipe, *, repeat: seen.add(recipe.layout))
        return seen

    assert layouts("contiguous") == {"contiguous"}
    assert layouts("strided") == {"contiguous", "strided"}


def fails(axes, recipe, *, repeat):
    raise failure(axes, recipe)


def test_a_failure_that_an_earlier_run_found_says_so(monkeypatch):
    database = InMemoryExampleDatabase()
    kept = lambda *given, **named: Search(*given, **named | {"saved": Saved(database, b"key")})  # noqa: E731
    monkeypatch.setattr(module, "Search", kept)
    texts = []
    for seed in (1, 2):
        with pytest.raises(Failed) as caught:
            search(seed=seed).run(fails)
        assert caught.value.seed == 1
        texts.append(caught.value.text())
    said = "  found by an earlier run, whose seed is the one to replay it with"
    assert [said in text.splitlines() for text in texts] == [False, True]


def test_a_failure_is_saved_once(tmp_path):
    path = tmp_path / "workloads" / "elementwise" / "rows_h8.jsonl"
    for said, here in (("appended to", tmp_path), ("already in", tmp_path), ("already in", "/nowhere")):
        with pytest.raises(Failed) as caught:
            search(item=Item(SimpleNamespace(workload_file=path), here), save_failures=True).run(fails)
        shown = path.relative_to(here) if here == tmp_path else path
        assert f" cases; {said} {shown}, which replays it as test_correct:\n" in caught.value.text()
        assert "add this workload line" not in caught.value.text()
    [line] = path.read_text().splitlines()
    assert line in caught.value.text()


def test_no_line_replays_what_an_override_did_wrong(tmp_path):
    def compares(axes, recipe, *, repeat):
        verdict = Verdict("INVALID_REFERENCE", "conftest.py:7: KeyError: 'z'")
        raise Failed(verdict, failure(axes, recipe).case)

    path = tmp_path / "rows_h8.jsonl"
    with pytest.raises(Failed) as caught:
        search(item=Item(SimpleNamespace(workload_file=path)), save_failures=True).run(compares)
    first, case = caught.value.text().splitlines()
    assert first == "INVALID_REFERENCE: conftest.py:7: KeyError: 'z'"
    assert case.startswith("  case: n=")
    assert not path.exists()


def test_the_same_bug_with_another_seed_is_saved_already(tmp_path):
    path = tmp_path / "rows_h8.jsonl"
    for seed in (1, 2, 3):
        with pytest.raises(Failed) as caught:
            search(item=Item(SimpleNamespace(workload_file=path)), save_failures=True, seed=seed).run(fails)
    assert f"already in {path}" in caught.value.text()
    [line] = path.read_text().splitlines()
    assert line not in caught.value.text(), "the seeds differ, or this test shows nothing"


def test_a_last_line_without_its_end_is_left_whole(tmp_path):
    path = tmp_path / "rows_h8.jsonl"
    path.write_text('{"definition": "rows_h8"}')
    with pytest.raises(Failed):
        search(item=Item(SimpleNamespace(workload_file=path)), save_failures=True).run(fails)
    first, second = path.read_text().splitlines()
    assert first == '{"definition": "rows_h8"}'
    assert json.loads(second)["definition"] == "rows_h8"


def test_a_place_that_cannot_be_written_does_not_hide_the_failure(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed) as caught:
        search(item=Item(SimpleNamespace(workload_file=tmp_path / "file" / "a.jsonl")), save_failures=True).run(fails)
    assert "--fib-save-failures: " in caught.value.text()
    assert "add this workload line to replay it as test_correct:\n" in caught.value.text()
    assert "cannot be written: File exists" in caught.value.text()


def test_where_no_folder_is_known_it_says_so():
    with pytest.raises(Failed) as caught:
        search(item=Item(SimpleNamespace(workload_file=None)), save_failures=True).run(fails)
    assert "name one with --fib-workloads=DIR" in caught.value.text()
