"""Smoke scope takes the smallest workload and those that differ most from it, within a budget."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.selection import scope
from pytest_flashinfer.selection.scope import CHOSEN, ELEMENTS, elements, smoke

from .contracts import ROWS, workload

WORKLOADS = st.lists(st.builds(workload, st.integers(0, 1 << 30), st.integers(0, 1 << 30)), unique_by=lambda w: w.uuid)


def sizes(chosen):
    return [each.axes["n"] for each in chosen]


def total(chosen):
    return sum(elements(ROWS, each.axes) for each in chosen)


def test_elements_are_those_of_all_tensors():
    assert elements(ROWS, {"n": 3, "m": 5}) == 2 * 3 * 8 + 5 + 1
    assert elements(ROWS, {"n": 3}) == 2 * 3 * 8 + 1 + 1, "an axis that is left open counts as 1"
    assert elements(ROWS, {"n": 0, "m": 0}) == 1


def test_the_smallest_and_the_one_farthest_from_it():
    chosen = sizes(smoke(ROWS, [workload(n) for n in (8, 4, 7, 6, 5)]))
    assert chosen[:2] == [4, 8]


def test_distance_is_between_logarithms(monkeypatch):
    """From 1 to 40 is farther than from 1000 to 2000, though less in elements."""
    monkeypatch.setattr(scope, "CHOSEN", 2)
    monkeypatch.setattr(scope, "GROWTH", 1 << 20, raising=False)
    chosen = smoke(ROWS, [workload(1, 2000), workload(40, 2000), workload(1, 3900)])
    assert [dict(each.axes) for each in chosen] == [{"n": 1, "m": 2000}, {"n": 40, "m": 2000}]


def test_a_large_one_is_left_out_but_the_smallest_is_taken_whatever_its_size():
    huge = workload(1 << 28)
    assert smoke(ROWS, [huge]) == [huge]
    assert smoke(ROWS, [huge, workload(2), workload(3)])[0].axes["n"] == 2
    assert huge not in smoke(ROWS, [huge, workload(2), workload(3)])


def test_nothing_of_nothing():
    assert smoke(ROWS, []) == []


@given(WORKLOADS, st.randoms(use_true_random=False))
def test_what_is_chosen(workloads, random):
    chosen = smoke(ROWS, workloads)
    assert len(chosen) <= CHOSEN
    assert len({each.uuid for each in chosen}) == len(chosen)
    assert all(each in workloads for each in chosen)
    if workloads:
        assert elements(ROWS, chosen[0].axes) == min(elements(ROWS, each.axes) for each in workloads)
        assert len(chosen) == 1 or total(chosen) <= max(ELEMENTS, total(chosen[:1]))
    shuffled = list(workloads)
    random.shuffle(shuffled)
    assert smoke(ROWS, shuffled) == chosen, "the order of the lines does not matter"


def test_small_ones_are_taken_however_much_smaller_the_smallest_is():
    assert sizes(smoke(ROWS, [workload(1), workload(200)])) == [1, 200]
    assert sizes(smoke(ROWS, [workload(1), workload(2000)])) == [1, 2000]
    assert sizes(smoke(ROWS, [workload(1), workload(50_000)])) == [1]


def test_the_page_on_options_states_the_rule():
    page = (Path(__file__).parents[2] / "docs/options.md").read_text().partition("## The smoke scope")[2]
    assert (scope.CANDIDATES, scope.CHOSEN) == (6, 2)
    told = (f"{scope.GROWTH} times", f"{scope.SMALL:,}", f"{scope.ELEMENTS >> 20} Mi", f"{scope.LARGEST >> 20} Mi")
    assert [each for each in told if each not in page] == []
