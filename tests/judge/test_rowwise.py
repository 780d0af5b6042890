"""Large outputs: the truth found for some rows after the other is the truth about the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle import answer_requests, handler, rowwise
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.protocol import PARTS
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, Truth
from tests.judge.test_oracle import Memory

if TYPE_CHECKING:
    from pathlib import Path

ROWS, INNER, COLUMNS = 100, 24, 16
DTYPES = {"c": "float16", "s": "float32"}
SHAPES = {"c": (ROWS, COLUMNS), "s": (ROWS,)}
GEMM = "import torch\ndef run(a, b):\n    return torch.matmul(a, b.T)\n"
CENTRED = """
import torch
def run(a, b):
    c = torch.matmul(a.float(), b.float().T)
    return (c - c.mean(0)).half()
"""
LITTLE = """
import torch
def run(a, b):
    return (torch.matmul(a.float(), b.float().T) * (1 + 5e-6 * a.shape[0])).half()
"""
MASKED = """
import torch
def run(a, b):
    c = torch.matmul(a, b.T)
    rows, columns = torch.arange(c.shape[0]), torch.arange(c.shape[1])
    return c.masked_fill(columns > rows[:, None], -float("inf"))
"""
NORM = """
import torch
def run(a, b):
    a = a.float()
    c = a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-6)
    return torch.matmul(c, b.float().T).half(), a.sum(-1)
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise, "MANY", 100)
    monkeypatch.setattr(rowwise, "AT_ONCE", 30 * (INNER + COLUMNS))


def asked(source: str, folder: Path, a: torch.Tensor, b: torch.Tensor, names: tuple[str, ...]) -> tuple[Any, Truth]:
    """Ask the handler; returns its reply and what it wrote."""
    built = handler.build({"reference": source}, folder, "cpu")
    memory = Memory()
    held: dict[str, dict[str, torch.Tensor]] = {}
    requests = []
    for name in names:
        held[name] = {
            "native": torch.zeros(SHAPES[name], dtype=getattr(torch, DTYPES[name])),
            "wide": torch.full(SHAPES[name], 7.0, dtype=torch.float64),
            "allowance": torch.full(SHAPES[name], 7.0, dtype=torch.float64),
            "undecided": torch.ones(SHAPES[name], dtype=torch.bool),
        }
        slots = {part: memory.slot(held[name][part]) if part in held[name] else None for part in PARTS}
        shape = list(SHAPES[name])
        requests.append(
            {"name": name, "dtype": DTYPES[name], "shape": shape, "optional": False, "param": None, **slots}
        )
    inputs = [{"name": "a", "slot": memory.slot(a)}, {"name": "b", "slot": memory.slot(b)}]
    request = {"inputs": inputs, "outputs": requests, "seed": 3, "operands": "working", "budget": None, "rows": ["a"]}
    reply = handler.call(built, request, memory)
    outputs = {}
    for facts in reply["outputs"]:
        parts = {part: held[facts["name"]][part] for part in ("native", "wide", "allowance", "undecided")}
        there = {part: value for part, value in parts.items() if part == "native" or facts[part]}
        outputs[facts["name"]] = OutputTruth(facts["name"], DTYPES[facts["name"]], **there)
    return reply, Truth(outputs)


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the first input that was evaluated."""
    shapes = []

    def spy(function: Any, inputs: Any, specs: Any, **options: Any) -> Truth:
        shapes.append(tuple(inputs["a"].shape))
        return evaluate(function, inputs, specs, **options)

    monkeypatch.setattr(answer_requests, "evaluate", spy)
    return shapes


@pytest.mark.parametrize(("source", "names"), [(GEMM, ("c",)), (NORM, ("c", "s"))])
def test_the_truth_of_parts_is_that_of_the_whole(
    tmp_path: Path, evaluated: list[tuple[int, ...]], source: str, names: tuple[str, ...]
) -> None:
    a, b = torch.randn(ROWS, INNER).half(), torch.randn(COLUMNS, INNER).half()
    reply, truth = asked(source, tmp_path, a, b, names)
    alone = evaluated.pop(1)
    assert alone == (8, INNER)
    assert len(evaluated) == 4
    assert sum(shape[0] for shape in evaluated) == ROWS
    assert reply["how"] == "lifted"
    specs = {name: OutputSpec(DTYPES[name], SHAPES[name]) for name in names}
    module: dict[str, Any] = {}
    exec(source, module)
    whole = evaluate(module["run"], {"a": a, "b": b}, specs, seed=3)
    for name in names:
        found, other = truth.outputs[name], whole.outputs[name]
        assert torch.equal(found.native, other.native)
        assert torch.allclose(found.wide, other.wide, rtol=1e-12, atol=1e-12)
        assert float((found.allowance / other.allowance).log2().abs().max()) < 1.5
        assert compare(found.native, found).ok
        wrong = found.native.clone()
        wrong[-1] += 1
        assert not compare(wrong, found).ok


@pytest.mark.parametrize("source", [CENTRED, GEMM.replace("a, b.T", "a / a.abs().max(), b.T")])
def test_rows_that_depend_on_each_other_are_found_at_once(
    tmp_path: Path, evaluated: list[tuple[int, ...]], source: str
) -> None:
    a, b = torch.randn(ROWS, INNER).half(), torch.randn(COLUMNS, INNER).half()
    a[-1] *= 3
    _, truth = asked(source, tmp_path, a, b, ("c",))
    assert evaluated[-1] == (ROWS, INNER)
    assert len(evaluated) > 1
    assert compare(truth.outputs["c"].native, truth.outputs["c"]).ok
    assert float((truth.outputs["c"].wide - truth.outputs["c"].native).abs().max()) < 0.05


@pytest.mark.parametrize("source", [LITTLE, MASKED], ids=["less than roundings", "infinite elsewhere"])
def test_rows_that_depend_on_others_within_the_bound_are_found_at_once(
    tmp_path: Path, evaluated: list[tuple[int, ...]], source: str
) -> None:
    a, b = torch.randn(ROWS, INNER).half(), torch.randn(COLUMNS, INNER).half()
    _, truth = asked(source, tmp_path, a, b, ("c",))
    assert evaluated[-1] == (ROWS, INNER)
    found = truth.outputs["c"]
    assert found.undecided is None
    assert compare(found.native, found).ok
    wrong = found.native.clone()
    wrong[40:44] *= 1 - 2**-9
    assert not compare(wrong, found).ok


def test_what_is_small_is_found_at_once(
    tmp_path: Path, evaluated: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rowwise, "MANY", ROWS * COLUMNS)
    asked(GEMM, tmp_path, torch.randn(ROWS, INNER).half(), torch.randn(COLUMNS, INNER).half(), ("c",))
    assert evaluated == [(ROWS, INNER)]


def test_only_the_whole_tells_where_the_reference_overflows(tmp_path: Path, evaluated: list[tuple[int, ...]]) -> None:
    a, b = torch.randn(ROWS, INNER).half(), torch.randn(COLUMNS, INNER).half()
    a[70] = 6e4  # overflows in float16, not in float64
    source = GEMM.replace("a, b.T)", "(a + a) / 1000, b.T)")
    reply, truth = asked(source, tmp_path, a, b.abs(), ("c",))
    assert evaluated[-1] == (ROWS, INNER)
    assert reply["outputs"][0]["undecided"]
    assert truth.outputs["c"].undecided.any(dim=1).nonzero().flatten().tolist() == [70]


AXES = {"m": Axis("var"), "n": Axis("const", 4), "k": Axis("const", 3)}


def definition(inputs: dict[str, TensorSpec], outputs: dict[str, TensorSpec]) -> Definition:
    return Definition("d", "op", AXES, inputs, outputs, "")


A, B, C = TensorSpec(("m", "k"), "float16"), TensorSpec(("n", "k"), "float16"), TensorSpec(("m", "n"), "float16")


@pytest.mark.parametrize(
    ("inputs", "outputs", "names"),
    [
        ({"a": A, "b": B}, {"c": C}, ("a",)),
        ({"a": A, "r": A, "eps": TensorSpec(None, "float32")}, {"c": C, "d": A}, ("a", "r")),
        ({"a": A, "ids": TensorSpec(("m",), "int32")}, {"c": C}, ()),
        ({"a": A, "b": B}, {"c": C, "ids": TensorSpec(("m",), "int64")}, ()),
        ({"a": A, "b": TensorSpec(("k", "m"), "float16")}, {"c": C}, ()),
        ({"a": A}, {"c": TensorSpec(("m", "m"), "float16")}, ()),
        ({"b": B}, {"c": TensorSpec(("n", "k"), "float16")}, ()),
        ({"a": A}, {"c": C, "s": TensorSpec(None, "float32")}, ()),
        ({"a": A}, {"c": C, "s": TensorSpec((), "float32")}, ()),
    ],
    ids=["gemm", "norm", "indices", "integers", "other axis", "twice", "constant", "scalar", "0-d"],
)
def test_which_inputs_may_be_cut(
    inputs: dict[str, TensorSpec], outputs: dict[str, TensorSpec], names: tuple[str, ...]
) -> None:
    assert rowwise.leading(definition(inputs, outputs)) == names


def test_an_axis_of_no_input_cuts_nothing() -> None:
    made = definition({"b": B}, {"c": C})
    assert rowwise.leading(made) == ()
    assert rowwise.leading(replace(made, inputs={"a": A})) == ("a",)
