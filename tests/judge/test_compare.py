"""The one comparison: what passes, what fails, and what is said about it."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.judge import floats
from pytest_flashinfer.judge.comparison import measure
from pytest_flashinfer.judge.comparison.compare import compare, refuse_unfair
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, Truth
from pytest_flashinfer.judge.reference.origin import Unfair
from pytest_flashinfer.judge.tolerance import Tolerance, parse

INF, NAN = math.inf, math.nan


def floats_of(
    values: object, name: str = "out", bound: float = 1e-6, dtype: torch.dtype = torch.float32
) -> OutputTruth:
    native = torch.tensor(values, dtype=dtype)
    return OutputTruth(
        name, str(dtype).removeprefix("torch."), native, native.double(), torch.full(native.shape, bound).double()
    )


def ints_of(values: torch.Tensor, name: str = "idx") -> OutputTruth:
    return OutputTruth(name, str(values.dtype).removeprefix("torch."), values)


class TestCase05:
    """Equal -inf, one-sided inf, NaN."""

    LSE = floats_of([-INF, 1.0, 2.0], "lse")

    @pytest.mark.parametrize("value", [-1e30, INF, NAN], ids=["case05b", "case05c", "case05d"])
    def test_one_sided(self, value: float) -> None:
        found = compare(torch.tensor([value, 1.0, 2.0]), self.LSE)
        assert found.problem == "nonfinite"
        assert found.worst == (0,)
        assert found.summary.startswith("lse[0]: ")
        assert found.summary.endswith("instead of -inf")
        assert str(value)[:3] in found.summary

    def test_case05a_equal(self) -> None:
        assert compare(torch.tensor([-INF, 1.0, 2.0]), self.LSE).ok
        assert not compare(torch.tensor([-INF, 1.0, 2.0]), self.LSE, Tolerance(allow_negative_inf=False)).ok

    def test_case05e_reference_nan_solution_finite(self) -> None:
        found = compare(torch.tensor([0.0, 1.0]), floats_of([0.0, NAN]))
        assert found.problem == "nonfinite"
        assert found.summary == "out[1]: 1 instead of nan"
        assert not compare(torch.tensor([0.0, 1.0]), floats_of([0.0, NAN]), equal_nan=True).ok

    def test_case05f_nan_on_both_sides(self) -> None:
        found = compare(torch.tensor([0.0, NAN]), floats_of([0.0, NAN]))
        assert found.problem == "reference"
        assert "reference is NaN here" in found.summary
        assert compare(torch.tensor([0.0, NAN]), floats_of([0.0, NAN]), parse("equal_nan=true")).ok

    def test_case05g_no_matched_ratio_excuses_it(self) -> None:
        loose = parse("required_matched_ratio=0.5 atol=1")
        assert not compare(torch.tensor([-1e30, 1.0, 2.0]), self.LSE, loose).ok
        assert compare(torch.tensor([-INF, 1.0, 9.0]), self.LSE, loose).ok

    def test_plus_inf_on_both_sides_is_the_references_fault(self) -> None:
        assert compare(torch.tensor([INF]), floats_of([INF])).problem == "reference"

    @pytest.mark.parametrize("words", ["", "equal_nan=true", "allow_negative_inf=false", "atol=1"])
    def test_a_truth_is_refused_where_a_result_that_is_no_worse_would_be(self, words: str) -> None:
        natives, wides = (1.0, 65504.0, INF, -INF, NAN), (1.0, 65519.0, 65521.0, -65521.0, INF, -INF, NAN)
        for native, wide in product(natives, wides):
            given, values = torch.tensor([1.0, native]).half(), torch.tensor([1.0, wide]).double()
            other = given.isfinite() != (values.abs() < floats.overflow_at("float16"))
            other |= given.isnan() != values.isnan()
            truth = OutputTruth("y", "float16", given, values, torch.ones(2).double(), undecided=other)
            tolerance = parse(words)
            refused = compare(given, truth, tolerance).problem in ("reference", "nonfinite")
            assert refused <= (not math.isfinite(native))
            with pytest.raises(Unfair, match=r"^y\[1\]: ") if refused else nullcontext():
                refuse_unfair(Truth({"y": truth}), tolerance)
            for value in (0.0, *natives):
                found = compare(torch.tensor([1.0, value]).half(), truth, tolerance)
                assert found.problem != "reference" or refused, "a solution would be blamed"

    @pytest.mark.parametrize(("value", "passes"), [(INF, True), (-INF, False), (NAN, False), (65504.0, True)])
    def test_what_may_round_to_an_infinity_may_be_one(self, value: float, *, passes: bool) -> None:
        known = floats_of([65504.0, 8.0], bound=20, dtype=torch.float16)
        truth = replace(known, wide=torch.tensor([65510.0, 8.0]).double())
        assert compare(torch.tensor([value, 8.0]).half(), truth).ok is passes
        found = compare(torch.tensor([value, 8.0]).half(), truth, parse("atol=20"))
        assert found.problem == ("" if value == 65504 else "nonfinite"), "limits are no roundings"

    @pytest.mark.parametrize(("dtype", "most"), [(torch.float16, 65504.0), (torch.bfloat16, 3.3895313892515355e38)])
    def test_what_a_reference_cuts_off_to_fit_may_not_be_infinite(self, dtype: torch.dtype, most: float) -> None:
        truth = floats_of([most, -most], bound=most / 512, dtype=dtype)
        assert compare(torch.tensor([most, -most]).to(dtype), truth).ok
        assert compare(torch.tensor([most, -INF]).to(dtype), truth).problem == "nonfinite"

    def test_inputs_with_inf_let_inf_and_nan_trade_places(self) -> None:
        assert compare(torch.tensor([NAN, INF]), floats_of([INF, NAN]), equal_nan=True).ok
        assert not compare(torch.tensor([NAN]), floats_of([-INF]), equal_nan=True).ok
        assert not compare(torch.tensor([0.0]), floats_of([NAN]), equal_nan=True).ok


class TestCase06:
    """True values far below the tolerance."""

    def test_zeros_fail_by_default_and_pass_only_a_loose_tolerance(self) -> None:
        x = torch.randn(1, 65536)
        found = evaluate(lambda x: torch.softmax(x, -1), {"x": x}, {"p": OutputSpec("float32", (1, 65536))}).outputs[
            "p"
        ]
        zeros = compare(torch.zeros(1, 65536), found)
        assert not zeros.ok
        assert zeros.hint == "the output is all zeros"
        assert compare(torch.zeros(1, 65536), found, parse("atol=1e-2 rtol=1e-2")).ok


class TestCase07:
    """Integers, bools and large integers."""

    def test_case07_no_detour_through_float(self) -> None:
        found = compare(torch.tensor([16777216]), ints_of(torch.tensor([16777217])))
        assert not found.ok
        assert found.summary == "idx[0]: 16777216 instead of 16777217"
        assert found.max_abs == 1.0

    def test_case07_one_bool_in_a_thousand(self) -> None:
        mask = torch.zeros(1000, dtype=torch.bool)
        flipped = mask.clone()
        flipped[17] = True
        truth = ints_of(mask, "mask")
        assert not compare(flipped, truth, parse("required_matched_ratio=0.95")).ok
        assert compare(flipped, truth, parse("mask:required_matched_ratio=0.95")).ok

    @settings(deadline=None, max_examples=50)
    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
    def test_equal_integers_pass_and_others_fail(self, values: list[int]) -> None:
        truth = torch.tensor(values)
        assert compare(truth.clone(), ints_of(truth)).ok
        assert not compare(truth ^ 1, ints_of(truth)).ok

    def test_unsigned(self) -> None:
        values = torch.tensor([1, 2**31 + 5], dtype=torch.int64).to(torch.uint32)
        assert compare(values.clone(), ints_of(values)).ok


class TestShapes:
    def test_shape_and_dtype(self) -> None:
        truth = floats_of([[1.0, 2.0]])
        assert compare(torch.ones(2), truth).summary == "out: shape [2] instead of [1, 2]"
        assert compare(torch.ones(1, 2).half(), truth).problem == "dtype"
        assert compare(None, truth).problem == "missing"

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1)])
    def test_sizes_from_nothing_up(self, shape: tuple[int, ...]) -> None:
        truth = floats_of(torch.ones(shape).tolist()) if shape != (3, 0) else floats_of([[], [], []])
        assert compare(torch.ones(shape), truth).ok
        assert compare(torch.zeros(shape), truth).ok == (0 in shape)


class TestWords:
    """The shape of a failure is named."""

    TRUTH = floats_of(torch.ones(64, 257).tolist())

    @pytest.mark.parametrize(
        ("rows", "columns", "words"),
        [
            (slice(61, 64), slice(None), "all misses in the last 3 whole rows (61..63 of 64)"),
            (slice(None), slice(256, 257), "all misses in whole column 256 of 257 (the last)"),
            (slice(7, 8), slice(None), "all misses in whole row 7 of 64"),
            (slice(1, None, 4), slice(None), "all misses in every 4th whole row from 1 (of 64)"),
            (slice(3, 4), slice(5, 6), "all misses in row 3 of 64, column 5 of 257"),
            (slice(None), slice(None), "all elements miss"),
        ],
    )
    def test_where(self, rows: slice, columns: slice, words: str) -> None:
        bad = torch.ones(64, 257)
        bad[rows, columns] = 2.0
        found = compare(bad, self.TRUTH)
        assert found.where == words
        assert 1 < len(found.text.splitlines()) <= 10
        assert "\n" not in found.summary

    def test_case10_the_last_row_was_never_written(self) -> None:
        out = torch.ones(64, 257)
        out[63] = NAN
        assert compare(out, self.TRUTH).where == "all misses in whole row 63 of 64 (the last)"

    def test_hints(self) -> None:
        x, before = torch.randn(4, 4), torch.randn(4, 4)
        truth = floats_of(torch.ones(4, 4).tolist())
        assert "copy of the input x" in compare(x.clone(), truth, inputs={"n": 3, "x": x}).hint
        assert "previous call's answer" in compare(before.clone(), truth, previous=before).hint

    def test_no_hint_that_chance_or_a_size_may_give(self) -> None:
        x = torch.randn(1, 32)
        truth = floats_of(torch.ones(1, 32).tolist())
        assert compare(x.clone(), truth, inputs={"x": x}, alike=["x"]).hint
        assert not compare(x.clone(), truth, inputs={"x": x}, alike=["y"]).hint, "other axes that are 1 here"
        few = torch.ones(1, 32)
        few[0, :7] = 2
        assert not compare(few.clone(), truth, inputs={"x": few}).hint
        assert not compare(few.clone(), truth, previous=few).hint, "most of it is right for this call"
        for same in (torch.tensor([[7.0]]), torch.full((1, 32), -math.inf), torch.full((4, 8), 7.0)):
            other = floats_of(torch.ones(same.shape).tolist())
            assert not compare(same.clone(), other, previous=same).hint, "one number"
        counts = OutputTruth("n", "int32", torch.tensor([1, 2, 3], dtype=torch.int32), exact=True)
        before = torch.tensor([2, 2, 3], dtype=torch.int32)
        assert not compare(before.clone(), counts, previous=before).hint

    def test_an_element_that_misses_is_named_before_one_that_does_not(self) -> None:
        """Also where that one spends more of its bound, in another chunk."""
        expected = torch.zeros(measure.CACHED + 100, dtype=torch.float64)
        expected[5], expected[-1] = 100.0, 1e6
        actual = expected.clone()
        actual[5], actual[-1] = 100.9, 1e6 + 2.0
        allowance = torch.ones_like(expected)
        allowance[-1] = 10.0
        truth = OutputTruth("y", "float64", expected, expected, allowance)
        found = compare(actual, truth, Tolerance(max_error_cap=1.0))
        assert found.worst == (len(expected) - 1,)
        assert "above max_error_cap 1" in found.summary

    @pytest.mark.parametrize(
        ("words", "ok"),
        [
            ("cosine=0.99", True),
            ("cosine=0.99 scale=1", False),
            ("cosine=0.99 required_matched_ratio=0.99", False),
            ("cosine=0.99 rtol=0.1", False),
            ("cosine=0.99 rtol=0.1 required_matched_ratio=0", True),
            ("cosine=0.99 scale=1e9", True),
        ],
    )
    def test_cosine_replaces_the_bound_unless_something_is_said_of_it(self, words: str, ok: bool) -> None:  # noqa: FBT001
        expected = torch.ones(64)
        assert compare(1.5 * expected, floats_of(expected.tolist()), parse(words)).ok is ok

    def test_numbers_of_the_worst_element(self) -> None:
        out = torch.ones(2, 3)
        out[1, 2], out[0, 1] = 1.5, 1.25
        found = compare(out, floats_of(torch.ones(2, 3).tolist(), bound=0.125))
        assert (found.worst, found.actual, found.expected, found.bound) == ((1, 2), 1.5, 1.0, 0.125)
        assert (found.n_bad, found.n_total, found.share, found.max_abs) == (2, 6, 4.0, 0.5)
        assert "4 times the bound 0.125" in found.summary

    def test_eight_bit_floats_show_the_distance_in_codes(self) -> None:
        truth = floats_of([1.0, 2.0], bound=0.05, dtype=torch.float8_e4m3fn)
        found = compare(torch.tensor([1.0, 2.5]).to(torch.float8_e4m3fn), truth)
        assert "2 codes of float8_e4m3fn" in found.summary

    def test_packed_codes_are_unpacked(self) -> None:
        truth = OutputTruth("w", "float4_e2m1", torch.tensor([[0x21, 0x43]], dtype=torch.uint8))
        found = compare(torch.tensor([[0x21, 0x47]], dtype=torch.uint8), truth)
        assert found.summary == "w[0, 2]: 6 instead of 1.5"
        assert compare(truth.native.clone(), truth).ok


class TestFarFromZero:
    @pytest.mark.parametrize("expected", [0.0, -0.0, 1e-45, -1e-38, 1e-30])
    @pytest.mark.parametrize("bound", [0.0, 1e-40, 1e-38])
    def test_an_error_at_zero_is_said_without_ulps_and_ratios(self, expected: float, bound: float) -> None:
        found = compare(torch.tensor([1.03, 0.0]), floats_of([expected, 0.0], bound=bound))
        assert found.summary == f"out[0]: 1.03 instead of {found.expected:.7g}" + (
            f" (error 1.03, bound {bound:.3g})" if bound else ""
        )
        assert "1 of 2 elements miss (50 %); largest error 1.03 absolute\n" in found.text

    @settings(deadline=None, max_examples=200)
    @given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(0, 1e30), st.floats(0, 1e30))
    def test_no_number_of_an_error_is_beyond_what_it_measures(
        self, expected: float, error: float, bound: float
    ) -> None:
        found = compare(torch.tensor([expected]) + error, floats_of([expected], bound=bound))
        words = found.text.replace(",", " ").split()
        steps = [float(words[place - 1]) for place, word in enumerate(words) if word == "ulp"]
        times = [float(words[place - 1]) for place, word in enumerate(words) if word == "times"]
        assert all(each <= 2**25 for each in steps)
        assert all(each <= 1e6 for each in times)
        assert " 0 relative" not in found.text


class TestExplicit:
    def test_both_limits_and_the_cap(self) -> None:
        truth = floats_of([100.0, 0.0], bound=1e-9)
        out = torch.tensor([100.5, 0.01])
        assert compare(out, truth, parse("rtol=1e-2 atol=1e-1")).ok
        assert not compare(out, truth, parse("rtol=1e-2")).ok
        assert not compare(out, truth, parse("rtol=1e-2 atol=1e-1 max_error_cap=0.1")).ok
        assert compare(out, truth, parse("rtol=1e-2 required_matched_ratio=0.5")).ok
        assert not compare(out, truth, parse("rtol=1e-2 required_matched_ratio=0.5 max_error_cap=0.1")).ok

    def test_cosine_alone_replaces_the_bound(self) -> None:
        truth = floats_of([1.0, 2.0, 3.0])
        assert compare(torch.tensor([1.1, 2.0, 3.0]), truth, parse("cosine=0.99")).ok
        found = compare(torch.tensor([3.0, 2.0, 1.0]), truth, parse("cosine=0.99"))
        assert "cosine similarity" in found.summary

    def test_scale_multiplies_the_bound(self) -> None:
        truth = floats_of([1.0], bound=0.25)
        assert not compare(torch.tensor([1.5]), truth).ok
        assert compare(torch.tensor([1.5]), truth, Tolerance(scale=2.0)).ok

    def test_zero_tolerance_means_the_references_own_bits(self) -> None:
        x = torch.randn(4, 64).half()
        specs = {"y": OutputSpec("float16", (4, 64))}
        found = evaluate(lambda x: torch.softmax(x, -1), {"x": x}, specs).outputs["y"]
        exact = Tolerance(rtol=0.0, atol=0.0)
        assert compare(found.native.clone(), found, exact).ok
        assert not compare(torch.nextafter(found.native, found.native + 1), found, exact).ok


def test_one_wrong_element_in_a_million_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "CACHED", 1 << 18)
    a, b = torch.randn(1024, 16).bfloat16(), torch.randn(1024, 16).bfloat16()
    truth = evaluate(lambda a, b: a @ b.T, {"a": a, "b": b}, {"c": OutputSpec("bfloat16", (1024, 1024))}).outputs["c"]
    assert compare(truth.native.clone(), truth).ok
    wrong = truth.native.clone()
    wrong[777, 333] += 0.05 * wrong[777, 333].abs() + 0.01
    found = compare(wrong, truth)
    assert (found.ok, found.n_bad, found.worst) == (False, 1, (777, 333))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**31))
def test_chunks_do_not_matter(n: int, chunk: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    truth = floats_of(torch.randn(n, generator=g).tolist(), bound=0.5)
    out = truth.native + torch.randn(n, generator=g)
    whole = compare(out, truth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "CACHED", chunk)
        parts = compare(out, truth)
    assert (whole.n_bad, whole.worst, whole.share, whole.max_abs) == (
        parts.n_bad,
        parts.worst,
        parts.share,
        parts.max_abs,
    )


@settings(deadline=None, max_examples=50)
@given(st.floats(-1e30, 1e30), st.floats(0, 1e30), st.floats(-1e30, 1e30))
def test_a_float_passes_exactly_within_its_bound(expected: float, bound: float, actual: float) -> None:
    wide = torch.tensor([expected], dtype=torch.float64)
    truth = OutputTruth("y", "float64", wide, wide, torch.tensor([bound], dtype=torch.float64))
    assert compare(torch.tensor([actual], dtype=torch.float64), truth).ok == (abs(actual - expected) <= bound)


@given(
    values=st.lists(st.sampled_from([0.0, 1.0, -2.5, 1e-9, 1.0 + 5e-7, INF, -INF, NAN]), min_size=1, max_size=12),
    other=st.lists(st.sampled_from([0.0, 1.0, -2.5, 1.0 + 2e-6, INF, NAN]), max_size=2),
    bound=st.sampled_from([0.0, 1e-6, 1e-300, INF]),
)
def test_the_quick_look_says_what_the_slow_one_does(values: list[float], other: list[float], bound: float) -> None:
    actual = torch.tensor([*other, *values][: len(values)], dtype=torch.float64)
    truth = floats_of(values, bound=bound, dtype=torch.float64)
    quick = measure.Values(actual, truth, Tolerance(), equal_nan=False).run()
    values_of = measure.Values(actual, truth, Tolerance(), equal_nan=False)
    values_of._clean = lambda *_: False  # type: ignore[method-assign]
    slow = values_of.run()
    if not slow.bad and not slow.special:
        quick.at = slow.at  # nobody asks where the largest share is of what passes
    assert quick == slow


def test_a_cosine_is_of_the_finite_values():
    expected = torch.cat([torch.tensor([-math.inf]), torch.randn(63, generator=torch.Generator().manual_seed(0))])
    truth = OutputTruth("y", "float32", expected, expected.double(), torch.full((64,), 1e-6, dtype=torch.float64))
    garbage = torch.cat([expected[:1], 100 * torch.sin(37 * expected[1:])])
    found = compare(garbage, truth, parse("cosine=0.999"))
    assert not found.ok
    assert "cosine similarity" in found.text
    assert "nan" not in found.text
    assert compare(expected.where(expected.isinf(), 2 * expected), truth, parse("cosine=0.999")).ok


@pytest.mark.parametrize("setting", ["max_error_cap=0.5", "cosine=0.99", "rtol=1e-3", "scale=2", ""])
def test_what_is_undecided_counts_for_no_setting(setting):
    expected = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    undecided = torch.zeros(4, 64, dtype=torch.bool)
    undecided[0] = True
    bound = torch.full((4, 64), 1e-6, dtype=torch.float64)
    truth = OutputTruth("y", "float32", expected, expected.double(), bound, undecided=undecided)
    other = expected.clone()
    other[0] = 1 - other[0]
    assert compare(other, truth, parse(setting)).ok
    other[1] = 1 - other[1]
    assert not compare(other, truth, parse(setting)).ok
