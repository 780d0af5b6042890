"""What a kernel may return and which parameters it may have: cases 08 and 09."""

import pytest

from .repository import Repository

SHAPED = {"shape": ["n", "h"], "dtype": "float32"}
TWO = {"y": SHAPED, "s": {"shape": None, "dtype": "float32"}}
RETURNS = {
    "pair": "(y, s)",
    "list": "[y, s]",
    "dict": '{"s": s, "y": y}',
    "plain": "(y, float(s))",
    "first": "y",
    "swapped": "(s, y)",
    "extra": "(y, s, y)",
    "nothing": "None",
}


@pytest.fixture(scope="module")
def case_08(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("case_08"))
    repository.define(outputs=TWO, reference="def run(x, w):\n    return x * w + 1, float(x.sum())\n")
    repository.sizes(4)
    for name, value in RETURNS.items():
        repository.solve(name, f"def run(x, w):\n    y, s = x * w + 1, x.sum()\n    return {value}\n")
    repository.define(name="one_h8")
    repository.sizes(4, name="one_h8")
    repository.solve("single", "def run(x, w):\n    return (x * w + 1,)\n", of="one_h8")
    repository.define(
        name="maybe_h8",
        outputs=TWO | {"s": TWO["s"] | {"optional": True}},
        reference="def run(x, w):\n    return x * w + 1, float(x.sum())\n",
    )
    repository.sizes(4, name="maybe_h8")
    repository.solve("omits", "def run(x, w):\n    return x * w + 1\n", of="maybe_h8")
    return repository.run("-k", "test_correct or test_reference")


@pytest.mark.parametrize("variant", ["pair", "list", "dict", "plain", "single", "omits"])
def test_case_08_shapes_of_return_that_are_fine(case_08, variant):
    case = case_08[f"test_correct[{variant}"]
    assert case.outcome == "passed", case.text


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("first", ["1 of 2 outputs returned", "missing s"]),
        ("swapped", ["order is y, s"]),
        ("extra", ["3", "2", "y, s"]),
        ("nothing", ["returned None", "destination style"]),
    ],
)
def test_case_08_what_is_wrong_with_a_return_is_said(case_08, variant, words):
    case = case_08[f"test_correct[{variant}"]
    assert case.outcome == "failure"
    for word in words:
        assert word in case.text, case.text


BODY = "    y.copy_(x * w + 1)\n"
SIGNATURES = {
    "unset": ("def run(x, w):\n    return x * w + 1\n", None),
    "writes": ("def run(x, w, y):\n" + BODY, None),
    "stream": ("def run(x, w, y, stream=None):\n" + BODY, True),
    "star": ("def run(*arguments):\n    x, w, y = arguments\n" + BODY, True),
    "keyword": ("def run(x, y, *, w):\n" + BODY, True),
}


@pytest.fixture(scope="module")
def case_09(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("case_09"))
    repository.define()
    repository.sizes(4, 16)
    for name, (source, destination) in SIGNATURES.items():
        repository.solve(name, source, destination=destination)
    return repository.run("-k", "test_correct", "--fib-scope=full")


@pytest.mark.parametrize("variant", ["writes", "stream", "star"])
def test_case_09_signatures_that_are_fine(case_09, variant):
    assert [case.outcome for case in case_09.of(f"[{variant}-")] == ["passed", "passed"]


def test_case_09_a_kernel_that_returns_in_destination_style_is_told_what_to_change(case_09):
    for case in case_09.of("[unset-"):
        assert case.outcome in ("failure", "error")
        assert "needs x, w, y; got x, w" in case.text, case.text
        assert "destination_passing_style" in case.text


def test_case_09_the_build_error_is_the_same_for_all_workloads(case_09):
    first, second = (
        [line for line in case.text.splitlines() if "replay" not in line] for case in case_09.of("[unset-")
    )
    assert first == second


def test_case_09_keyword_only_inputs_are_refused_with_the_reason(case_09):
    for case in case_09.of("[keyword-"):
        assert case.outcome in ("failure", "error")
        assert "takes w by keyword only" in case.text
