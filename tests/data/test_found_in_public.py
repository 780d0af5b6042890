"""What public files were found to hold that no format says: read as what they mean, or refused in a sentence."""

import json

import pytest

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data import write
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.rules import check_definition
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.traces import load_traces
from tests.data import samples


def solution(tmp_path, **spec):
    document = samples.changed(samples.GOOD, spec={"entry_point": "main.py::run", **spec})
    return load_solution(samples.write(tmp_path / "a.json", document))


@pytest.mark.parametrize(
    ("languages", "read"),
    [
        (["triton"], "triton"),
        (["pytorch"], "python"),
        (["pytorch", "triton"], "triton"),
        (["triton", "tlx"], "triton"),
        (["cute_dsl"], "cutedsl"),
        (["pytorch", "cudnn_frontend"], "python"),
        (["cuda_cpp", "cublas"], "cuda"),
        (["cutlass", "cuda_cpp"], "cutlass"),
    ],
)
def test_several_languages_are_built_as_one(tmp_path, languages, read):
    loaded = solution(tmp_path, languages=languages, target_hardware=["B200", "LOCAL"], pip_packages=["fbtriton"])
    assert loaded.value.language == read
    assert loaded.faults == ()
    assert f"languages {', '.join(languages)}: built as {read!r}" in loaded.notes
    text = write.to_text(write.solution_document(loaded.value))
    assert json.loads(text)["spec"]["languages"] == languages
    assert load_solution(samples.write(tmp_path / "again.json", text)).value == loaded.value


@pytest.mark.parametrize("languages", [[], [1], "triton", None, {}])
def test_languages_that_are_no_list_of_names_are_told(tmp_path, languages):
    loaded = solution(tmp_path, languages=languages)
    assert loaded.value is None
    assert "missing key 'language'" in str(loaded.faults[0])


def test_an_entry_that_names_no_source_is_told_which_there_are(tmp_path):
    loaded = solution(tmp_path, language="cuda", entry_point="benchmark_kernel::run", binding="torch")
    assert any("is not among the sources; there is main.py" in fault.message for fault in check_solution(loaded))


def dumped(tmp_path, **changes):
    return load_definition(samples.write(tmp_path / "a.json", samples.changed(samples.DUMP, **changes)))


@pytest.mark.parametrize("dtype", ["dtype", "device"])
def test_scalars_that_are_no_numbers(tmp_path, dtype):
    inputs = {**samples.DUMP["inputs"], "out": {"shape": None, "dtype": dtype, "optional": True}}
    assert samples.messages(check_definition(dumped(tmp_path, inputs=inputs))) == []
    inputs["out"] = {"shape": ["nnz"], "dtype": dtype}
    assert any(
        f"a {dtype} has no shape" in line
        for line in samples.messages(check_definition(dumped(tmp_path, inputs=inputs)))
    )


def test_an_output_that_is_part_of_a_tuple_is_written_in_place(tmp_path):
    cache = {"shape": ["nnz"], "dtype": "float16", "param": "kv_cache"}
    inputs = {**samples.DUMP["inputs"], "k_cache": cache}
    loaded = dumped(tmp_path, inputs=inputs, outputs={"k_cache": cache})
    assert loaded.value.outputs["k_cache"].param == "k_cache"
    assert any("written in place, not into 'kv_cache', which is no input" in note for note in loaded.notes)
    assert not any("is the name of an input too" in line for line in samples.messages(check_definition(loaded)))
    text = write.to_text(write.definition_document(loaded.value))
    assert load_definition(samples.write(tmp_path / "again.json", text)).value == loaded.value


def test_a_parameter_among_the_axes_of_a_dump_may_be_negative(tmp_path):
    axes = {**samples.DUMP["axes"], "window_left": {"type": "const", "value": -1}}
    assert samples.messages(check_definition(dumped(tmp_path, axes=axes))) == []
    inputs = {**samples.DUMP["inputs"], "w": {"shape": ["window_left"], "dtype": "int32"}}
    [line] = samples.messages(check_definition(dumped(tmp_path, axes=axes, inputs=inputs)))
    assert "axes.window_left.value: -1 is less than 0: a size is not negative" in line


@pytest.mark.parametrize("spelling", ["infinity", "Infinity", "inf", "-inf", "nan", "NaN"])
def test_numbers_that_json_lacks_in_any_letter_case(tmp_path, spelling):
    evaluation = {
        "status": "INCORRECT_NUMERICAL",
        "environment": {"hardware": "card"},
        "timestamp": "t",
        "correctness": {"max_relative_error": spelling, "max_absolute_error": 1.0, "extra": None},
    }
    [loaded] = load_traces(
        samples.write_lines(tmp_path / "a.jsonl", samples.changed(samples.LINE, solution="s", evaluation=evaluation))
    )
    assert loaded.faults == ()
    assert loaded.value.evaluation.correctness.max_relative_error == pytest.approx(float(spelling), nan_ok=True)


def test_the_lines_of_a_problem_are_for_the_definition_beside_them(tmp_path, capsys):
    samples.write(tmp_path / "definition.json", samples.SOL)
    bare = {"uuid": "u", "axes": {"t": 2}, "inputs": {"x": {"type": "random"}, "p": {"type": "custom"}}}
    samples.write_lines(tmp_path / "workload.jsonl", bare)
    assert main(["validate", "-v", str(tmp_path)]) == 0
    assert "no 'definition': taken to be 'split_heads'" in capsys.readouterr().out


def test_any_object_is_not_a_workload(tmp_path):
    [loaded] = load_traces(samples.write_lines(tmp_path / "a.jsonl", {"a": 1}), "d")
    assert loaded.value is None
    assert "neither 'workload' nor 'axes' and 'inputs'" in loaded.faults[0].message


def test_half_a_character_in_a_key_is_refused(tmp_path):
    loaded = load_definition(samples.write(tmp_path / "a.json", '{"name": "a", "\\ud800": 1}'))
    assert "half of a surrogate pair" in loaded.faults[0].message
    assert str(loaded.faults[0]).isprintable()
