"""A worker that lies about its times: refused, and no report breaks over it."""

import json
from xml.etree import ElementTree as ET

import pytest

from .repository import GOOD, Repository

# By what the clock noted of the rounds before: its functions are left alone, for whoever replaces those is named first.
FORGES = """
import gc
from pytest_flashinfer.worker.clock import Span, WallClock
clocks = [each for each in gc.get_objects() if type(each) is WallClock]
honest = run
def run(x, w):
    for clock in clocks:
        clock._spans[:] = [{} for _ in clock._spans]
    return honest(x, w)
"""
SPANS = {
    "negative": "Span(-1.0, -1.0)",
    "tiny": "Span(5e-324, 5e-324)",
    "zero": "Span(0.0, 0.0)",
    "mixed": "Span(-1e308, 1e-300)",
}


@pytest.fixture
def forged(pytester):
    repository = Repository(pytester.path)
    repository.define()
    repository.sizes(4)
    repository.solve()
    for name, span in SPANS.items():
        repository.solve(name, GOOD + FORGES.format(span))
    repository.solve(
        "short",
        GOOD
        + "import time\ndone = run\ndef run(x, w):\n    time.sleep(2e-3)\n    return done(x, w)\n"
        + FORGES.format("Span(1e-6, 1e-6)"),
    )
    return repository


def test_forged_spans_are_refused_and_every_report_is_written(forged):
    files = ("--fib-results=r.jsonl", "--benchmark-json=b.json", "--fib-traces=t", "--fib-report=r.html")
    done = forged.run("-k", "test_speed", *files)
    outcomes = {name.partition("[")[2].partition("-")[0]: how for name, how in done.outcomes("test_speed").items()}
    assert outcomes == dict.fromkeys([*SPANS, "short"], "failure") | {"good": "passed"}
    [short] = [case for case in done.cases if "[short-" in case.name]
    assert short.message.startswith(
        "REWARD_HACK: the time cannot be trusted: the worker's clock says 0.001 ms, and its "
    )
    for name in SPANS:
        [failed] = [case for case in done.cases if f"[{name}-" in case.name]
        assert failed.message.startswith("REWARD_HACK: the worker's clock says ")
    assert "kernels" in done.output
    assert "INTERNALERROR" not in done.output
    results = [json.loads(line) for line in (forged.root / "r.jsonl").read_text().splitlines()]
    assert [each.get("status") for each in results].count("REWARD_HACK") == len(SPANS) + 1
    benchmarks = json.loads((forged.root / "b.json").read_text(), parse_constant=pytest.fail)["benchmarks"]
    assert len(benchmarks) == 1
    assert ET.parse(forged.root / "junit.xml")
    assert (forged.root / "r.html").exists()
