"""The contents of timed calls: new ones for each round, whose truths cost little where there are many bytes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.cases import making
from pytest_flashinfer.cases.contents import Contents
from pytest_flashinfer.cases.default_inputs import DefaultInputs
from pytest_flashinfer.cases.making import Cases
from pytest_flashinfer.data.model import InputSpec, TensorSpec
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.comparison.vacuity import unalike
from tests.inputs.contracts import PAGED_DECODE, RAGGED
from tests.seeds import seeds_for

from .contracts import ROWS
from .contracts import workload as listed

FULL = ("same_ends", "fresh", "permuted")


def workload(n):
    return replace(listed(n), inputs={"x": InputSpec("random"), "scale": InputSpec("scalar", 2.0)})


WORKLOAD = workload(5)


def cases(kinds=FULL, definition=ROWS):
    maker = DefaultInputs(definition, "cpu", None)
    return Cases(Contents(definition, maker, maker, 7), kinds)


def contents(case):
    return case.values["x"].numpy().tobytes()


@pytest.mark.parametrize("elsewhere", [True, False])
def test_drawn_inputs_are_made_once_for_all_solutions(elsewhere):
    made, seed = cases(), next(seeds_for({"elsewhere": (int(not elsewhere), 2)}))
    axes, recipe = {**WORKLOAD.axes, "h": 8}, Recipe(seed)
    once, again = (made.drawn(axes, recipe) for _ in range(2))
    assert [case.values is other.values for case, other in zip(once, again, strict=True)] == [True] * (2 + elsewhere)
    assert any(not torch.equal(once[0].values[name], once[1].values[name]) for name in ("x", "z"))
    others = [made.drawn({**axes, "n": 6}, recipe)[0], made.drawn(axes, Recipe(seed + 1))[0]]
    assert all(contents(case) != contents(once[0]) for case in others)


def test_inputs_of_an_override_are_made_and_told_apart_once_for_an_item():
    usual, made = DefaultInputs(ROWS, "cpu", None), []

    def asked(name):
        def make(axes, recipe, workload=None):
            made.append(name)
            return usual(axes, recipe, workload)

        return make

    item = Cases(Contents(ROWS, asked("override"), asked("default"), 7), FULL)
    item.first(WORKLOAD)
    assert made == ["override"], "what is only called once need not be told apart"
    item.repeated(WORKLOAD)
    list(item.timed(WORKLOAD, 3))
    assert made == ["override", "default"]


def test_an_override_that_leaves_out_what_is_optional_makes_all_the_rest_and_is_asked_again():
    usual, seeds = DefaultInputs(ROWS, "cpu", None), set()

    def override(axes, recipe, workload=None):
        seeds.add(recipe.seed)
        return {"x": torch.full((axes["n"], 8), 0.5), "z": None, "scale": 3.0}

    Cases(Contents(ROWS, override, usual, 7), FULL).repeated(WORKLOAD)
    assert len(seeds) == len(FULL) + 1


def test_one_input_alone_changes_in_some_cases_and_each_does():
    product = replace(ROWS, inputs={**ROWS.inputs, "w": TensorSpec(("n", "h"), "float32")})
    line = replace(WORKLOAD, inputs={**WORKLOAD.inputs, "w": InputSpec("random")})
    changed = set()
    for number in range(20):
        made = cases(definition=product)
        case = made.first(replace(line, uuid=f"u-{number:04d}"))
        for kind in ("same_ends", "permuted", "fresh"):
            other = made.contents.varied(case, kind, f"0 {kind}")
            moved = {name for name in ("x", "w") if not torch.equal(other.values[name], case.values[name])}
            changed.add((kind, *sorted(moved)))
    both = {(kind, "w", "x") for kind in ("same_ends", "permuted", "fresh")}
    assert changed == both | {(kind, name) for kind in ("same_ends", "permuted") for name in ("w", "x")}


def test_small_inputs_are_new_in_each_round():
    made = cases()
    first, *others = made.repeated(WORKLOAD)
    timed = list(made.timed(WORKLOAD, 10))
    assert len({contents(case) for case in timed} - {contents(case) for case in (first, *others)}) == 10
    assert [case.bound_of.key for case in timed if case.bound_of] == 9 * [first.key]


@pytest.mark.parametrize("kinds", [FULL, FULL[:1]])
def test_another_attempt_has_contents_of_its_own(kinds):
    made = cases(kinds)
    one, two = ({contents(case) for case in made.timed(WORKLOAD, 5, attempt) if case.bound_of} for attempt in (0, 1))
    assert len(one | two) == 8


@pytest.mark.parametrize("kinds", [FULL, FULL[:1]])
def test_a_single_round_has_contents_that_no_call_has_seen(kinds):
    made = cases(kinds)
    (only,) = made.timed(WORKLOAD, 1)
    assert contents(only) not in {contents(case) for case in made.repeated(WORKLOAD)}
    assert only.bound_of is None, "there is no other round to be judged in full"


@pytest.mark.parametrize("kinds", [FULL, FULL[:1]])
def test_a_single_round_of_many_bytes_borrows(monkeypatch, kinds):
    monkeypatch.setattr(making, "SMALL_BYTES", 1)
    made = cases(kinds)
    (only,) = made.timed(WORKLOAD, 1)
    assert only.bound_of is not None


@pytest.mark.parametrize("small", [True, False])
def test_solutions_with_other_numbers_of_rounds_have_other_names_for_other_contents(monkeypatch, small):
    """A truth is found once for all solutions, and what makes their contents is not kept where they are large."""
    if not small:
        monkeypatch.setattr(making, "SMALL_BYTES", 1)
    paged = {"batch": 3, "pages": 9, "len_indptr": 4, "num_kv_indices": 9}
    entries = {name: InputSpec("random") for name in PAGED_DECODE.inputs if name != "sm_scale"}
    line = replace(WORKLOAD, uuid="paged", axes=paged, inputs={**entries, "sm_scale": InputSpec("scalar", 0.5)})
    known = {}
    for attempt, rounds in itertools.product(range(6), (10, 4, 2)):
        for case in cases(definition=PAGED_DECODE).timed(line, rounds, attempt):
            made = [value.numpy().tobytes() for value in case.values.values() if isinstance(value, torch.Tensor)]
            assert known.setdefault(case.key, made) == made, case.variant
    judged = [key for key in known if not key[-1]]
    assert len(judged) > 6 if small else len(judged) == 1


def test_a_sampler_is_called_again_on_contents_that_are_known():
    definition = replace(ROWS, op_type="sampling")
    made = cases(definition=definition)
    first, *others = made.repeated(WORKLOAD)
    assert sum(case is first for case in others) == making.QUICK_DRAWS
    first, *others = made.drawn({"n": 2, "m": 1, "h": 8}, Recipe(3))
    assert sum(case is first for case in others) == making.QUICK_DRAWS
    first, *others = made.drawn({"n": 2**14, "m": 1, "h": 8}, Recipe(3))
    assert sum(case is first for case in others) == making.DRAWS["cpu"], "its calls take their time"
    assert len(cases().repeated(WORKLOAD)) == len(FULL) + 2


def test_small_outputs_that_cannot_borrow_have_truths_of_their_own():
    definition = replace(ROWS, outputs={"i": TensorSpec(("n", "h"), "int32")})
    timed = list(cases(definition=definition).timed(WORKLOAD, 10))
    assert len({contents(case) for case in timed}) == 10
    assert not any(case.bound_of for case in timed)


@pytest.mark.parametrize("many", [True, False])
def test_the_round_that_does_not_borrow_has_known_contents_where_there_are_many_bytes(monkeypatch, many):
    if many:
        monkeypatch.setattr(making, "SMALL_BYTES", 1)
    made = cases(FULL if many else FULL[:1])
    first, other, *_ = made.repeated(WORKLOAD)
    timed = list(made.timed(WORKLOAD, 10))
    assert len({contents(case) for case in timed} | {contents(first)}) == (10 if many else 11)
    (judged,) = (case for case in timed if case.bound_of is None)
    assert judged.key == (first if many else other).key
    assert (other.bound_of is not None) == many, "the truth about large contents is found once"
    assert {case.bound_of.key for case in timed if case.bound_of} == {first.key}


def test_contents_that_nobody_asks_for_are_not_made(monkeypatch):
    monkeypatch.setattr(making, "SMALL_BYTES", 1)
    made = cases()
    list(made.timed(WORKLOAD, 4))
    assert not [key for key in made.contents.cache._values if "same_ends" in key[-1]]


def test_outputs_count_for_the_size_of_a_case(monkeypatch):
    """Each call has an output that is kept until it is judged, and a truth of its own."""
    made = cases()
    first = made.first(WORKLOAD)
    given = first.values["x"].nbytes
    assert first.nbytes == 2 * given, "an output like the input, and a number"
    monkeypatch.setattr(making, "SMALL_BYTES", 2 * given - 1)
    assert len(made.repeated(WORKLOAD)) == 3
    monkeypatch.setattr(making, "SMALL_BYTES", 2 * given)
    assert len(made.repeated(WORKLOAD)) == 5


@pytest.mark.parametrize("kinds", [FULL, FULL[:1]])
def test_nobody_can_guess_which_round_is_judged_in_full(kinds):
    places = set()
    for number in range(40):
        timed = list(cases(kinds).timed(workload(5 + number), 5))
        places.add(next(place for place, case in enumerate(timed) if case.bound_of is None))
    assert places == set(range(5))


@pytest.mark.parametrize("dtype", ["int32", "float8_e4m3fn", "float4_e2m1fn_x2"])
def test_what_cannot_borrow_takes_turns(dtype):
    definition = replace(ROWS, outputs={"y": TensorSpec(("n", "h"), "float32"), "i": TensorSpec(("n", "h"), dtype)})
    timed = list(cases(FULL[:1], definition).timed(WORKLOAD, 4))
    assert [case.variant for case in timed] == ["0 same_ends", "first"] * 2


def test_so_does_what_takes_too_much_memory(monkeypatch):
    monkeypatch.setattr(making, "LARGEST_BYTES", 1)
    monkeypatch.setattr(making, "SMALL_BYTES", 1)
    assert len({contents(case) for case in cases().timed(WORKLOAD, 4)}) == 2


SEGMENTS = replace(listed(4, axes={"n": 4, "total": 9, "len_indptr": 5}), inputs={
    "x": InputSpec("random"), "indptr": InputSpec("random"),
})  # fmt: skip

PAGES = replace(listed(6, axes={"batch": 3, "pages": 9, "num_kv_indices": 6, "len_indptr": 4}), inputs={
    name: InputSpec("scalar", 0.25) if name == "sm_scale" else InputSpec("random") for name in PAGED_DECODE.inputs
})  # fmt: skip


@pytest.mark.parametrize("kinds", [FULL, FULL[:1]], ids=["full", "smoke"])
def test_index_tensors_are_other_ones_in_one_call_on_the_same_sizes(kinds):
    """An answer may be kept by the shapes of what it followed from."""
    first, *others = cases(kinds, RAGGED).repeated(SEGMENTS)
    (other,) = (case for case in others if case.variant == "anew")
    assert other.axes == first.axes
    assert not torch.equal(other.values["indptr"], first.values["indptr"])
    assert other.values["indptr"][-1] == first.values["indptr"][-1] == 9
    assert other.bound_of is first


def test_so_they_are_in_every_other_drawn_case():
    """Those of other lengths in one of four, else those of as much work."""
    axes = {"n": 4, "total": 9, "len_indptr": 5, "h": 8}
    ways = [(indices, lengths, one) for indices in range(2) for lengths in range(2) for one in range(2)]
    for indices, lengths, one in ways:
        decided = {"other indices": (indices, 2), "other lengths": (lengths, 4), "one value": (one, 2)}
        for seed in itertools.islice(seeds_for({**decided, "elsewhere": (0, 2)}), 2):
            drawn = cases(FULL, RAGGED).drawn(axes, Recipe(seed))
            others = "rearranged" if lengths else "anew"
            alike = "0 one_changed" if one else "0 same_ends"
            assert [case.variant for case in drawn] == ["first", others if indices else alike, "first"]
    without = cases().drawn({"n": 2, "m": 1, "h": 8}, Recipe(seed))
    assert [case.variant for case in without] == ["first", "0 one_changed", "first"]


def test_one_call_on_the_same_sizes_has_other_ids_and_the_same_lengths():
    """A plan may be kept by lengths, and not by the pages that they are of."""
    first, *others = cases(FULL, PAGED_DECODE).repeated(PAGES)
    (other,) = (case for case in others if case.variant == "rearranged")
    assert not torch.equal(other.values["kv_indices"], first.values["kv_indices"])
    assert torch.equal(other.values["kv_indptr"], first.values["kv_indptr"])
    assert other.bound_of is first
    assert "anew" in [case.variant for case in others]


def test_what_nobody_read_is_not_read_with_other_ids():
    """Slots that hold NaN where nothing points at them would fail every kernel where something does."""
    axes = {**PAGES.axes, "heads": 4, "kv_heads": 2, "d": 16, "page_size": 4}
    for seed in itertools.islice(seeds_for({"other indices": (1, 2), "other lengths": (1, 4)}), 20):
        drawn = cases(FULL, PAGED_DECODE).drawn(axes, Recipe(seed, structure="stale_nan"))
        assert "rearranged" in [case.variant for case in drawn]
        for case in drawn:
            assert not bool(case.values["k_cache"][case.values["kv_indices"].long(), 0].isnan().any())


def test_where_there_are_many_bytes_one_call_has_other_index_tensors_and_values_that_look_alike(monkeypatch):
    monkeypatch.setattr(making, "SMALL_BYTES", 1)
    made, kinds = cases(FULL, PAGED_DECODE), set()
    for number in range(24):
        first, other, last = made.repeated(replace(PAGES, uuid=f"p-{number:08d}"))
        assert not torch.equal(other.values["kv_indices"], first.values["kv_indices"])
        assert other.bound_of is first
        assert last.moved
        kinds.add(other.variant)
        if other.variant == "rearranged":
            assert torch.equal(other.values["kv_indptr"], first.values["kv_indptr"])
            assert torch.equal(other.values["k_cache"].flatten()[[0, -1]], first.values["k_cache"].flatten()[[0, -1]])
    assert kinds == {"anew", "rearranged"}


@pytest.mark.parametrize("many", [True, False])
def test_timed_rounds_have_other_ids_for_as_much_work(monkeypatch, many):
    if many:
        monkeypatch.setattr(making, "SMALL_BYTES", 1)
    made = cases(FULL, PAGED_DECODE)
    first, timed = made.first(PAGES), list(made.timed(PAGES, 10))
    ids = [tuple(case.values["kv_indices"].tolist()) for case in timed]
    assert len(set(ids)) > 3
    assert all(torch.equal(case.values["kv_indptr"], first.values["kv_indptr"]) for case in timed)
    assert any(one == other for one, other in itertools.pairwise(ids)), "where a few values stay"
    (only,) = made.timed(PAGES, 1)
    assert not torch.equal(only.values["kv_indices"], first.values["kv_indices"])


def test_so_has_one_of_two_contents_that_take_turns(monkeypatch):
    monkeypatch.setattr(making, "LARGEST_BYTES", 1)
    monkeypatch.setattr(making, "SMALL_BYTES", 1)
    made = cases(FULL, PAGED_DECODE)
    other, first, *_ = made.timed(PAGES, 4)
    assert first.key == made.first(PAGES).key
    assert other.key == made.repeated(PAGES)[1].key


def test_tensors_of_an_override_stay_together():
    usual = DefaultInputs(PAGED_DECODE, "cpu", None)

    def override(axes, recipe, workload=None):
        return {**usual(axes, recipe, workload), "k_cache": torch.ones(9, 4, 2, 16, dtype=torch.float16)}

    item = Cases(Contents(PAGED_DECODE, override, usual, 7), FULL)
    assert "rearranged" not in [case.variant for case in item.repeated(PAGES)]


def test_they_follow_from_the_case_and_not_from_the_run():
    """A line that is kept fails again in a run with another seed."""
    axes = {"n": 4, "total": 9, "len_indptr": 5, "h": 8}
    maker = DefaultInputs(RAGGED, "cpu", None)
    recipe = Recipe(next(seeds_for({"other indices": (1, 2), "other lengths": (0, 4)})))
    one, other = (Cases(Contents(RAGGED, maker, maker, seed), FULL).drawn(axes, recipe)[1] for seed in (7, 8))
    assert one.variant == other.variant == "anew"
    assert torch.equal(one.values["indptr"], other.values["indptr"])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("definition", [ROWS, RAGGED], ids=lambda definition: definition.name)
def test_a_saved_failure_is_called_as_it_was_drawn_and_then_in_all_ways_that_there_are(definition, seed):
    """In the smoke scope as well. The further contents are of the run: nobody knows them from the line alone."""
    given = WORKLOAD if definition is ROWS else SEGMENTS
    line, maker = replace(given, extra={"recipe": Recipe(seed).to_json()}), DefaultInputs(definition, "cpu", None)
    one, other = (Cases(Contents(definition, maker, maker, run), FULL[:1]) for run in (7, 8))
    (drawn, again), (known, unknown) = ((each.repeated(line), list(each.timed(line, 4))) for each in (one, other))
    begin = one.drawn(one.first(line).axes, Recipe(seed))
    names = [case.variant for case in drawn]
    assert names[: len(begin)] == [case.variant for case in begin]
    assert names[-1] == "first"
    assert drawn[-1].moved
    assert len({*names}) == len(names) - 1 - sum(case.moved for case in begin), "none is made twice"
    assert any(("permuted" in name or "one_changed" in name) and name[0] != "0" for name in names)
    assert ("1 fresh" in names) is ("anew" not in names)
    if "1 fresh" in names:
        fresh = names.index("1 fresh")
        assert contents(drawn[fresh]) != contents(known[fresh])
    assert all(contents(case) != contents(here) for case, here in zip(again, unknown, strict=True) if case.bound_of)


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint16", "uint32", "uint64"])
def test_index_tensors_of_any_dtype_are_drawn_anew(dtype):
    inputs = {**RAGGED.inputs, "indptr": replace(RAGGED.inputs["indptr"], dtype=dtype)}
    variants = [case.variant for case in cases(definition=replace(RAGGED, inputs=inputs)).repeated(SEGMENTS)]
    assert {"anew", "rearranged"} <= {*variants}


def changed(case, first):
    """Return how many elements of each tensor differ."""
    tensors = {name: value for name, value in case.values.items() if isinstance(value, torch.Tensor)}
    return {name: n for name, value in tensors.items() if (n := int((value != first.values[name]).sum()))}


def test_a_single_value_changes_in_one_call_of_every_other_case():
    """An answer may be kept by some of the values; this costs no more calls than contents that look alike."""
    seen = set()
    for number in range(12):
        repeated = cases(FULL).repeated(replace(WORKLOAD, uuid=f"u-{number:04d}"))
        assert len(repeated) == len(FULL) + 2
        one = [(before, case) for before, case in itertools.pairwise(repeated) if "one_changed" in case.variant]
        seen.add(len(one))
        assert all(changed(case, before) == {"x": 1} for before, case in one)
    assert seen == {0, 1}


@pytest.mark.parametrize("kinds", [FULL, FULL[:1]], ids=["full", "smoke"])
def test_a_listed_workload_has_a_call_to_which_its_first_answer_is_a_wrong_one(kinds):
    """Whatever the seed: else it would say by chance whether a tolerance lets previous answers pass."""
    for number in range(12):
        first, *others = cases(kinds).repeated(replace(WORKLOAD, uuid=f"u-{number:04d}"))
        assert any(unalike(first.values, other.values) for other in others)


def test_a_single_id_changes_in_some_and_a_single_value_in_others():
    axes = {**PAGES.axes, "heads": 4, "kv_heads": 2, "d": 16, "page_size": 4}
    seen = {}
    for seed in itertools.islice(seeds_for({"other indices": (0, 2), "one value": (1, 2)}), 40):
        first, other, *_ = cases(FULL, PAGED_DECODE).drawn(axes, Recipe(seed))
        differ = changed(other, first)
        assert list(differ.values()) == [1]
        seen.update(differ)
        used = other.values["kv_indices"].tolist()
        assert len(set(used)) == len(used)
        poisoned = cases(FULL, PAGED_DECODE).drawn(axes, Recipe(seed, structure="stale_nan"))[1]
        assert not bool(poisoned.values["k_cache"][poisoned.values["kv_indices"].long(), 0].isnan().any())
    assert seen.keys() == {"kv_indices", "q", "k_cache", "v_cache"}


def test_where_something_is_drawn_nothing_changes_alone():
    made = cases(FULL, replace(ROWS, op_type="sampling"))
    assert made.drawn({"n": 2, "m": 1, "h": 8}, Recipe(2))[1].variant == "0 same_ends"
