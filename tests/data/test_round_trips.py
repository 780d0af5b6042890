"""What is written reads back as an equal record, for documents of every form that hypothesis can think of."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data import dtypes, write
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.rules import check_definition
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.traces import load_traces
from pytest_flashinfer.data.write_solution import write_folder
from tests.data import samples

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

NAMES = st.text("abcdefgh_ABC", min_size=1, max_size=6).filter(lambda name: not name.isspace())
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SOMETHING = TEXTS.filter(bool)
SIZES = st.integers(1, 4096)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
EXTRA = st.dictionaries(st.text("xyz", min_size=4, max_size=6), JSON, max_size=2)


@st.composite
def tensors(draw, axes, kinds=dtypes.DTYPES):
    shape = draw(st.none() | st.lists(st.sampled_from(axes), max_size=3))
    result = {"shape": shape, "dtype": draw(st.sampled_from(kinds)), **draw(EXTRA)}
    if draw(st.booleans()):
        result["description"] = draw(TEXTS)
    if shape and draw(st.booleans()):
        result["dim_order"] = draw(st.permutations(range(len(shape))))
    if draw(st.booleans()):
        result["optional"] = draw(st.booleans())
    return result


@st.composite
def definitions(draw):
    """A document of one of the six forms."""
    names = draw(st.lists(NAMES, min_size=4, max_size=6, unique=True))
    axes = {
        names[0]: {"type": "var", **draw(EXTRA)},
        names[1]: {"type": "const", "value": draw(SIZES), "description": draw(TEXTS)},
        names[2]: {"type": "var", "parent": names[0]},
    }
    form = draw(st.integers(1, 6))
    if form == 6:
        axes[names[3]] = {"type": "expr", "expression": f"{names[0]} * {names[1]}"}
    inputs = {f"in_{number}": draw(tensors(list(axes))) for number in range(draw(st.integers(1, 3)))}
    outputs = {f"out_{number}": draw(tensors(list(axes))) for number in range(draw(st.integers(1, 2)))}
    parameters = list(inputs) + (list(outputs) if draw(st.booleans()) else [])
    entry = {1: "forward", 5: "_my_reference"}.get(form, "run")
    code = f"# {draw(NAMES)}\ndef {entry}({', '.join(parameters)}):\n    pass" + draw(
        st.sampled_from(["", "\n", "\n\n"])
    )
    document = {"axes": axes, **draw(EXTRA)}
    if form == 1:
        return document | {"op": draw(NAMES), "input": inputs, "output": outputs, "code": code}
    document |= {"inputs": inputs, "outputs": outputs}
    said = draw(st.lists(SOMETHING, max_size=2))
    if form == 2:
        return document | {"id": draw(NAMES), "reference_code": code, "assumptions": said}
    document |= {
        "name": draw(NAMES),
        "op_type": draw(NAMES),
        "reference": code,
        "constraints": said,
        "tags": draw(st.lists(SOMETHING, max_size=2)),
    }
    if form == 5:
        document |= {"definition": draw(NAMES), "init": "def make_init(*, device, seed):\n    return {}\n"}
        document |= draw(st.sampled_from([{}, {"reference": None}]))
    if form == 6:
        document |= draw(st.sampled_from([{}, {"op_type": None}, {"custom_inputs_entrypoint": "make"}]))
    return document


INPUTS = st.one_of(
    st.just({"type": "random"}),
    st.just({"type": "custom"}),
    st.builds(
        lambda value: {"type": "scalar", "value": value},
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    ),
    st.builds(lambda path, key: {"type": "safetensors", "path": path, "tensor_key": key}, SOMETHING, SOMETHING),
)
NUMBERS = st.floats(0, 1e6)
WORKLOADS = st.fixed_dictionaries(
    {
        "axes": st.dictionaries(NAMES, st.integers(0, 10**6), max_size=3),
        "inputs": st.dictionaries(NAMES, INPUTS, max_size=3),
    },
    optional={
        "uuid": TEXTS,
        "tolerance": st.fixed_dictionaries(
            {}, optional={"max_atol": NUMBERS, "allow_negative_inf": st.booleans(), "more": JSON}
        ),
        "recipe": JSON,
    },
)
EVALUATIONS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["PASSED", "TIMEOUT", "REWARD_HACK"]),
        "environment": st.fixed_dictionaries(
            {"hardware": SOMETHING, "libs": st.dictionaries(NAMES, TEXTS, max_size=2)}
        ),
        "timestamp": SOMETHING,
    },
    optional={
        "log": TEXTS,
        "correctness": st.none()
        | st.fixed_dictionaries(
            {"max_relative_error": NUMBERS, "max_absolute_error": st.just("Infinity")}, optional={"extra": JSON}
        ),
        "performance": st.none()
        | st.fixed_dictionaries({"latency_ms": NUMBERS, "reference_latency_ms": NUMBERS, "speedup_factor": NUMBERS}),
        "more": JSON,
    },
)
TRACES = WORKLOADS | st.fixed_dictionaries(
    {"definition": NAMES, "workload": WORKLOADS},
    optional={"solution": st.none() | TEXTS, "evaluation": st.none() | st.just({}) | EVALUATIONS, "more": JSON},
)
SOLUTIONS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "definition": NAMES,
        "author": SOMETHING,
        "spec": st.fixed_dictionaries(
            {
                "language": st.sampled_from(["python", "Triton", "CUDA"]),
                "entry_point": st.sampled_from(["a.py::run", "run", "b/c.cu::go"]),
            },
            optional={
                "destination_passing_style": st.booleans() | st.none(),
                "target_hardware": st.lists(SOMETHING, max_size=2),
                "binding": st.sampled_from(["torch", "tvm_ffi"]),
                "steps": st.lists(SOMETHING, max_size=2),
            },
        ),
        "sources": st.lists(
            st.fixed_dictionaries({"path": st.sampled_from(["a.py", "b/c.cu"]), "content": TEXTS}),
            min_size=1,
            max_size=2,
            unique_by=lambda source: source["path"],
        ),
    },
    optional={"description": TEXTS, "note": TEXTS},
)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@quick
@given(document=definitions())
def test_definitions_of_every_form(folder, document):
    first = load_definition(samples.write(folder / "first.json", document))
    assert first.value is not None, first.faults
    text = write.to_text(write.definition_document(first.value))
    again = load_definition(samples.write(folder / "again.json", text))
    assert again.value == first.value
    assert write.to_text(write.definition_document(again.value)) == text
    assert all(str(fault).isprintable() for fault in check_definition(first))


@quick
@given(document=TRACES)
def test_traces_and_workload_lines(folder, document):
    (first,) = load_traces(samples.write_lines(folder / "first.jsonl", document), "some_definition")
    assert first.value is not None, first.faults
    line = write.to_line(write.trace_document(first.value))
    assert line.count("\n") == 1
    (again,) = load_traces(samples.write(folder / "again.jsonl", line))
    assert again.value == first.value


@quick
@given(document=SOLUTIONS)
def test_solutions(folder, document):
    first = load_solution(samples.write(folder / "first.json", document))
    assert first.value is not None, first.faults
    text = write.to_text(write.solution_document(first.value))
    again = load_solution(samples.write(folder / "again.json", text))
    assert again.value == first.value
    assert again.value.digest == first.value.digest


@settings(max_examples=25, deadline=None)
@given(document=SOLUTIONS)
def test_solution_folders(document):
    with tempfile.TemporaryDirectory() as name:
        first = load_solution(samples.write(Path(name) / "first.json", document)).value
        write_folder(first, Path(name) / "kit")
        again = load_solution(Path(name) / "kit").value
    assert set(again.sources) == set(first.sources)
    assert write.solution_document(again) | {"sources": None} == write.solution_document(first) | {"sources": None}


@pytest.mark.parametrize("name", ["BASE", "SIGNATURE", "DESCRIPTION", "DUMP", "SOL"])
def test_other_tools_find_a_run(folder, name):
    """What is written has the keys and the entry that tools for the canonical form look for."""
    value = load_definition(samples.write(folder / f"{name}.json", getattr(samples, name))).value
    document = json.loads(write.to_text(write.definition_document(value)))
    assert {"name", "op_type", "axes", "inputs", "outputs", "reference"} <= document.keys()
    scope: dict[str, object] = {}
    exec(document["reference"], scope)
    assert callable(scope["run"])
    again = load_definition(samples.write(folder / "again.json", document)).value
    assert again == value
    assert again.reference == value.reference
