"""`convert`: every form of definition, workloads, and solutions as document, folder and module."""

import json
import math

import pytest

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.traces import load_traces
from tests.data import samples

BODY = "def run(a, b):\n    return a @ b.T\n"
AXES = {"m": {"type": "var"}, "n": {"type": "const", "value": 8}, "k": {"type": "const", "value": 4}}
SPECS = {"a": {"shape": ["m", "k"], "dtype": "float16"}, "b": {"shape": ["n", "k"], "dtype": "float16"}}
OUT = {"c": {"shape": ["m", "n"], "dtype": "float16"}}
SHORT = {name: {"shape": spec["shape"], "dtype": "fp16"} for name, spec in SPECS.items()}
PLAIN = {"name": "gemm", "op_type": "gemm", "axes": AXES, "inputs": SPECS, "outputs": OUT, "reference": BODY}
FORMS = {
    1: {"op": "gemm", "axes": AXES, "input": SHORT, "output": OUT, "code": BODY.replace("run", "forward")},
    2: {"id": "gemm", "axes": AXES, "inputs": SPECS, "outputs": OUT, "reference_code": BODY},
    3: PLAIN,
    5: samples.changed(
        PLAIN, reference=BODY.replace("run", "gemm_reference"), init="def gemm_init(m, device):\n    return {}\n"
    ),
    6: samples.changed(PLAIN, axes={**AXES, "n": {"type": "expr", "expression": "2 * k"}}),
}


def convert(*arguments):
    return main(["convert", *map(str, arguments)])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_definition_becomes_canonical(tmp_path, form):
    source = samples.write(tmp_path / "gemm.json", FORMS[form])
    before = load_definition(source).value
    assert before.form == form
    assert convert(source, tmp_path / "new/out.json") == 0
    after = load_definition(tmp_path / "new/out.json")
    assert after.value == before
    written = json.loads((tmp_path / "new/out.json").read_text())
    assert {"name", "op_type", "axes", "inputs", "outputs", "reference"} <= written.keys()
    assert "def run" in written["reference"]


SOLUTION = {
    "name": "mine",
    "definition": "gemm",
    "author": "me",
    "spec": {"language": "Triton", "target_hardware": ["any"], "entry_point": "main.py::run", "dependencies": []},
    "sources": [{"path": "main.py", "content": "import torch\r\n\n\ndef run(a, b, c):\n    c.copy_(a @ b.T)\n"}],
}


@pytest.mark.parametrize("middle", ["folder", "solution.py"])
def test_a_solution_goes_to_a_folder_or_module_and_back(tmp_path, middle, capsys):
    source = samples.write(tmp_path / "mine.json", SOLUTION)
    assert convert(source, tmp_path / middle) == 0
    assert convert(tmp_path / middle, tmp_path / "back.json") == 0
    written = [f"{tmp_path}/folder/" if middle == "folder" else f"{tmp_path}/{middle}", f"{tmp_path}/back.json"]
    assert capsys.readouterr().out.splitlines() == [f"wrote {each}" for each in written]
    before, after = load_solution(source).value, load_solution(tmp_path / "back.json").value
    assert (after.name, after.author, after.definition) == ("mine", "me", "gemm")
    assert after.language == "triton"
    assert after.destination_passing is True
    assert after.sources[0].content.startswith(before.sources[0].content.rstrip())
    if middle == "folder":
        assert after == before


MODULE = 'definition = "gemm"\nlanguage = "triton"\n\n\ndef run(a, b, c):\n    c.copy_(a @ b.T)\n'
LOST = {
    "author": {"sources": [{"path": "main.py", "content": f'author = "you"\n{MODULE}'}]},
    "name": {"sources": [{"path": "main.py", "content": f"{MODULE}\n\ndef name():\n    pass\n"}]},
    "definition": {"definition": "other", "sources": [{"path": "main.py", "content": MODULE}]},
    "description": {"sources": [{"path": "main.py", "content": f'description = "x"\n{MODULE}'}]},
    "binding": {"spec": {**SOLUTION["spec"], "binding": "torch"}},
    "build_steps": {"spec": {**SOLUTION["spec"], "build_steps": ["make"]}},
    "note": {"note": "x"},
    "mode": {"sources": [{**SOLUTION["sources"][0], "mode": 644}]},
}


@pytest.mark.parametrize("key", LOST)
def test_what_a_module_cannot_say_is_not_lost_in_silence(tmp_path, key, capsys):
    source = samples.write(tmp_path / "mine.json", samples.changed(SOLUTION, **LOST[key]))
    assert convert(source, tmp_path / "mine.py") == 2
    assert repr(key) in capsys.readouterr().err
    assert not (tmp_path / "mine.py").exists()


@pytest.mark.parametrize("by_destination", [True, False])
def test_a_module_that_says_some_of_it_is_told_the_rest(tmp_path, by_destination):
    spec = {**SOLUTION["spec"], "destination_passing_style": by_destination, "target_hardware": ["cpu"]}
    content = f'author = "me"\ntarget_hardware = "cpu"\n{MODULE}'
    document = samples.changed(SOLUTION, spec=spec, sources=[{"path": "main.py", "content": content}])
    assert convert(samples.write(tmp_path / "mine.json", document), tmp_path / "yours.py") == 0
    assert (tmp_path / "yours.py").read_text() == (
        f"{content}\n\nname = 'mine'\ndestination_passing_style = {by_destination}\n"
    )


def test_sources_may_be_listed_in_any_order(tmp_path):
    sources = [*SOLUTION["sources"], {"path": "a/b.py", "content": "x = 1\n"}, {"path": "a.py", "content": "y = 1\n"}]
    source = samples.write(tmp_path / "mine.json", samples.changed(SOLUTION, sources=sources))
    assert convert(source, tmp_path / "folder") == 0


def test_two_sources_of_one_target_are_refused_before_anything_is_written(tmp_path, capsys):
    samples.write(tmp_path / "in/k.json", SOLUTION)
    samples.write(tmp_path / "in/k.py", MODULE)
    assert convert(tmp_path / "in", tmp_path / "out", "--force") == 2
    wanted = f"{tmp_path / 'in/k.json'} and {tmp_path / 'in/k.py'} would both be {tmp_path / 'out/k.json'}"
    assert wanted in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_solution_of_two_files_is_no_module(tmp_path, capsys):
    two = samples.changed(SOLUTION, sources=[*SOLUTION["sources"], {"path": "b.py", "content": "x = 1\n"}])
    assert convert(samples.write(tmp_path / "two.json", two), tmp_path / "two.py") == 2
    assert "write a folder" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["../out.py", "/etc/out.py"])
def test_a_source_does_not_leave_the_folder_it_is_written_to(tmp_path, path, capsys):
    bad = samples.changed(SOLUTION, sources=[{"path": path, "content": "x = 1\n"}])
    assert convert(samples.write(tmp_path / "bad.json", bad), tmp_path / "inner/folder") == 1
    assert path in capsys.readouterr().out
    assert not (tmp_path / "inner").exists()


def test_workload_lines_get_what_they_lack(tmp_path):
    bare = {"axes": {"m": 3}, "inputs": {"a": {"type": "random"}}}
    source = samples.write_lines(
        tmp_path / "gemm.jsonl", bare, {"workload": bare | {"uuid": "u"}, "solution": "", "evaluation": {}}
    )
    assert convert(source, tmp_path / "new.jsonl") == 0
    lines = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert [line["definition"] for line in lines] == ["gemm", "gemm"]
    assert lines[0]["workload"]["uuid"]
    assert lines[1]["solution"] is lines[1]["evaluation"] is None
    assert [each.notes for each in load_traces(tmp_path / "new.jsonl")] == [(), ()]


def evaluated(relative=0.0, speedup=2.0, **tolerance):
    evaluation = {
        "status": "PASSED",
        "environment": {"hardware": "a card"},
        "timestamp": "2026-01-01T00:00:00Z",
        "correctness": {"max_relative_error": relative, "max_absolute_error": 0.0},
        "performance": {"latency_ms": 1.0, "reference_latency_ms": 2.0, "speedup_factor": speedup},
    }
    return {**samples.workload_line(tolerance=tolerance), "solution": "x", "evaluation": evaluation}


@pytest.mark.parametrize("error", ["NaN", "Infinity", math.nan, math.inf])
def test_errors_without_a_number_are_spelled(tmp_path, error):
    source = samples.write_lines(tmp_path / "d.jsonl", evaluated(error))
    assert convert(source, tmp_path / "out.jsonl") == 0
    [line] = (tmp_path / "out.jsonl").read_text().splitlines()
    written = json.loads(line)["evaluation"]["correctness"]["max_relative_error"]
    assert written == (error if isinstance(error, str) else {"nan": "NaN", "inf": "Infinity"}[str(error)])


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("workload.tolerance.max_atol", evaluated(max_atol=math.inf)),
        ("evaluation.performance.speedup_factor", evaluated(speedup=math.inf)),
        ("note[0]", evaluated() | {"note": [math.nan]}),
    ],
)
def test_other_numbers_that_json_does_not_have_are_told(tmp_path, where, line, capsys):
    source = samples.write_lines(tmp_path / "d.jsonl", evaluated(), line)
    assert convert(source, tmp_path / "out.jsonl") == 1
    assert capsys.readouterr().out.startswith(f"{source}:2: {where}: ")
    assert not (tmp_path / "out.jsonl").exists()


def test_bare_lines_of_a_problem_are_for_its_definition(tmp_path):
    samples.write(tmp_path / "definition.json", PLAIN)
    source = samples.write_lines(tmp_path / "workload.jsonl", {"uuid": "u", "axes": {"m": 3}, "inputs": {}})
    assert convert(source, tmp_path / "a.jsonl") == 0
    assert convert(source, tmp_path / "b.jsonl", "--definition=other") == 0
    names = [load_traces(tmp_path / f"{name}.jsonl")[0].value.definition for name in "ab"]
    assert names == ["gemm", "other"]


def test_a_folder_is_converted_file_by_file(tmp_path, capsys):
    for form, document in FORMS.items():
        samples.write(tmp_path / f"in/ops/form{form}.json", document)
    samples.write(tmp_path / "in/other.json", {"a": 1})
    (tmp_path / "in/broken.json").write_text('{"name": "x",')
    assert convert(tmp_path / "in", tmp_path / "out") == 1
    printed = capsys.readouterr().out
    assert "other.json: no known record: left out" in printed
    assert f"{tmp_path / 'in/broken.json'}:1:13: not JSON: " in printed
    assert {f"wrote {tmp_path}/out/ops/form{form}.json" for form in FORMS} <= set(printed.splitlines())
    assert printed.count("wrote ") == len(FORMS)
    assert not list((tmp_path / "out").glob("broken*"))
    assert len(list((tmp_path / "out/ops").glob("*.json"))) == len(FORMS)


def test_nothing_is_overwritten_without_being_told(tmp_path, capsys):
    source = samples.write(tmp_path / "gemm.json", FORMS[2])
    target = samples.write(tmp_path / "out.json", {"kept": True})
    assert convert(source, target) == 2
    assert "--force" in capsys.readouterr().err
    assert json.loads(target.read_text()) == {"kept": True}
    assert convert(source, target, "--force") == 0
    assert json.loads(target.read_text())["name"] == "gemm"


def test_faults_are_told_and_nothing_is_written(tmp_path, capsys):
    source = tmp_path / "gemm.json"
    source.write_text(json.dumps(PLAIN, indent=1).replace('"reference"', '"a" "reference"'))
    assert convert(source, tmp_path / "out.json") == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"{source}:")
    assert not (tmp_path / "out.json").exists()


KIT = """[solution]
name = "kit"
definition = "gemm"
author = "me"

[build]
language = "python"
entry_point = "mainn.py::run"
destination_passing_style = false
"""
NO_RUN = 'definition = "gemm"\n\n\ndef go(a, b):\n    return a @ b.T\n'
FAULTY = {
    "norun.py": NO_RUN,
    "kit/config.toml": KIT,
    "gemm.json": json.dumps(samples.changed(PLAIN, constraints=["m =< 3"])),
    "gemm.jsonl": '{"definition": "gemm", "workload": {"uuid": "u", "axes": {"m": -3}, "inputs": {}}}\n{',
}


@pytest.mark.parametrize("name", FAULTY)
def test_what_validate_calls_a_fault_is_not_converted(tmp_path, name, capsys):
    """In a folder and by itself; each fault is told once, as `validate` tells it."""
    source = tmp_path / "in" / name
    source.parent.mkdir(parents=True)
    source.write_text(FAULTY[name])
    (source.parent / "main.py").write_text(NO_RUN if name == "kit/config.toml" else "")
    assert main(["validate", str(tmp_path / "in")]) == 1
    told = capsys.readouterr().out
    assert convert(tmp_path / "in", tmp_path / "out") == 1
    assert capsys.readouterr().out == told
    single = source.parent if name == "kit/config.toml" else source
    assert convert(single, tmp_path / "out" / f"one{'.jsonl' if name == 'gemm.jsonl' else '.json'}") == 1
    assert capsys.readouterr().out == told
    assert not (tmp_path / "out").exists()


def test_a_plain_python_file_is_told_what_makes_it_a_solution(tmp_path, capsys):
    source = samples.write(tmp_path / "legacy.py", "def gemm(a, b):\n    return a @ b.T\n")
    assert convert(source, tmp_path / "legacy.json") == 1
    wanted = "add that line, with the name of the definition that this solves, and name the function that solves it run"
    assert capsys.readouterr().out == f'{source}:1: no module-level definition = "<name>": {wanted}\n'
    source.write_text('definition = "gemm"\n\n\ndef run(a, b):\n    return a @ b.T\n')
    assert convert(source, tmp_path / "legacy.json") == 0


def test_the_place_has_to_fit_the_record(tmp_path, capsys):
    source = samples.write(tmp_path / "gemm.json", PLAIN)
    assert convert(source, tmp_path / "out.jsonl") == 2
    assert convert(samples.write(tmp_path / "x.json", {"a": 1}), tmp_path / "out.json") == 2
    assert [line.startswith("error: ") for line in capsys.readouterr().err.splitlines()] == [True, True]


def test_the_record_is_named_with_its_article(tmp_path, capsys):
    assert convert(samples.write(tmp_path / "x.trace.json", [{"type": "mcp"}]), tmp_path / "out.py") == 2
    assert "an agent trace is written to .json" in capsys.readouterr().err


def test_a_key_of_another_form_that_is_null_changes_nothing(tmp_path, capsys):
    reference = "def f_reference(x, w):\n    pass\n"
    check = reference.replace("reference", "check")
    document = {**samples.BASE, "reference": reference, "check": check, "custom_inputs_entrypoint": None}
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert main(["convert", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "does not read back" not in capsys.readouterr().err
