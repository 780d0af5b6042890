"""The fixtures of `checks.py`; those to override beside a definition are `inputs`, `tolerance`, `compare`, `flops`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.run.session import SESSION
from pytest_flashinfer.selection import scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flashinfer.cases.input_makers import Inputs
    from pytest_flashinfer.cases.making import Cases
    from pytest_flashinfer.collect import DefinitionFile
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.judge.oracle.answers import Answers
    from pytest_flashinfer.judge.tolerance import Tolerance
    from pytest_flashinfer.judging import Compare, Judge
    from pytest_flashinfer.run.session import FibSession
    from pytest_flashinfer.search.huge import HugeSizes
    from pytest_flashinfer.search.size_search import SizeSearch
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.timing.timed_calls import Timing
    from pytest_flashinfer.worker.case import Case


@pytest.fixture(scope="session")
def fib_session(pytestconfig: pytest.Config) -> FibSession:
    """Return what all items of the run share."""
    return pytestconfig.stash[SESSION]


@pytest.fixture(scope="module")
def definition_file(request: pytest.FixtureRequest) -> DefinitionFile:
    """Return the definition's file as it was collected, with its solutions and workloads."""
    return request.node  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def definition(definition_file: DefinitionFile) -> Definition:
    """Return the definition that the file holds."""
    assert definition_file.definition is not None  # of a broken file only the schema check is collected
    return definition_file.definition


@pytest.fixture
def workload(request: pytest.FixtureRequest, definition_file: DefinitionFile) -> Workload:
    """Return one workload of the definition."""
    return definition_file.workloads[request.param]


@pytest.fixture(scope="module")
def solution(
    request: pytest.FixtureRequest, fib_session: FibSession, definition: Definition, definition_file: DefinitionFile
) -> Iterator[UnderTest]:
    """Return one solution in a process of its own: built once for all its items."""
    entry = definition_file.solutions[request.param]
    under_test = fib_session.under_test(request.param, definition, entry.solution)
    yield under_test
    under_test.close()


@pytest.fixture(scope="module")
def reference(fib_session: FibSession, definition: Definition) -> Iterator[Answers]:
    """Return the truth about a case, from the reference in a process of its own."""
    answers = fib_session.answers(definition)
    yield answers
    answers.close()


@pytest.fixture
def inputs(
    definition: Definition, definition_file: DefinitionFile, fib_session: FibSession, reference: Answers
) -> Inputs:
    """Make the inputs of a case; override it to change one input or all.

    Called with sizes, a recipe and, for a listed workload, that workload; returns values by input name.
    """
    return _default_inputs(definition, definition_file, fib_session, reference)


def _default_inputs(definition: Definition, file: DefinitionFile, session: FibSession, reference: Answers) -> Inputs:
    from pytest_flashinfer.cases.default_inputs import DefaultInputs
    from pytest_flashinfer.cases.own_inputs import OwnInputs

    own = OwnInputs(definition, reference) if definition.init or definition.custom_inputs else None
    return DefaultInputs(definition, str(session.device), session.catalogue.data_roots(file.path), own)


@pytest.fixture
def cases(  # noqa: PLR0913, PLR0917 - fixtures
    request: pytest.FixtureRequest,
    definition: Definition,
    definition_file: DefinitionFile,
    inputs: Inputs,
    fib_session: FibSession,
    reference: Answers,
) -> Cases:
    """Turn workloads and drawn sizes into cases with concrete inputs."""
    from pytest_flashinfer.cases.contents import Contents
    from pytest_flashinfer.cases.default_inputs import DefaultInputs
    from pytest_flashinfer.cases.making import DRAWS, KINDS, Cases
    from pytest_flashinfer.inputs.recipe import LAYOUTS
    from pytest_flashinfer.overrides.override_faults import fixture_of
    from pytest_flashinfer.overrides.wrappers import OverriddenInputs

    too_large = scope.too_large(definition) if fib_session.scope == "smoke" else None
    if too_large is not None:
        pytest.skip(too_large)
    own = getattr(inputs, "own", None)
    default = inputs if own is not None else _default_inputs(definition, definition_file, fib_session, reference)
    if not isinstance(inputs, DefaultInputs):
        fixture = fixture_of(request.node, "inputs")
        inputs = OverriddenInputs(inputs, definition, request.config.invocation_params.dir, fixture)
    kinds = KINDS[:1] if fib_session.scope == "smoke" else KINDS
    seed, cache = fib_session.options.seed, fib_session.input_cache
    contents = Contents(definition, inputs, default, seed, reference, cache, definition_file.path)
    layouts = LAYOUTS if fib_session.options.layouts == "strided" else LAYOUTS[:1]
    return Cases(contents, kinds, DRAWS[fib_session.device.kind], layouts)


@pytest.fixture
def tolerance() -> Tolerance:
    """Return what is tolerated in place of the computed bound: nothing by default; override it to say otherwise."""
    from pytest_flashinfer.judge.tolerance import Tolerance

    return Tolerance()


@pytest.fixture
def compare(
    request: pytest.FixtureRequest,
    tolerance: Tolerance,
    definition: Definition,
    fib_session: FibSession,
    reference: Answers,
) -> Compare:
    """Compare what a call produced with the truth, and raise with the reason where it is wrong."""
    from pytest_flashinfer.judging import Compare
    from pytest_flashinfer.outputs.properties import Record
    from pytest_flashinfer.overrides.stated_tolerance import tolerance_in_force

    named = request.getfixturevalue("workload") if "workload" in request.fixturenames else None
    check = reference.check if definition.check else None
    stated = tolerance_in_force(request, fib_session, definition, named, tolerance)
    reference.credit(stated.operands or "working")
    return Compare(stated, Record(request.node), check, fib_session.probed)


@pytest.fixture
def judge(request: pytest.FixtureRequest, fib_session: FibSession, compare: Judge) -> Judge:
    """Compare as `compare` does; where it is overridden, an assertion of it is a failure like others."""
    from pytest_flashinfer.judging import Compare
    from pytest_flashinfer.outputs.properties import Record
    from pytest_flashinfer.overrides.override_faults import fixture_of
    from pytest_flashinfer.overrides.wrappers import OverriddenCompare

    if isinstance(compare, Compare):
        return compare
    invocation_dir, fixture = request.config.invocation_params.dir, fixture_of(request.node, "compare")
    return OverriddenCompare(compare, Record(request.node), invocation_dir, fixture, fib_session.probed)


@pytest.fixture(scope="module")
def reference_kernel(fib_session: FibSession, definition: Definition) -> Iterator[UnderTest]:
    """Return the reference as a solution among others, to be timed as they are."""
    kernel = fib_session.reference_kernel(definition)
    yield kernel
    kernel.close()


@pytest.fixture
def flops() -> Callable[[Case], float | None] | None:
    """Count the operations of a case in place of the rules and of the definition's `flops`; override it to say how."""
    return None


@pytest.fixture
def timing(
    request: pytest.FixtureRequest,
    fib_session: FibSession,
    reference_kernel: UnderTest,
    flops: Callable[[Case], float | None] | None,
) -> Timing:
    """Time a solution and its reference, and hand the durations to pytest-benchmark."""
    from pytest_flashinfer.overrides.override_faults import fixture_of
    from pytest_flashinfer.overrides.wrappers import OverriddenFlops
    from pytest_flashinfer.timing.timed_calls import Timing

    invocation_dir, fixture = request.config.invocation_params.dir, fixture_of(request.node, "flops")
    counted = None if flops is None else OverriddenFlops(flops, invocation_dir, fixture)
    return Timing(request.node, fib_session, reference_kernel, counted)


@pytest.fixture
def search(  # noqa: PLR0913, PLR0917 - fixtures
    request: pytest.FixtureRequest,
    fib_session: FibSession,
    definition: Definition,
    definition_file: DefinitionFile,
    solution: UnderTest,
    reference: Answers,
) -> SizeSearch:
    """Look for the smallest sizes and inputs that break a solution."""
    from pytest_flashinfer.judging import Compare
    from pytest_flashinfer.search.size_search import SizeSearch

    judge = request.getfixturevalue("judge")
    if not isinstance(judge, Compare):  # an override may look at every bit
        reference.portable = False
    listed = fib_session.catalogue.listed(definition_file.path)
    return SizeSearch(request.node, definition, listed, fib_session, solution, reference=reference, ended=judge.finish)


@pytest.fixture
def huge(
    request: pytest.FixtureRequest,
    fib_session: FibSession,
    definition_file: DefinitionFile,
    reference: Answers,
) -> HugeSizes:
    """Call a solution at sizes beyond 2**31 elements."""
    from pytest_flashinfer.search.huge import HugeSizes

    listed = fib_session.catalogue.listed(definition_file.path)
    return HugeSizes(request.node, fib_session, listed, reference)
