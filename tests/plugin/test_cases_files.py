"""Files that are broken, doubled, old-fashioned or in the wrong folder: cases 01 and 02."""

import json

import pytest

from .repository import BASE, GOOD, Repository, definition

ITEMS = [
    "test_correct[good-n4-w_0004]",
    "test_reference[n4-w_0004]",
    "test_schema",
    "test_sizes[good]",
    "test_speed[good-n4-w_0004]",
]


@pytest.fixture(scope="module")
def case_01(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("case_01"))
    repository.define()
    repository.sizes(4)
    repository.solve()
    text = json.dumps(definition(name="bad_h8"), indent=2)
    repository.write("definitions/elementwise/bad_h8.json", text[: -len("\n}")] + ",\n}\n")
    repository.write("definitions/elementwise/empty_h8.json", "")
    repository.write("definitions/elementwise/bom_h8.json", "\ufeff" + json.dumps(definition(name="bom_h8"), indent=2))
    repository.solve("for_bad", of="bad_h8")
    return repository.run("-rA")


def schema_of(run, stem):
    """Return the failing schema check of one file from a run's short summary, or None."""
    return next(
        (
            line
            for line in run.output.splitlines()
            if f"{stem}.json::test_schema" in line and line.startswith(("FAILED", "PASSED"))
        ),
        None,
    )


def test_case_01_broken_json_is_one_failing_item_that_names_line_and_column(case_01):
    lines = json.dumps(definition(name="bad_h8"), indent=2).count("\n") + 1
    assert schema_of(case_01, "bad_h8").startswith("FAILED")
    text = next(case.text for case in case_01.cases if case.outcome == "failure" and "bad_h8" in case.text)
    assert f"bad_h8.json:{lines - 1}:" in text, text
    assert "comma" in text


def test_case_01_the_rest_runs(case_01):
    assert schema_of(case_01, "scale_add_h8").startswith("PASSED")
    assert case_01.outcomes("[") == {name: "passed" for name in ITEMS if "[" in name}
    assert case_01.code == 1


def test_case_01_empty_file(case_01):
    assert schema_of(case_01, "empty_h8").startswith("FAILED")
    assert any("empty_h8.json" in case.text and "empty" in case.text for case in case_01.cases)


def test_case_01_byte_order_mark_is_accepted_or_named(case_01):
    line = schema_of(case_01, "bom_h8")
    assert line.startswith("PASSED") or "byte-order mark" in line


def test_case_01_collection_shows_the_broken_file(repository, collected):
    repository.write("definitions/elementwise/bad_h8.json", "{,}")
    assert [item for item in collected() if "bad_h8" in item] == ["definitions/elementwise/bad_h8.json::test_schema"]


@pytest.fixture(scope="module")
def case_02(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("case_02"))
    repository.define(folder="elementwise")
    repository.define(folder="norm", op_type="norm")
    repository.sizes(4)
    repository.solve()
    repository.define(name="no_kind_h8", op_type=None)
    old = {("type" if key == "op_type" else key): value for key, value in BASE.items()} | {"name": "old_h8"}
    repository.write("definitions/elementwise/old_h8.json", json.dumps(old, indent=2))
    repository.define(name="moved_h8", op_type="norm", folder="elementwise")
    repository.sizes(4, name="moved_h8")
    repository.solve("moved", of="moved_h8")
    return repository.run("-rA", "-k", "test_schema or test_reference or test_correct")


def test_case_02_a_name_taken_twice_names_both_files_and_runs_no_solution(case_02):
    failures = [case for case in case_02.cases if case.outcome == "failure" and "scale_add_h8" in case.text]
    assert len(failures) >= 1
    for case in failures:
        assert "definitions/elementwise/scale_add_h8.json" in case.text
        assert "definitions/norm/scale_add_h8.json" in case.text
    assert not case_02.of("[good")


def test_case_02_missing_op_type_is_named(case_02):
    assert schema_of(case_02, "no_kind_h8").startswith("FAILED")
    assert any(
        "no_kind_h8.json" in case.text and "op_type" in case.text for case in case_02.cases if case.outcome == "failure"
    )


def test_case_02_older_key_is_hinted_at(case_02):
    assert any(
        "old_h8.json" in case.text and "older key" in case.text and "type" in case.text for case in case_02.cases
    )


def test_case_02_folder_that_differs_from_op_type_is_a_warning(case_02):
    assert schema_of(case_02, "moved_h8").startswith("PASSED")
    assert case_02["test_correct[moved"].outcome == "passed"
    warnings = case_02.output.partition("warnings summary")[2]
    assert "moved_h8" in warnings
    assert "norm" in warnings


def test_case_02_node_ids_are_unique(case_02):
    listed = [
        line.split(" - ")[0]
        for line in case_02.output.splitlines()
        if line.startswith(("PASSED", "FAILED")) and "::" in line
    ]
    assert len(set(listed)) == len(listed) == len(case_02.cases)


def test_all_faults_of_a_file_are_said_at_once(tmp_path):
    repository = Repository(tmp_path)
    inputs = BASE["inputs"] | {"x": {"shape": ["n", "k"], "dtype": "float31"}}
    repository.define(inputs=inputs, reference="def walk(x, w):\n    return x\n")
    repository.solve("loose", GOOD, entry_point="other.py::run")
    done = repository.run("-k", "test_schema")
    text = done["test_schema"].text
    for word in ("'k'", "float31", "run", "other.py"):
        assert word in text, text
    assert done.code == 1


def test_references_of_one_name_get_inputs_of_their_own(repository):
    """Sizes of one workload are the same, and an input of theirs is called the same."""
    axes = BASE["axes"] | {"h": {"type": "const", "value": 6}}
    repository.define(op_type="other", axes=axes, reference="def run(x, w):\n    return x.view(-1, 6) * w + 1\n")
    repository.sizes(4, folder="other")
    done = repository.run("-k", "test_reference")
    assert [case.outcome for case in done.cases] == ["passed", "passed"], done.output
