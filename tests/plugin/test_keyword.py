"""-k decides about whole files where it can, and never differs from what pytest would have said."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from pytest_flashinfer.collect import workload_id
from pytest_flashinfer.selection import keyword
from pytest_flashinfer.selection.catalogue import Catalogue
from pytest_flashinfer.selection.keyword import Keyword, Names

WORDS = [
    "shift_h8",
    "SHIFT_H8",
    "not shift_h8",
    "scale_add_h8 and test_schema",
    "shift_h8 or n9",
    "fast",
    "not fast",
    "ada and not triton",
    "triton or scale_add",
    "w_0009",
    "w_00",
    "0004",
    "n9 and test_speed",
    "n4-w_0004",
    "correct[good",
    "tensor",
    "unheard_of_by_anybody",
    "not unheard_of_by_anybody",
    "(unheard_of_by_anybody or shift_h8) and not test_sizes",
    "benchmark",
    "pytestmark",
    "parametrize",
    "json",
    "other",
    "n",
    "a and b or not c and d",
    "a or b or c or d or e or f or g or h or i",
    "tiny_model",
]


@pytest.mark.parametrize("expression", WORDS)
def test_the_same_items_as_without(two, collected, monkeypatch, expression):
    found = collected("-k", expression)
    monkeypatch.setattr(Keyword, "excludes", lambda *_: False)
    assert found == collected("-k", expression)


def test_a_size_is_told_from_the_name_of_its_axis():
    """And found by any part of both."""
    workload = SimpleNamespace(axes={"n": 4, "plus_1": 12}, uuid="w-1")
    assert workload_id(("n", "plus_1"), workload) == "n4-plus_1_12-w_1"
    names, part = Names(frozenset(), ("n", "plus_1"), lambda: "w-1"), "plus_1_12"
    ends = range(1, len(part) + 1)
    assert [part[start:end] for end in ends for start in range(end) if not names.may_match(part[start:end])] == []


@pytest.mark.parametrize("expression", ["unheard_of", "unheard_of and test_sizes", "test_huge"])
def test_it_is_said_that_nothing_matches(two, kernels, expression):
    result = kernels("-k", expression)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    said = f"-k '{expression}' selects nothing of 2 definitions and 2 solutions: it is matched with the names of checks"
    assert str(result.stdout).count(said) == 1


def test_nothing_is_said_of_an_expression_that_matches(two, kernels):
    assert "selects nothing" not in str(kernels("--collect-only", "-k", "shift_h8 and test_schema").stdout)


@pytest.mark.parametrize(
    ("expression", "options", "told"),
    [
        ("shift_h8 and test_schema", ("--fib-shard=1/2", "-W", "error"), False),  # the other part has it
        ("shift_h8 and test_schema", ("--deselect=definitions/other/shift_h8.json",), False),
        ("unheard_of", ("--fib-shard=1/2",), True),
    ],
)
def test_it_is_not_said_where_something_else_leaves_nothing(two, kernels, expression, options, told):
    output = str(kernels("--collect-only", "-k", expression, *options).stdout)
    assert ("no tests collected" in output, "selects nothing" in output) == (True, told)


@pytest.mark.parametrize("options", [("-k", "scale_add_h8 and ("), ("-k", "nobody", "definitions/none.json")])
def test_nothing_is_said_where_pytest_ends_the_run(two, pytester, options):
    """Of an expression that it cannot read, or of an argument that it does not find."""
    two.solve("lost", of="scale_ad_h8")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "RunWarning" not in str(result.stdout)


def test_nothing_is_said_where_items_could_not_be_collected(two, kernels):
    two.write("definitions/elementwise/conftest.py", "def x(:\n")
    assert "selects nothing" not in str(kernels("-k", "scale_add_h8").stdout)


def test_only_the_workloads_of_what_is_chosen_are_read(two, collected, monkeypatch):
    read = []
    monkeypatch.setattr(Catalogue, "workloads", lambda self, path, definition: read.append(definition.name) or {})
    collected("-k", "shift_h8 and not fast")
    assert read == ["shift_h8"]


def test_an_item_that_is_named_is_found_before_it_is_deselected(two, kernels):
    result = kernels("definitions/other/shift_h8.json::test_schema", "-k", "scale_add_h8")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize(
    "text",
    [
        "def pytest_itemcollected(item):\n    item.extra_keyword_matches.add('marked_by_hand')\n",
        "import pytest\n@pytest.fixture(params=['marked_by_hand'])\ndef tolerance(request): pass\n",
    ],
    ids=["hook", "fixture"],
)
def test_names_that_a_conftest_gives_count(two, collected, pytester, text):
    pytester.makeconftest(text)
    assert collected("-k", "marked_by_hand")


def test_every_piece_of_an_item_s_name_may_match():
    names = Names(frozenset({"test_correct", "my_solution"}), ("n2", "batch"), lambda: '{"uuid": "W-é3f-9.zz"}')
    for name in ("test_correct[my_solution-n24-batch7-W_3f_9.z]", "test_correct[my_solution1-n24-batch7-W_3f_9.z_12]"):
        pieces = {name[start:end] for end in range(len(name) + 1) for start in range(end)}
        assert not [piece for piece in pieces if not names.may_match(piece)]


@pytest.mark.parametrize("word", ["my_solutions", "n2x", "batches", "z_w", "test_speed", "softmax", "gemm_n128", "ww3"])
def test_what_is_in_no_name_cannot_match(word):
    names = Names(frozenset({"test_correct", "my_solution"}), ("n2", "batch"), lambda: '{"uuid": "w-0001"}')
    assert not names.may_match(word)


@pytest.mark.parametrize("name", ["KeywordMatcher", "expression.Expression"])
def test_a_pytest_without_its_private_names_decides_itself(monkeypatch, name):
    monkeypatch.delattr(f"_pytest.mark.{name}")
    spec = importlib.util.spec_from_file_location("keyword_without_names", keyword.__file__)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    asked = module.Keyword(SimpleNamespace(option=SimpleNamespace(keyword="unheard_of"), args=[]))
    assert not asked.excludes(None, module.Names(frozenset(), (), str))
