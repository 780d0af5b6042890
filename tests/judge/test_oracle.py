"""The handler in the reference's worker: builds, evaluates, writes into the arena what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.judge.oracle import handler
from pytest_flashinfer.judge.oracle.answer_requests import OracleError, with_room
from pytest_flashinfer.judge.oracle.protocol import PARTS
from pytest_flashinfer.judge.reference.call import InvalidReferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOURCE = "import torch\n\ndef run(x, scale, mask):\n    y = x.float() * scale\n    return y.to(x.dtype), y.argmax(-1)\n"


class Memory:
    """Slots that are tensors."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}

    def slot(self, tensor: torch.Tensor) -> dict[str, Any]:
        at = len(self.tensors)
        self.tensors[at] = tensor
        return {"at": at, "size": list(tensor.shape)}

    def tensor(self, slot: Mapping[str, Any]) -> torch.Tensor:
        return self.tensors[slot["at"]]


def request(memory: Memory, x: torch.Tensor) -> dict[str, Any]:
    def output(name: str, dtype: str, shape: list[int], **slots: torch.Tensor) -> dict[str, Any]:
        parts = {part: memory.slot(slots[part]) if part in slots else None for part in PARTS}
        return {"name": name, "dtype": dtype, "shape": shape, "optional": False, "param": None, **parts}

    y = {"native": torch.zeros_like(x), "wide": torch.zeros(x.shape), "allowance": torch.zeros(x.shape)}
    ids = {"native": torch.zeros(x.shape[0], dtype=torch.int64), "undecided": torch.ones(x.shape[0], dtype=torch.bool)}
    return {
        "inputs": [
            {"name": "x", "slot": memory.slot(x)},
            {"name": "scale", "float": (1 / 3).hex()},
            {"name": "mask", "value": None},
        ],
        "outputs": [output("y", "float16", list(x.shape), **y), output("ids", "int64", [x.shape[0]], **ids)],
        "seed": 3,
        "operands": "working",
        "budget": None,
    }


def test_the_truth_is_written_and_described(tmp_path: Path) -> None:
    built = handler.build({"reference": SOURCE}, tmp_path, "cpu")
    memory = Memory()
    x = torch.randn(3, 16).half()
    asked = request(memory, x)
    reply = handler.call(built, asked, memory)
    assert reply["how"] == "lifted"
    facts = reply["outputs"][0]
    assert (facts["name"], facts["present"], facts["wide"], facts["undecided"]) == ("y", True, True, False)
    assert torch.allclose(memory.tensor(asked["outputs"][0]["wide"]), x.float() / 3)
    assert bool((memory.tensor(asked["outputs"][0]["allowance"]) > 0).all())
    assert torch.equal(memory.tensor(asked["outputs"][1]["native"]), x.argmax(-1))


@pytest.mark.parametrize(
    ("source", "entry", "words"),
    [
        ("def run(x:", "run", "does not load: SyntaxError"),
        ("1 / 0", "run", "does not load: ZeroDivisionError: .*, at line 1 of the reference: 1 / 0$"),
        (SOURCE, "forward", "has no function forward"),
    ],
)
def test_a_reference_that_cannot_be_built(tmp_path: Path, source: str, entry: str, words: str) -> None:
    with pytest.raises(OracleError, match=words) as caught:
        handler.build({"reference": source, "entry": entry}, tmp_path, "cpu")
    assert caught.value.kind == "reference"


def test_a_reference_whose_module_is_not_installed_says_so_when_it_is_called(tmp_path: Path) -> None:
    built = handler.build({"reference": "import nowhere_at_all\ndef run(x, scale, mask): pass"}, tmp_path, "cpu")
    memory = Memory()
    with pytest.raises(OracleError, match="nowhere_at_all") as caught:
        handler.call(built, request(memory, torch.randn(3, 16).half()), memory)
    assert caught.value.kind == "absent"


def test_a_reference_that_raises(tmp_path: Path) -> None:
    built = handler.build({"reference": "def run(x, scale, mask):\n    return x @ x"}, tmp_path, "cpu")
    memory = Memory()
    with pytest.raises(OracleError, match="RuntimeError"):
        handler.call(built, request(memory, torch.randn(3, 16).half()), memory)


def test_a_reference_that_writes_into_inputs_names_them_once_and_is_given_copies(tmp_path: Path) -> None:
    source = SOURCE.replace("    return", "    x += 1\n    return")
    built = handler.build({"reference": source}, tmp_path, "cpu")
    memory, x = Memory(), torch.randn(3, 16).half()
    with pytest.raises(OracleError, match=r"inputs: x$") as caught:
        handler.call(built, request(memory, x), memory)
    assert caught.value.kind == "mutates"
    given, before = request(memory, x) | {"mutated": ["x"]}, x.clone()
    assert handler.call(built, given, memory)["how"] == "lifted"
    assert torch.equal(x, before)
    assert torch.allclose(memory.tensor(given["outputs"][0]["wide"]), x.float() / 3)
    assert handler.call(built, given | {"do": "shapes"}, memory)["outputs"][0]["size"] == [3, 16]
    assert torch.equal(x, before)


@pytest.fixture(autouse=True)
def slept_for(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("pytest_flashinfer.judge.oracle.answer_requests.time.sleep", slept.append)
    return slept


@pytest.mark.parametrize(("full", "budgets"), [(0, [5]), (1, [5, 5]), (2, [5, 5, 0])])
def test_a_card_that_is_full_for_a_moment_is_asked_again(full: int, budgets: list[int], slept_for: list[float]) -> None:
    tries: list[int] = []

    def ask(*, budget: int) -> Any:
        tries.append(budget)
        if len(tries) <= full:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "truth"

    assert with_room(ask, {"budget": 5}) == "truth"  # type: ignore[comparison-overlap]
    assert tries == budgets
    assert slept_for == [0.0, 1.0, 3.0][: len(tries)]


def test_a_card_that_stays_full_is_said() -> None:
    def ask(**_: object) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(OracleError, match="memory does not suffice for the reference"):
        with_room(ask, {})


def test_a_reference_that_runs_out_of_memory_natively_is_asked_again_too() -> None:
    tries: list[None] = []

    def ask(**_: object) -> Any:
        tries.append(None)
        cause = torch.OutOfMemoryError("full") if len(tries) == 1 else ValueError("odd")
        raise InvalidReferenceError("the reference raised") from cause

    with pytest.raises(InvalidReferenceError):
        with_room(ask, {})
    assert len(tries) == 2


RAISES = """import torch

def run(x, scale, mask):
    def inner(y):
        return y @ y  # sizes

    return inner(x), x
"""


def test_what_a_reference_raised_has_its_innermost_line(tmp_path: Path) -> None:
    built = handler.build({"reference": RAISES}, tmp_path, "cpu")
    memory = Memory()
    with pytest.raises(OracleError) as caught:
        handler.call(built, request(memory, torch.randn(3, 16).half()), memory)  # type: ignore[arg-type]
    assert caught.value.message.startswith("the reference raised RuntimeError: mat1 and mat2")
    assert caught.value.message.endswith(", at line 5 of the reference: return y @ y  # sizes")


def test_a_call_that_the_reference_does_not_take_has_no_line(tmp_path: Path) -> None:
    built = handler.build({"reference": "def run(x):\n    return x, x\n"}, tmp_path, "cpu")
    memory = Memory()
    with pytest.raises(OracleError, match="TypeError") as caught:
        handler.call(built, request(memory, torch.randn(3, 16).half()), memory)  # type: ignore[arg-type]
    assert "line" not in caught.value.message
