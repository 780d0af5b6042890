"""`report`: one page from the traces of several runs."""

from __future__ import annotations

import json

import pytest

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.report.html import extra

for needed in ("jinja2", "plotly"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")


def line(solution="s", uuid="w1", status="PASSED", *, card="H100", stamp="2026-01-01", **speed):
    performance = {"latency_ms": 0.5, "reference_latency_ms": 1.0, "speedup_factor": 2.0} | speed
    evaluation = {
        "status": status,
        "environment": {"hardware": card, "libs": {"torch": "2.13.0"}},
        "timestamp": stamp,
        "log": "" if status == "PASSED" else f"{status}: why",
        "correctness": None,
        "performance": performance if status == "PASSED" else None,
    }
    workload = {"uuid": uuid, "axes": {"m": 8}, "inputs": {}}
    return (
        json.dumps({"definition": "gemm", "solution": solution, "workload": workload, "evaluation": evaluation}) + "\n"
    )


@pytest.fixture
def dataset(tmp_path):
    """Return a data set's folder with a definition, a solution and no traces."""
    spec = {"shape": ["m"], "dtype": "float32"}
    body = {"reference": "def run(x):\n    return x\n", "inputs": {"x": spec}, "outputs": {"y": spec}}
    definition = {"name": "gemm", "op_type": "product", "axes": {"m": {"type": "var"}}, **body}
    spec = {"language": "python", "target_hardware": [], "entry_point": "main.py::run", "dependencies": []}
    solution = {"name": "s", "definition": "gemm", "author": "ann", "spec": spec}
    solution["sources"] = [{"path": "main.py", "content": "def run(x):\n    return x\n"}]
    for name, document in (("definitions/product/gemm", definition), ("solutions/ann/s", solution)):
        (tmp_path / f"{name}.json").parent.mkdir(parents=True)
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "traces/product").mkdir(parents=True)
    return tmp_path


def report(*arguments):
    return main(["report", *map(str, arguments)])


def test_what_lies_beside_the_traces_is_told_of(dataset, capsys):
    (dataset / "traces/product/gemm.jsonl").write_text(line() + line(uuid="w2", status="TIMEOUT"))
    assert report(dataset / "traces", "-o", dataset / "out/report.html") == 0
    assert "report.html: 2 evaluations of 1 definition, " in capsys.readouterr().out
    text = (dataset / "out/report.html").read_text()
    for words in ('data-op="product"', 'data-author="ann"', "1 of 2", "2.00\u00d7", "500 µs", "1 timeout"):
        assert words in text


def test_definitions_and_solutions_that_are_named_win(dataset, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "lines.jsonl").write_text(line())
    places = [f"--definitions={dataset / 'definitions'}", f"--solutions={dataset / 'solutions'}"]
    assert report(other / "lines.jsonl", "-o", other / "r.html", "--title=Two <b>", *places) == 0
    text = (other / "r.html").read_text()
    assert 'data-author="ann"' in text
    assert "<title>Two &lt;b&gt;</title>" in text
    assert report(other / "lines.jsonl", "-o", other / "r.html") == 0
    assert 'data-author=""' in (other / "r.html").read_text()


def test_several_runs_are_one_report_and_the_latest_counts(dataset):
    for run, stamp, latency in (("one", "2026-01-02", 0.25), ("two", "2026-01-01", 0.125)):
        (dataset / run).mkdir()
        (dataset / run / "gemm.jsonl").write_text(line(stamp=stamp, latency_ms=latency) + line(card=run))
    assert report(dataset / "one", dataset / "two", "-o", dataset / "r.html") == 0
    text = (dataset / "r.html").read_text()
    assert "250 µs" in text
    assert "125 µs" not in text
    assert [card in text for card in ("H100, one, two", "made again")] == [True, True]


def test_the_roofline_is_read_where_there_is_one(dataset):
    (dataset / "traces/product/gemm.jsonl").write_text(line(roofline_ms=0.2))
    assert report(dataset / "traces", "-o", dataset / "r.html") == 0
    assert '<td class="n" data-cell="roofline">40%</td>' in (dataset / "r.html").read_text()


@pytest.mark.parametrize("latency", [0, -1, "NaN", None, 1e999])
def test_times_that_are_none_are_not_counted(dataset, latency):
    (dataset / "traces/product/gemm.jsonl").write_text(
        line(latency_ms=latency, speedup_factor=latency, roofline_ms=latency)
    )
    assert report(dataset / "traces", "-o", dataset / "r.html") == 0
    assert "1 of 1" in (dataset / "r.html").read_text()


def test_lines_that_cannot_be_read_are_told(dataset, capsys):
    (dataset / "traces/product/gemm.jsonl").write_text(line() + "{broken\n" + line(uuid="w2", status="NONE"))
    assert report(dataset / "traces", "-o", dataset / "r.html") == 1
    told = capsys.readouterr().err.splitlines()
    assert ["gemm.jsonl:2" in told[0], "gemm.jsonl:3" in told[1], len(told)] == [True, True, 2]
    assert "gemm.jsonl:2" in (dataset / "r.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "-o", "r.html"), "nowhere: No such file or directory"),
        (("traces", "-o", "r.html"), "no evaluation in traces: give the folders of --fib-traces"),
        (("traces", "-o", "traces"), "-o traces is a folder: name a file"),
        (("traces", "-o", "r.html", "--solutions=gone"), "gone: No such file or directory"),
    ],
)
def test_what_goes_wrong_is_one_line(dataset, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(dataset)
    assert report(*arguments) == 2
    assert capsys.readouterr().err == f"error: {words}\n"
    assert not (dataset / "r.html").exists()


def test_without_the_extra_it_says_what_to_install(dataset, monkeypatch, capsys):
    monkeypatch.setattr(extra, "PACKAGES", ("jinja2", "no_such_package"))
    assert report(dataset / "traces", "-o", dataset / "r.html") == 2
    words = "error: the HTML report needs no_such_package: pip install '.[report]' where the package's clone is"
    assert capsys.readouterr().err.startswith(words)
