"""--fib-results: one benchmark result per solution and definition."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.run.termination import Termination, register

from .repository import GOOD, QUICK, WRONG

BROKEN = "def run(x, w:\n    return x\n"

UNREADABLE = {
    "brace.json": '{"name": "z", "definition": "scale_add_h8",',
    "table/config.toml": '[solution]\ndefinition = "scale_add_h8"\n[build\n',
    "paren.py": 'definition = "scale_ad_h8"\n\n\ndef run(x, w:\n',
    "none.json": "{",
}


def read(repository, name="results.jsonl"):
    return [json.loads(line) for line in (repository.root / name).read_text().splitlines()]


def test_success_compile_failure_and_wrong_answer(repository):
    repository.solve("broken", BROKEN)
    repository.solve("wrong", WRONG)
    repository.sizes(4, 6)
    done = repository.run("-k", "test_correct or test_speed", "--fib-results=results.jsonl", "--fib-scope=full")
    assert "--fib-results: 3 benchmark results in " in done.output
    broken, good, wrong = read(repository)
    assert {each["kernel_id"] for each in (broken, good, wrong)} == {"scale_add_h8"}
    assert {each["source"] for each in (broken, good, wrong)} == {"tests"}
    assert good["device"]["name"]
    assert good["compiled"] is True
    assert good["time_unit"] == "ms"
    assert 0 < good["time"] < 1000
    assert good["speedup"] > 0
    assert good["max_diff"] >= 0
    assert good["workloads"] == 2
    assert broken["compiled"] is False
    assert broken["status"] == "COMPILE_ERROR"
    assert broken["file"] == "solutions/tests/scale_add_h8/broken.json"
    assert "'(' was never closed" in broken["compile_error"]
    assert not {"time", "speedup", "max_diff"} & broken.keys()
    assert wrong["compiled"] is True
    assert wrong["status"] == "INCORRECT_NUMERICAL"
    assert wrong["max_diff"] >= 1
    assert "time" not in wrong
    assert {each["check"] for each in wrong["failures"]} == {"test_correct", "test_speed"}
    lines = wrong["failures"][0]["text"].splitlines()
    assert lines[0].startswith("INCORRECT_NUMERICAL: ")
    assert lines[-1].startswith("  replay: pytest ")
    assert main(["validate", str(repository.root / "results.jsonl")]) == 0


def test_what_hangs_or_dies_while_it_is_imported_is_not_compiled(repository):
    (repository.root / "solutions/tests/scale_add_h8/good.json").unlink()
    repository.solve("dies", f"import os\n\nos._exit(0)\n{GOOD}")
    repository.solve("dies_later", "import os\n\n" + GOOD.replace("    return", "    os._exit(0)\n    return"))
    repository.solve("hangs", f"while True:\n    pass\n{GOOD}")
    options = ("-k", "test_correct or test_sizes", "--fib-build-timeout=3", "--fib-results=results.jsonl")
    done = repository.run(*options)
    found = {each["solution"]: each for each in read(repository)}
    assert {name: each["compiled"] for name, each in found.items()} == {
        "dies": False,
        "dies_later": True,
        "hangs": False,
    }
    assert found["hangs"]["compile_error"].startswith("TIMEOUT: no answer within 3 s")
    assert found["dies"]["compile_error"].startswith("RUNTIME_ERROR: the worker died: exit status 0")
    assert found["dies_later"]["status"] == "RUNTIME_ERROR"
    assert {case.properties["status"] for case in done.of("hangs")} == {"TIMEOUT"}
    assert main(["validate", str(repository.root / "results.jsonl")]) == 0


def test_a_solution_that_was_not_timed_has_no_time(repository):
    repository.run("-k", "test_correct", "--fib-results=deep/er/results.jsonl")
    [only] = read(repository, "deep/er/results.jsonl")
    assert (only["status"], only["compiled"]) == ("NOT_TIMED", True)
    assert "time" not in only


@pytest.mark.parametrize("option", ["--fib-results", "--fib-report", "--benchmark-json"])
def test_a_place_that_cannot_be_written_stops_the_run_at_once(repository, kernels, option):
    if option == "--fib-report":
        pytest.importorskip("plotly")
    repository.write("taken", "a file")
    result = kernels(f"{option}=taken/results")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option}: *taken/results cannot be written: *"])


def test_a_kernel_in_place_of_the_results_stays(repository, kernels):
    path = repository.write("solutions/mine.py", f"definition = 'scale_add_h8'\n\n\n{GOOD}")
    result = kernels("--fib-results=solutions/mine.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-results: *mine.py is there and is no file of benchmark results: *"])
    assert path.read_text().endswith(GOOD)


@pytest.fixture
def old(repository):
    """Results of an earlier run."""
    return repository.write("results.jsonl", '{"kernel_id": "scale_add_h8", "solution": "old"}\n')


def interrupted(repository, number, *options):
    """Send a signal to a run once it has told of the first of two solutions; return its exit code and output."""
    repository.solve("slow", "import time\n" + GOOD.replace("    return", "    time.sleep(40)\n    return"))
    command = [sys.executable, "-m", "pytest", "--fib-solutions=solutions", *QUICK, "-k", "test_correct"]
    command += ["--fib-results=results.jsonl", "-v", *options]
    output, unbuffered = "", os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=repository.root, env=unbuffered, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as run:
        while "PASSED" not in output and run.poll() is None:
            output += os.read(run.stdout.fileno(), 1 << 16).decode()
        time.sleep(1)
        run.send_signal(number)
        output += run.stdout.read().decode()
        return run.wait(60), output


@pytest.mark.parametrize(
    ("number", "options"), [(signal.SIGINT, ()), (signal.SIGTERM, ("-n1",))], ids=["alone", "distributed"]
)
def test_an_interrupted_run_writes_what_it_has(repository, old, number, options):
    code, output = interrupted(repository, number, *options)
    assert code == 2, output
    assert "KeyboardInterrupt" in output
    assert [each["solution"] for each in read(repository)] == ["good"]


@pytest.mark.parametrize("options", [(), ("-n", "1"), ("--fib-shard=1/2",)], ids=["alone", "processes", "shard"])
def test_a_file_that_cannot_be_read_is_told_from_one_that_never_came(repository, options):
    for name, text in UNREADABLE.items():
        repository.write(f"solutions/{name}", text)
    repository.run("-k", "schema", "--fib-results=results.jsonl", *options)
    found = {each["solution"]: each for each in read(repository)}
    assert {name: each["kernel_id"] for name, each in found.items()} == {
        "brace": "scale_add_h8",
        "table": "scale_add_h8",
        "paren": "scale_ad_h8",
        "none": "unknown",
    }
    for name, each in found.items():
        assert each["compiled"] is False
        assert each["status"] == "COMPILE_ERROR"
        assert each["compile_error"].startswith(f"solutions/{name}")
        assert each["file"] in [f"solutions/{path}" for path in UNREADABLE]
    assert main(["validate", str(repository.root / "results.jsonl")]) == 0


def test_the_other_part_of_a_run_leaves_it_to_the_first(repository):
    repository.write("solutions/none.json", "{")
    repository.run("-k", "schema", "--fib-results=results.jsonl", "--fib-shard=2/2")
    assert read(repository) == []


def test_a_file_that_is_named_and_cannot_be_read_is_in_there_too(repository, pytester):
    path = repository.write("none.json", "{")
    result = pytester.runpytest_inprocess(f"--fib-solutions={path}", "--fib-device=cpu", "--fib-results=results.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [each["solution"] for each in read(repository)] == ["none"]


def test_a_killed_run_leaves_no_results_of_an_earlier_one(repository, old):
    code, output = interrupted(repository, signal.SIGKILL)
    assert code == -signal.SIGKILL, output
    assert not old.exists()


@pytest.mark.parametrize("option", ["--collect-only", "--setup-plan"])
def test_a_run_that_lists_only_leaves_results_alone(repository, old, option):
    done = repository.run(option, "--fib-results=results.jsonl")
    assert done.code == 0
    assert [each["solution"] for each in read(repository)] == ["old"]
    assert "benchmark result" not in done.output


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def sigint(request):
    """What processes do at SIGINT; a shell without a terminal has what it runs in the background ignore it."""
    own = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, own)


def test_sigterm_interrupts_the_processes_that_run_items(sigint):
    """Who closes their pipe only, as pytest-xdist does, leaves them five seconds for the item that they are at."""
    termination = Termination()
    with subprocess.Popen(["sleep", "60"]) as runs, subprocess.Popen(["true"]) as ended:
        ended.wait()
        for process in (runs, ended, None):
            gateway = SimpleNamespace(_io=SimpleNamespace(popen=process))
            termination.pytest_testnodeready(SimpleNamespace(gateway=gateway))
        with pytest.raises(KeyboardInterrupt):
            termination._interrupt(signal.SIGTERM, None)
        assert ended.returncode == 0
        assert runs.wait(10) == -(signal.SIGTERM if sigint is signal.SIG_IGN else signal.SIGINT)


def test_processes_that_run_items_take_sigterm_over_where_sigint_is_ignored(sigint):
    config = SimpleNamespace(pluginmanager=pytest.PytestPluginManager())
    register(config)
    assert config.pluginmanager.has_plugin("flashinfer-termination") == (sigint is signal.SIG_IGN)


def test_who_handles_sigterm_keeps_it(repository):
    """Within the run it is Ctrl-C unless somebody else has it, and afterwards it is what it was."""
    seen = "import signal\n\ndef pytest_runtestloop():\n    print('handler', repr(signal.getsignal(signal.SIGTERM)))\n"
    repository.write("conftest.py", seen)
    own = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert f"handler {signal.SIG_IGN!r}" in repository.run("-k", "test_schema", "-s").output
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert "handler <bound method Termination." in repository.run("-k", "test_schema", "-s").output
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, own)
