"""Where kernels run and on how much."""

import shutil

import pytest

NO_CARD = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="says what happens without a card")


@NO_CARD
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_a_card_that_is_not_there_is_a_usage_error(kernels, device):
    result = kernels(f"--fib-device={device}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{device}*"])


def test_a_device_that_makes_no_sense_is_a_usage_error(kernels):
    result = kernels("--fib-device=abacus")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *abacus*"])


@NO_CARD
def test_a_card_can_be_required(pytester, repository):
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--fib-require-gpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *--fib-require-gpu*"])


@NO_CARD
def test_auto_takes_the_cpu_where_there_is_no_card(pytester, repository):
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only")
    smoke = "flashinfer: scope smoke, --fib-seed=*; at most 2 listed workloads of each definition"
    clock = "flashinfer: times are wall clock and say nothing of a card"
    found = ["flashinfer: definitions found in definitions", "flashinfer: workloads found in workloads"]
    result.stdout.fnmatch_lines(["flashinfer: cpu *torch *triton *", smoke, clock, *found], consecutive=True)


def test_the_header_says_what_differs_from_the_usual(pytester, repository):
    options = ("--fib-device=cpu", "--fib-scope=full", "--fib-seconds=0.3", "--fib-policy=custom-kernel")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only", "--fib-seed=7", *options)
    lines = [
        "flashinfer: scope full, --fib-seed=7, --fib-seconds=0.3",
        "flashinfer: times are wall clock and say nothing of a card, and --fib-policy finds out nothing",
    ]
    result.stdout.fnmatch_lines(lines, consecutive=True)


def test_smoke_takes_few_and_full_takes_all(repository, collected):
    repository.sizes(*range(1, 21))
    correct = ("-k", "test_correct")
    smoke, full = collected(*correct, "--fib-scope=smoke"), collected(*correct, "--fib-scope=full")
    assert len(full) == 20
    assert 1 < len(smoke) < 6
    assert set(smoke) < set(full)
    assert any("n1-" in item for item in smoke)
    assert collected(*correct) == smoke, "smoke is the default on the CPU"


@pytest.mark.gpu
def test_auto_takes_the_card(pytester, repository):
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--fib-require-gpu", "-k", "test_correct")
    result.stdout.fnmatch_lines(["flashinfer: cuda:0 *driver *", "flashinfer: scope full*"])
    result.assert_outcomes(passed=1, deselected=4)


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("abi", "filters", "said"),
    [
        (6, True, None),
        (3, True, "no Landlock's scope of signals"),
        (0, False, "no Landlock, no filters of system calls"),
    ],
)
def test_the_header_says_what_confines_nobody_here(pytester, monkeypatch, abi, filters, said):
    monkeypatch.setattr("pytest_flashinfer.worker.landlock.abi", lambda: abi)
    monkeypatch.setattr("pytest_flashinfer.worker.seccomp.known", lambda: filters)
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only")
    lines = [line for line in result.outlines if "this system has" in line]
    assert lines == ([f"flashinfer: this system has {said}; see docs/threat-model.md"] if said else [])
