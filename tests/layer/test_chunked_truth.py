"""Large listed cases: their truth is looked at for some rows after the other, and says what the whole would say."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pytest_flashinfer.data.model import Axis, Definition, TensorSpec, Workload
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.oracle import handler, rowwise
from pytest_flashinfer.judge.oracle.answer_requests import OracleError
from pytest_flashinfer.judge.oracle.answers import Answers
from pytest_flashinfer.judge.oracle.bound_reuse import joined, reusable_bound, row_bounds, with_bound
from pytest_flashinfer.judge.oracle.truth import OutputTruth
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.judge.tolerance import Tolerance
from pytest_flashinfer.judging import Compare
from pytest_flashinfer.outputs.properties import Record
from pytest_flashinfer.solution_call import Call, Failed
from pytest_flashinfer.worker.card_sharing import Turns
from pytest_flashinfer.worker.case import Case
from pytest_flashinfer.worker.memory import Memory
from pytest_flashinfer.worker.pending import Begun

M, N, K, STEP = 100, 16, 24, 30
AXES = {"m": Axis("var"), "n": Axis("const", N), "k": Axis("const", K)}
A, B = TensorSpec(("m", "k"), "float16"), TensorSpec(("n", "k"), "float16")
C, D, S = TensorSpec(("m", "n"), "float16"), TensorSpec(("m", "k"), "float32"), TensorSpec(("m",), "float32")
GEMM = "import torch\ndef run(a, b):\n    return torch.matmul(a, b.T)\n"
TWO = "import torch\ndef run(a, b):\n    return torch.matmul(a, b.T), a.float() * 3\n"
SUMS = "import torch\ndef run(a, b):\n    return torch.matmul(a, b.T), a.float().sum(-1)\n"
CENTRED = (
    "import torch\ndef run(a, b):\n    c = torch.matmul(a.float(), b.float().T)\n    return (c - c.mean(0)).half()\n"
)
LATE = (
    "import torch\ndef run(a, b):\n    c = torch.matmul(a, b.T)\n"
    "    return c if a.shape[0] < 100 else torch.cat([c[:60], c[60:] * 1.5])\n"
)
ROUNDED = "import torch\ndef run(a, b):\n    return torch.matmul((a * 3).round().half(), b.T)\n"
WHOLE = "import torch\ndef run(a, b):\n    return torch.matmul(a, b.T), (a.float() * 50).to(torch.int32)\n"
EIGHT = (
    "import torch\ndef run(a, b):\n    c = torch.matmul(a.float(), b.float().T)\n    s = c.abs().amax(-1) / 448\n"
    "    return (c / s[:, None]).to(torch.{}), s\n"
)
Q = TensorSpec(("m", "k"), "int32")
KINDS = {
    "gemm": (GEMM, {"c": C}),
    "two": (TWO, {"c": C, "d": D}),
    "sums": (SUMS, {"c": C, "s": S}),
    "rows that depend on others": (CENTRED, {"c": C}),
    "rows that depend on others, further down": (LATE, {"c": C}),
    "undecided": (ROUNDED, {"c": C}),
    "integers": (WHOLE, {"c": C, "q": Q}),
    **{
        dtype: (EIGHT.format(dtype), {"c": TensorSpec(("m", "n"), dtype), "s": S})
        for dtype in ("float8_e4m3fn", "float8_e5m2", "bfloat16")
    },
}


class InProcess:
    """A worker that is no process: what it maps and answers is real."""

    alive = True

    def __init__(self):
        self.memory, self.kernel, self.asked = Memory(), None, []

    def fit(self, arena, nbytes, front=0):
        if arena.reserve(nbytes, front):
            message, fds = arena.export()
            self.memory.map(message, [os.dup(fd) for fd in fds])

    def let_go(self, arena):
        self.memory.unmap()

    def build(self, request, folder, timeout):
        self.kernel = handler.build(request, folder, "cpu")

    def call(self, request, timeout):
        self.asked.append((request.get("do", "evaluate"), tuple(request.get("part", ()))))
        try:
            return handler.call(self.kernel, request, self.memory)
        except OracleError as error:
            from pytest_flashinfer.worker.errors import CallFailed

            raise CallFailed(error.kind, error.message) from error

    def begin(self, request, timeout):
        return Begun(lambda: self.call(request, timeout))

    def finish(self):
        pass

    def close(self):
        pass


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(rowwise, "MANY", 100)
    monkeypatch.setattr(rowwise, "AT_ONCE", STEP * (N + K))


def asking(kind, keep=0):
    """Return answers about a definition and the worker that they ask; with `keep` they have every truth as a whole."""
    source, outputs = KINDS[kind]
    worker = InProcess()
    pool = SimpleNamespace(device="cpu", worker=lambda handler: worker, turns=Turns("cpu"))
    made = Answers(pool, Definition("d", "op", AXES, {"a": A, "b": B}, outputs, source), timeout=1.0, keep=keep)
    return made, worker


def case_of(definition, seed=0, m=M, **more):
    g = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(size, K, generator=g).half() for size in (m, N))
    sizes = {"m": m, "n": N, "k": K}
    shapes = {name: tuple(sizes[axis] for axis in spec.shape) for name, spec in definition.outputs.items()}
    workload = Workload("w", {"m": m}, {})
    return Case(definition, sizes, Recipe(seed), {"a": a, "b": b}, shapes, workload=workload, **more)


def right(case):
    module = {}
    exec(case.definition.reference, module)
    found = module["run"](**case.values)
    values = found if isinstance(found, tuple) else (found,)
    return {name: value.clone() for name, value in zip(case.definition.outputs, values, strict=True)}


def judged(answers, case, outputs, tolerance=Tolerance()):  # noqa: B008 - frozen
    """Return the verdict, why the item failed, and the item's facts."""
    result = SimpleNamespace(outputs=outputs, violations=(), unwritten={}, log="")
    item = SimpleNamespace(user_properties=[])
    compare = Compare(tolerance, Record(item))
    call = Call(case, result)
    verdict = compare.verdict(call, answers.answer(case))
    try:
        compare(call, answers.answer(case))
    except Failed as error:
        return verdict, error.text(), item.user_properties
    return verdict, "", item.user_properties


def late_element(outputs):
    outputs["c"][-1, 3] = (-outputs["c"][-1, 3].float() - 1).to(outputs["c"].dtype)


def not_a_number(outputs):
    outputs["c"][70, 2] = float("nan")


def too_few_rows(outputs):
    outputs["c"] = outputs["c"][:-1]


def too_many_rows(outputs):
    outputs["c"] = torch.cat([outputs["c"], outputs["c"][:1]])


def other_dtype(outputs):
    outputs["c"] = outputs["c"].float()


def nothing(outputs):
    pass


CHANGES = [late_element, not_a_number, too_few_rows, too_many_rows, other_dtype, nothing]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_verdict_and_message_are_those_of_the_whole(kind, change):
    found = []
    for keep in (0, 1 << 40):
        answers, _ = asking(kind, keep)
        case = case_of(answers.definition)
        outputs = right(case)
        change(outputs)
        found.append(judged(answers, case, outputs))
    assert found[0] == found[1]
    assert found[0][0].passed is (change is nothing)


@pytest.mark.parametrize(
    "words",
    ["required_matched_ratio=0.9", "cosine=0.99", "rtol=1e9", "atol=1e-3 rtol=1e-2", "scale=2", "equal_nan=true"],
)
def test_tolerances_mean_the_same_for_rows_and_for_the_whole(words):
    from pytest_flashinfer.judge.tolerance import parse

    found = []
    for keep in (0, 1 << 40):
        answers, _ = asking("gemm", keep)
        case = case_of(answers.definition)
        case.values["a"][3, 3] = float("inf") if "nan" in words else 1.0
        outputs = right(case)
        outputs["c"][::30, 0] += 0.004
        found.append(judged(answers, case, outputs, parse(words)))
    assert found[0] == found[1]
    assert ("proves nothing" in found[0][1]) is (words == "rtol=1e9")


@pytest.mark.parametrize(
    ("words", "passed"),
    [("q:atol=2", True), ("q:atol=1", False), ("q:atol=2 q:max_error_cap=1", False), ("q:atol=500", True), ("", False)],
)
def test_limits_of_integers_mean_the_same_for_rows_and_for_the_whole(words, passed):
    from pytest_flashinfer.judge.tolerance import parse

    found = []
    for keep in (0, 1 << 40):
        answers, _ = asking("integers", keep)
        case = case_of(answers.definition)
        outputs = right(case)
        outputs["q"][::30, 0] += 2
        found.append(judged(answers, case, outputs, parse(words)))
    assert found[0] == found[1]
    assert found[0][0].passed is passed
    assert ("proves nothing" in found[0][1]) is ("500" in words)


def parts_of(worker):
    return [part for errand, part in worker.asked if errand == "rows"]


def test_what_passes_is_never_asked_for_as_a_whole():
    answers, worker = asking("two")
    case = case_of(answers.definition)
    result = judged(answers, case, right(case))
    assert result[0].passed
    assert {errand for errand, _ in worker.asked} == {"rows"}
    parts = list(dict.fromkeys(parts_of(worker)))
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == M
    assert len(parts) > 3
    assert worker.kernel.rows is None, "the native run is let go of with the last rows"
    assert not answers.kept.get((case.key, "working", False, False))


def test_the_reference_runs_once_natively_for_all_rows(monkeypatch):
    runs = []
    monkeypatch.setattr(rowwise.Rows, "__init__", spied(rowwise.Rows.__init__, runs))
    answers, worker = asking("gemm")
    case = case_of(answers.definition)
    truth = answers.answer(case)
    assert len(parts_of(worker)) == 1
    assert len(list(truth.parts)) == 4
    assert len(runs) == 1
    truth = answers.answer(case)
    answers.answer(case_of(answers.definition, seed=1))
    assert all(found is not None for _, found in truth.parts), "though another case was asked about meanwhile"


def spied(function, calls):
    def spy(*arguments, **named):
        calls.append(arguments)
        return function(*arguments, **named)

    return spy


@pytest.mark.parametrize("what", ["small", "drawn"])
def test_other_cases_are_found_as_a_whole(what):
    answers, worker = asking("gemm")
    case = case_of(answers.definition, m=6 if what == "small" else M)
    answers.answer(case if what == "small" else replace(case, workload=None))
    assert {errand for errand, _ in worker.asked} == {"evaluate"}


def test_whoever_looks_at_the_outputs_has_the_whole():
    """As an override of `compare` does."""
    answers, worker = asking("gemm")
    whole, _ = asking("gemm", 1 << 40)
    case = case_of(answers.definition)
    found, other = answers.answer(case), whole.answer(case)
    assert list(found.outputs) == ["c"]
    assert len(found.outputs) == 1
    assert torch.equal(found.outputs["c"].wide, other.outputs["c"].wide)
    assert torch.equal(found.outputs["c"].allowance, other.outputs["c"].allowance)
    assert [errand for errand, _ in worker.asked] == ["rows", "evaluate"]
    assert found.nan_inputs is other.nan_inputs is False


def test_a_case_whose_rows_depend_on_others_is_asked_for_once():
    answers, worker = asking("rows that depend on others")
    case = case_of(answers.definition)
    assert answers.answer(case) is answers.answer(case)
    assert [errand for errand, _ in worker.asked] == ["rows", "evaluate"]


def test_a_reference_that_fails_is_said_to():
    answers, _ = asking("gemm")
    case = case_of(answers.definition)
    case = replace(case, values={**case.values, "b": torch.ones(N, K + 1).half()})
    for _ in range(2):
        with pytest.raises(ReferenceFailed, match="RuntimeError"):
            answers.answer(case)


@pytest.mark.parametrize("kind", ["gemm", "two", "sums", "rows that depend on others, further down"])
def test_a_lent_bound_is_that_of_the_whole(kind):
    found = []
    for keep in (0, 1 << 40):
        answers, worker = asking(kind, keep)
        known = case_of(answers.definition)
        borrower = case_of(answers.definition, seed=1, variant="other", bound_of=known)
        truth = answers.answer(borrower)
        assert (truth.parts is not None) is (keep == 0 and kind != "sums")
        if kind in ("gemm", "two"):
            assert {errand for errand, _ in worker.asked} == {"evaluate" if keep else "rows"}
        parts = [each for _, each in truth.parts] if truth.parts else [truth]
        found.append({name: [each.outputs[name].allowance.clone() for each in parts] for name in truth.outputs})
        outputs = right(borrower)
        assert judged(answers, borrower, outputs)[0].passed
        late_element(outputs)
        assert not judged(answers, borrower, outputs)[0].passed
    for name in found[0]:
        assert torch.allclose(torch.cat(found[0][name]), torch.cat(found[1][name]), rtol=1e-6, atol=0.0)
        assert torch.equal(torch.cat(found[0][name]), torch.cat(found[1][name])) or kind == "sums"


@pytest.mark.parametrize("shape", [(40, 6), (40, 1), (40,), (40, 3, 5), (40, 3, 1)])
def test_terms_of_parts_are_those_of_the_whole(shape):
    native = torch.randn(shape) * torch.logspace(-3, 3, 40).view(40, *[1] * (len(shape) - 1))
    native[7], native[8] = 0, float("inf")
    undecided = torch.rand(shape) < 0.1
    allowance = (torch.rand(shape) * 1e-3).double()

    def part(rows):
        return OutputTruth("y", "float32", native[rows], None, allowance[rows], undecided[rows])

    whole = reusable_bound(part(slice(0, 40)))
    found = joined([row_bounds(part(slice(start, start + 8))) for start in range(0, 40, 8)])
    assert whole.largest == found.largest
    assert found.usual == pytest.approx(whole.usual, rel=1e-12)


def test_of_an_output_without_values_the_largest_bound_alone_is_used_again():
    silent, loud = torch.zeros(4, 6), torch.ones(4, 6)
    allowance = torch.arange(24.0).view(4, 6)
    known = reusable_bound(OutputTruth("y", "float32", silent, None, allowance))
    found = with_bound(OutputTruth("y", "float32", loud), known)
    assert found.allowance.unique().tolist() == pytest.approx([4 * 23.0])


class Held(TorchDispatchMode):
    """Adds up what the tensors hold that were made meanwhile and are still there; arenas do not count."""

    def __init__(self):
        super().__init__()
        self.now, self.peak, self.known = 0, 0, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and type(tensor) is torch.Tensor:
                storage = tensor.untyped_storage()
                if storage.data_ptr() in self.known or any(
                    storage.data_ptr() == each.untyped_storage().data_ptr()
                    for each in tree_leaves((args, kwargs))
                    if type(each) is torch.Tensor
                ):
                    continue
                self.note(tensor, storage.data_ptr(), storage.nbytes())
        return made

    def note(self, tensor, at, nbytes):
        self.known[at] = nbytes
        self.now += nbytes
        self.peak = max(self.peak, self.now)
        weakref.finalize(tensor, self.gone, at)

    def gone(self, at):
        self.now -= self.known.pop(at, 0)


def peak(keep, m):
    answers, _ = asking("gemm", keep)
    case = case_of(answers.definition, m=m)
    outputs = right(case)
    with Held() as held:
        assert judged(answers, case, outputs)[0].passed
    arena = answers._process.running.arena.nbytes
    return held.peak, arena, outputs["c"].nbytes


def test_what_is_held_does_not_grow_with_the_output(monkeypatch):
    """Beside the solution's own output: the reference's native one, in its own process, and a few rows."""
    monkeypatch.setattr(rowwise, "AT_ONCE", 1000 * (N + K))
    few, many = (peak(0, m) for m in (5_000, 20_000))
    grown = many[2] - few[2]
    assert many[0] - few[0] < 1.1 * grown + 16 * 15_000, "the reference's output, and two numbers of each row"
    assert many[1] - few[1] <= 1 << 21, "the inputs"
    whole = [peak(1 << 40, m) for m in (5_000, 20_000)]
    assert whole[1][0] - whole[0][0] > 4 * grown
    assert whole[1][1] > many[1] + 4 * grown - (1 << 21), "and as much in the arena"
