"""However a kernel ends, it costs its own items and the report says who did it (case 11 without a card)."""

import json
import re

import pytest

from .repository import GOOD, Repository

ENDS = {
    "os_exit": ("import os\ndef run(x, w):\n    os._exit(0)\n", "RUNTIME_ERROR", ["exit"]),
    "system_exit": ("import sys\ndef run(x, w):\n    sys.exit(0)\n", "RUNTIME_ERROR", ["SystemExit"]),
    "segfault": ("import ctypes\ndef run(x, w):\n    ctypes.string_at(0)\n", "RUNTIME_ERROR", ["SIGSEGV"]),
    "kills_itself": (
        "import os, signal\ndef run(x, w):\n    os.kill(os.getpid(), signal.SIGKILL)\n",
        "RUNTIME_ERROR",
        ["SIGKILL"],
    ),
    "base_exception": ("def run(x, w):\n    raise BaseException('odd')\n", "RUNTIME_ERROR", ["BaseException", "odd"]),
    "keyboard": ("def run(x, w):\n    raise KeyboardInterrupt\n", "RUNTIME_ERROR", ["KeyboardInterrupt"]),
    "exception": (
        "def run(x, w):\n    raise ValueError('no such tile')\n",
        "RUNTIME_ERROR",
        ["ValueError", "no such tile"],
    ),
    "hang": ("def run(x, w):\n    while True: pass\n", "TIMEOUT", ["2"]),
    "sleeps": ("import time\ndef run(x, w):\n    time.sleep(3600)\n", "TIMEOUT", ["2"]),
    "stops": ("import os, signal\ndef run(x, w):\n    os.kill(os.getpid(), signal.SIGSTOP)\n", "TIMEOUT", ["2"]),
    "import_error": (
        "import no_such_module_at_all\ndef run(x, w):\n    return x\n",
        "COMPILE_ERROR",
        ["no_such_module_at_all"],
    ),
    "syntax": ("def run(x, w)\n    return x\n", "COMPILE_ERROR", ["SyntaxError"]),
    "import_exit": ("import os\nos._exit(0)\n", None, ["exit"]),
    "import_hang": ("import time\ntime.sleep(3600)\n", None, ["3"]),
    "no_function": ("def walk(x, w):\n    return x\n", "COMPILE_ERROR", ["run"]),
    "memory": ("def run(x, w):\n    return [bytearray(1 << 40)]\n", "RUNTIME_ERROR", ["MemoryError"]),
    "floods_stdout": ("def run(x, w):\n    print('z' * (64 << 20))\n    return x * w + 1\n", "PASSED", []),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("ends"))
    repository.define()
    repository.sizes(4)
    for name, (source, _, _) in ENDS.items():
        repository.solve(name, source)
        repository.solve(f"{name}_then_good", GOOD)
    return repository.run("-k", "test_correct", "--fib-timeout=2", "--fib-build-timeout=3", "-rf")


@pytest.mark.parametrize("name", ENDS)
def test_the_item_fails_and_says_how_it_ended(run, name):
    _, status, words = ENDS[name]
    case = run[f"test_correct[{name}-"]
    if status == "PASSED":
        assert case.outcome == "passed"
        return
    assert case.outcome in ("failure", "error")
    assert status is None or status in (case.properties.get("status"), *case.text.split()), case.text
    for word in words:
        assert word in case.text, case.text


@pytest.mark.parametrize("name", ENDS)
def test_the_next_solution_is_unharmed(run, name):
    assert run[f"test_correct[{name}_then_good"].outcome == "passed"


def test_the_short_summary_has_one_line_for_each(run):
    lines = [line for line in run.output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert len(lines) == len(ENDS) - 1
    assert all(" - " in line for line in lines)


def test_what_a_kernel_printed_is_in_its_report(tmp_path):
    repository = Repository(tmp_path)
    repository.define()
    repository.sizes(4)
    source = (
        "import sys\ndef run(x, w):\n    print('on stdout')\n    print('on stderr', file=sys.stderr)\n    return x\n"
    )
    repository.solve("talks", source)
    done = repository.run("-k", "test_correct")
    assert "on stdout" in done.output
    assert "on stderr" in done.output


def test_a_reference_that_fails_blames_no_solution(tmp_path):
    repository = Repository(tmp_path)
    repository.define(reference="import os\n\ndef run(x, w):\n    os._exit(1)\n")
    repository.sizes(4)
    repository.solve()
    repository.define(name="fine_h8")
    repository.sizes(4, name="fine_h8")
    repository.solve("fine", of="fine_h8")
    done = repository.run("-k", "test_reference or test_correct or test_speed")
    assert done["test_correct[good"].outcome == "skipped"
    assert "reference" in done["test_correct[good"].message
    assert done["test_speed[good"].outcome == "skipped"
    assert sorted(case.outcome for case in done.of("test_reference")) == ["failure", "passed"]
    [failed] = [case for case in done.of("test_reference") if case.outcome == "failure"]
    place = re.search(r"it is at (.+):(\d+)", failed.text)
    assert '"reference"' in (tmp_path / place[1]).read_text().splitlines()[int(place[2]) - 1]
    assert done["test_correct[fine"].outcome == "passed"


def test_a_workload_that_is_wrong_is_named_with_its_line(tmp_path):
    repository = Repository(tmp_path)
    repository.define()
    repository.solve()
    path = repository.sizes(4, 5)
    path.write_text(path.read_text().replace('"w": {"type": "random"}', '"w": {"type": "scalar", "value": 2.0}'))
    done = repository.run("-k", "test_reference and n5")
    said = "input `w`: the workload gives one number, which is [], the axes make it [8]; correct one of the two"
    assert done["test_reference"].text.startswith(f"INVALID_REFERENCE: no inputs: {said}\n  the workload is at ")
    assert "workloads/elementwise/scale_add_h8.jsonl:2\n" in done["test_reference"].text


def test_a_definition_that_contradicts_itself_judges_nobody(tmp_path):
    repository = Repository(tmp_path)
    repository.define(reference="def run(w, x):\n    return x - w\n")
    repository.sizes(4)
    repository.solve("right", "def run(x, w):\n    return x - w\n")
    repository.solve("swapped", "def run(w, x):\n    return x - w\n")
    done = repository.run("--fib-results=results.jsonl", "--fib-traces=traces")
    fault = f"definitions/elementwise/scale_add_h8.json:{line_of(tmp_path, 'reference')}: reference: run takes w, x;"
    assert {case.outcome for name in ("correct", "sizes", "speed") for case in done.of(f"test_{name}")} == {"skipped"}
    assert done["test_sizes[right"].message.startswith(f"the definition is at fault: {fault}")
    assert done["test_reference"].message.startswith(f"INVALID_REFERENCE: the definition is at fault: {fault}")
    assert done["test_schema"].message.startswith(fault)
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(each["solution"], each["status"]) for each in results] == [("right", "SKIPPED"), ("swapped", "SKIPPED")]
    assert results[0]["reason"].startswith(f"the definition is at fault: {fault}")
    assert not list(tmp_path.glob("traces/**/*.jsonl"))


def line_of(folder, key):
    lines = (folder / "definitions/elementwise/scale_add_h8.json").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f'"{key}"' in line)


def test_a_reference_that_tells_nothing_is_blamed_on_no_solution(tmp_path):
    """It forgets its inputs, or draws at random: a copy of it cannot be right."""
    repository = Repository(tmp_path)
    sources = {
        "forgets": ("return (x + 1e8) - 1e8", r"the reference proves nothing of y here: with the bound \(up to"),
        "draws": ("return x + torch.rand_like(x)", r"the reference gives other results for the same inputs: y\["),
    }
    for name, (line, _) in sources.items():
        reference = f"import torch\n\ndef run(x, w):\n    {line}\n"
        repository.define(name=name, reference=reference)
        repository.sizes(4, name=name)
        repository.solve(f"copies_{name}", reference, of=name)
    done = repository.run("-k", "test_reference or test_correct or test_sizes")
    copies = {name: done[f"test_correct[copies_{name}"] for name in sources}
    assert {case.outcome for case in copies.values()} == {"skipped"}, done.output
    assert "failure" not in {case.outcome for case in done.of("test_sizes")}, done.output
    said = [case.message for case in done.of("test_reference") if case.outcome == "failure"]
    assert len(said) == len(sources)
    for name, (_, words) in sources.items():
        assert re.match(f"reference fails: {words}", copies[name].message)
        assert any(re.match(f"INVALID_REFERENCE: reference fails: {words}", each) for each in said)


def test_a_solution_that_cannot_run_here_is_skipped_with_the_reason(tmp_path):
    repository = Repository(tmp_path)
    repository.define()
    repository.sizes(4)
    repository.solve("needs", GOOD, dependencies=["no-such-distribution-at-all"])
    repository.solve("elsewhere", GOOD, language="tilelang")
    done = repository.run("-k", "test_correct")
    assert done["test_correct[needs"].outcome == "skipped"
    assert "no-such-distribution-at-all" in done["test_correct[needs"].message
    assert done["test_correct[elsewhere"].outcome == "skipped"
    assert "tilelang" in done["test_correct[elsewhere"].message


FAR = """\
import torch, triton
import triton.language as tl

@triton.jit
def kernel(p):
    tl.store(p + (1 << 46), 1.0)

def run(x, w):
    kernel[(1,)](x)
    return x * w + 1
"""
ENDLESS = """\
import torch, triton
import triton.language as tl

@triton.jit
def kernel(p):
    while tl.load(p, volatile=True) != 123456.0:
        tl.debug_barrier()

def run(x, w):
    kernel[(1,)](torch.zeros(1, device=x.device))
    return x * w + 1
"""


@pytest.mark.gpu
@pytest.mark.parametrize("extra", [(), ("-n", "2")], ids=["alone", "distributed"])
def test_case_11_an_illegal_access_or_an_endless_kernel_costs_one_item(tmp_path, extra):
    repository = Repository(tmp_path)
    repository.define()
    repository.sizes(4)
    for name, source in {"a_good": GOOD, "b_far": FAR, "c_good": GOOD, "d_endless": ENDLESS, "e_good": GOOD}.items():
        repository.solve(name, source, language="python" if source is GOOD else "triton")
    done = repository.run("-k", "test_correct", "--fib-device=cuda", "--fib-timeout=5", *extra, apart=True)
    assert [done[f"test_correct[{name}_good"].outcome for name in "ace"] == ["passed"] * 3
    assert "illegal" in done["test_correct[b_far"].text
    assert done["test_correct[d_endless"].properties.get("status") == "TIMEOUT"
