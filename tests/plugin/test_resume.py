"""--fib-resume: what an earlier run has found is not found again."""

import json
import shutil

import pytest

from .repository import GOOD, WRONG, Repository

TRACES = ("--fib-traces=traces", "--benchmark-min-rounds=1", "-k", "test_correct or test_speed")


@pytest.fixture
def run(repository):
    """Run the checks that leave traces."""

    def call(*options):
        return repository.run(*TRACES, "-rs", *options)

    return call


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a data set like `repository` after a run."""
    made = Repository(tmp_path_factory.mktemp("finished"))
    made.define()
    made.sizes(4)
    made.solve()
    done = made.run(*TRACES)
    assert done.code == 0, done.output
    return made.root


@pytest.fixture
def held(repository, finished):
    """What an earlier run has found in this repository."""
    shutil.copytree(finished / "traces", repository.root / "traces")


def lines(repository):
    return (repository.root / "traces/elementwise/scale_add_h8.jsonl").read_text().splitlines()


def test_a_second_run_skips_all_and_counts_what_was_found(repository, run):
    repository.solve("wrong", WRONG)
    first = run("--fib-results=first.jsonl")
    assert first.code == 1, first.output
    held = lines(repository)
    assert len(held) == 2, "one line for each solution on the workload"
    again = run("--fib-resume", "--fib-results=second.jsonl")
    assert again.code == 0, again.output
    assert set(again.outcomes().values()) == {"skipped"}
    reason = again["test_correct[wrong"].message
    assert "scale_add_h8.jsonl:" in reason
    assert "holds INCORRECT_NUMERICAL for the same solution, definition, card and versions" in reason
    assert lines(repository) == held, "nothing is added"
    kept = [(repository.root / name).read_text().splitlines() for name in ("first.jsonl", "second.jsonl")]
    kept = [[json.loads(line) for line in each] for each in kept]
    assert [each["solution"] for each in kept[1]] == ["good", "wrong"]
    assert kept[1][0]["time"] == pytest.approx(kept[0][0]["time"])
    texts = [[each["text"] for each in run[1].pop("failures")] for run in kept]
    assert texts[0][0].startswith("INCORRECT_NUMERICAL: ")
    assert texts[1][0] == texts[0][0], "the trace has it"
    assert kept[1][1] == kept[0][1]


def test_what_could_not_be_imported_is_still_not_compiled(repository, run):
    repository.solve("hangs", f"while True:\n    pass\n{GOOD}")
    options = ("--fib-build-timeout=3", "--fib-results=results.jsonl")
    for resumed in ((), ("--fib-resume",)):
        done = run(*options, *resumed)
        assert set(done.outcomes("hangs").values()) == {"skipped" if resumed else "failure"}
        found = [json.loads(line) for line in (repository.root / "results.jsonl").read_text().splitlines()]
        assert {each["solution"]: each["compiled"] for each in found} == {"good": True, "hangs": False}
        assert found[1]["status"] == "TIMEOUT"
        assert found[1]["compile_error"].startswith("TIMEOUT: no answer within 3 s")


def test_without_the_option_everything_runs_again(repository, held, run):
    assert set(run().outcomes().values()) == {"passed"}
    assert len(lines(repository)) == 2


def test_what_was_found_in_another_folder_counts(held, run):
    """The next tests rely on it."""
    assert set(run("--fib-resume").outcomes().values()) == {"skipped"}


def changed_solution(repository):
    repository.solve("good", "# another\n" + GOOD)


def changed_definition(repository):
    repository.define(reference="# another\n" + GOOD)


def changed_workload(repository):
    path = repository.root / "workloads/elementwise/scale_add_h8.jsonl"
    path.write_text(path.read_text().replace('"n": 4', '"n": 5'))


def changed_card(repository):
    path = repository.root / "traces/elementwise/scale_add_h8.jsonl"
    path.write_text(path.read_text().replace('"hardware": "', '"hardware": "another '))


def changed_version(repository):
    path = repository.root / "traces/elementwise/scale_add_h8.jsonl"
    path.write_text(path.read_text().replace('"torch": "', '"torch": "1.'))


@pytest.mark.parametrize(
    "change", [changed_solution, changed_definition, changed_workload, changed_card, changed_version]
)
def test_what_has_changed_runs_again(repository, held, run, change):
    change(repository)
    again = run("--fib-resume")
    assert set(again.outcomes().values()) == {"passed"}, again.output


def test_a_time_alone_spares_no_other_check(repository, held, run):
    path = repository.root / "traces/elementwise/scale_add_h8.jsonl"
    path.write_text(path.read_text().replace('["test_correct", "test_speed"]', '["test_speed"]'))
    again = run("--fib-resume")
    outcomes = {name.partition("[")[0]: outcome for name, outcome in again.outcomes().items()}
    assert outcomes == {"test_correct": "passed", "test_speed": "skipped"}, again.output


def test_half_a_line_of_a_killed_run_is_no_result_and_harms_no_other(repository, held, run):
    path = repository.root / "traces/elementwise/scale_add_h8.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-100])
    again = run("--fib-resume")
    assert set(again.outcomes().values()) == {"passed"}, "half a line holds nothing"
    assert len(lines(repository)) == 1
    assert json.loads(lines(repository)[0])["evaluation"]["status"] == "PASSED"
    assert set(run("--fib-resume").outcomes().values()) == {"skipped"}


def test_it_needs_to_know_where_the_traces_are(kernels):
    result = kernels("--fib-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-resume: *--fib-traces=DIR*"])
