"""Reading many trace lines fast: the same traces and the same faults as the reader that knows every place."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data.faults import Fault
from pytest_flashinfer.data.traces import load_traces, stream_traces

WORKLOAD = {"uuid": "w", "axes": {"m": 8}, "inputs": {"x": {"type": "random"}}}
EVALUATION = {
    "status": "PASSED",
    "environment": {"hardware": "H100", "libs": {}},
    "timestamp": "t",
    "correctness": {"max_relative_error": "NaN", "max_absolute_error": 0},
    "performance": {"latency_ms": 1, "reference_latency_ms": 2, "speedup_factor": 2, "roofline_ms": 0.5},
}
TRACE = {"definition": "d", "workload": WORKLOAD, "solution": "s", "evaluation": EVALUATION}
LINES = st.sampled_from(
    [
        json.dumps(TRACE),
        json.dumps({**TRACE, "solution": None, "evaluation": None}),
        json.dumps({**TRACE, "evaluation": {**EVALUATION, "environment": {"device": "A100"}}}),
        json.dumps({**TRACE, "evaluation": {**EVALUATION, "status": "odd"}}),
        json.dumps({"workload": {"axes": {"m": 8.0}}}),
        json.dumps(WORKLOAD),
        json.dumps({"name": "no trace"}),
        '{"definition": "d", "workload": {"uuid": "w", "axes": {"m": Infinity}}}',
        "{broken",
        "[1, 2]",
        "",
    ]
)


@given(st.lists(LINES, max_size=8))
def test_as_the_careful_reader(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "d.jsonl"
    path.write_text("\n".join(lines) + "\n")
    careful = [(loaded.line, loaded.value or loaded.faults[0]) for loaded in load_traces(path, "d")]
    assert [repr(each) for each in stream_traces(path, "d")] == [repr(each) for each in careful]


def test_lists_broken_bytes_and_missing_files(tmp_path):
    (tmp_path / "list.json").write_text(json.dumps([TRACE, {"name": "no"}]))
    (_, one), (_, other) = stream_traces(tmp_path / "list.json")
    assert one.solution == "s"
    assert isinstance(other, Fault)
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe{}\n" + json.dumps(TRACE).encode() + b"\n")
    (first, fault), (second, trace) = stream_traces(tmp_path / "bytes.jsonl")
    assert (first, fault.line, second) == (1, 1, 2)
    assert trace.definition == "d"
    [(_, gone)] = stream_traces(tmp_path / "gone.jsonl")
    assert "cannot be read" in gone.message
