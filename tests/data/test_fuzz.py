"""Documents that somebody got wrong: always a message of one line, never an exception, never a hang."""

import copy
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.jsontext import parse_json
from pytest_flashinfer.data.rules import check_definition
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.traces import load_workloads
from pytest_flashinfer.data.workload_rules import check_workload
from tests.data import samples

fuzzed = settings(max_examples=80, deadline=10_000, suppress_health_check=[HealthCheck.too_slow])

ODD = [
    None,
    True,
    -1,
    0,
    1e308,
    2**80,
    "",
    "n",
    "a/b",
    "../..",
    "\0",
    "\n",
    "x" * 3000,
    [],
    {},
    [[]],
    {"a": {}},
    "def run(:",
    "n ==",
    "1 / 0",
    ["n", None],
    {"type": 3},
    "é\u2028",
    "\x1b[31m",
]
DEFINITIONS = [samples.BASE, samples.SIGNATURE, samples.DESCRIPTION, samples.DUMP, samples.SOL]


def paths(document, here=()):
    """All places in a document."""
    yield here
    members = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, member in members:
        yield from paths(member, (*here, key))


@st.composite
def mutants(draw, originals):
    """A document with a few values replaced, keys removed, renamed or added."""
    document = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([path for path in paths(document) if path] or [("name",)]))
        holder = document
        for step in above:
            holder = holder[step]
        action = draw(st.sampled_from(["replace", "remove", "rename", "add"]))
        if action == "replace" or isinstance(holder, list):
            holder[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif action == "remove":
            del holder[last]
        elif action == "rename":
            holder[draw(st.sampled_from(["type", "op", "x", "", "code", "param"]))] = holder.pop(last)
        else:
            holder[draw(st.text(max_size=3))] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return document


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def assert_messages(faults):
    for fault in faults:
        assert fault.message
        assert str(fault).isprintable()
        assert "Traceback" not in fault.message
        assert fault.line is None or fault.line >= 1


@fuzzed
@given(document=mutants(DEFINITIONS))
def test_definitions(folder, document):
    loaded = load_definition(samples.write(folder / "a.json", document))
    assert loaded.value is not None or loaded.faults
    assert_messages(check_definition(loaded))


BASE_VALUE = load_definition(samples.write(Path(tempfile.mkdtemp()) / "a.json", samples.BASE)).value
EVALUATED = samples.changed(
    samples.LINE, solution="s", evaluation={"status": "TIMEOUT", "environment": {"hardware": "c"}, "timestamp": "t"}
)
STORED = samples.workload_line(
    inputs={"x": {"type": "safetensors", "path": "a", "tensor_key": "x"}, "w": {"type": "scalar", "value": 1}}
)


@fuzzed
@given(document=mutants([samples.LINE, samples.LINE["workload"], EVALUATED, STORED]))
def test_workload_lines(folder, document):
    (loaded,) = load_workloads(samples.write_lines(folder / "a.jsonl", document), "scale_add_h8")
    assert loaded.value is not None or loaded.faults
    assert_messages(check_workload(loaded, BASE_VALUE, folder))


@fuzzed
@given(document=mutants([samples.GOOD]))
def test_solutions(folder, document):
    loaded = load_solution(samples.write(folder / "a.json", document))
    assert loaded.value is not None or loaded.faults or loaded.warnings
    assert_messages(check_solution(loaded))


@st.composite
def broken_texts(draw):
    """The text of a document with some characters put in, taken out or replaced."""
    text = json.dumps(draw(st.sampled_from([*DEFINITIONS, samples.GOOD])), indent=draw(st.sampled_from([None, 1])))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(text) - 1))
        text = (
            text[:place]
            + draw(st.sampled_from(["", ",", "}", "]", "{", "[", '"', ":", "\\", "'", "\n", "//", "nan", "\ufeff"]))
            + text[place + draw(st.integers(0, 2)) :]
        )
    return text


@fuzzed
@given(text=broken_texts() | st.text("{}[]\",:\\'tn1 \n/#", max_size=30))
def test_broken_text(text):
    document = parse_json(text, Path("a.json"))
    try:
        json.loads(text)
    except ValueError:
        assert document.faults
        assert not document.readable
    assert_messages(document.faults)
    assert all(1 <= fault.line <= text.count("\n") + 1 for fault in document.faults)


@fuzzed
@given(data=st.binary(max_size=60))
def test_any_bytes(folder, data):
    for name in ("a.json", "a.jsonl", "a.py", "config.toml"):
        (folder / name).write_bytes(data)
    assert_messages(load_definition(folder / "a.json").faults)
    assert_messages(load_solution(folder / "a.py").faults)
    assert_messages(load_solution(folder / "config.toml").faults)
    for loaded in load_workloads(folder / "a.jsonl"):
        assert loaded.value is not None or loaded.faults


def test_large_files_are_refused_quickly(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    assert "larger than 64 MiB" in load_definition(path).faults[0].message
    path.rename(tmp_path / "a.jsonl")
    assert "more than 64 MiB" in load_workloads(tmp_path / "a.jsonl")[0].faults[0].message


def test_large_source_is_not_parsed(tmp_path):
    document = samples.changed(samples.BASE, reference="(" * (5 << 20))
    found = check_definition(load_definition(samples.write(tmp_path / "a.json", document)))
    assert any("not parsed" in fault.message for fault in found)


@pytest.mark.parametrize(
    "source", ["(" * 5000, "-" * 50_000 + "1", "x = " + "[" * 3000 + "]" * 3000, "a" + ".b" * 20_000, "\0"]
)
def test_sources_that_exhaust_the_parser(tmp_path, source):
    document = samples.changed(samples.BASE, reference=source)
    assert_messages(check_definition(load_definition(samples.write(tmp_path / "a.json", document))))


def test_a_folder_of_rubbish(tmp_path):
    for number, odd in enumerate(ODD):
        samples.write(tmp_path / "definitions" / f"{number}.json", json.dumps(odd))
        samples.write(tmp_path / "solutions" / f"{number}.json", json.dumps(odd))
        samples.write(tmp_path / "workloads" / f"{number}.jsonl", json.dumps(odd))
    data = DataSet([tmp_path / "definitions"], [tmp_path / "solutions"], [tmp_path / "workloads"])
    for path in data.definition_files():
        assert samples.messages(data.problems(path))
    assert_messages(data.unknown_solutions())


def test_names_from_strangers_cannot_write_to_the_terminal(tmp_path):
    evil = "x\x1b[2J\n::error::all passed\u2028"
    axes = {**samples.BASE["axes"], evil: {"type": "var", "value": evil}}
    sources = [{"path": evil, "content": "def run(:"}]
    found = check_definition(
        load_definition(samples.write(tmp_path / "a.json", samples.changed(samples.BASE, axes=axes)))
    )
    found += check_solution(
        load_solution(samples.write(tmp_path / "s.json", samples.changed(samples.GOOD, sources=sources)))
    )
    assert len(found) >= 3
    assert all(str(fault).isprintable() for fault in found)
