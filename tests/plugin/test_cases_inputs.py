"""Optional inputs and sizes that depend on each other: cases 03 and 04."""

import pytest

from .repository import BASE, RANDOM, Repository

STEP = {
    "name": "step_h8",
    "inputs": BASE["inputs"] | {"w": {"shape": ["n", "h"], "dtype": "float32", "optional": True}},
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float32"}, "z": {"shape": ["n", "h"], "dtype": "float32"}},
    "reference": (
        "import torch\n\ndef run(x, w):\n    w = torch.zeros_like(x) if w is None else w\n    return x + w, w * 2\n"
    ),
}
STEP_KERNEL = """\
import torch

def run(x, w):
    print("state", "absent" if w is None else tuple(w.shape))
    state = x.new_zeros(x.shape) if w is None else w
    return x + state, state * 2
"""


@pytest.fixture(scope="module")
def case_03(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("case_03"))
    repository.define(**STEP)
    repository.lines(
        {"uuid": "a-absent", "axes": {"n": 4}, "inputs": {"x": RANDOM}},
        {"uuid": "b-given", "axes": {"n": 5}, "inputs": {"x": RANDOM, "w": RANDOM}},
        {"uuid": "c-broken", "axes": {"n": 6}, "inputs": {"w": RANDOM}},
        name="step_h8",
    )
    repository.solve("step", STEP_KERNEL, of="step_h8")
    return repository.run("-rP", "--fib-scope=full", "--fib-examples=40", "--fib-seconds=6", "--benchmark-skip")


def test_case_03_an_input_without_entry_comes_as_none(case_03):
    case = case_03["test_correct[step-n4-"]
    assert case.outcome == "passed"
    assert "state absent" in case.text


def test_case_03_an_input_with_entry_comes_as_tensor(case_03):
    case = case_03["test_correct[step-n5-"]
    assert case.outcome == "passed"
    assert "state (5, 8)" in case.text


def test_case_03_a_required_input_that_is_missing_is_a_fault_of_the_data(case_03):
    schema = case_03["test_schema"]
    assert schema.outcome == "failure"
    assert "step_h8.jsonl:3" in schema.text
    assert "missing input" in schema.text
    assert "'x'" in schema.text or "input x" in schema.text
    assert all(case.outcome == "skipped" for case in case_03.of("[step-n6-"))


def test_case_03_drawn_cases_have_both(case_03):
    case = case_03["test_sizes[step"]
    assert case.outcome == "passed"
    assert "state absent" in case.text
    assert "state (" in case.text


RAGGED = {
    "name": "ragged_sum_h8",
    "axes": {
        "b": {"type": "var"},
        "len_indptr": {"type": "var"},
        "total": {"type": "var"},
        "h": {"type": "const", "value": 8},
    },
    "inputs": {
        "x": {"shape": ["total", "h"], "dtype": "float32"},
        "indptr": {"shape": ["len_indptr"], "dtype": "int32"},
    },
    "outputs": {"y": {"shape": ["b", "h"], "dtype": "float32"}},
    "constraints": ["len_indptr == b + 1", "total == indptr[-1].item()", "every segment is somebody's turn"],
    "reference": (
        "import torch\n\ndef run(x, indptr):\n"
        "    ends = indptr.tolist()\n"
        "    return torch.stack([x[a:b].sum(0) for a, b in zip(ends, ends[1:])])\n"
    ),
}
RAGGED_KERNEL = """\
import torch

def run(x, indptr):
    lengths = (indptr[1:] - indptr[:-1]).tolist()
    print("lengths", lengths, "starts", int(indptr[0]), "ends", int(indptr[-1]), "of", len(x))
    y = x.new_zeros(len(lengths), x.shape[1])
    at = 0
    for row, length in enumerate(lengths):
        assert length >= 0
        y[row] = x[at : at + length].sum(0)
        at += length
    assert at == len(x)
    return y
"""


@pytest.fixture(scope="module")
def case_04(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("case_04"))
    repository.define(**RAGGED)
    draw = {"x": RANDOM, "indptr": RANDOM}
    repository.lines(
        {"uuid": "good", "axes": {"b": 3, "len_indptr": 4, "total": 12}, "inputs": draw},
        {"uuid": "bad", "axes": {"b": 3, "len_indptr": 7, "total": 12}, "inputs": draw},
        name="ragged_sum_h8",
    )
    repository.solve("ragged", RAGGED_KERNEL, of="ragged_sum_h8")
    repository.define(
        name="lost_h8",
        constraints=["n * n == 2 * h + 1"],
        axes={"n": {"type": "var"}, "h": {"type": "const", "value": 8}},
    )
    repository.solve("lost", of="lost_h8")
    return repository.run("-rPs", "--fib-scope=full", "--fib-examples=60", "--fib-seconds=6", "--benchmark-skip")


def test_case_04_sizes_are_solved_and_segments_are_valid(case_04):
    case = case_04["test_sizes[ragged"]
    assert case.outcome == "passed", case.text
    assert case.text.count("lengths") > 10
    assert "lengths [0" in case.text or ", 0" in case.text, "an empty segment is among the draws"


def test_case_04_a_listed_workload_gets_a_valid_structure(case_04):
    assert case_04["test_correct[ragged-b3-len_indptr4-total12"].outcome == "passed"


def test_case_04_a_sentence_in_words_is_one_warning(case_04):
    warnings = case_04.output.partition("warnings summary")[2].partition("short test summary")[0]
    assert warnings.count("somebody's turn") == 2, "one, and the line that it is about"


def test_case_04_a_violated_constraint_is_named_with_both_values_before_any_launch(case_04):
    text = next(case.text for case in case_04.of("test_schema") if "ragged_sum_h8.jsonl" in case.text)
    assert "ragged_sum_h8.jsonl:2" in text
    assert "len_indptr == b + 1" in text
    assert "7" in text
    assert "4" in text
    assert all(case.outcome == "skipped" for case in case_04.of("[ragged-b3-len_indptr7"))


def test_case_04_a_constraint_that_nothing_can_satisfy_skips_the_sizes_and_names_the_hook(case_04):
    case = case_04["test_sizes[lost"]
    assert case.outcome == "skipped"
    reason = case.message + case.text
    assert "n * n == 2 * h + 1" in reason
    assert "`inputs` fixture" in reason
    assert "`init`" in reason
