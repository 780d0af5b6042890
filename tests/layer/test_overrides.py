"""What a conftest.py overrides: its errors are told in lines that name it, and its assertions are verdicts."""

import inspect
import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, permutations, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pytest_flashinfer.cases.cache import mark_of, sums
from pytest_flashinfer.cases.contents import Contents
from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from pytest_flashinfer.inputs.errors import InputsError, Unsatisfiable
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.judge.oracle.truth import SAMPLED, OutputTruth, Truth
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.judge.tolerance import Tolerance
from pytest_flashinfer.judge.verdict import Verdict
from pytest_flashinfer.overrides.override_faults import raised_in_fixture
from pytest_flashinfer.overrides.wrappers import OverriddenCompare, OverriddenFlops, OverriddenInputs
from pytest_flashinfer.solution_call import Failed
from pytest_flashinfer.worker.cudart import CudaError
from tests.inputs.contracts import ALL

from .contracts import workload

HERE = Path(__file__).parent
DEFINITION = Definition(
    "halve_h4",
    "other",
    {"n": Axis("var"), "h": Axis("const", 4)},
    {
        "x": TensorSpec(("n", "h"), "float32"),
        "mask": TensorSpec(("n",), "bool", optional=True),
        "s": TensorSpec(None, "float32"),
    },
    {"y": TensorSpec(("n", "h"), "float32")},
    "def run(x, mask, s):\n    return x * s\n",
)
GOOD = {"x": torch.ones(2, 4), "mask": None, "s": 0.5}


WAYS = {"assert": " truth", "raise": " AssertionError(", "pytest.fail": "("}


class Call:
    case, result = SimpleNamespace(workload=None, nbytes=0, definition=DEFINITION, values={}), None


class Facts(dict):
    set = dict.__setitem__

    def forget(self, *names):
        for name in names:
            self.pop(name, None)

    @contextmanager
    def unchanged(self):
        before = dict(self)
        yield
        self.clear()
        self.update(before)


def given(make):
    return OverriddenInputs(make, DEFINITION, HERE)({"n": 2, "h": 4}, Recipe(1))


def line_of(function, word):
    lines, start = inspect.getsourcelines(function)
    return start + next(number for number, text in enumerate(lines) if word in text)


def test_what_an_override_of_inputs_gives_is_passed_on():
    assert given(lambda *_: GOOD) == GOOD


@pytest.mark.parametrize("names", [*permutations(GOOD), *permutations(("x", "s"))])
def test_values_are_found_by_name_whatever_their_order_and_with_what_is_left_out(names):
    found = given(lambda *_: {name: GOOD[name] for name in names})
    assert list(found.items()) == list(GOOD.items())


def test_an_error_of_an_override_of_inputs_names_its_line():
    def make(*_):
        values = dict(GOOD)
        values["x"] = helper(values)  # here
        return values

    def helper(values):
        return values["gat"]  # and there

    with pytest.raises(InputsError) as raised:
        given(make)
    assert str(raised.value) == f"test_overrides.py:{line_of(helper, 'there')}: KeyError: 'gat'"


def test_an_error_in_what_an_override_calls_is_told_at_its_own_line():
    def make(*_):
        return torch.zeros(2) @ torch.zeros(3)  # here

    with pytest.raises(InputsError, match=rf"^test_overrides.py:{line_of(make, 'here')}: RuntimeError: "):
        given(make)


def test_an_override_that_cannot_be_called_is_told_where_it_begins():
    def make(axes):
        return axes

    with pytest.raises(InputsError, match=rf"^test_overrides.py:{line_of(make, 'def make')}: TypeError: "):
        given(make)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (None, "`inputs` gives NoneType, not the values of all inputs by name"),
        ({"x": GOOD["x"], "mask": None}, "`inputs` gives no `s`"),
        ({**GOOD, "z": 1}, "`inputs` gives `z`, which is no input"),
        ({**GOOD, "x": GOOD["x"].half()}, "input x is made with dtype torch.float16, declared is float32"),
        ({**GOOD, "x": GOOD["x"][0]}, "input x is made with shape [4], declared is [n, h]"),
        ({**GOOD, "x": GOOD["x"][:, :3]}, "input x is made with shape [2, 3], the axes make it [2, 4]"),
        ({**GOOD, "x": 3}, "input x is made as int, not as a tensor of shape [n, h]"),
    ],
)
def test_what_are_no_inputs_is_told(values, reason):
    with pytest.raises(InputsError) as raised:
        given(lambda *_: values)
    place, _, said = str(raised.value).partition(": ")
    assert (place.partition(":")[0], said) == ("test_overrides.py", reason)


@pytest.mark.parametrize("definition", ALL, ids=lambda each: each.name)
def test_usual_inputs_are_what_a_definition_declares(definition):
    def make(axes, recipe, _workload):
        return make_inputs(definition, axes, recipe)

    for axes, recipe in islice(edge_cases(definition, max_elements=1 << 12), 6):
        assert OverriddenInputs(make, definition, HERE)(axes, recipe).keys() == definition.inputs.keys()


def test_code_of_the_definition_itself_decides_sizes():
    own = replace(DEFINITION, init="def init(): ...")
    values = {**GOOD, "x": torch.ones(3, 4)}
    assert OverriddenInputs(lambda *_: values, own, HERE)({"n": 2, "h": 4}, Recipe(1)).keys() == GOOD.keys()


def test_other_inputs_for_the_same_recipe_have_a_truth_of_their_own():
    def usual(axes, recipe, _workload=None):
        return make_inputs(DEFINITION, axes, recipe)

    def alike(*arguments):
        return {**usual(*arguments), "x": torch.ones(2, 4)}

    def unalike(*arguments):
        return {**usual(*arguments), "x": torch.randn(2, 4)}

    for make, same in ((usual, True), (alike, True), (unalike, False)):
        items = [Contents(DEFINITION, make, usual, 7) for _ in range(2)]
        for listed in (None, workload(2, axes={"n": 2})):
            one, other = (item.case({"n": 2, "h": 4}, Recipe(1), listed) for item in items)
            assert (one.key == other.key) is same
            assert one.elsewhere().key == one.key
            assert (items[0].varied(one, "fresh", "b").key == items[1].varied(other, "fresh", "b").key) is same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64])
def test_inputs_are_told_from_others_by_their_bits(dtype):
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).to(dtype)
    others = [x.flip(0), x.flatten(), x.view(torch.uint8) if dtype.itemsize == 1 else x.to(torch.float16), None, 1.0]
    marks = {mark_of({"x": each}) for each in [x, *others]} | {mark_of({"y": x}), mark_of({"x": x, "y": x})}
    assert len(marks) == 8
    assert mark_of({"x": x.t().clone().t()}) == mark_of({"x": x}) == mark_of({"x": x.clone()})
    assert mark_of({"x": x[0, 0]}) != mark_of({"x": x[:1, 0]})


def test_bytes_that_a_card_adds_up_are_told_from_others(monkeypatch):
    monkeypatch.setattr("pytest_flashinfer.cases.cache._AT_ONCE", 3)
    found = {tuple(sums(torch.tensor(each, dtype=torch.uint8)).tolist()) for each in product((0, 1), repeat=7)}
    assert len(found) == 2**7
    assert sums(torch.zeros(0, dtype=torch.uint8)).tolist() == [0]


@pytest.mark.parametrize(
    "error",
    [
        Unsatisfiable("n > 3", "no"),
        ReferenceFailed("no"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
        CudaError(2, "out of memory"),
    ],
)
def test_errors_that_others_tell_of_stay_what_they_are(error):
    def fails(*_):
        raise error

    for call in (lambda: given(fails), lambda: OverriddenCompare(fails, Facts(), HERE)(Call(), None)):
        with pytest.raises(type(error)) as raised:
            call()
        assert raised.value is error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("out of memory"),
        RuntimeError("the host is out of memory"),
        RuntimeError("no CUDA kernel here: out of memory ids"),
        ValueError("CUDA error: out of memory"),
        CudaError(700, "an illegal access, and out of memory"),
    ],
)
def test_nobody_else_tells_of_the_memory_of_the_host(error):
    def fails(*_):
        raise error  # here

    said = f"test_overrides.py:{line_of(fails, 'here')}: {type(error).__name__}: {error}"
    with pytest.raises(InputsError, match=f"^{re.escape(said)}$"):
        given(fails)
    judged, counted = OverriddenCompare(fails, Facts(), HERE), OverriddenFlops(fails, HERE)
    for call in (lambda: judged(Call(), None), lambda: counted("a case")):
        with pytest.raises(Failed) as raised:
            call()
        assert (raised.value.verdict.status, raised.value.verdict.summary) == ("INVALID_REFERENCE", said)


@pytest.mark.parametrize("way", WAYS)
def test_an_assertion_is_a_verdict_on_the_values(way):
    def compare(_call, truth):
        if way == "assert":
            assert truth == 1, "another order"
        elif way == "raise":
            raise AssertionError("another order")
        pytest.fail("another order")

    facts = Facts(max_abs=1.0, bound_share=0.5)
    with pytest.raises(Failed) as raised:
        OverriddenCompare(compare, facts, HERE)(Call(), 2)
    first, *others = Failed(raised.value.verdict).text().splitlines()
    assert first == "INCORRECT_NUMERICAL: another order"
    assert others[-1].startswith(f"  at test_overrides.py:{line_of(compare, way + WAYS[way])} in compare: ")
    assert raised.value.case is Call.case
    assert facts == {"status": "INCORRECT_NUMERICAL"}


def test_long_assertions_are_cut_and_those_without_words_have_a_place():
    def compare(_call, truth):
        raise AssertionError(truth)

    for truth, first in (("\n".join(["x" * 5000] * 500), "x" * 200), ("", "`compare` fails")):
        with pytest.raises(Failed) as raised:
            OverriddenCompare(compare, Facts(), HERE)(Call(), truth)
        assert raised.value.verdict.summary == first
        assert len(raised.value.verdict.details) < 3000
        assert "at test_overrides.py:" in raised.value.verdict.details


def test_another_error_of_compare_is_not_blamed_on_the_solution():
    def compare(call, _truth):
        return call.outputs  # here

    with pytest.raises(Failed) as raised:
        OverriddenCompare(compare, Facts(), HERE)(Call(), None)
    assert raised.value.verdict.status == "INVALID_REFERENCE"
    assert raised.value.verdict.summary.startswith(f"test_overrides.py:{line_of(compare, 'here')}: AttributeError: ")


def test_what_torch_asserts_for_itself_is_not_blamed_on_the_solution():
    def compare(_call, asserts):
        asserts()  # here

    for module in ("torch.cuda", "numpy.linalg._linalg", "triton.runtime.jit"):
        text = "def asserts(): raise AssertionError('not compiled with CUDA enabled')"
        exec(compile(text, "a file", "exec"), names := {"__name__": module})
        with pytest.raises(Failed) as raised:
            OverriddenCompare(compare, Facts(), HERE)(Call(), names["asserts"])
        said = f"test_overrides.py:{line_of(compare, 'here')}: AssertionError: not compiled with CUDA enabled"
        assert (raised.value.verdict.status, raised.value.verdict.summary) == ("INVALID_REFERENCE", said)


def close(*_):
    torch.testing.assert_close(torch.zeros(2), torch.ones(2))


def numpy_close(*_):
    np.testing.assert_allclose([0.0], [1.0])


def all_true(*_):
    torch._assert(torch.zeros(1).bool(), "no")


@pytest.mark.parametrize("compare", [close, numpy_close, all_true])
def test_functions_that_are_there_to_assert_do_so_of_values(compare):
    with pytest.raises(Failed) as raised:
        OverriddenCompare(compare, Facts(), HERE)(Call(), None)
    assert raised.value.verdict.status == "INCORRECT_NUMERICAL"


@pytest.mark.parametrize(
    "outcome", [Failed(Verdict("INCORRECT_SHAPE", "no")), pytest.xfail.Exception("known"), pytest.skip.Exception("no")]
)
def test_a_verdict_or_an_outcome_that_an_override_passes_on_stays(outcome):
    def compare(*_):
        raise outcome

    with pytest.raises(type(outcome)) as raised:
        OverriddenCompare(compare, Facts(), HERE)(Call(), None)
    assert raised.value is outcome


ZERO = Truth({"y": OutputTruth("y", "float32", torch.zeros(4))})
ONES = Truth({"y": OutputTruth("y", "float32", torch.ones(4))})


def test_what_an_override_accepts_has_passed():
    facts = Facts(status="INCORRECT_NUMERICAL")  # of the usual `compare`, whose verdict it did not follow
    OverriddenCompare(lambda *_: None, facts, HERE)(Call(), ZERO)
    assert facts == {"status": "PASSED"}


@pytest.mark.parametrize("given", [False, True, 0, torch.zeros(1).bool(), iter(()), "wrong"])
def test_an_override_of_compare_that_returns_something_decides_nothing(given):
    def compare(_call, _truth):
        return given

    kind = type(given).__name__
    said = (
        f"test_overrides.py:{line_of(compare, 'def compare')}: `compare` returns {kind}, which decides nothing:"
        " `assert` what has to hold, and return nothing"
    )
    facts = Facts(max_abs=1.0)
    with pytest.raises(Failed) as raised:
        OverriddenCompare(compare, facts, HERE)(Call(), ZERO)
    assert raised.value.verdict == Verdict("INVALID_REFERENCE", said)
    assert facts == {"status": "INVALID_REFERENCE"}
    listed = SimpleNamespace(**vars(Call.case) | {"workload": workload(2)})
    with pytest.raises(Failed) as raised:
        OverriddenCompare(compare, facts, HERE).check_reference(listed, ONES)
    assert raised.value.verdict == Verdict("INVALID_REFERENCE", said)


def signs(call, truth):
    assert ((call.outputs["y"] > 0) == (truth.outputs["y"].native > 0)).all()


def shapes(call, truth):
    assert call.outputs["y"].shape == truth.outputs["y"].native.shape


def divides(call, truth):
    assert all(int(truth.outputs["y"].native[0]) // int(each) == 1 for each in call.outputs["y"])


def skips(call, _truth):
    if not call.outputs["y"].any():
        pytest.skip("nothing to see")


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("compare", "truth", "refused"), [
    (signs, ONES, False), (divides, ONES, False), (skips, ONES, False), (shapes, ONES, True), (shapes, ZERO, False),
    (shapes, Truth({"y": replace(ONES.outputs["y"], how=SAMPLED)}), False),
])  # fmt: skip
def test_an_override_that_lets_zeros_pass_is_refused(compare, truth, refused, listed):
    case = SimpleNamespace(**vars(Call.case) | {"workload": workload(2) if listed else None})
    call, facts, probed = SimpleNamespace(case=case, outputs={"y": torch.ones(4)}, result=None), Facts(max_abs=1.0), {}
    judge, again = (OverriddenCompare(compare, facts, HERE, compare, probed) for _ in range(2))
    checks = lambda: again.check_reference(case, truth)  # noqa: E731
    acts = {"call": lambda: judge(call, truth), "reference": checks, "finish": judge.finish}
    fail = (("call", "reference") if listed else ("finish",)) if refused else ()
    for name, act in acts.items():
        if name not in fail:
            act()
            continue
        with pytest.raises(Failed) as raised:
            act()
        assert raised.value.case is case
        place = f"test_overrides.py:{line_of(compare, 'def')}"
        said = f"{place}: `compare` proves nothing: zeros would pass; have it assert more"
        assert raised.value.verdict == Verdict("INVALID_REFERENCE", said)
    assert refused or facts == {"max_abs": 1.0, "status": "PASSED"}


def test_one_drawn_case_that_tells_zeros_is_enough():
    """Whoever leaves some cases out, or has some that are zero, is not refused; nor is a bound that was borrowed."""

    def compare(call, truth):
        if call.case.name != "left out":
            signs(call, truth)

    lent = replace(ONES, in_full=lambda: ONES)
    for names, truth, lacking in ((["left out"], ONES, True), (["left out", "told"], ONES, False), (
        ["left out"], lent, False
    )):  # fmt: skip
        judge = OverriddenCompare(compare, Facts(), HERE, compare)
        for name in names:
            case = SimpleNamespace(**vars(Call.case) | {"name": name})
            judge(SimpleNamespace(case=case, outputs={"y": torch.ones(4)}, result=None), truth)
        assert (judge.proof.lacking_of_all() is not None) is lacking


def test_an_error_of_flops_names_its_line():
    def flops(case):
        return case["m"]  # here

    assert OverriddenFlops(flops, HERE)({"m": 3.0}) == 3
    with pytest.raises(Failed) as raised:
        OverriddenFlops(flops, HERE)({})
    said = f"test_overrides.py:{line_of(flops, 'here')}: KeyError: 'm'"
    assert (raised.value.verdict.status, raised.value.verdict.summary) == ("INVALID_REFERENCE", said)


@pytest.mark.parametrize("given", [3, torch.tensor(3), np.int64(3), None])
def test_what_flops_gives_is_a_number_or_nothing(given):
    assert OverriddenFlops(lambda _case: given, HERE)({}) == (None if given is None else 3)


@pytest.mark.parametrize("given", ["many", [3], torch.ones(2)])
def test_flops_that_gives_no_number_is_told_where_it_begins(given):
    def flops(_case):
        return given

    with pytest.raises(Failed, match=rf"^test_overrides.py:{line_of(flops, 'def flops')}: ") as raised:
        OverriddenFlops(flops, HERE)({})
    assert raised.value.verdict.status == "INVALID_REFERENCE"


@pytest.mark.parametrize("given", [None, 3, {"x": 1}])
def test_a_fixture_that_returns_no_function_is_told_where_it_begins(given):
    def fixture():
        return given

    line = line_of(fixture, "def fixture")
    said = "test_overrides.py:{}: fixture {} returns {!r}, not a function of {}"
    with pytest.raises(InputsError) as raised:
        OverriddenInputs(given, DEFINITION, HERE, fixture)({"n": 2, "h": 4}, Recipe(1))
    assert str(raised.value) == said.format(line, "inputs", given, "axes, recipe and workload")
    with pytest.raises(Failed) as raised:
        OverriddenCompare(given, Facts(), HERE, fixture)(Call(), None)
    assert raised.value.verdict == Verdict("INVALID_REFERENCE", said.format(line, "compare", given, "call and truth"))
    with pytest.raises(Failed) as raised:
        OverriddenFlops(given, HERE, fixture)("a case")
    assert raised.value.verdict == Verdict("INVALID_REFERENCE", said.format(line, "flops", given, "a case"))


def test_what_an_override_makes_in_c_is_told_where_its_fixture_begins():
    def fixture():
        return max

    with pytest.raises(InputsError, match=rf"^test_overrides.py:{line_of(fixture, 'def fixture')}: TypeError: "):
        OverriddenInputs(max, DEFINITION, HERE, fixture)({"n": 2, "h": 4}, Recipe(1))


def item_of(**fixtures):
    made = {name: [SimpleNamespace(func=function) for function in found] for name, found in fixtures.items()}
    config = SimpleNamespace(invocation_params=SimpleNamespace(dir=HERE))
    return SimpleNamespace(_fixtureinfo=SimpleNamespace(name2fixturedefs=made), config=config)


def raised_by(function):
    try:
        return function()
    except (KeyError, TypeError) as error:
        return error


def test_what_the_body_of_a_fixture_ends_with_is_told_at_its_line():
    def outer():
        return inner()

    def inner():
        return helper()  # here

    def helper():
        return {}["gat"]  # and there

    def misspelt():
        return Tolerance(abs_tol=1)  # too

    def others():
        return 1 / 0

    item = item_of(inputs=[others, outer], compare=[inner], tolerance=[misspelt])
    place = f"test_overrides.py:{line_of(helper, 'there')}"
    assert raised_in_fixture(item, raised_by(outer)) == f"{place}: fixture compare: KeyError: 'gat'", (
        "the innermost of both"
    )
    said = f"test_overrides.py:{line_of(misspelt, 'too')}: fixture tolerance: TypeError: "
    assert raised_in_fixture(item, raised_by(misspelt)).startswith(said)
    assert "'abs_tol'; there are rtol, atol, scale, " in raised_in_fixture(item, raised_by(misspelt))
    assert raised_in_fixture(item, raised_by(helper)) is None
