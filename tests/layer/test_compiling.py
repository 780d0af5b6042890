"""What is said of a kernel that Triton compiles again for every size, and of one for which it does not."""

from __future__ import annotations

import pytest

from pytest_flashinfer.search import compiling
from pytest_flashinfer.worker.outcome import Compilation


def compiled(count, *, kernel="rows", seconds=0.25, **constants):
    """Return compilations; a constant given as a function has a value for each."""
    return [
        Compilation(kernel, seconds, {name: str(value(n)) for name, value in constants.items()}) for n in range(count)
    ]


def test_a_size_that_is_a_constant_is_named():
    rows = compiled(37, n=lambda n: n, BLOCK=lambda n: 1024 << n % 2)
    assert compiling.is_wasteful(rows, 40, 11.2)
    assert compiling.report(rows, 40, 11.2) == (
        "Triton compiled 37 times in 40 cases, 9.2 s of their 11.2 s, 37 of them `rows`: its constant `n` had 37"
        " values; pass it as a plain argument, not as tl.constexpr, and it compiles once"
    )


def test_where_no_constant_varies_specialisation_is_named():
    rows = compiled(9, BLOCK=lambda n: 1024)
    assert "see do_not_specialize" in compiling.report(rows, 12, 3.0)


def test_of_a_few_compilations_only_the_time_is_said():
    rows = [*compiled(2, BLOCK=lambda n: 1024), *compiled(1, kernel="merge")]
    assert compiling.report(rows, 100, 5.0) == (
        "Triton compiled 3 times in 100 cases, 0.8 s of their 5.0 s, 2 of them `rows`"
    )


@pytest.mark.parametrize(
    ("rows", "cases", "seconds"),
    [
        ([], 40, 10.0),
        (compiled(7, n=lambda n: n), 7, 2.0),
        (compiled(10, BLOCK=lambda n: 1 << n), 100, 5.0),
        (compiled(40, n=lambda n: n, seconds=0.001), 40, 5.0),
        ([row for n in range(12) for row in compiled(1, kernel=f"part {n}")], 12, 4.0),
    ],
    ids=["nothing", "few", "seldom", "from the cache", "many kernels, once each"],
)
def test_what_is_worth_no_warning(rows, cases, seconds):
    assert not compiling.is_wasteful(rows, cases, seconds)


def test_no_more_time_is_said_than_the_judge_saw_pass():
    assert compiling.spent(compiled(10, seconds=1e9), 3.0) == 3.0
