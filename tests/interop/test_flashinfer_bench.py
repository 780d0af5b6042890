"""What this package writes and ships is what flashinfer-bench reads; skipped where that is not installed."""

import json
from collections import Counter
from pathlib import Path

import pytest

from pytest_flashinfer.cli.main import main
from tests.cli.test_convert import FORMS, SOLUTION
from tests.data import samples
from tests.plugin.repository import GOOD, WRONG, Repository

bench = pytest.importorskip(
    "flashinfer_bench.data", reason="flashinfer-bench is not installed: pip install '.[interop]'"
)
ROOT = Path(__file__).parents[2]
DEFINITIONS = sorted((ROOT / "definitions").rglob("*.json"))
SOLUTIONS = sorted(path for path in (ROOT / "solutions").rglob("*.json"))
WORKLOADS = sorted((ROOT / "workloads").rglob("*.jsonl"))


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_definition(path):
    assert bench.load_json_file(bench.Definition, path).name == path.stem


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solution(path):
    assert bench.load_json_file(bench.Solution, path).name == path.stem


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_workloads(path):
    lines = bench.load_jsonl_file(bench.Trace, path)
    assert lines
    assert all(line.is_workload_trace() and line.definition == path.stem for line in lines)


def test_this_repository_is_a_trace_set():
    found = bench.TraceSet.from_path(str(ROOT))
    assert len(found.definitions) == len(DEFINITIONS)
    assert sum(map(len, found.workloads.values())) >= len(WORKLOADS)


SOURCES = {
    "good": GOOD,
    "wrong": WRONG,
    "nan": GOOD.replace("+ 1", "+ float('nan')"),
    "broken": "def run(x, w:\n",
    "raises": "def run(x, w):\n    raise ValueError('no')\n",
    "shape": "def run(x, w):\n    return (x * w + 1)[:, :1].contiguous()\n",
    "dtype": "def run(x, w):\n    return (x * w + 1).double()\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data set after a run that had every outcome."""
    repository = Repository(tmp_path_factory.mktemp("run"))
    repository.define()
    repository.sizes(4)
    for name, source in SOURCES.items():
        repository.solve(name, source, target_hardware=["cpu"])
    done = repository.run("--fib-traces=traces", "-k", "test_correct or test_speed")
    assert done.code == 1, done.output
    return repository.root


def test_traces_of_a_run(root):
    traces = bench.load_jsonl_file(bench.Trace, root / "traces/elementwise/scale_add_h8.jsonl")
    statuses = {trace.solution: trace.evaluation.status.value for trace in traces}
    assert statuses == {
        "good": "PASSED",
        "wrong": "INCORRECT_NUMERICAL",
        "nan": "INCORRECT_NUMERICAL",
        "broken": "COMPILE_ERROR",
        "raises": "RUNTIME_ERROR",
        "shape": "INCORRECT_SHAPE",
        "dtype": "INCORRECT_DTYPE",
    }
    good = next(trace for trace in traces if trace.solution == "good")
    assert good.is_successful()
    assert good.evaluation.performance.latency_ms > 0


def test_data_set_after_a_run(root):
    found = bench.TraceSet.from_path(str(root))
    assert Counter(trace.solution for trace in found.traces["scale_add_h8"]) == Counter(list(SOURCES))


def test_a_reward_hack_is_a_runtime_error_there(tmp_path):
    from tests.report.test_traces import write

    path = write(tmp_path, {"status": "REWARD_HACK"}, timed=False)
    [trace] = bench.load_jsonl_file(bench.Trace, path)
    assert trace.evaluation.status.value == "RUNTIME_ERROR"


@pytest.mark.parametrize("form", [1, 2, 3, 5])
def test_a_converted_definition(form, tmp_path):
    source = samples.write(tmp_path / "gemm.json", FORMS[form])
    assert main(["convert", str(source), str(tmp_path / "out.json")]) == 0
    assert bench.load_json_file(bench.Definition, tmp_path / "out.json").name == "gemm"


def test_a_computed_axis_is_unknown_there(tmp_path):
    """Form 6 has what flashinfer-bench does not: it says so rather than reading something else."""
    source = samples.write(tmp_path / "gemm.json", FORMS[6])
    assert main(["convert", str(source), str(tmp_path / "out.json")]) == 0
    with pytest.raises(ValueError, match="axes"):
        bench.load_json_file(bench.Definition, tmp_path / "out.json")


@pytest.mark.parametrize("middle", ["folder", "module.py"])
def test_a_converted_solution(middle, tmp_path):
    source = samples.write(tmp_path / "mine.json", SOLUTION)
    assert main(["convert", str(source), str(tmp_path / middle)]) == 0
    assert main(["convert", str(tmp_path / middle), str(tmp_path / "back.json")]) == 0
    assert bench.load_json_file(bench.Solution, tmp_path / "back.json").spec.language.value == "triton"


def test_converted_workloads(tmp_path):
    bare = {"axes": {"m": 3}, "inputs": {"a": {"type": "random"}}}
    source = samples.write_lines(tmp_path / "gemm.jsonl", bare, {"workload": bare, "solution": "", "evaluation": {}})
    assert main(["convert", str(source), str(tmp_path / "out.jsonl")]) == 0
    lines = bench.load_jsonl_file(bench.Trace, tmp_path / "out.jsonl")
    assert [line.workload.axes for line in lines] == [{"m": 3}] * 2
    assert all("uuid" in json.loads(line)["workload"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
