"""Options, their ini keys, and what is said about a bad value."""

import json
import re
import shlex
import shutil

import pytest

from pytest_flashinfer.settings import options
from pytest_flashinfer.settings.declarations import DECLARATIONS
from pytest_flashinfer.worker.device import find

from .repository import WRONG


def test_help_has_one_group_with_every_option(pytester):
    result = pytester.runpytest_inprocess("--help")
    text = result.stdout.str()
    assert text.count("GPU kernels (pytest-flashinfer):") == 1
    group = text.partition("GPU kernels (pytest-flashinfer):")[2]
    for option in DECLARATIONS:
        assert option.switch in group
        assert f"fib_{option.dest} (" in group, "ini keys are listed with their types"


def test_help_of_a_switch_names_its_ini_key(pytester):
    text = re.sub(r"\s+", " ", pytester.runpytest_inprocess("--help").stdout.str())
    assert [option.key for option in DECLARATIONS if f"(ini: {option.key})" not in text] == []


@pytest.mark.parametrize("name", ["definitions", "solutions", "workloads"])
def test_a_path_that_does_not_exist_is_a_usage_error(kernels, name):
    result = kernels(f"--fib-{name}=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --fib-{name}: nowhere does not exist*"])


def test_no_definitions_at_all_is_a_usage_error(pytester):
    pytester.mkdir("solutions")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: no definitions: *--fib-definitions=PATH*"])


@pytest.mark.parametrize(
    "option",
    [
        "--fib-scope=tiny",
        "--fib-policy=none",
        "--fib-timeout=soon",
        "--fib-timeout=0",
        "--fib-timeout=nan",
        "--fib-build-timeout=inf",
        "--fib-seconds=-1",
        "--fib-seed=-1",
        f"--fib-seed={1 << 63}",
        "--fib-examples=few",
        "--fib-examples=0",
    ],
)
def test_a_value_that_cannot_be_read_is_a_usage_error(kernels, option):
    result = kernels(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option.partition('=')[0]}*"])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--fib-traces=out/a_file", "a_file is a file: name a folder"),
        ("--fib-definitions=out/a_file", "a_file is no definition: its name has to end in .json"),
        ("--fib-solutions=out/a_file", "a_file is no solution: its name has to end in .json or .py or config.toml"),
        ("--fib-workloads=out/a_file", "a_file is no file of workloads: its name has to end in .jsonl or .json"),
        ("--fib-save-failures", "there is no folder of workloads; name one with --fib-workloads=DIR"),
    ],
)
def test_what_could_come_to_nothing_only_is_a_usage_error(repository, kernels, option, said):
    repository.solve("good")
    repository.write("out/a_file", "")
    shutil.rmtree(repository.root / "workloads")
    result = kernels(option, "-k", "test_schema")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option.partition('=')[0]}: *{said}"])


INI_VALUES = [
    ("fib_timeout", "soon"),
    ("fib_timeout", "-1"),
    ("fib_build_timeout", "0"),
    ("fib_scope", "tiny"),
    ("fib_layouts", "Strided"),
    ("fib_cache", "hot"),
    ("fib_policy", "none"),
    ("fib_seed", "x"),
    ("fib_save_failures", "maybe"),
    ("fib_huge", "maybe"),
    ("fib_require_gpu", "2"),
]


@pytest.mark.parametrize(("key", "value"), INI_VALUES)
def test_an_ini_value_that_cannot_be_read_is_a_usage_error(pytester, kernels, key, value):
    pytester.makeini(f"[pytest]\n{key} = {value}")
    result = kernels()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{key}*{value}*"])


def test_no_option_takes_an_empty_value(pytester, repository):
    """It is a variable that a shell does not know: it would switch off a gate, or run all below the current folder."""
    for number, option in enumerate(each for each in DECLARATIONS if not each.flag):
        with pytest.raises(pytest.UsageError, match=option.switch):
            options.read(pytester.parseconfig(f"{option.switch}={' ' * (number % 2)}", "--fib-scope=full"))


def test_no_ini_key_takes_an_empty_value(pytester, repository):
    for option in DECLARATIONS:
        pytester.makeini(f"[pytest]\n{option.key} =\n")
        with pytest.raises(pytest.UsageError, match=option.key):
            options.read(pytester.parseconfig())


def test_an_empty_value_of_the_command_line_is_no_reason_to_take_that_of_the_ini_file(pytester, kernels):
    pytester.makeini("[pytest]\nfib_results = results.jsonl")
    result = kernels("--fib-results=")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-results: there is no value: give one, or leave it out"])


@pytest.mark.parametrize("spelling", ["rtol", "rtol=small", "nonsense=1"])
def test_a_tolerance_that_cannot_be_read_is_a_usage_error(kernels, spelling):
    result = kernels(f"--fib-tolerance={spelling}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*tolerance*"])


INI = """
[pytest]
fib_definitions = data/definitions
fib_solutions = data/solutions
fib_workloads = data/workloads
fib_device = cpu
fib_scope = full
fib_seed = 77
fib_seconds = 2
fib_examples = 5
fib_timeout = 30
fib_build_timeout = 50
fib_reference_timeout = 40
fib_tolerance =
    elementwise: rtol=1e-4
fib_layouts = strided
fib_policy = custom-kernel
fib_cache = warm
fib_save_failures = false
fib_huge = false
fib_require_gpu = false
fib_traces = traces
fib_resume = false
fib_shard = 1/1
fib_build_jobs = 2
fib_results = ~/results.jsonl
fib_report = report.html
fib_calls = data/calls.json
fib_min_speedup = 0.5
fib_threshold = 10%
fib_baseline = data/base.json
"""


def test_every_ini_key(pytester, repository, monkeypatch):
    """Relative paths start from the folder of the ini file, wherever pytest is called, and `~` is the home folder."""
    home = pytester.mkdir("home")
    monkeypatch.setenv("HOME", str(home))
    data = pytester.mkdir("data")
    for name in ("definitions", "solutions", "workloads"):
        (repository.root / name).rename(data / name)
    repository.write("data/calls.json", '{"model": "m", "framework": "vLLM", "kernels": []}')
    machine = {"flashinfer": {"card": find("cpu").name}}
    repository.write("data/base.json", json.dumps({"machine_info": machine, "benchmarks": []}))
    pytester.makeini(INI)
    assert all(option.key in INI for option in DECLARATIONS)
    result = pytester.runpytest_inprocess("-k", "test_correct", "data")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["flashinfer: *scope full*--fib-seed=77*"])
    result.assert_outcomes(passed=1, deselected=4)
    assert (home / "results.jsonl").exists()


def test_the_command_line_wins_over_the_ini_file(pytester, repository, kernels):
    pytester.makeini("[pytest]\nfib_seed = 77\nfib_scope = full")
    result = kernels("--fib-seed=5", "--fib-scope=smoke", "--collect-only")
    result.stdout.fnmatch_lines(["flashinfer: *scope smoke*--fib-seed=5*"])


def test_the_seed_decides_the_inputs(pytester, repository):
    """The solution reports what it was given; another seed gives other values, the same seed the same."""
    repository.solve("good", "def run(x, w):\n    print('sum', float(x.sum()))\n    return x * w + 1\n")

    def seen(seed):
        done = repository.run("-k", "test_correct", f"--fib-seed={seed}", "-rP")
        assert done.code == 0, done.output
        return re.findall(r"sum (\S+)", done.output)

    first, again, other = seen(1), seen(1), seen(2)
    assert first
    assert first == again != other


def test_without_a_seed_each_run_draws_one_and_prints_it(kernels):
    seeds = {re.search(r"--fib-seed=(\d+)", kernels("--collect-only").stdout.str())[1] for _ in range(2)}
    assert len(seeds) == 2


def test_help_can_be_read_where_there_is_nothing_to_run(pytester):
    pytester.makeini("[pytest]\nfib_timeout = 30")
    result = pytester.runpytest_inprocess("--help")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--fib-timeout=SECONDS*"])


def test_one_ini_key_is_enough_to_wake_the_plugin(pytester, repository):
    pytester.makeini("[pytest]\nfib_scope = full")
    result = pytester.runpytest_inprocess("--collect-only", "-q")
    result.stdout.fnmatch_lines(["definitions/elementwise/scale_add_h8.json::test_schema"])


def test_the_replay_of_a_failure_has_every_option_that_was_given(pytester, repository, kernels):
    """It can be pasted into a shell, whatever the values hold."""
    repository.solve("good", "def run(x, w):\n    return x\n")
    options = ("--fib-timeout=7.5", "--fib-tolerance=rtol=1e-3 atol=1e-3", "--fib-save-failures", "--fib-seed=0x10")
    result = kernels("-k", "test_correct", *options)
    [line] = [line for line in result.outlines if line.strip().startswith("replay: ")]
    words = shlex.split(line.partition("replay: ")[2])
    assert words[:2] == ["pytest", "definitions/elementwise/scale_add_h8.json::test_correct[good-n4-w_0004]"]
    assert {"--fib-solutions=solutions", "--fib-device=cpu", "--fib-seed=16", *options[:2]} <= set(words)
    assert "--fib-save-failures" not in words
    assert words.count("--fib-seed=16") == sum(word.startswith("--fib-seed") for word in words) == 1
    again = pytester.runpytest_inprocess(*words[1:])
    again.assert_outcomes(failed=1)
    error = [line for line in result.outlines if line.startswith("INCORRECT_NUMERICAL")]
    assert error == [line for line in again.outlines if line.startswith("INCORRECT_NUMERICAL")], "the same inputs"


@pytest.mark.parametrize(
    ("reference", "name"),
    [("def run(x, w):\n    return x @ w.nothing\n", "test_reference[n4-w_0004]"), ("def run(x\n", "test_schema")],
)
def test_a_fault_of_the_definition_has_its_command_as_well(pytester, repository, kernels, reference, name):
    repository.define(reference=reference)
    result = kernels("-k", name.partition("[")[0], "--fib-seed=3")
    [line] = [line for line in result.outlines if line.strip().startswith("replay: ")]
    words = shlex.split(line.partition("replay: ")[2])
    assert words[1] == f"definitions/elementwise/scale_add_h8.json::{name}"
    assert words[-1] == "--fib-seed=3"
    pytester.runpytest_inprocess(*words[1:]).assert_outcomes(failed=1)


def test_a_replay_names_one_solution_where_that_is_enough(pytester, repository, kernels):
    """Where two have one name, which is called what follows from both."""
    for folder, names in (("a", "one same"), ("b", "two same")):
        for name in names.split():
            repository.write(f"{folder}/{name}.py", f"definition = 'scale_add_h8'\n{WRONG}")
    given = ("--fib-solutions=a/", "--fib-solutions=b/", "--fib-solutions=b/two.py")
    result = kernels(*given, "-k", "test_correct and (one or two or same)")
    lines = [line.partition("replay: ")[2] for line in result.outlines if line.strip().startswith("replay: ")]
    found = {re.search(r"\[(.*?)-", line)[1]: re.findall(r"--fib-solutions=(\S+)", line) for line in lines}
    every = ["solutions", "a/", "b/", "b/two.py"]
    assert found == {"one": ["a/"], "two": ["b/"], "same": ["a/"], "unknown.same": every}


def test_a_failure_is_replayed_from_where_it_was_seen(pytester, repository, kernels):
    """Its path leads there from the current folder, wherever pytest thinks that its root is."""
    repository.solve("good", "def run(x, w):\n    return x\n")
    elsewhere = pytester.mkdir("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        places = [f"--fib-{name}=../{name}" for name in ("definitions", "solutions", "workloads")]
        result = pytester.runpytest_inprocess(*places, "--fib-device=cpu", "-k", "test_correct")
        [line] = [line for line in result.outlines if line.strip().startswith("replay: ")]
        again = pytester.runpytest_inprocess(*shlex.split(line.partition("replay: ")[2])[1:])
    again.assert_outcomes(failed=1)


@pytest.mark.parametrize("file", ["elementwise/a::b", "elementwise/c[1]", "d[2]/plain"])
def test_a_failure_in_a_file_whose_name_pytest_cannot_be_told_is_replayed_by_its_folder(pytester, repository, file):
    folder, _, stem = file.partition("/")
    repository.define(name="scale_other", folder=folder, stem=stem, reference="def run(x, w):\n    return x * w + 2\n")
    repository.sizes(4, name="scale_other", folder="elementwise")
    repository.solve("wrong", of="scale_other")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--fib-device=cpu", "-k", "test_correct")
    [line] = [line for line in result.outlines if line.strip().startswith("replay: ")]
    again = pytester.runpytest_inprocess(*shlex.split(line.partition("replay: ")[2])[1:])
    assert again.parseoutcomes()["failed"] == 1
    again.stdout.fnmatch_lines(["INCORRECT_NUMERICAL: y*"])


def test_a_failure_takes_one_line_of_the_summary_in_ci_as_well(repository, kernels, monkeypatch):
    """There pytest cuts nothing, and a message of ten lines would stand there again."""
    monkeypatch.setenv("CI", "true")
    repository.solve("good", "def run(x, w):\n    return x\n")
    result = kernels("-k", "test_correct", "--tb=no")
    start = next(number for number, line in enumerate(result.outlines) if "short test summary" in line)
    summary = result.outlines[start + 1 :]
    assert len(summary) == 2, summary
    assert "test_correct[good-n4-w_0004] - RUNTIME_ERROR: y: shares memory with the input x" in summary[0]


def test_so_does_a_failure_of_the_reference(repository, kernels, monkeypatch):
    monkeypatch.setenv("CI", "true")
    repository.define(reference="def run(x, w):\n    return x @ w.nothing\n")
    result = kernels("-k", "test_reference", "--tb=no")
    start = next(number for number, line in enumerate(result.outlines) if "short test summary" in line)
    summary = result.outlines[start + 1 :]
    assert len(summary) == 2, summary
    assert "test_reference[n4-w_0004] - INVALID_REFERENCE: reference fails: the reference raised" in summary[0]


def test_a_file_named_on_the_command_line_needs_no_option(pytester, repository):
    """Its workloads are those of the data set it lies in, wherever pytest is called; its solutions are no strangers."""
    (repository.root / "elsewhere").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repository.root / "elsewhere")
        file = f"{repository.root}/definitions/elementwise/scale_add_h8.json"
        options = ("--fib-solutions=../solutions", "--fib-device=cpu", "--collect-only")
        result = pytester.runpytest_inprocess(file, *options)
    result.stdout.fnmatch_lines(["*test_correct[[]good-n4-w_0004]*"])
    result.stdout.no_fnmatch_line("*solutions that are not run*")


def test_a_place_without_solutions_is_said(pytester, repository, kernels):
    pytester.mkdir("empty")
    result = kernels("-k", "test_schema", "--fib-solutions=empty")
    result.assert_outcomes(passed=1, deselected=4, warnings=1)
    result.stdout.fnmatch_lines([f"*--fib-solutions: no solution in {repository.root}/empty:*"])


def test_a_slip_of_the_pen_in_an_ini_key_is_told(pytester, repository):
    pytester.makeini("[pytest]\nfib_scope = ful\nfib_definitions = definitions")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: */tox.ini:2: ini key fib_scope: 'ful' is none of *; did you mean 'full'?"])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("fib_solutions", "nowhere", "*/nowhere does not exist*"),
        ("fib_definitions", "plain.txt", "*/plain.txt is no definition: *"),
        ("fib_traces", "plain.txt", "*/plain.txt is a file: name a folder"),
        ("fib_device", "tpu", "'tpu': write auto, cpu, *"),
        ("fib_baseline", "nowhere", "*nowhere*"),
        ("fib_tolerance", "rtol", "*"),
        ("fib_min_speedup", "fast", "*write a number above 0*"),
    ],
)
def test_what_an_ini_file_says_is_no_fault_of_the_command_line(pytester, repository, key, value, said):
    repository.write("plain.txt", "")
    pytester.makeini(f"[pytest]\naddopts = -q\n{key} = {value}")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: */tox.ini:3: ini key {key}: {said}"])
    result = pytester.runpytest_inprocess("-o", f"{key}={value}")
    result.stderr.fnmatch_lines([f"ERROR: -o {key}: ini key {key}: {said}"])


def test_so_is_one_in_an_option(pytester):
    result = pytester.runpytest_inprocess("--fib-solution=mine.py", "--fib-second=1", "--fib-device=cpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: *", "  did you mean: --fib-seconds, --fib-solutions"])
    assert "did you mean" not in str(pytester.runpytest_inprocess("--fib-scope=big", "--other").stderr)
