"""Reports point at the JSON file and the line that is meant."""

import json
from fnmatch import fnmatch

import pytest


@pytest.fixture
def located(pytester, kernels):
    def locate(*options):
        items, _ = pytester.inline_genitems(
            "--fib-solutions=solutions", "--fib-device=cpu", "--fib-scope=full", *options
        )
        return {item.name: item.location for item in items}

    return locate


def test_a_check_of_the_definition_is_at_its_file(located, repository):
    path, line, name = located()["test_schema"]
    assert path.replace("\\", "/") == "definitions/elementwise/scale_add_h8.json"
    assert line == 0
    assert name == "test_schema"


def test_a_workload_is_at_its_line(located, repository):
    repository.sizes(4, 16)
    path, line, name = located()["test_correct[good-n16-w_0016]"]
    assert path.replace("\\", "/") == "workloads/elementwise/scale_add_h8.jsonl"
    assert json.loads((repository.root / path).read_text().splitlines()[line])["workload"]["uuid"] == "w-0016"
    assert name == "test_correct[good-n16-w_0016]"


@pytest.mark.parametrize(
    ("constraint", "told", "advice"),
    [
        ("x >= 0", "has no truth value, ask for `.all()` of it: *", "correct the constraint"),
        ("n // (n - n) > 0", "for n = 4: n // (n - n) cannot be computed: * divides by zero", "no sizes *"),
        ("x.sum() == n + 0.5", "no rule for this constraint made *", "supply *, or correct the workload's sizes"),
    ],
)
def test_inputs_that_cannot_be_made_name_the_constraint_and_the_workload(repository, constraint, told, advice):
    """What is skipped for it points at the workload as well, not at whoever found out."""
    path = repository.define(constraints=["n >= 1", constraint])
    line = 1 + next(n for n, text in enumerate(path.read_text().splitlines()) if f'"{constraint}"' in text)
    done = repository.run("-k", "test_reference or test_correct", "-rs")
    text = done["test_reference"].text
    assert fnmatch(text.splitlines()[0], f"INVALID_REFERENCE: no inputs: constraint `{constraint}` *{told}; {advice}")
    assert f"  the constraint is at definitions/elementwise/scale_add_h8.json:{line}\n" in text
    assert "  the workload is at workloads/elementwise/scale_add_h8.jsonl:1\n" in text
    skipped = f"SKIPPED [1] workloads/elementwise/scale_add_h8.jsonl:1: no inputs: constraint `{constraint}`"
    assert skipped in done.output
