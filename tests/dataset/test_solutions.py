from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.discover import solution_files
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.solutions import load_solution
from tests.dataset.library import DEFINITIONS, ROOT, read

if TYPE_CHECKING:
    from pathlib import Path

SOLUTIONS = solution_files([ROOT / "solutions"])
OP_TYPES = {path.stem: path.parent.name for path in DEFINITIONS}


def solution_id(path: Path) -> str:
    return path.name if path.suffix != ".json" else path.stem


@pytest.mark.parametrize("path", SOLUTIONS, ids=solution_id)
def test_rules_find_nothing(path: Path) -> None:
    loaded = load_solution(path)
    faults = check_solution(loaded)
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.parametrize("path", SOLUTIONS, ids=solution_id)
def test_lies_where_its_content_says(path: Path) -> None:
    solution = load_solution(path).value
    assert solution is not None
    folder = ROOT / "solutions" / solution.author / OP_TYPES[solution.definition] / solution.definition
    assert path.parent == folder
    if path.suffix == ".json":
        assert path.stem == solution.name
    assert solution.description


@pytest.mark.parametrize("path", SOLUTIONS, ids=solution_id)
def test_python_entry_takes_the_tensors_by_name(path: Path) -> None:
    solution = load_solution(path).value
    assert solution is not None
    if not solution.entry_file.endswith(".py"):
        pytest.skip("the entry is not Python")
    import ast

    source = next(source.content for source in solution.sources if source.path == solution.entry_file)
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    definition = read(ROOT / "definitions" / OP_TYPES[solution.definition] / f"{solution.definition}.json")
    expected = [*definition["inputs"], *(definition["outputs"] if solution.destination_passing else [])]
    assert [argument.arg for argument in functions[solution.entry_function].args.args] == expected


def test_every_definition_has_a_torch_and_a_triton_solution() -> None:
    found = Counter()
    for path in SOLUTIONS:
        solution = load_solution(path).value
        assert solution is not None
        found[solution.definition, solution.language] += 1
    missing = [(name, language) for name in OP_TYPES for language in ("python", "triton") if not found[name, language]]
    assert not missing


def test_names_are_unique() -> None:
    names = Counter(load_solution(path).value.name for path in SOLUTIONS)
    assert max(names.values()) == 1


def test_every_way_to_keep_a_solution_is_shown() -> None:
    solutions = [load_solution(path).value for path in SOLUTIONS]
    assert sum(solution.language == "cuda" and solution.binding == "torch" for solution in solutions) >= 5
    assert any(solution.binding == "tvm-ffi" for solution in solutions)
    assert any(path.is_dir() for path in SOLUTIONS)
    assert any(path.suffix == ".py" for path in SOLUTIONS)
