"""Trace lines on disk: appended whole, read back, half lines of killed writers."""

import json
import multiprocessing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data import schema
from pytest_flashinfer.data.model import Definition, Environment, InputSpec, Solution, SourceFile, Workload
from pytest_flashinfer.data.traces import load_traces
from pytest_flashinfer.report.excerpt import excerpt
from pytest_flashinfer.report.held import HeldTraces
from pytest_flashinfer.report.trace_writer import TraceWriter, append, trace_path

DEFINITION = Definition("d", "op", {}, {}, {}, "def run():\n    return 1\n")
WORKLOAD = Workload("w", {"n": 2}, {"x": InputSpec("random")}, extra={"recipe": {"seed": 1}})
SOLUTION = Solution("s", "d", "me", "python", "main.py", "run", (SourceFile("main.py", "x = 1\n"),))
CARD = Environment("card", {"torch": "2.9"})
NUMBERS = {"latency_s": 0.001, "reference_s": 0.004, "max_abs": 0.5, "max_rel": 0.25}
FACTS = {"status": "PASSED", "fib_check": "test_speed", **NUMBERS}


def write(folder, facts=FACTS, *, timed=True, solution=SOLUTION, **said):
    TraceWriter(folder, CARD).add(DEFINITION, WORKLOAD, solution, facts, **{"text": ""} | said, timed=timed)
    return trace_path(folder, DEFINITION)


def find(path, *, card=CARD, check="test_speed", **other):
    subject = {"definition": DEFINITION, "workload": WORKLOAD, "solution": SOLUTION} | other
    return HeldTraces(path, card).find(**subject, check=check)


def test_what_is_written_is_valid_and_found_again(tmp_path):
    path = write(tmp_path, text="a log\n\udc80")
    [loaded] = load_traces(path)
    assert schema.check("trace", loaded) == ()
    held = find(path)
    assert held.reason == f"{path}:1 holds PASSED for the same solution, definition, card and versions"
    facts = held.facts(timed=True)
    assert facts.pop("status") == "PASSED"
    assert facts == pytest.approx({"speedup": 4.0, **NUMBERS})
    assert "latency_s" not in held.facts(timed=False)


def test_however_much_is_printed_the_failure_is_told_first(tmp_path):
    text, printed = "INCORRECT_NUMERICAL: " + "why " * 50, "noise " * 200_000 + "the last word"
    path = write(tmp_path, FACTS | {"status": "INCORRECT_NUMERICAL"}, text=text, printed=f"\n{printed}")
    log = json.loads(path.read_text())["evaluation"]["log"]
    assert log.startswith(f"{text}\nnoise ")
    assert log.endswith("the last word")
    assert len(log) < 10_000
    assert "\n[... 1,192,014 characters left out ...]\n" in log


@given(st.text(), st.integers(0, 20), st.integers(0, 20))
def test_an_excerpt_begins_and_ends_as_the_text(text, head, tail):
    short = excerpt(text, head, tail)
    assert short.startswith(text[:head])
    assert short.endswith(text[max(0, len(text) - tail) :])
    assert (short == text) or (f"[... {len(text) - head - tail:,} characters left out ...]" in short)
    assert len(short) <= max(len(text), head + tail + 50)


def test_the_least_time_of_the_card_is_kept_in_milliseconds(tmp_path):
    path = write(tmp_path, FACTS | {"roofline_s": 0.00025, "roofline_share": 0.25})
    assert json.loads(path.read_text())["evaluation"]["performance"]["roofline_ms"] == pytest.approx(0.25)
    [loaded] = load_traces(path)
    assert schema.check("trace", loaded) == ()
    facts = find(path).facts(timed=True)
    assert (facts["roofline_s"], facts["roofline_share"]) == (pytest.approx(0.00025), pytest.approx(0.25))
    assert "roofline_s" not in find(path).facts(timed=False)


@pytest.mark.parametrize("status", ["PASSED", "INCORRECT_NUMERICAL"])
def test_the_share_of_the_bound_is_kept(tmp_path, status):
    path = write(tmp_path, FACTS | {"status": status, "bound_share": 0.5})
    assert json.loads(path.read_text())["evaluation"]["correctness"]["bound_share"] == 0.5
    [loaded] = load_traces(path)
    assert schema.check("trace", loaded) == ()
    assert find(path).facts(timed=True)["bound_share"] == 0.5
    assert "bound_share" not in json.loads(write(tmp_path / "without", FACTS | {"status": status}).read_text())


def test_blank_lines_count_as_lines(tmp_path):
    path = write(tmp_path)
    path.write_text(f"\n\n{path.read_text()}")
    assert find(path).line == load_traces(path)[0].line == 3


@pytest.mark.parametrize(
    "other",
    [
        {"definition": replace(DEFINITION, reference="def run():\n    return 2\n")},
        {"workload": replace(WORKLOAD, axes={"n": 3})},
        {"workload": replace(WORKLOAD, uuid="v")},
        {"solution": replace(SOLUTION, sources=(SourceFile("main.py", "x = 2\n"),))},
        {"solution": replace(SOLUTION, name="t")},
        {"card": replace(CARD, hardware="another")},
        {"card": replace(CARD, libs={"torch": "2.10"})},
    ],
)
def test_what_is_not_the_same_is_not_found(tmp_path, other):
    assert find(write(tmp_path), **other) is None


def test_what_another_card_found_later_does_not_hide_it(tmp_path):
    path = write(tmp_path)
    other = Environment("another card", {"torch": "2.9"})
    TraceWriter(tmp_path, other).add(DEFINITION, WORKLOAD, SOLUTION, {"status": "TIMEOUT"}, text="", timed=False)
    assert (find(path).status, find(path, card=other).status) == ("PASSED", "TIMEOUT")


def test_the_last_of_the_same_counts(tmp_path):
    path = write(tmp_path)
    write(tmp_path, {"status": "TIMEOUT"}, timed=False)
    assert (find(path).status, find(path).line) == ("TIMEOUT", 2)


def test_what_does_not_change_what_runs_is_the_same(tmp_path):
    assert find(write(tmp_path), solution=replace(SOLUTION, description="new words")) is not None


@pytest.mark.parametrize(
    ("status", "written"),
    [
        ("INCORRECT_NUMERICAL", "INCORRECT_NUMERICAL"),
        ("INCORRECT_SHAPE", "INCORRECT_SHAPE"),
        ("COMPILE_ERROR", "COMPILE_ERROR"),
        ("TIMEOUT", "TIMEOUT"),
        ("REWARD_HACK", "RUNTIME_ERROR"),
    ],
)
def test_every_status_has_a_form_that_other_tools_know(tmp_path, status, written):
    path = write(tmp_path, {"status": status}, timed=False)
    [loaded] = load_traces(path)
    assert schema.check("trace", loaded) == ()
    assert loaded.value.evaluation.status == written
    assert find(path).status == status


@pytest.mark.parametrize(
    ("facts", "timed"), [({"status": "INVALID_REFERENCE"}, True), (FACTS, False), ({}, True), ({"status": "odd"}, True)]
)
def test_what_says_nothing_of_a_solution_leaves_no_line(tmp_path, facts, timed):
    assert not write(tmp_path, facts, timed=timed).exists()


def test_an_error_that_was_not_recorded_is_unknown(tmp_path):
    write(tmp_path, {"status": "INCORRECT_NUMERICAL"}, timed=False)
    document = json.loads(trace_path(tmp_path, DEFINITION).read_text())
    assert document["evaluation"]["correctness"] == {"max_relative_error": "NaN", "max_absolute_error": "NaN"}


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_half_a_line_is_cut_off(tmp_path, cut):
    """Whatever a kill left of the last line: nothing is lost before it, and the next line is a line of its own."""
    path = write(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-cut])
    append(path, b'{"next": 1}\n')
    kept = whole * 2 if cut == 1 else whole  # without its line break alone the last line is whole
    assert path.read_bytes() == kept + b'{"next": 1}\n'


def test_a_file_of_half_a_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"half": ')
    append(tmp_path / "a.jsonl", b"1\n")
    assert (tmp_path / "a.jsonl").read_bytes() == b"1\n"


def test_half_a_line_holds_nothing(tmp_path):
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    assert find(path) is None
    write(tmp_path)
    assert find(path).line == 1


def _many(path, number):
    for _ in range(50):
        append(path, (json.dumps({"who": number, "text": "x" * 5000}) + "\n").encode())


def test_processes_do_not_write_into_each_others_lines(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_many, args=(tmp_path / "a.jsonl", number)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert sorted(line["who"] for line in lines) == [0] * 50 + [1] * 50 + [2] * 50


def statuses(folder, *told):
    """Write what items ended with, one after the other in one run; return the statuses of the lines."""
    writer = TraceWriter(folder, CARD)
    for check, status, *other in told:
        facts = FACTS | {"status": status, "fib_check": check}
        writer.add(DEFINITION, WORKLOAD, *(other or [SOLUTION]), facts, text="", timed=check == "test_speed")
    return [trace.value.evaluation.status for trace in load_traces(trace_path(folder, DEFINITION))]


@pytest.mark.parametrize("other", [{"author": "you"}, {"sources": (SourceFile("main.py", "x = 2\n"),)}])
def test_solutions_of_one_name_have_a_line_each(tmp_path, other):
    told = [("test_speed", "PASSED", SOLUTION), ("test_speed", "PASSED", replace(SOLUTION, **other))]
    assert statuses(tmp_path, *told) == ["PASSED", "PASSED"]


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        ("correct TIMEOUT, correct PASSED, speed PASSED", "TIMEOUT PASSED"),
        ("correct PASSED, speed TIMEOUT, speed PASSED", "TIMEOUT PASSED"),
        ("speed PASSED, speed TIMEOUT", "PASSED TIMEOUT"),
        ("correct TIMEOUT, correct RUNTIME_ERROR, speed RUNTIME_ERROR", "TIMEOUT RUNTIME_ERROR"),
        ("correct TIMEOUT, speed PASSED", "TIMEOUT"),
        ("correct TIMEOUT, speed RUNTIME_ERROR, speed PASSED", "TIMEOUT"),
        ("speed PASSED, speed PASSED", "PASSED"),
    ],
)
def test_an_item_that_is_run_again_has_the_last_word_of_itself_only(tmp_path, told, lines):
    items = [each.split() for each in told.split(", ")]
    found = statuses(tmp_path, *((f"test_{check}", status) for check, status in items))
    assert found == lines.split()


@pytest.mark.parametrize(
    ("told", "correct", "speed"),
    [
        ("speed PASSED", None, "PASSED"),
        ("correct PASSED, speed PASSED", "PASSED", "PASSED"),
        ("correct TIMEOUT", "TIMEOUT", "TIMEOUT"),
        ("speed TIMEOUT", "TIMEOUT", "TIMEOUT"),
        ("correct PASSED, speed PASSED; speed PASSED", "PASSED", "PASSED"),
        ("correct TIMEOUT; speed PASSED", "TIMEOUT", "PASSED"),
        ("speed PASSED; correct TIMEOUT", "TIMEOUT", "TIMEOUT"),
    ],
)
def test_a_right_time_spares_no_other_check(tmp_path, told, correct, speed):
    """Timed calls are few, on inputs of one kind; runs are separated by semicolons."""
    for run in told.split("; "):
        statuses(tmp_path, *((f"test_{check}", status) for check, status in map(str.split, run.split(", "))))
    path = trace_path(tmp_path, DEFINITION)
    held = [find(path, check=f"test_{check}") for check in ("correct", "speed")]
    assert [each and each.status for each in held] == [correct, speed]


def test_a_line_that_does_not_say_what_passed_spares_nothing(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text().replace('"checked"', '"unknown"'))
    assert find(path) is None
