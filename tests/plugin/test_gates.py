"""--fib-min-speedup, --fib-baseline, --fib-threshold and their marks: only what repeats fails, in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_flashinfer.timing import measurement, timed_calls

from .pages import blocks, execute

ROOT = Path(__file__).parents[2]
SPEED = ("-k", "test_speed")


@pytest.fixture
def clock(monkeypatch):
    """Let measurements have durations of our own choice, in microseconds; the reference takes 100."""
    lists: list[list[float]] = []
    own = measurement.Measurement.durations.fget

    def measure(session, kernel, *arguments):
        found = measurement.measure(session, kernel, *arguments)
        assert found.complete
        took = [100.0] if kernel.solution.name == "reference" else lists.pop(0) if len(lists) > 1 else lists[0]
        object.__setattr__(found, "card", {"took": [1e-6 * each for each in took]})
        return found

    monkeypatch.setattr(timed_calls, "measure", measure)
    monkeypatch.setattr(
        measurement.Measurement, "durations", property(lambda self: self.card.get("took") or own(self))
    )

    def durations(*each):
        lists[:] = [[one] * 10 if isinstance(one, (int, float)) else one for one in each]

    return durations


@pytest.fixture(scope="module")
def earlier():
    """What the run that is held against has written, once there is one."""
    return {}


@pytest.fixture
def saved(repository, clock, earlier):
    """base.json, of a run in which the kernel took 100 microseconds."""
    path = repository.root / "base.json"
    if not earlier:
        clock(100)
        assert repository.run(*SPEED, "--benchmark-json=base.json").code == 0
        earlier["text"] = path.read_text()
    path.write_text(earlier["text"])
    return path


def test_too_slow_is_one_line_and_the_kernel_is_still_right(repository, clock):
    clock(80)
    done = repository.run(*SPEED, "--fib-min-speedup=2", "--fib-traces=traces")
    assert done.code == 1
    speed = done["test_speed"]
    line = "LOW_SPEEDUP: 1.25x is below 2x (80 us, the reference 100 us): measured twice"
    assert speed.text.splitlines()[0] == line
    assert speed.properties["status"] == "PASSED"
    assert re.search(r"good +tests +1/1 +80 us +1\.25x .* 1 LOW_SPEEDUP", done.output)
    (trace,) = (repository.root / "traces/elementwise/scale_add_h8.jsonl").read_text().splitlines()
    assert json.loads(trace)["evaluation"]["status"] == "PASSED"


def test_what_is_slow_once_passes(repository, clock):
    clock(80, 40)
    done = repository.run(*SPEED, "--fib-min-speedup=2", "--benchmark-json=run.json")
    assert done.code == 0
    (entry,) = json.loads((repository.root / "run.json").read_text())["benchmarks"]
    assert entry["stats"]["median"] == pytest.approx(40e-6)
    assert entry["extra_info"]["speedup"] == pytest.approx(2.5)


def test_a_second_measurement_is_judged_like_the_first(repository, clock):
    """A kernel that is right while it is slow and wrong once it is asked again does not pass."""
    source = "calls = 0\n\ndef run(x, w):\n    global calls\n    calls += 1\n    return x * w + 1 + (calls > 8)\n"
    repository.solve("good", source)
    clock(80, 40)
    done = repository.run(*SPEED, "--fib-min-speedup=2")
    assert done["test_speed"].properties["status"] == "INCORRECT_NUMERICAL"


CONFTEST = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.{mark})
"""


def test_by_mark(repository, clock):
    repository.write("definitions/conftest.py", CONFTEST.format(mark="fib_min_speedup(2)"))
    clock(80)
    assert repository.run(*SPEED, "-o", "fib_min_speedup=1").code == 1
    assert repository.run(*SPEED, "--fib-min-speedup=1").code == 0


def test_the_mark_as_the_page_shows_it_is_of_its_folder(repository, clock):
    """pytest hands the hook of every conftest.py all items of a run."""
    [block] = [each for each in blocks(ROOT / "docs/timing.md") if each.file == "definitions/gemm/conftest.py"]
    execute(block, repository.root)
    repository.define(name="scale_add_h4", op_type="gemm")
    repository.sizes(4, name="scale_add_h4", folder="gemm")
    repository.solve("other", of="scale_add_h4")
    clock(95)
    done = repository.run(*SPEED)
    assert {name: done[f"test_speed[{name}"].outcome for name in ("good", "other")} == {
        "good": "passed",
        "other": "failure",
    }
    assert "LOW_SPEEDUP: 1.05x is below 1.1x" in done["test_speed[other"].text


def test_slower_twice_fails(repository, clock, saved):
    clock(120)
    done = repository.run(*SPEED, "--fib-baseline=base.json")
    assert done.code == 1
    line = "SLOWER: 120 us against 100 us (+20.0%, within +20.0% to +20.0%; threshold 5.0%)"
    assert done["test_speed"].text.splitlines()[0] == f"{line}: measured twice"
    assert f"scale_add_h8 good w-0004: {line}" in done.output
    assert "1 SLOWER" in done.output


def test_what_passes_neither_gate_says_so_of_both(repository, clock, saved):
    clock(120)
    done = repository.run(*SPEED, "--fib-baseline=base.json", "--fib-min-speedup=2")
    speed = done["test_speed"]
    assert [line.partition(":")[0] for line in speed.text.splitlines()[:2]] == ["SLOWER", "LOW_SPEEDUP"]
    assert speed.properties["fib_gate"] == "SLOWER"
    assert "1 SLOWER" in done.output


def test_slower_once_passes(repository, clock, saved):
    clock(120, 101)
    done = repository.run(*SPEED, "--fib-baseline=base.json")
    assert done.code == 0
    assert "1 SAME" in done.output


def test_not_slower_by_what_matters(repository, clock, saved):
    clock([90.0, 130.0] * 5)
    done = repository.run(*SPEED, "--fib-baseline=base.json", "--fib-threshold=20%", "--benchmark-json=run.json")
    assert done.code == 0
    assert "1 UNDECIDED" in done.output
    assert "w-0004: UNDECIDED: 110 us against 100 us" in done.output
    (entry,) = json.loads((repository.root / "run.json").read_text())["benchmarks"]
    assert entry["extra_info"]["baseline"] == "UNDECIDED"


def test_what_the_baseline_does_not_know_is_counted(repository, clock, saved):
    repository.solve("new")
    clock(100)
    done = repository.run(*SPEED, "--fib-baseline=base.json")
    assert done.code == 0
    section = done.output.partition("= against the baseline =")[2].splitlines()
    assert section[1:3] == ["1 SAME", "1 of 2 timings are in the baseline"]
    assert "nothing was compared" not in done.output
    quiet = repository.run(*SPEED, "--fib-baseline=base.json", "-q")
    assert "against the baseline: 1 of 2 timings are in the baseline" in quiet.output.splitlines()


@pytest.mark.parametrize("options", [(), ("-q",), ("-n1",)], ids=" ".join)
def test_a_baseline_that_has_none_of_the_timings_is_warned_of(repository, clock, saved, options):
    clock(100)
    document = json.loads(saved.read_text())
    document["benchmarks"][0]["fullname"] = "elsewhere.json::test_speed[good]"
    saved.write_text(json.dumps(document))
    done = repository.run(*SPEED, "--fib-baseline=base.json", *options)
    assert done.code == 0
    assert done.output.count("0 of 1 timings are in the baseline") == 1
    assert done.output.count("--fib-baseline: nothing was compared: ") == 1
    assert "base.json has no timing of this run" in done.output
    assert "1 warning" in done.output


def test_a_warning_that_is_an_error_fails_the_run(repository, clock, saved):
    repository.solve("new")
    clock(100)
    done = repository.run("-k", "test_speed and new", "--fib-baseline=base.json", "-W", "error")
    assert done.code == 1
    assert "--fib-baseline: nothing was compared: " in done.output


def test_a_quiet_run_says_what_somebody_has_to_read(repository, clock, saved):
    quiet = (*SPEED, "--fib-baseline=base.json", "-q")
    clock(100)
    assert "baseline" not in repository.run(*quiet).output
    clock([90.0, 130.0] * 5)
    lines = repository.run(*quiet).output.splitlines()
    assert "against the baseline: 1 UNDECIDED" in lines
    assert any(line.startswith("scale_add_h8 good w-0004: UNDECIDED: 110 us against 100 us") for line in lines)


NOTHING = "nothing was judged: this run has timed nothing"


@pytest.mark.parametrize("options", [("--benchmark-skip",), ("-k", "test_schema"), ("--benchmark-skip", "-n1")])
def test_gates_that_judge_nothing_are_warned_of(repository, saved, options):
    gates = ("--fib-min-speedup=2", "--fib-baseline=base.json")
    done = repository.run(*options, *gates, "-q")
    assert done.code == 0
    assert done.output.count(f"--fib-min-speedup and --fib-baseline: {NOTHING}") == 1
    assert ("(--benchmark-skip)" in done.output) == ("--benchmark-skip" in options)


@pytest.mark.parametrize(
    "options",
    [
        ("-k", "test_schema", "-o", "fib_min_speedup=2"),  # for all runs in this folder
        ("-k", "test_speed or test_correct", "--fib-min-speedup=2"),  # what is wrong is not timed, and says so
        ("--collect-only", "--fib-min-speedup=2"),
    ],
)
def test_no_warning_where_nobody_would_think_that_a_gate_was_passed(repository, options):
    repository.solve("good", "def run(x, w):\n    return x * w\n")
    assert NOTHING not in repository.run(*options).output


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--fib-min-speedup=scale_add_h9: 1000", "'scale_add_h9'; did you mean 'scale_add_h8'?"),
        ("--fib-threshold=elementwize: 1%", "'elementwize'; did you mean 'elementwise'?"),
        ("--fib-tolerance=nosuchdef: rtol=1e-2", "'nosuchdef'"),
        ("--fib-tolerance=gemm_*: rtol=1e-2", "'gemm_*'"),
    ],
)
def test_a_name_that_nothing_has_is_warned_of_once(repository, option, said):
    switch = option.partition("=")[0]
    assert warned_of(repository, option) == f"{switch}: no definition and no op_type of this run is {said}"


def test_several_processes_warn_of_a_name_once_as_well(repository):
    assert warned_of(repository, "--fib-threshold=gemm: 1%", "-n2").endswith("no op_type of this run is 'gemm'")


def warned_of(repository, option, *more):
    """Give an option twice; return the one warning that follows, from the option on."""
    done = repository.run(option, option, "-k", "test_schema", *more)
    assert done.code == 0
    (line,) = [line for line in done.output.splitlines() if "no definition and no op_type of this run" in line]
    assert line.startswith("  command line:0: RunWarning: --")  # and at none of the plugin's own lines
    return line[line.index("--") :]


@pytest.mark.parametrize(
    "options",
    [
        ("--fib-min-speedup=scale_*: 2", "--fib-threshold=elementwise:1%", "--fib-tolerance=rtol=1e-2"),
        ("--fib-min-speedup=shift_h8: 2", "-k", "scale_add_h8"),  # it is here, and others were chosen
        ("--fib-min-speedup=2", "-o", "fib_min_speedup=gemm_*: 2", "-o", "fib_tolerance=gemm: rtol=1"),
    ],
)
def test_names_that_are_here_or_meant_for_several_folders_are_not(two, options):
    done = two.run("--collect-only", *options)
    assert done.code == 0
    assert "no definition and no op_type" not in done.output


def test_a_threshold_without_a_baseline_is_warned_of(repository, saved):
    said = "command line:0: RunWarning: --fib-threshold: nothing is compared: say with --fib-baseline=FILE"
    assert said in repository.run("--fib-threshold=1%", "--collect-only").output
    for options in (("--fib-threshold=1%", "--fib-baseline=base.json"), ("-o", "fib_threshold=1%")):
        assert "nothing is compared" not in repository.run(*options, "--collect-only").output


def test_a_wrong_name_ends_a_run_whose_warnings_are_errors(repository):
    done = repository.run("--fib-min-speedup=nobody: 2", "-W", "error")
    assert done.code == 4
    assert "--fib-min-speedup: no definition and no op_type of this run is 'nobody'" in done.output


def test_another_card_is_refused(repository, saved):
    document = json.loads(saved.read_text())
    document["machine_info"]["flashinfer"]["card"] = "NVIDIA H100 PCIe"
    saved.write_text(json.dumps(document))
    done = repository.run(*SPEED, "--fib-baseline=base.json")
    assert done.code == 4
    assert "--fib-baseline: " in done.output
    assert "was measured on NVIDIA H100 PCIe, which is not this " in done.output


@pytest.mark.parametrize(
    "option", ["--fib-min-speedup=fast", "--fib-threshold=-1", "--fib-threshold=5", "--fib-baseline=none.json"]
)
def test_usage_errors(repository, option):
    done = repository.run(*SPEED, option)
    assert done.code == 4
    assert f"{option.partition('=')[0]}: " in done.output


def test_saved_runs_of_another_card_are_marked_when_compared(repository, clock):
    clock(100)
    assert repository.run(*SPEED, "--benchmark-autosave").code == 0
    (path,) = repository.root.glob(".benchmarks/*/0001_*.json")
    document = json.loads(path.read_text())
    card = document["machine_info"]["flashinfer"]["card"]
    document["machine_info"]["flashinfer"]["card"] = "NVIDIA H100 PCIe"
    path.write_text(json.dumps(document))
    done = repository.run(*SPEED, "--benchmark-compare")
    assert done.code == 0
    assert f"--benchmark-compare: that run was on NVIDIA H100 PCIe, this one is on {card}" in done.output
