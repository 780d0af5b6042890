"""What a run has found is written and shown, whatever other plugins do at its end; a crash counts as a failure."""

import json

import pytest

from pytest_flashinfer.collect import slug
from pytest_flashinfer.outputs.outcomes import _key_of
from pytest_flashinfer.outputs.properties import Record

WRITTEN = ("-k", "test_correct or test_speed", "--fib-results=results.jsonl", "--fib-report=report.html")


def results(repository):
    lines = (repository.root / "results.jsonl").read_text().splitlines()
    return {each["solution"]: each for each in map(json.loads, lines)}


@pytest.mark.filterwarnings("ignore:Can't compare")
def test_a_comparison_that_ends_the_run_takes_nothing_away(repository, kernels, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository.root / "summary.md"))
    output = kernels(*WRITTEN, "--benchmark-compare", "--benchmark-compare-fail=min:1%")
    assert "requires valid --benchmark-compare" in output.stdout.str() + output.stderr.str()
    assert results(repository)["good"]["time"] > 0
    assert (repository.root / "report.html").stat().st_size
    assert "<code>good</code>" in (repository.root / "summary.md").read_text()
    shown = ["*Min*Max*Mean*", "*= kernels =*", "*good*1/1*", "--fib-results: 1 *", "--fib-report: *"]
    output.stdout.fnmatch_lines(shown)


def test_a_run_without_a_terminal_writes_the_same(repository, kernels, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository.root / "summary.md"))
    repository.write("results.jsonl", '{"kernel_id": "of an earlier run"}\n')
    assert kernels(*WRITTEN, "-p", "no:terminal").ret == 0
    assert results(repository)["good"]["time"] > 0
    assert (repository.root / "report.html").stat().st_size
    assert "<code>good</code>" in (repository.root / "summary.md").read_text()


def test_nor_does_it_succeed_where_it_no_longer_can(repository, kernels):
    taken = "import os\n\ndef pytest_runtest_call():\n    os.rmdir('out')\n    open('out', 'w').close()\n"
    repository.write("conftest.py", taken)
    assert kernels("-k", "test_correct", "--fib-results=out/results.jsonl", "-p", "no:terminal").ret == 1


DIES = """
import os

def pytest_runtest_call(item):
    if item.name.startswith("test_correct[dies") and "w_0006" in item.name:
        os._exit(3)
"""
RAISES = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    assert not (item.name.startswith("test_correct[dies") and "w_0006" in item.name)
"""


@pytest.mark.parametrize(("conftest", "options"), [(DIES, ("-n1",)), (RAISES, ())], ids=["process", "setup"])
def test_an_item_that_never_said_whose_it_is_counts_as_failed(repository, conftest, options):
    repository.sizes(4, 6)
    repository.solve("dies")
    repository.write("conftest.py", conftest)
    done = repository.run(*WRITTEN, "--fib-scope=full", *options, apart=True, timeout=60)
    assert done.code == 1
    found = results(repository)
    assert (found["dies"]["status"], found["good"]["workloads"]) == ("FAILED", 2)
    assert "time" not in found["dies"]
    [row] = [line for line in done.output.splitlines() if line.split()[:1] == ["dies"]]
    assert "1/2" in row
    assert "FAILED" in row


def test_ids_that_several_solutions_have_are_told_apart():
    keys = ["a-b", "a_b", "a.b", "v-1", "v_1"]
    assert [_key_of(part, keys) for part in ("a_b0", "a_b1", "a.b", "v_1_0", "v_1_1")] == keys[:2] + keys[2:]
    assert _key_of("a_b", keys) is None
    assert slug(keys[0]) == slug(keys[1])


AGAIN = """
from _pytest.runner import runtestprotocol

def pytest_itemcollected(item):
    item.user_properties.append(("given", 1))

def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(each.failed for each in reports):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


def test_an_item_that_is_run_again_begins_anew(repository, monkeypatch):
    """As pytest-rerunfailures does: what the attempt that failed has found is not said of the one that passed."""
    first, raise_to = [], Record.raise_to

    def once_far_off(self, name, value):
        raise_to(self, name, value)
        if name == "max_abs" and not first:
            first.append(name)
            raise_to(self, "max_abs", 77.0)
            raise AssertionError("once")

    monkeypatch.setattr(Record, "raise_to", once_far_off)
    repository.write("conftest.py", AGAIN)
    done = repository.run("-k", "test_correct")
    assert done.code == 0, done.output
    assert first
    assert float(done["test_correct"].properties["max_abs"]) < 1
    report = (repository.root / "junit.xml").read_text()
    assert report.count('name="fib_solution"') == report.count('name="given"') == 1


def test_results_that_are_to_be_a_folder_are_refused_at_once(repository):
    (repository.root / "results").mkdir()
    done = repository.run("-k", "test_schema", "--fib-results=results")
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "results is a folder: name a file" in done.output
