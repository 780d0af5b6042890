"""The comparison that dumped checks call, where the library that has it is absent."""

import importlib.util
import sys

import pytest
import torch

from pytest_flashinfer.judge.reference.default_check import default_check, provided, settings

INF, NAN = float("inf"), float("nan")


def both(one, two, dtype=torch.float32, **stated):
    return default_check(torch.tensor(one, dtype=dtype), torch.tensor(two, dtype=dtype), **stated)


@pytest.mark.parametrize(
    ("dtype", "near", "far"),
    [
        (torch.float64, 1 + 1.5e-7, 1 + 3e-7),
        (torch.float32, 1 + 1.5e-5, 1 + 3e-5),
        (torch.float16, 1 + 2**-10, 1 + 3 * 2**-10),
        (torch.bfloat16, 1 + 2**-6, 1 + 2**-5),
        (torch.float8_e4m3fn, 1 + 2**-3, 1 + 2**-1),
    ],
)
def test_the_dtype_decides_where_no_bound_is_named(dtype, near, far):
    assert both([1.0], [near], dtype)
    assert not both([1.0], [far], dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool])
def test_integers_are_equal_or_wrong(dtype):
    assert both([1, 0], [1, 0], dtype)
    assert not both([1, 0], [1, 1], dtype)
    assert not both([1, 0], [1, 1], dtype, rtol=1.0, atol=1.0)
    assert both([1, 0], [1, 1], dtype, max_mismatch_pct=50.0)
    assert not both([1, 0], [1, 1], dtype, max_mismatch_pct=49.0)


def test_large_integers_are_not_rounded():
    assert not both([2**53], [2**53 + 1], torch.int64)


def test_a_bound_is_absolute_plus_relative():
    assert both([10.0], [12.0], atol=1.0, rtol=0.1)
    assert not both([10.0], [12.1], atol=1.0, rtol=0.1, min_cos_sim=None)


def test_a_share_of_elements_may_miss():
    assert both([1.0] * 4, [1.0, 1.0, 1.0, 1.5], max_mismatch_pct=25.0, min_cos_sim=None)
    assert not both([1.0] * 4, [1.0, 1.0, 1.0, 1.5], max_mismatch_pct=24.0, min_cos_sim=None)


def test_the_cosine_is_bounded():
    one, two = [1.0, 0.0], [1.0, 0.2]
    assert not both(one, two, atol=1.0)
    assert both(one, two, atol=1.0, min_cos_sim=0.98)
    assert both(one, two, atol=1.0, min_cos_sim=None)
    assert not both([0.0, 0.0], two, atol=1.0)
    assert both([0.0, 0.0], [0.0, 0.0])


@pytest.mark.parametrize(
    ("one", "two"), [([INF, 1], [1, 1]), ([INF, 1], [-INF, 1]), ([1, 1], [NAN, 1]), ([NAN, 1], [NAN, 1])]
)
def test_what_is_not_finite_is_never_forgiven(one, two):
    assert not both(one, two, max_mismatch_pct=100.0, min_cos_sim=None)
    assert both([INF, -INF, 1], [INF, -INF, 1])


def test_several_outputs():
    one, two = torch.ones(2), torch.zeros(2)
    assert default_check((one, two), [one, two])
    assert not default_check((one, two), (two, one))
    assert not default_check((one, two), (one,))
    assert default_check({"a": one, "b": None}, {"a": one, "b": None})
    assert not default_check({"a": one}, {"a": one, "b": two})
    assert not default_check((one, None), (one, two))
    assert not default_check(one, torch.ones(2, 1))
    assert default_check(torch.empty(0), torch.empty(0))
    assert default_check(2.0, torch.tensor(2.0))


def test_settings_are_what_was_stated_then_the_checks_own_then_the_usual_ones():
    def plain(reference, actual, *, rtol, atol=0.5):
        del reference, actual, rtol, atol

    def swallows(reference, actual, **more):
        del reference, actual, more

    assert settings(plain, {}) == {"rtol": 1e-2}
    assert settings(plain, {"rtol": 3.0, "atol": 4.0, "min_cos_sim": 0.5}) == {"rtol": 3.0, "atol": 4.0}
    assert settings(swallows, {"min_cos_sim": 0.5}) == {"min_cos_sim": 0.5}
    assert settings(dict, {"a": 1}) == {"a": 1}, "no signature to look at"


@pytest.mark.skipif(importlib.util.find_spec("flashinfer") is not None, reason="flashinfer is installed")
def test_it_is_importable_for_as_long_as_it_is_needed():
    with provided():
        from flashinfer.trace import default_check as imported

        assert imported is default_check
    assert "flashinfer" not in sys.modules
    with pytest.raises(ImportError):
        import flashinfer  # noqa: F401
