"""Ratios and counts as they stand in texts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.report.numbers import count, times


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0.0, "0.00"),
        (0.0042, "0.0042"),
        (3.75e-5, "0.000037"),
        (0.0996, "0.100"),
        (0.5, "0.50"),
        (1.254, "1.25"),
        (266.6, "266.60"),
        (math.inf, "inf"),
    ],
)
def test_ratios(ratio, shown):
    assert times(ratio) == shown


@given(st.floats(1e-12, 1e6), st.integers(1, 4))
def test_a_ratio_reads_back(ratio, digits):
    shown = times(ratio, digits)
    assert "e" not in shown
    assert math.isclose(float(shown), ratio, rel_tol=0.5 * 10 ** (1 - digits) * 1.01, abs_tol=0.00501 * (ratio >= 1))


def test_counts():
    assert [count(number, "file") for number in (0, 1, 2, 1000)] == ["0 files", "1 file", "2 files", "1,000 files"]
