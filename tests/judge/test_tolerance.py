"""Reading and layering explicit tolerances."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.judge.tolerance import Tolerance, ToleranceError, from_mapping, layered, parse, parse_lines


def test_words_with_and_without_an_output() -> None:
    found = parse("rtol=1e-3, atol=1e-2 topk_ids:comparison=topk")
    assert (found.rtol, found.atol) == (1e-3, 1e-2)
    assert found.for_output("topk_ids").comparison == "topk"
    assert found.for_output("topk_ids").rtol == 1e-3
    assert found.for_output("other").comparison is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rtol", "is not"),
        ("=3", "no setting ''"),
        (":rtol=1", "is not"),
        ("rtoll=1", r"no setting 'rtoll'; did you mean 'rtol'\?; there are rtol, atol"),
        ("min_cos_sin=1", "did you mean 'min_cos_sim'"),
        ("xyz=1", "no setting 'xyz'; there are rtol, atol"),
        ("rtol=-1", "zero or positive"),
        ("rtol=nan", "zero or positive"),
        ("atol=inf", "zero or positive, and finite"),
        ("cosine=1.5", "between 0 and 1"),
        ("equal_nan=maybe", "true or false"),
        ("comparison=fuzzy", "one of auto, exact"),
        ("atol=tight", "needs a number, not 'tight'"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(ToleranceError, match=words):
        parse(text, "fib_tolerance")


def test_upper_layers_win_and_limits_are_a_pair() -> None:
    found = layered(parse("rtol=1e-2 atol=1e-2 cosine=0.9"), None, parse("atol=1e-5 out:scale=2"), parse("out:rtol=3"))
    assert (found.rtol, found.atol, found.cosine) == (0.0, 1e-5, 0.9)
    own = found.for_output("out")
    assert (own.rtol, own.atol, own.scale) == (3.0, 0.0, 2.0)
    assert not Tolerance().explicit


def test_ini_lines_have_patterns_and_comments() -> None:
    found = parse_lines(["# nothing", "rtol=1", "rmsnorm*: atol=2  # wide", "rmsnorm*: rtol=3", ""])
    assert found["*"].rtol == 1.0
    assert (found["rmsnorm*"].atol, found["rmsnorm*"].rtol) == (0.0, 3.0)


@pytest.mark.parametrize(
    ("line", "start"),
    [("y:rtl=1", "--x: y:rtl=1: no"), ("*: y:rtl=1", "--x: *: y:rtl=1: no"), ("gemm: rtl=1", "--x: gemm: rtl=1: no")],
)
def test_what_is_wrong_with_a_line_comes_after_the_words_that_were_written(line: str, start: str) -> None:
    with pytest.raises(ToleranceError) as caught:
        parse_lines([line], "--x")
    assert str(caught.value).startswith(start)


def test_the_keys_of_workload_files() -> None:
    found = from_mapping(
        {
            "max_atol": 1e-3,
            "max_rtol": None,
            "required_matched_ratio": 0.9,
            "allow_negative_inf": False,
            "y": {"rtol": 1},
        }
    )
    assert (found.atol, found.rtol, found.required_matched_ratio) == (1e-3, None, 0.9)
    assert found.allow_negative_inf is False
    assert found.for_output("y").rtol == 1.0


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "rtol": st.floats(0, 1e3).map(lambda x: float(f"{x:g}")),
        "cosine": st.floats(0, 1).map(lambda x: float(f"{x:g}")),
        "equal_nan": st.booleans(),
        "operands": st.sampled_from(["working", "exact"]),
        "comparison": st.sampled_from(["auto", "exact", "topk"]),
    },
)


@settings(deadline=None, max_examples=50)
@given(SETTINGS, st.dictionaries(st.sampled_from(["a", "b_2"]), SETTINGS.filter(bool)))
def test_what_describe_writes_parse_reads(whole: dict[str, object], outputs: dict[str, dict[str, object]]) -> None:
    found = Tolerance(**whole, outputs={name: Tolerance(**own) for name, own in outputs.items()})  # type: ignore[arg-type]
    assert parse(found.describe()) == found
