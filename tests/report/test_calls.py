"""Latencies weighed by kernel counts, and the records of this repository."""

import json
import re
from pathlib import Path

import pytest

from pytest_flashinfer.data.calls import KernelCalls, load_calls
from pytest_flashinfer.report import kernel_calls as calls
from pytest_flashinfer.report.results import Result

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "calls").glob("*.json"))
DEFINITIONS = {path.stem for path in (ROOT / "definitions").rglob("*.json")}


def timed(definition, solution, latency, reference, *, workload="w", author=None):  # noqa: PLR0913
    facts = {"latency": latency, "reference": reference, "speedup": reference / latency}
    return Result(definition, solution, author or solution, "test_speed", workload, "passed", "PASSED", **facts)


RESULTS = [
    timed("a", "ann", 1.0, 4.0),
    timed("a", "bob", 2.0, 4.0),
    timed("b", "bob", 8.0, 6.0),
]


def weighed(results=RESULTS, known=("a", "b", "c"), **counts):
    return calls.weigh(KernelCalls("m", "vLLM", counts), calls.latencies(results), known)


def test_times_are_sums_of_counts_times_latencies():
    found = weighed(a=10, b=1)
    assert found.reference == 10 * 4 + 6
    assert found.author("ann") == (10 * 1 + 6, 1), "the reference stands in where ann has no kernel"
    assert found.author("bob") == (10 * 2 + 8, 2), "a kernel slower than the reference is an author's all the same"
    assert found.best == 10 * 1 + 6, "the best of all is never slower than the reference"
    assert found.authors == ["ann", "bob"]


def test_the_next_kernel_is_the_one_with_most_time_left():
    assert weighed(a=10, b=1).next == ("a", 10 / 16)
    assert weighed(a=1, b=1).next == ("b", 6 / 7)
    text = "\n".join(calls.lines([KernelCalls("m", "vLLM", {"a": 1, "b": 1})], RESULTS, ["a", "b"]))
    assert "next: b, 86% of the time that is left; making it free gives at most 7.00x more" in text


def test_ids_without_a_definition_or_a_measurement_are_listed():
    found = weighed(a=1, c=1, d=1, e=0)
    assert (found.unmeasured, found.unknown) == (["c"], ["d"])
    text = list(calls.lines([KernelCalls("m", "vLLM", {"a": 1, "c": 1, "d": 1, "e": 0})], RESULTS, ["a", "b", "c"]))
    assert text[0] == "m, vLLM: 1 of 3 kernels measured"
    assert text[-2:] == ["  not measured: c", "  no definition: d"]


def test_a_kernel_stands_for_its_workloads_by_the_geometric_mean():
    found = calls.latencies([timed("a", "ann", 1.0, 2.0, workload="v"), timed("a", "ann", 4.0, 32.0, workload="w")])[
        "a"
    ]
    assert found.reference == pytest.approx(8.0)
    assert found.authors["ann"] == pytest.approx(2.0)
    assert found.reference / found.authors["ann"] == pytest.approx((2 * 8) ** 0.5), "the mean of the speedups"


def test_a_solution_that_failed_or_left_a_workload_out_does_not_count():
    failed = Result("a", "ann", "ann", "test_sizes", None, "failed", "RUNTIME_ERROR")
    assert calls.latencies([timed("a", "ann", 1.0, 4.0), failed])["a"].authors == {}
    some = [timed("a", "ann", 1.0, 4.0), timed("a", "bob", 1.0, 4.0), timed("a", "bob", 1.0, 4.0, workload="v")]
    assert calls.latencies(some)["a"].authors.keys() == {"bob"}


def test_of_two_kernels_of_an_author_the_faster_counts():
    two = [timed("a", "x", 3.0, 4.0, author="ann"), timed("a", "y", 2.0, 4.0, author="ann")]
    assert calls.latencies(two)["a"].authors == {"ann": 2.0}


def test_a_kernel_listed_twice_counts_for_both(tmp_path):
    document = {
        "model": "m",
        "framework": "vLLM",
        "kernels": [{"id": "a", "count": 2}, {"id": "a", "count": 3}],
        "x": 1,
    }
    path = tmp_path / "calls.json"
    path.write_text(json.dumps(document))
    assert load_calls(path).value == KernelCalls("m", "vLLM", {"a": 5}, {"x": 1})


def test_there_are_three_records():
    assert {path.stem for path in RECORDS} == {"llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_speaks_of_definitions_that_there_are(path):
    loaded = load_calls(path)
    assert loaded.faults == ()
    assert loaded.value.counts.keys() <= DEFINITIONS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_page_explains_every_count_of_a_record(path):
    page = (ROOT / "docs/calls.md").read_text()
    value = load_calls(path).value
    section = page.partition(f"## {value.model.partition('/')[2]}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .+ \|$", section, re.MULTILINE)
    assert {name: int(count) for name, count in rows} == dict(value.counts)
