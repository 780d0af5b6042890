from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.rules import check_definition, check_folder
from pytest_flashinfer.data.traces import load_workloads
from pytest_flashinfer.data.workload_rules import check_workload
from tests.dataset.library import (
    DEFINITIONS,
    DTYPES,
    ROOT,
    definition_id,
    read,
    sizes,
    small_inputs,
    smallest,
    workloads,
)

if TYPE_CHECKING:
    from pathlib import Path

each_definition = pytest.mark.parametrize("path", DEFINITIONS, ids=definition_id)


def test_names_are_the_files_and_unique() -> None:
    names = [read(path)["name"] for path in DEFINITIONS]
    assert names == [path.stem for path in DEFINITIONS]
    assert len(set(names)) == len(names) >= 45


@each_definition
def test_rules_find_nothing(path: Path) -> None:
    loaded = load_definition(path)
    faults = [*check_definition(loaded), *check_folder(loaded, ROOT / "definitions")]
    assert not faults, "\n".join(map(str, faults))
    assert not loaded.notes  # it is in the canonical form


@each_definition
def test_everything_is_described(path: Path) -> None:
    definition = read(path)
    described = {"": definition} | definition["axes"] | definition["inputs"] | definition["outputs"]
    silent = [name for name, spec in described.items() if not spec.get("description", "").strip()]
    assert not silent
    assert any(tag.startswith("status:") for tag in definition["tags"])


@each_definition
def test_reference_is_plain_torch(path: Path) -> None:
    definition = read(path)
    tree = ast.parse(definition["reference"])
    (run,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    assert [argument.arg for argument in run.args.args] == list(definition["inputs"])
    assert [ast.unparse(decorator) for decorator in run.decorator_list] == ["torch.no_grad()"]
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= {"torch", "math"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
    assert "nn.functional" not in definition["reference"]
    assert max(map(len, definition["reference"].splitlines())) <= 120


@each_definition
def test_reference_yields_what_it_declares(path: Path) -> None:
    definition, workload = read(path), smallest(path)
    namespace: dict[str, object] = {}
    exec(compile(definition["reference"], str(path), "exec"), namespace)
    inputs = small_inputs(definition, workload)
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    torch.manual_seed(0)
    result = namespace["run"](*inputs)  # type: ignore[operator]
    outputs = (result,) if isinstance(result, torch.Tensor) else result
    every = sizes(definition, workload["axes"])
    got = [(tuple(output.shape), output.dtype) for output in outputs]
    want = [
        (tuple(every[axis] for axis in spec["shape"]), DTYPES[spec["dtype"]]) for spec in definition["outputs"].values()
    ]
    assert got == want
    for value, kept in zip(inputs, before, strict=True):
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.view(torch.uint8), kept.view(torch.uint8)), "the reference changed an input"


@each_definition
def test_workloads_fit_the_definition(path: Path) -> None:
    loaded = load_definition(path)
    lines = load_workloads(ROOT / "workloads" / path.parent.name / f"{path.stem}.jsonl", path.stem)
    assert loaded.value is not None
    assert len(lines) >= 6
    for line in lines:
        faults = check_workload(line, loaded.value)
        assert not faults, "\n".join(map(str, faults))


@each_definition
def test_workloads_are_different_and_self_contained(path: Path) -> None:
    lines = [line["workload"] for line in workloads(path)]
    assert len({line["uuid"] for line in lines}) == len(lines)
    assert len({tuple(line["axes"].items()) for line in lines}) == len(lines)
    assert {spec["type"] for line in lines for spec in line["inputs"].values()} <= {"random", "scalar"}
