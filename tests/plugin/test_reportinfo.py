"""Reports point at the JSON file and the line that is meant."""

import json

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
