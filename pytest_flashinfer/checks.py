"""The checks that every definition runs. A definition's JSON file is collected as this module; read it first.

A case holds concrete inputs. `solution.run` calls the kernel in a process of its own; `reference` is asked only
afterwards, in another one; `judge` decides.

A conftest.py beside the definitions overrides four fixtures for its folder, which no check here asks for itself:
`cases` asks `inputs` for the inputs of each case, `judge` is `compare`, which asks `tolerance` what is tolerated in
place of the computed bound, and `timing` asks `flops` how many operations a call takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.timing import stopwatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_benchmark.fixture import BenchmarkFixture

    from pytest_flashinfer.cases.making import Cases
    from pytest_flashinfer.collect import DefinitionFile
    from pytest_flashinfer.data.model import Workload
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.judge.oracle.answers import Answers
    from pytest_flashinfer.judging import Judge
    from pytest_flashinfer.search.huge import HugeSizes
    from pytest_flashinfer.search.size_search import SizeSearch
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.timing.timed_calls import Timing


def test_schema(definition_file: DefinitionFile) -> None:
    """The definition, its workloads and its solutions are valid; every fault is named at once."""
    definition_file.raise_faults()


def test_reference(workload: Workload, cases: Cases, reference: Answers, judge: Judge) -> None:
    """The reference runs on a workload, yields what the definition declares, no NaN, and tells right from wrong."""
    case = cases.first(workload)
    judge.check_reference(case, reference.answer(case))


def test_correct(solution: UnderTest, workload: Workload, cases: Cases, reference: Answers, judge: Judge) -> None:
    """Called again and again on the same storage with other contents, the kernel gives the reference's answers."""
    for call in solution.run(cases.repeated(workload)):
        judge(call, reference.answer(call.case))


def test_sizes(solution: UnderTest, cases: Cases, reference: Answers, judge: Judge, search: SizeSearch) -> None:
    """Sizes, structures and values that the contract allows do not break it; a failure is shrunk to the smallest."""

    def check(axes: Mapping[str, int], recipe: Recipe, *, repeat: bool) -> None:
        for call in solution.run(cases.drawn(axes, recipe, repeat=repeat), answered=reference.prefetch):
            judge(call, reference.answer_if_fair(call.case))

    search.run(check)


@pytest.mark.slow
def test_huge(solution: UnderTest, cases: Cases, reference: Answers, judge: Judge, huge: HugeSizes) -> None:
    """Tensors of more than 2**31 elements do not break it. With --fib-huge only, and where memory allows."""

    def check(axes: Mapping[str, int], recipe: Recipe) -> None:
        for call in huge.calls(solution, cases.drawn(axes, recipe, repeat=False)):
            judge(call, reference.answer_if_fair(call.case))

    huge.run(check)


@pytest.mark.benchmark(timer=stopwatch.now)
def test_speed(  # noqa: PLR0913, PLR0917 - fixtures
    solution: UnderTest,
    workload: Workload,
    cases: Cases,
    reference: Answers,
    judge: Judge,
    timing: Timing,
    benchmark: BenchmarkFixture,
) -> None:
    """How long a call takes. The timed calls are checked calls: each has inputs of its own and a judged output."""
    for call in timing.run(solution, cases, workload):
        judge(call, reference.answer(call.case))
    # On a card, where ten rounds cannot tell whether it is faster than the reference: more rounds, in new processes.
    for call in timing.remeasure(solution, cases, workload):
        judge(call, reference.answer(call.case))
    timing.report(benchmark, solution, cases, workload)
