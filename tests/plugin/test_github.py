"""A run on GitHub Actions: annotations at the solution's line, a summary, and a log that obeys no stranger."""

import html
import re
import shutil
from types import SimpleNamespace

import pytest

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.judge.raised import shown
from pytest_flashinfer.sources import blamed

from .repository import WRONG, Repository

RAISES = "def run(x, w):\n    print('::error::forged')\n    print('##[add-path]/evil')\n    return x.nothing\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("github"))
    made.define()
    made.sizes(4)
    made.solve()
    made.solve("wrong", WRONG)
    made.write("solutions/raises.py", f"definition = 'scale_add_h8'\n\n\n{RAISES}")
    made.write("solutions/kit/config.toml", KIT)
    made.write("solutions/kit/solution/python/helper.py", "def work(x):\n    raise ValueError('odd')\n")
    main = "from .helper import work\n\n\ndef run(x, w):\n    return work(x)\n"
    made.write("solutions/kit/solution/python/main.py", main)
    made.write("summary.md", "# before\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_ACTIONS", "true")
        patch.setenv("GITHUB_WORKSPACE", str(made.root))
        patch.setenv("GITHUB_STEP_SUMMARY", str(made.root / "summary.md"))
        done = made.run("-k", "test_correct or test_speed", "-rA")
    return made, done


KIT = """
[solution]
name = "kit"
definition = "scale_add_h8"
author = "me"
[build]
language = "python"
entry_point = "main.py::run"
destination_passing_style = false
"""


def annotations(output):
    return dict(re.findall(r"^::error file=([^,]+,line=\d+),title=([^:]+)::", output, re.MULTILINE))


def test_annotations_point_at_the_line(run):
    made, done = run
    lines = (made.root / "solutions/tests/scale_add_h8/wrong.json").read_text().splitlines()
    [content] = [number for number, line in enumerate(lines, 1) if '"content"' in line]
    assert annotations(done.output) == {
        f"solutions/tests/scale_add_h8/wrong.json,line={content}": "INCORRECT_NUMERICAL%3A wrong of scale_add_h8",
        "solutions/raises.py,line=7": "RUNTIME_ERROR%3A raises of scale_add_h8",
        "solutions/kit/solution/python/helper.py,line=2": "RUNTIME_ERROR%3A kit of scale_add_h8",
    }


def test_the_runner_obeys_nothing_before_the_end(run):
    _, done = run
    token = re.match(r"::stop-commands::(\w{32})\n", done.output)[1]
    held, resumed, after = done.output.partition(f"\n::{token}::\n")
    assert resumed
    assert "::error::forged" in held
    assert "##[add-path]" in held
    assert all(line.startswith("::error file=") for line in after.splitlines() if line)


def test_the_summary_is_appended(run):
    made, _ = run
    text = (made.root / "summary.md").read_text()
    assert text.startswith("# before\n## Kernels: 1 of 4 solutions right, 1 definition\n")
    assert text.index("### Failures") < text.index("### <code>scale&#95;add&#95;h8</code>")


def test_the_line_is_in_the_junit_report_too(run):
    made, done = run
    assert done["test_correct[raises-"].properties["fib_source"] == f"{made.root / 'solutions/raises.py'}:7"
    assert "fib_source" not in done["test_correct[good-"].properties
    assert float(done["test_speed[good-"].properties["latency_s"]) > 0
    assert float(done["test_speed[good-"].properties["speedup"]) > 0


def test_a_failure_shows_the_lines_that_raised(run):
    _, done = run
    text = done["test_correct[kit-"].text
    assert "\n  at main.py:5 in run: return work(x)\n  at helper.py:2 in work: raise ValueError('odd')\n" in text
    assert "\n  source: solutions/kit/solution/python/helper.py:2\n" in text


def test_a_cause_lies_further_in_than_what_was_raised_from_it():
    """As where Triton says that a kernel cannot be compiled."""
    folder = f"/tmp/solutions/{'0' * 32}"
    cause = f'Traceback (most recent call last):\n  File "{folder}/main.py", line 3, in kernel\n    tl.summ(x)\n'
    raised = f'Traceback (most recent call last):\n  File "{folder}/main.py", line 9, in run\n    kernel[(1,)](x)\n'
    directly = "\nThe above exception was the direct cause of the following exception:\n\n"
    instead = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert re.findall(r"main.py:(\d)", shown(cause + directly + raised)) == ["9", "3"]
    assert re.findall(r"main.py:(\d)", shown(cause + instead + raised)) == ["3", "9"]


def test_what_is_wrong_without_a_line_of_its_own_is_shown_where_the_function_begins(run):
    _, done = run
    assert re.search(r"\n  source: solutions/tests/scale_add_h8/wrong.json:\d+\n", done["test_correct[wrong-"].text)


@pytest.mark.parametrize("key", ["language", "binding"])
def test_a_word_that_no_build_knows_is_blamed_and_no_source(repository, key):
    path = repository.solve("odd", **{key: "rust"})
    loaded = load_solution(path)
    entry = SimpleNamespace(solution=loaded.value, path=path, lines=loaded.lines)
    item = SimpleNamespace(
        callspec=SimpleNamespace(params={"solution": "odd"}), parent=SimpleNamespace(solutions={"odd": entry})
    )
    found = blamed(item, f"COMPILE_ERROR: {key} 'rust' is not known; one of: a, b")
    assert found is not None
    assert f'"{key}": "rust"' in path.read_text().splitlines()[found[1] - 1]


def test_faults_of_files_are_annotated_where_they_are(repository, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(repository.root))
    repository.define(constraints=["n <"])
    repository.write("solutions/mine.py", "definition = 'scale_add_h8'\n\n\ndef run(x, w):\n    return (\n")
    done = repository.run("-k", "test_schema")
    found = annotations(done.output)
    assert found.keys() >= {"solutions/mine.py,line=5"}
    assert any(place.startswith("definitions/elementwise/scale_add_h8.json,line=") for place in found)
    assert set(found.values()) == {"a file is not valid"}


@pytest.fixture
def on_github(repository, monkeypatch):
    """Runs see GitHub's variables; returns a function that reads the job's summary."""
    path = repository.root / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(repository.root))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return lambda: html.unescape(path.read_text())


def test_the_summary_has_what_is_no_solutions_failure(repository, on_github, tmp_path):
    repository.define(reference="def go(x, w):\n    return x\n")
    repository.write("definitions/elementwise/brace.json", "{")
    repository.write("solutions/mine.py", "definition = 'scale_add_h8'\n\n\ndef run(x, w):\n    return (\n")
    repository.run("-k", "test_schema or test_reference")
    said = on_github()
    start = r"## Kernels: 0 of 1 solution right, 1 definition; [23] failures of no solution\n\n### Failures of no "
    assert re.match(f"{start}solution\n", said)
    assert "| <code>definitions/elementwise/brace.json::test_schema</code> | <code>" in said
    assert "solutions/mine.py:5" in said
    (tmp_path / "part").mkdir()
    shutil.copy(repository.root / "junit.xml", tmp_path / "part/kernels.xml")
    assert main(["merge", str(tmp_path / "part"), "-o", str(tmp_path / "merged")]) == 0
    merged = html.unescape((tmp_path / "merged/summary.md").read_text())
    assert merged.partition("\n")[0] == said.partition("\n")[0]
    assert "solutions/mine.py:5" in merged


def test_the_summary_has_what_was_not_collected(repository, on_github):
    repository.write("definitions/elementwise/test_more.py", "import no_such_module\n")
    repository.write("definitions/elementwise/deep/conftest.py", "import pytest\n\ndef x(:\n")
    repository.write("definitions/elementwise/deep/other.json", "{}")
    done = repository.run()
    assert done.code == 2
    errors = [line for line in done.output.splitlines() if line.startswith("::error")]
    assert [line.partition(",title=") for line in errors] == [
        (
            "::error file=definitions/elementwise/deep/conftest.py,line=3",
            ",title=",
            "definitions/elementwise/deep::definitions/elementwise/deep/conftest.py:3: SyntaxError: invalid syntax",
        ),
        (
            "::error file=definitions/elementwise/test_more.py,line=1",
            ",title=",
            "definitions/elementwise/test_more.py::ModuleNotFoundError: No module named 'no_such_module'",
        ),
    ]
    said = on_github()
    assert "deep</code> | <code>definitions/elementwise/deep/conftest.py:3: SyntaxError: invalid syntax</code>" in said
    assert "| <code>the run</code> | <code>it was interrupted, and not all of it was run</code> |" in said
    assert "definitions/elementwise/test_more.py</code> | <code>ModuleNotFoundError: No module named" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fib-require-gpu",), "--fib-require-gpu: "),
        (("-Werror", "--fib-solutions=empty"), "--fib-solutions: no solution in "),
        (("definitions/none.json",), "file or directory not found: definitions/none.json"),
    ],
)
def test_a_run_that_does_not_begin_says_why(repository, on_github, options, words):
    (repository.root / "empty").mkdir()
    code, output = repository.main(["--fib-device=cpu", *options])
    assert code == pytest.ExitCode.USAGE_ERROR
    assert re.search(f"^::error title=the run did not begin::{words}", output, re.MULTILINE)
    said = on_github()
    assert said.startswith("## Kernels: no solution ran; 1 failure of no solution\n")
    assert words in said


def test_a_run_of_nothing_says_so(repository, on_github):
    (repository.root / "empty").mkdir()
    code, output = repository.main(["--fib-device=cpu", "--fib-solutions=empty", "-k", "no_such_name"])
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert re.search(r"^::warning::--fib-solutions: no solution in ", output, re.MULTILINE)
    assert output.index("::warning::-k") > output.rindex("::stop-commands::")
    said = on_github()
    assert "| <code>the run</code> | <code>nothing was selected, and nothing was run</code> |" in said
    assert "### Warnings\n\n```text\n--fib-solutions: no solution in " in said


def test_a_warning_is_at_the_line_that_it_is_about(repository, on_github):
    repository.write("solutions/lost.py", "# first\ndefinition = 'scale_ad_h8'\n\n\ndef run(x, w):\n    return x\n")
    done = repository.run("--collect-only")
    assert "\n::warning file=solutions/lost.py,line=2::solutions that are not run:%0A" in done.output


def test_a_part_without_items_has_nothing_to_say(repository, on_github):
    assert repository.run("-k", "test_schema", "--fib-shard=1/2").code == 0
    assert repository.run("-k", "test_schema", "--fib-shard=2/2").code == 0
    assert on_github() == ""


def test_a_full_summary_is_left_alone(repository, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository.write("full.md", "x" * 1_000_000)))
    repository.solve("wrong", WRONG)
    repository.run("-k", "test_correct")
    assert (repository.root / "full.md").stat().st_size < 1 << 20


def test_elsewhere_nothing_is_said(repository):
    repository.solve("wrong", WRONG)
    assert "::" not in repository.run("-k", "test_schema").output.replace("json::", "")
