"""`validate` and `schema`: one line per fault, an exit code, and nothing of the files run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.cli.file_kinds import kind_of
from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.data.schema import NAMES
from pytest_flashinfer.data.solutions import load_solution
from tests import powerless
from tests.cli.test_convert import FORMS, PLAIN, SOLUTION
from tests.data import samples

ROOT = Path(__file__).parents[2]
LINE = {
    "definition": "gemm",
    "workload": {"uuid": "u", "axes": {"m": 2}, "inputs": {n: {"type": "random"} for n in "ab"}},
}
PASSED = {
    **LINE,
    "solution": "mine",
    "evaluation": {
        "status": "PASSED",
        "environment": {"hardware": "card", "libs": {}},
        "timestamp": "2026-01-01",
        "correctness": {"max_relative_error": 0.0, "max_absolute_error": 0.0},
        "performance": {"latency_ms": 1.0, "reference_latency_ms": 2.0, "speedup_factor": 2.0},
    },
}
CALLS = {"model": "m", "framework": "vLLM", "kernels": [{"id": "gemm", "count": 2}]}
RESULT = {"device": {"name": "card"}, "kernel_id": "gemm", "source": "me", "compiled": False, "compile_error": "no"}
CHAT = {"model": "m", "conversation": [{"role": "user", "content": "write a kernel"}]}


@pytest.fixture
def dataset(tmp_path):
    """A data set with every record in it."""
    root = tmp_path / "data"
    samples.write(root / "definitions/gemm/gemm.json", PLAIN)
    samples.write(root / "solutions/me/mine.json", SOLUTION)
    samples.write(root / "solutions/me/mine.trace.json", CHAT)
    samples.write_lines(root / "workloads/gemm/gemm.jsonl", LINE)
    samples.write_lines(root / "traces/gemm/gemm.jsonl", PASSED)
    samples.write(root / "calls/m.json", CALLS)
    samples.write_lines(root / "results.jsonl", RESULT)
    return root


def validate(capsys, *arguments):
    code = main(["validate", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


def test_a_whole_data_set_is_valid(dataset, capsys):
    assert validate(capsys, dataset) == (0, [], "7 files: 0 faults, 0 warnings\n")


@pytest.mark.parametrize(
    ("path", "change", "said"),
    [
        ("definitions/gemm/gemm.json", ('"m", "k"', '"q", "k"'), "unknown axis 'q'"),
        ("definitions/gemm/gemm.json", ("return a", "return (a"), "'(' was never closed"),
        ("solutions/me/mine.json", ("main.py::run", "main.py::forward"), "no top-level function 'forward'"),
        ("solutions/me/mine.trace.json", ('"user"', '"robot"'), "one of system"),
        ("workloads/gemm/gemm.jsonl", ('"m": 2', '"m": -2'), "-2"),
        ("traces/gemm/gemm.jsonl", ("PASSED", "PASSING"), "did you mean 'PASSED'?"),
        ("traces/gemm/gemm.jsonl", ('"latency_ms": 1.0', '"latency_ms": "fast"'), "a number"),
        ("calls/m.json", ('"vLLM"', '"llama.cpp"'), "framework"),
        ("results.jsonl", ('"compile_error"', '"error"'), "compile_error"),
    ],
)
def test_a_fault_of_any_record_is_one_line_with_its_place(dataset, capsys, path, change, said):
    file = dataset / path
    text = json.dumps(json.loads(file.read_text())) if path.endswith(".json") else file.read_text()
    old, new = change
    assert old in text
    file.write_text(text.replace(old, new, 1))
    code, lines, _ = validate(capsys, dataset)
    assert code == 1
    assert [line for line in lines if line.startswith(f"{file}:") and said in line], lines
    assert all(line.count("\n") == 0 for line in lines)


def test_a_file_of_its_own_is_told_by_its_content(dataset, capsys):
    files = sorted(path for path in dataset.rglob("*.json*"))
    assert len(files) == 7
    for file in files:
        assert validate(capsys, file)[0] == 0, file


def test_an_older_form_is_a_note(tmp_path, capsys):
    path = samples.write(tmp_path / "gemm.json", FORMS[2])
    assert not [line for line in validate(capsys, path)[1] if line.startswith("note: ")]
    code, lines, _ = validate(capsys, "-v", path)
    assert code == 0
    assert f"note: {path}:1: key 'reference_code' read as 'reference'" in lines


def test_a_record_nobody_knows_is_a_fault_if_named_and_a_warning_if_found(tmp_path, capsys):
    path = samples.write(tmp_path / "x.json", {"a": 1})
    assert validate(capsys, path)[0] == 1
    code, lines, _ = validate(capsys, tmp_path)
    assert code == 0
    assert [line.startswith("warning: ") for line in lines] == [True]


def test_what_a_run_writes_is_passed_by_unless_it_is_named(dataset, capsys):
    path = dataset / "benchmark.json"
    samples.write(path, {"machine_info": {}, "benchmarks": [], "version": "5"})
    assert validate(capsys, dataset) == (0, [], "7 files: 0 faults, 0 warnings\n")
    said = f"{path}:1: this is a file of pytest-benchmark: there is nothing to check in it"
    assert validate(capsys, dataset, path)[:2] == (1, [said])
    assert validate(capsys, path)[0] == 1


def test_a_solution_for_no_definition_is_a_fault_where_there_are_definitions(dataset, capsys):
    """Who hands in both hands in a kernel that nothing judges; solutions alone may be for a data set elsewhere."""
    path = samples.write(dataset / "solutions/me/mine.json", samples.changed(SOLUTION, definition="gem"))
    assert validate(capsys, dataset / "solutions")[:2] == (0, [])
    for places in ([dataset], [dataset / "definitions", dataset / "solutions"]):
        code, lines, _ = validate(capsys, *places)
        assert (code, lines) == (1, [f"{path}:3: definition: unknown definition 'gem'; did you mean 'gemm'?"])


MODULE = 'definition = "gemm"\n\n\ndef run(a, b):\n    return a @ b\n'
KIT = '[solution]\nname = "kit"\ndefinition = "gemm"\n[build]\nlanguage = "python"\nentry_point = "main.py::run"\n'


@pytest.mark.parametrize("near", ["defintion", "definitoin", "defnition"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.py", MODULE),
        ("kit/config.toml", KIT),
        ("mine.json", json.dumps(SOLUTION)),
        ("mine.json", json.dumps(SOLUTION).replace('"sources"', '"sorces"')),
    ],
)
def test_a_solution_that_nearly_names_its_definition_is_one(tmp_path, capsys, near, name, text):
    samples.write(tmp_path / "kit/main.py", MODULE)
    path = samples.write(tmp_path / name, text.replace("definition", near))
    for place in (path, path.parent):
        code, lines, _ = validate(capsys, place)
        assert code == 1
        assert [line for line in lines if line.startswith(f"{path}:1: ") and f"'{near}'" in line], lines


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("helper.py", 'destination = "gemm"\n\n\ndef run(a):\n    return a\n'),
        ("helper.py", 'definitions = ["gemm"]\n\n\ndef run(a):\n    return a\n'),
        ("names.py", 'defintion = "gemm"\n'),
        ("chart.json", '{"kind": "Deployment", "spec": {}, "metadata": {"name": "x"}}'),
    ],
)
def test_what_is_no_solution_is_not_taken_for_one(dataset, capsys, name, text):
    samples.write(dataset / "solutions" / name, text)
    code, lines, _ = validate(capsys, dataset / "solutions", dataset / "definitions")
    assert code == 0
    assert all("no key tells what it is" in line or "it is not run" in line for line in lines)


def test_a_kernel_that_names_no_definition_is_warned_of_wherever_it_is_found(dataset, capsys, tmp_path):
    kernel = "import torch\n\n\ndef run(a, b):\n    return torch.mm(a, b)\n"
    for name in ("mine.py", "main.py", "test_mine.py", "venv/mine.py"):
        samples.write(tmp_path / "tries" / name, kernel)
    samples.write(tmp_path / "tries/tools.py", kernel.replace("run", "other"))
    samples.write(tmp_path / "tries/script.py", kernel.replace("torch", "shutil"))
    warning = f"warning: {tmp_path}/tries/mine.py: has no line `definition = ...`: it is not run"
    code, lines, _ = validate(capsys, tmp_path / "tries")
    assert code == 1
    assert lines[1:] == [warning, f"{tmp_path}/tries: nothing to check: there is no .json, .jsonl or .py record"]
    solution = {**SOLUTION, "sources": [{"path": "main.py", "content": kernel}]}
    samples.write(tmp_path / "tries/kit.json", json.dumps(solution))
    _, lines, _ = validate(capsys, dataset / "definitions", tmp_path / "tries")
    assert [line for line in lines if "kit.json" not in line] == [warning]


PARTS = {
    "name": "mine", "definition": "gemm", "author": "me", "spec": {"language": "python"}, "sources": 3, "axes": {},
    "reference": "", "workload": {}, "evaluation": None, "inputs": {}, "version": "1",
}  # fmt: skip


@given(st.sets(st.sampled_from(sorted(PARTS))), st.sampled_from([{}, {"spec": {}}, {"definition": 3}]))
def test_what_a_run_takes_for_a_broken_solution_is_one_here_too(tmp_path_factory, keys, more):
    document = {key: PARTS[key] for key in keys} | more
    path = samples.write(tmp_path_factory.mktemp("part") / "j1.json", document)
    broken = DataSet([], [path.parent], []).unreadable_solutions()
    assert (kind_of(path) == "solution") == bool(broken), document


def test_a_solution_with_hardly_any_keys_is_a_fault_wherever_it_is_found(dataset, capsys):
    path = samples.write(dataset / "v1/j1.json", {"name": "j1", "definition": "gemm"})
    code, lines, _ = validate(capsys, dataset / "definitions", dataset / "workloads", dataset / "v1")
    assert (code, lines) == (1, [f"{path}:1: missing keys 'author', 'spec', 'sources'"])


def test_a_definition_that_no_workload_is_for_is_warned_of(dataset, capsys):
    path = samples.write(dataset / "definitions/gemm/other.json", samples.changed(PLAIN, name="other"))
    said = f"warning: {path}:1: no workloads for other: nothing but test_sizes runs solutions; name a file other.jsonl"
    for places in ([dataset], [dataset / "definitions", dataset / "workloads"]):
        assert validate(capsys, *places)[:2] == (0, [said])
    assert validate(capsys, dataset / "definitions")[:2] == (0, [])


def test_files_of_workloads_that_nothing_reads_are_warned_of(dataset, capsys):
    """One with a slip in its name, and one of the right name beside the file that is read."""
    folder = dataset / "workloads"
    slip = samples.write_lines(folder / "gemm/gem.jsonl", samples.changed(LINE, definition="gem"))
    beside = samples.write_lines(folder / "other/gemm.jsonl", {**LINE, "workload": {**LINE["workload"], "uuid": "v"}})
    unknown = samples.write_lines(folder / "norm/rmsnorm_h128.jsonl", samples.changed(LINE, definition="rmsnorm_h128"))
    code, lines, _ = validate(capsys, dataset)
    assert code == 0
    assert lines == [
        f"warning: {slip}: no definition is called 'gem', and so nothing reads this; did you mean 'gemm'?",
        f"warning: {unknown}: no definition is called 'rmsnorm_h128', and so nothing reads this",
        f"warning: {beside}: {folder / 'gemm/gemm.jsonl'} is read for gemm and this is not: move its lines there",
    ]
    (dataset / "definitions/gemm/rmsnorm_h128.json").write_text("{")
    assert not any("rmsnorm_h128.jsonl" in line for line in validate(capsys, dataset)[1])


STORED = {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "a"}
SLIPS = {  # name: a file, what it holds, and the fault as a data set's own root has it
    "a folder of another op_type": ("definitions/rope/gemm.json", PLAIN, "op_type is 'gemm', the folder 'rope'"),
    "a definition that is no JSON": ("definitions/gemm/gemm.json", "{", "'gemm', whose file is broken: "),
    "no tensor": (
        "workloads/gemm/gemm.jsonl",
        {**LINE, "workload": {**LINE["workload"], "inputs": {"a": STORED, "b": {"type": "random"}}}},
        "no file at blob/x.safetensors, nor at blob/gemm/x.safetensors",
    ),
    "no such output": (
        "workloads/gemm/gemm.jsonl",
        {**LINE, "workload": {**LINE["workload"], "tolerance": {"z": {"rtol": 1}}}},
        "workloads/gemm/gemm.jsonl:1: workload.tolerance.z: no such output; there are c",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_data_set_and_its_folders_and_its_files_have_the_same_faults(dataset, capsys, monkeypatch, name):
    """Who names the folders of a data set means that data set; single files do not say in which ones they belong."""
    place, record, said = SLIPS[name]
    if place.startswith("definitions/"):
        (dataset / "definitions/gemm/gemm.json").unlink()
        samples.write(dataset / "definitions/norm/other.json", samples.changed(PLAIN, name="other", op_type="norm"))
        samples.write_lines(dataset / "workloads/norm/other.jsonl", samples.changed(LINE, definition="other"))
    samples.write(dataset / place, record if isinstance(record, str) else json.dumps(record))
    monkeypatch.chdir(dataset)
    folders = ("definitions", "solutions", "workloads")
    whole = validate(capsys, ".", "definitions")[:2]
    assert [line for line in whole[1] if said in line], whole
    assert validate(capsys, *folders)[:2] == whole
    files = [path for folder in folders for path in sorted(Path(folder).rglob("*.json*"))]
    code, lines, _ = validate(capsys, *files)
    assert code == whole[0]
    assert [line for line in lines if said in line] or name in ("a folder of another op_type", "no tensor"), lines


def test_a_misspelt_key_of_any_record_is_warned_of(dataset, capsys):
    samples.write(dataset / "definitions/gemm/gemm.json", PLAIN | {"constrains": ["m > 0"]})
    spec = SOLUTION["spec"] | {"bindng": "torch"}
    samples.write(dataset / "solutions/me/mine.json", samples.changed(SOLUTION, spec=spec))
    workload = LINE["workload"] | {"tolernace": {"max_atol": 1.0}}
    samples.write_lines(dataset / "workloads/gemm/gemm.jsonl", LINE | {"workload": workload})
    evaluation = PASSED["evaluation"] | {"logs": "x"}
    samples.write_lines(dataset / "traces/gemm/gemm.jsonl", PASSED | {"evaluation": evaluation})
    code, lines, _ = validate(capsys, dataset)
    assert code == 0
    assert [line.split("'")[1:4:2] for line in lines] == [
        ["constrains", "constraints"],
        ["bindng", "binding"],
        ["logs", "log"],
        ["tolernace", "tolerance"],
    ]
    assert all(line.startswith(f"warning: {dataset}") for line in lines)


def test_a_path_that_does_not_exist_is_an_error_of_usage(tmp_path, capsys):
    code, lines, error = validate(capsys, tmp_path / "nowhere")
    assert (code, lines) == (2, [])
    assert error == f"error: {tmp_path / 'nowhere'}: No such file or directory\n"


def test_this_repository_is_valid(capsys):
    code, lines, _ = validate(capsys, *(ROOT / name for name in ("definitions", "solutions", "workloads")))
    assert (code, [line for line in lines if not line.startswith("warning: ")]) == (0, [])


TRAP = "import pathlib\npathlib.Path({!r}).write_text('run')\n"


def test_nothing_is_run_and_torch_is_not_needed(dataset, tmp_path):
    """Sources that leave a mark when they run, in an interpreter that cannot import torch."""
    mark = tmp_path / "mark"
    trap = TRAP.format(str(mark))
    samples.write(dataset / "definitions/gemm/gemm.json", samples.changed(PLAIN, reference=trap + PLAIN["reference"]))
    source = {"path": "main.py", "content": trap + SOLUTION["sources"][0]["content"]}
    samples.write(dataset / "solutions/me/mine.json", samples.changed(SOLUTION, sources=[source]))
    (dataset / "solutions/module.py").write_text(f'definition = "gemm"\n{trap}\n\ndef run(a, b):\n    return a\n')
    for name in ("conftest.py", "definitions/conftest.py"):
        (dataset / name).write_text(trap)
    block = "import sys, runpy; sys.modules.update(dict.fromkeys(('torch', 'triton', 'pytest', 'numpy')))"
    for command in (f"['validate', {str(dataset)!r}]", f"['convert', {str(dataset)!r}, {str(tmp_path / 'out')!r}]"):
        code = f"{block}; sys.argv[1:] = {command}; runpy.run_module('pytest_flashinfer', run_name='__main__')"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=dataset, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert not mark.exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
RECORDS = [PLAIN, SOLUTION, LINE, PASSED, CALLS, RESULT, CHAT, *FORMS.values()]


@st.composite
def damaged(draw):
    """A record with one of its parts replaced by anything, or its text cut."""
    document = json.loads(json.dumps(draw(st.sampled_from(RECORDS))))
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        if draw(st.booleans()) or not isinstance(place[key], (dict, list)) or not place[key]:
            place[key] = draw(JSON)
            break
        place = place[key]
    text = json.dumps(document).encode()
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@settings(max_examples=60, deadline=None)
@given(content=damaged() | st.binary(max_size=40), name=st.sampled_from(["a.json", "a.jsonl", "a.py", "a.trace.json"]))
def test_whatever_a_file_holds_both_commands_end_with_a_line(content, name, tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzz")
    (root / name).write_bytes(content)
    assert main(["validate", str(root / name)]) in (0, 1)
    assert main(["convert", str(root / name), str(root / "out.json")]) in (0, 1, 2)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "a.json")
    code, lines, _ = validate(capsys, tmp_path / "a.json")
    assert code == 1
    assert lines == [f"{tmp_path / 'a.json'}: not a regular file"]


@pytest.mark.parametrize("name", NAMES)
def test_schema_prints_the_schema(capsys, name):
    assert main(["schema", name]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == f"{name}.json"


def test_schema_names_the_ones_there_are(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["schema", "kernel"])
    assert ended.value.code == 2
    assert "agent" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m pytest_flashinfer schema definition | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_cannot_end_the_line_that_tells_of_it(tmp_path, capsys):
    """GitHub's runner would take what follows for a command."""
    (tmp_path / "a\n::error::x\x1b[2J.json").write_text('{"x":')
    assert main(["validate", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "a\\n::error::x\\x1b[2J.json:1" in told
    assert not [line for line in told.splitlines() if line.startswith("::")]
    assert "\x1b" not in told


@pytest.mark.parametrize("name", ["", "a.txt", "deep/b.md"])
def test_a_check_of_nothing_has_not_passed(tmp_path, capsys, name):
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    code, lines, said = validate(capsys, tmp_path)
    assert code == 1
    assert lines == [f"{tmp_path}: nothing to check: there is no .json, .jsonl or .py record"]
    assert said == "0 files: 1 fault, 0 warnings\n"


@pytest.mark.parametrize(
    ("place", "mode"),
    [("solutions/mine.py", 0), ("solutions/deep", 0), ("definitions/gemm", 0), ("workloads/gemm", 0o600)],
)
def test_what_may_not_be_read_is_a_fault(dataset, place, mode):
    path = dataset / place
    path.parent.mkdir(exist_ok=True)
    path.touch() if path.suffix else path.mkdir(exist_ok=True)
    before = path.stat().st_mode
    path.chmod(mode)
    done = powerless.run(dataset.parent, "pytest_flashinfer", "validate", "data")
    path.chmod(before)
    assert done.returncode == 1, done.stderr
    assert f"data/{place}: cannot be read: Permission denied: {powerless.ADVICE}" in done.stdout.splitlines()


def test_a_folder_that_is_named_and_may_not_be_read_is_an_error_of_usage(dataset):
    (dataset / "solutions").chmod(0)
    done = powerless.run(dataset, "pytest_flashinfer", "validate", "solutions")
    (dataset / "solutions").chmod(0o755)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: solutions: Permission denied: {powerless.ADVICE}\n"


def test_on_github_faults_are_annotations_and_the_summary_has_them(dataset, capsys, monkeypatch, tmp_path):
    file = dataset / "workloads/gemm/gemm.jsonl"
    file.write_text(file.read_text().replace('"m": 2', '"m": -2'))
    samples.write(dataset / "solutions/::error::.json", samples.changed(SOLUTION, name="other", definition="gem"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    code, lines, _ = validate(capsys, "-v", dataset)
    assert code == 1
    token = lines[0].removeprefix("::stop-commands::")
    end = lines.index(f"::{token}::")
    assert any(line.startswith(f"{file}:1: ") for line in lines[1:end])
    annotations = lines[end + 1 :]
    assert all(line.startswith("::error file=") for line in annotations)
    assert any(
        line.startswith(
            "::error file=data/workloads/gemm/gemm.jsonl,line=1,title=a file is not valid::workload.axes.m: "
        )
        for line in annotations
    )
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("## Files: 8 files: ")
    assert f"{file}:1: " in summary


def test_on_github_all_faults_of_a_line_are_in_its_annotation(dataset, capsys, monkeypatch):
    file = dataset / "workloads/gemm/gemm.jsonl"
    line = file.read_text().splitlines()[0].replace('"m": 2', '"m": -2, "other": 1')
    file.write_text(f"{line}\n" * 12)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    code, lines, _ = validate(capsys, dataset)
    annotations = [line for line in lines if "gemm.jsonl,line=2," in line]
    assert code == 1
    assert len(annotations) == 1
    assert "::workload.axes.m: " in annotations[0]
    assert "%0Aworkload.axes.other: unknown axis 'other'" in annotations[0]
    assert "of the same" not in annotations[0]
    assert lines[-1] == "::notice::2 more lines with faults are in the log and in the summary of the job"


@pytest.mark.parametrize("code", [0, 1])
def test_a_summary_that_cannot_be_written_leaves_the_verdict(dataset, capsys, monkeypatch, tmp_path, code):
    if code:
        (dataset / "workloads/gemm/gemm.jsonl").write_text("{")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none/summary.md"))
    got, _, err = validate(capsys, dataset)
    assert got == code
    assert f"GITHUB_STEP_SUMMARY: {tmp_path / 'none/summary.md'} cannot be written: No such file or directory" in err


def test_a_file_that_is_passed_by_for_its_name_is_warned_of(dataset, capsys):
    module = 'definition = "gemm"\n\n\ndef run(a, b):\n    return a @ b\n'
    texts = {"definitions/thing.JSON": "{}", "solutions/k.PY": module, "solutions/conftest.py": module}
    for name, text in texts.items():
        (dataset / name).write_text(text)
    (dataset / "solutions/venv").mkdir()
    (dataset / "solutions/venv/mine.py").write_text(module)
    (dataset / "solutions/helper.py").write_text("")
    assert main(["validate", str(dataset)]) == 0
    said = capsys.readouterr().out
    assert said.count("is not read: ") == len(texts)
    assert "thing.JSON: is not read: write its suffix as .json" in said
    assert "conftest.py: is not read: Python and pytest import files of this name" in said
    assert "helper.py: has no line `definition = ...`: it is not run" in said
    assert "venv" not in said
    data = DataSet([dataset / "definitions"], [dataset / "solutions"], [])
    assert {fault.path.name for fault in data.misnamed_files()} == {Path(name).name for name in texts}
    assert main(["validate", str(dataset / "solutions/k.PY")]) == 1
    assert str(load_solution(dataset / "solutions/k.PY").faults[0]).endswith("write its suffix as .py")
