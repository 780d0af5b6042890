"""test_sizes finds the sizes that break a kernel, shrinks them, and says how to see them again."""

from __future__ import annotations

import json
import re
import shutil
from itertools import groupby

import pytest

from .repository import GOOD, WRONG, Repository

TAIL = "def run(x, w):\n    y = x * w + 1\n    if len(x) % 4 == 3:\n        y[-1] = 0\n    return y\n"
CONTIGUOUS = "def run(x, w):\n    return x.as_strided(x.shape, (8, 1)) * w + 1\n"
DIES = "import os\ndef run(x, w):\n    if len(x) > 8:\n        os._exit(3)\n    return x * w + 1\n"
HANGS = "def run(x, w):\n    while len(x) > 8:\n        pass\n    return x * w + 1\n"
TALKS = "def len(x):\n    print('n', x.shape[0])\n    return x.shape[0]\n\n"
BROKEN = "import os\nos._exit(4)\n"
SLOW = "import time\ndef run(x, w):\n    time.sleep(0.2)\n    return x * w + 1\n"
SOURCES = {"good": GOOD, "tail": TAIL, "contiguous": CONTIGUOUS, "dies": DIES, "hangs": HANGS, "broken": BROKEN}
SIZES = ("-k", "test_sizes", "--fib-examples=70", "--fib-seconds=60", "--fib-timeout=2")


def repository_of(root, *names, **more):
    made = Repository(root)
    made.define()
    made.sizes(4)
    for name, source in ({name: SOURCES[name] for name in names} | more).items():
        made.solve(name, source)
    return made


def line_of(case):
    """Return the workload line that a failure ends with."""
    return next(line for line in case.text.splitlines() if line.startswith('{"definition"'))


def seen(case):
    """Return the sizes that a kernel printed, each once however often it was called."""
    return [size for size, _ in groupby(int(line[2:]) for line in case.text.splitlines() if line.startswith("n "))]


def sizes_of(case):
    return json.loads(line_of(case))["workload"]["axes"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    repository = repository_of(tmp_path_factory.mktemp("sizes"), *SOURCES)
    return repository, repository.run(*SIZES, "--hypothesis-show-statistics", "--fib-seed=11")


def test_a_right_kernel_passes_every_case(run):
    case = run[1]["test_sizes[good]"]
    assert case.outcome == "passed"
    assert case.properties["tried"] == "70"


def test_a_tail_is_found_and_shrunk(run):
    case = run[1]["test_sizes[tail]"]
    assert case.outcome == "failure"
    assert case.properties["status"] == "INCORRECT_NUMERICAL"
    assert sizes_of(case) == {"n": 3}
    assert "all misses in whole row 2 of 3 (the last)" in case.text


def test_a_death_is_found_and_shrunk(run):
    case = run[1]["test_sizes[dies]"]
    assert case.properties["status"] == "RUNTIME_ERROR"
    assert "exit status 3" in case.text
    assert sizes_of(case) == {"n": 9}


def test_a_call_that_hangs_costs_its_time_once(run):
    """Each simpler case would hang as well."""
    case = run[1]["test_sizes[hangs]"]
    assert case.properties["status"] == "TIMEOUT"
    assert sizes_of(case)["n"] > 8


def test_what_does_not_build_has_no_sizes(run):
    case = run[1]["test_sizes[broken]"]
    assert case.outcome == "failure"
    assert "exit status 4" in case.text
    assert "workload line" not in case.text


def test_statistics_of_hypothesis_are_shown(run):
    text = run[1].output.partition("Hypothesis Statistics")[2]
    assert "test_sizes[good]:" in text
    assert "generate phase" in text


def test_strided_inputs_only_where_they_are_asked_for(run):
    repository, done = run
    assert done["test_sizes[contiguous]"].outcome == "passed"
    two = ("-k", "test_sizes and (contiguous or good)", "--fib-examples=20")
    strided = repository.run(*SIZES, *two, "--fib-layouts=strided")
    assert strided["test_sizes[good]"].outcome == "passed"
    case = strided["test_sizes[contiguous]"]
    assert case.outcome == "failure"
    assert json.loads(line_of(case))["workload"]["recipe"]["layout"] == "strided"
    assert re.search(r"  strided: x \[\d+, 8\] has strides \[\d\d, 1\]: step .* by x.stride\(\)", case.text)
    assert "with contiguous inputs it passes" in case.text


def test_a_failure_of_strided_inputs_is_run_where_they_are_asked_for(run, tmp_path):
    """Its line replays there; every other run skips it with the reason, for it is not of that run's contract."""
    repository = repository_of(tmp_path, "contiguous")
    path = repository.sizes(4)
    search = ("-k", "test_sizes", "--fib-examples=20", "--fib-save-failures")
    found = repository.run(*SIZES, "--fib-layouts=strided", *search)["test_sizes[contiguous]"]
    uuid = json.loads(line_of(found))["workload"]["uuid"]
    assert "as test_correct (with --fib-layouts=strided):" in found.text
    default = repository.run("-k", "test_correct or test_reference or test_speed")
    assert default.code == 0
    mine = {case.outcome for case in default.of(uuid[:8])}
    assert mine == {"skipped"}, default.output
    message = default[f"test_correct[contiguous-n{sizes_of(found)['n']}-{uuid[:8]}"].message
    assert f"{path.name}:2: saved with inputs that are strided: --fib-layouts=strided runs it" in message
    replayed = repository.run("-k", "test_correct", "--fib-layouts=strided")
    assert sorted(replayed.outcomes().values()) == ["failure", "passed"]


def test_the_line_replays_as_a_workload(run, tmp_path):
    """Appended to the workloads it is a test_correct item that fails in the same way, whatever the scope."""
    line = line_of(run[1]["test_sizes[tail]"])
    repository = repository_of(tmp_path, "tail", "good")
    path = repository.sizes(4, 8, 12, 16, 20)
    path.write_text(path.read_text() + line + "\n")
    done = repository.run("-k", "test_correct or test_schema", "--fib-scope=smoke")
    uuid = json.loads(line)["workload"]["uuid"]
    name = f"n3-{uuid[:8]}]"
    assert done["test_schema"].outcome == "passed"
    assert done[f"test_correct[good-{name}"].outcome == "passed"
    case = done[f"test_correct[tail-{name}"]
    assert case.outcome == "failure"
    assert case.text.splitlines()[0] == run[1]["test_sizes[tail]"].text.splitlines()[0], "to the last digit"
    assert sum(each.outcome == "failure" for each in done.of("test_correct")) == 1


def test_a_failure_is_saved_once_and_a_rerun_starts_at_it(tmp_path):
    repository = repository_of(tmp_path, tail=TALKS + TAIL)
    path = repository.sizes(4)
    first = repository.run(*SIZES, "--fib-save-failures", "--fib-seed=1")
    second = repository.run(*SIZES, "--fib-save-failures")
    saved = path.read_text().splitlines()
    assert saved[1:] == [line_of(first["test_sizes[tail]"])] == [line_of(second["test_sizes[tail]"])]
    assert f"appended to {path.relative_to(tmp_path)}, which" in first["test_sizes[tail]"].text
    assert f"already in {path.relative_to(tmp_path)}, which" in second["test_sizes[tail]"].text
    assert seen(first["test_sizes[tail]"])[0] != 3
    assert seen(second["test_sizes[tail]"])[0] == 3
    repository.solve("tail", GOOD)
    assert repository.run(*SIZES)["test_sizes[tail]"].outcome == "passed"
    assert repository.run("-k", "test_correct")["test_correct[tail-n3"].outcome == "passed"


def test_the_command_of_a_failure_brings_it_again_also_where_nothing_is_known_of_it(tmp_path):
    """The second run has it from the first one, with values that its own seed would not make."""
    known, fresh = (repository_of(tmp_path / name, wrong=WRONG) for name in ("known", "fresh"))
    first, second = (known.run(*SIZES, *seed)["test_sizes[wrong]"] for seed in (["--fib-seed=1"], []))
    assert line_of(second) == line_of(first)
    seed = re.search(r"replay: .*(--fib-seed=\d+)", second.text)[1]
    assert line_of(fresh.run(*SIZES, seed)["test_sizes[wrong]"]) == line_of(second)


def test_a_bug_is_saved_once_whatever_the_seed(tmp_path):
    """Each run is the first of a fresh checkout, which has no failures to start at."""
    repository = repository_of(tmp_path, wrong=WRONG)
    path = repository.sizes(4)
    cases = []
    for seed in (1, 2):
        done = repository.run(*SIZES, "--fib-save-failures", f"--fib-seed={seed}", apart=True)
        shutil.rmtree(tmp_path / ".hypothesis", ignore_errors=True)
        cases.append(done["test_sizes[wrong]"])
    assert f"already in {path.relative_to(tmp_path)}, which" in cases[1].text
    assert path.read_text().splitlines()[1:] == [line_of(cases[0])]
    assert line_of(cases[0]) != line_of(cases[1]), "the seeds differ, or this test shows nothing"


def test_a_kernel_that_cannot_do_no_rows_is_found_also_where_the_reference_selects(tmp_path):
    repository = Repository(tmp_path)
    routing = (
        "import torch\n\n\ndef run(x):\n    found = torch.topk(torch.softmax(x, -1), 2, dim=-1)\n"
        "    return found.values, found.indices.to(torch.int32)\n"
    )
    axes = {"n": {"type": "var"}, "h": {"type": "const", "value": 8}, "k": {"type": "const", "value": 2}}
    outputs = {"w": {"shape": ["n", "k"], "dtype": "float32"}, "ids": {"shape": ["n", "k"], "dtype": "int32"}}
    inputs = {"x": {"shape": ["n", "h"], "dtype": "float32"}}
    repository.define(axes=axes, inputs=inputs, outputs=outputs, reference=routing)
    repository.solve("good", routing)
    repository.solve("raises", routing.replace("    found", "    assert len(x)\n    found"))
    done = repository.run(*SIZES)
    assert done.outcomes() == {"test_sizes[good]": "passed", "test_sizes[raises]": "failure"}
    assert sizes_of(done["test_sizes[raises]"]) == {"n": 0}
    assert "n may be 0 as the contract stands; a constraint `n > 0` would exclude it" in done.output


def test_where_only_no_rows_meet_a_constraint_nothing_passes(tmp_path):
    repository = Repository(tmp_path)
    repository.define(constraints=["x.sum() == 1000 * n"])
    repository.solve("wrong", "def run(x, w):\n    return x * (w + len(x))\n")
    case = repository.run(*SIZES)["test_sizes[wrong]"]
    assert case.outcome == "skipped"
    assert re.search("only cases without elements .*: constraint `x.sum.*supply the inputs with an", case.message)


@pytest.mark.parametrize("examples", [1, 7])
def test_no_more_examples_than_asked_for(tmp_path, examples):
    done = repository_of(tmp_path, "good").run(*SIZES, f"--fib-examples={examples}")
    assert done["test_sizes[good]"].properties["tried"] == str(examples)


def test_no_more_seconds_than_asked_for(tmp_path):
    """A slow kernel gets through a few sizes, and the report says that time ran out."""
    done = repository_of(tmp_path, slow=SLOW).run(*SIZES, "--fib-seconds=1")
    properties = done["test_sizes[slow]"].properties
    assert 1 < int(properties["tried"]) < 8
    assert properties["out_of_time"] == "True"
    told = f"  scale_add_h8: test_sizes[slow]: {properties['tried']} cases in 1 s"
    assert told in done.output.partition("passed on little (--fib-seconds")[2].splitlines()


def test_ten_seeds_one_verdict(tmp_path):
    repository = repository_of(tmp_path, "good", wrong=WRONG)
    for seed in range(10):
        done = repository.run(*SIZES, "--fib-examples=5", f"--fib-seed={seed}", "-p", "no:cacheprovider")
        assert done.outcomes() == {"test_sizes[good]": "passed", "test_sizes[wrong]": "failure"}
        assert sizes_of(done["test_sizes[wrong]"])["n"] <= 1
        assert "Flaky" not in done.output


def test_the_seed_of_hypothesis_decides_the_draws(tmp_path):
    """The kernel prints the sizes that it sees; the edges come first, and follow from the seed of the run."""
    repository = repository_of(tmp_path, talks=TALKS + "def run(x, w):\n    len(x)\n    return x * w + 1\n")

    def sizes(*options):
        done = repository.run(*SIZES, *options)
        assert done["test_sizes[talks]"].outcome == "passed"
        return seen(done["test_sizes[talks]"])

    settings = ("--fib-seed=5", "--fib-examples=90")  # more than there are edges
    first, again, other = (sizes(*settings, f"--hypothesis-seed={seed}") for seed in (1, 1, 2))
    assert first == again != other
