"""--fib-build-jobs: what has to be compiled is built ahead; verdicts and logs are those of the items' own builds.

Compilers take their time, so Python solutions stand in for C++ ones; tests/build has the cache that real ones share.
"""

import re
import shutil

import pytest

from pytest_flashinfer.outputs.run_files import Records
from pytest_flashinfer.run import build_ahead
from pytest_flashinfer.worker import pool
from pytest_flashinfer.worker.builds import Build

from .repository import GOOD

LEAVES_A_MARK = """
import os, pathlib
place = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"])
place.mkdir(parents=True, exist_ok=True)
(place / f"built-{os.getpid()}").touch()
print("x" * 2_000_000)
"""


@pytest.fixture
def begun(monkeypatch):
    """The solutions that are built ahead; none is really built, and none comes to an end."""
    found = []

    class Noted(Build):
        def __init__(self, *arguments):
            request = next(each for each in arguments if isinstance(each, dict) and "sources" in each)
            found.append(request["sources"][0]["content"].split()[1])
            policy = next(each for each in arguments if isinstance(each, dict) and "private" in each)
            shutil.rmtree(policy["private"])

        def ended(self):
            return False

        def close(self):
            found.append("closed")

    monkeypatch.setattr(pool, "Build", Noted)
    return found


@pytest.fixture
def many(repository, monkeypatch):
    """Solutions in the order four, good, one, three, two."""
    for name in ("one", "two", "three", "four"):
        repository.solve(name, f"# {name}\n{GOOD}")
    monkeypatch.setattr(build_ahead, "COMPILED", ("python",))
    monkeypatch.setattr(pool.Pool, "quiet", lambda _: None)
    return repository


def test_as_many_as_asked_for_in_the_order_of_the_items_and_ended_with_the_run(many, kernels, begun):
    kernels("--fib-build-jobs=2", "-k", "test_schema or (test_correct and not good)", "--maxfail=1")
    assert begun == ["four", "one", "closed", "closed"]


def test_what_an_item_builds_itself_is_not_built_ahead(many, kernels, begun):
    kernels("--fib-build-jobs=9", "-k", "test_correct and (four or one)")
    assert begun == ["one", "closed"]


@pytest.mark.parametrize(
    "options",
    [("--fib-build-jobs=1",), ("--fib-build-jobs=3", "--collect-only"), ("--fib-build-jobs=3", "--setup-plan")],
    ids=" ".join,
)
def test_none_where_it_is_off_or_nothing_runs(many, kernels, begun, options):
    kernels(*options, "-k", "test_schema or (test_correct and one)")
    assert begun == []


def test_only_what_is_selected(many, kernels, begun):
    kernels("--fib-build-jobs=9", "-k", "test_schema or (test_correct and three)")
    assert begun == ["three", "closed"]


def test_only_what_is_compiled(many, kernels, begun, monkeypatch):
    monkeypatch.setattr(build_ahead, "COMPILED", ("cuda", "cpp"))
    kernels("--fib-build-jobs=9", "-k", "test_schema or test_correct")
    assert begun == []


def test_not_what_an_earlier_run_has_judged(many, kernels, begun, monkeypatch):
    monkeypatch.setattr(Records, "is_held", lambda _, item: "two" in item.name)
    kernels("--fib-build-jobs=9", "-k", "test_schema or test_correct")
    assert "three" in begun
    assert "two" not in begun


def test_nothing_changes_but_what_the_cache_holds(many, monkeypatch, tmp_path):
    """One that fails to build, one that floods its log, one that never ends: each waits its turn to be judged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    many.solve("broken", "raise RuntimeError('not today')\n")
    many.solve("noisy", LEAVES_A_MARK + GOOD)
    chosen = ("-k", "test_correct and (good or broken or noisy)", "--fib-seed=1")
    plain = many.run("--fib-build-jobs=1", *chosen)
    assert len(list(tmp_path.rglob("built-*"))) == 1
    begin = build_ahead.BuildAhead.pytest_runtest_setup

    def waiting(self, item):
        begin(self, item)
        self.session.pool.builds.wait()

    monkeypatch.setattr(build_ahead.BuildAhead, "pytest_runtest_setup", waiting)
    parallel = many.run("--fib-build-jobs=2", *chosen)
    assert len(list(tmp_path.rglob("built-*"))) == 3, "once ahead, and once for the items"
    assert plain.outcomes() == parallel.outcomes() == {
        "test_correct[broken-n4-w_0004]": "failure",
        "test_correct[good-n4-w_0004]": "passed",
        "test_correct[noisy-n4-w_0004]": "passed",
    }
    for one, other in zip(plain.cases, parallel.cases, strict=True):
        assert re.sub(r"replay:.*", "", one.text) == re.sub(r"replay:.*", "", other.text)


def test_a_build_that_never_ends_is_ended(many, kernels, monkeypatch):
    many.solve("slow", "import time\ntime.sleep(600)\n" + GOOD)
    ended = []
    close = Build.close
    monkeypatch.setattr(Build, "close", lambda self: (ended.append(self.number), close(self)))
    begin = build_ahead.BuildAhead.pytest_runtest_setup

    def waiting(self, item):
        begin(self, item)
        self.session.pool.builds.wait()

    monkeypatch.setattr(build_ahead.BuildAhead, "pytest_runtest_setup", waiting)
    result = kernels("--fib-build-jobs=2", "--fib-build-timeout=1", "-k", "test_correct and (good or slow)")
    result.assert_outcomes(passed=1, failed=1, deselected=18)
    assert len(ended) == 1


def test_of_several_processes_the_first_builds_for_all(many):
    (many.root / "conftest.py").write_text(
        "import os, pathlib\n"
        "from pytest_flashinfer.run.session import SESSION\n"
        "def pytest_sessionfinish(session):\n"
        "    name = os.environ.get('PYTEST_XDIST_WORKER', 'controller')\n"
        "    place = pathlib.Path(__file__).parent / f'jobs-{name}'\n"
        "    place.write_text(str(session.config.stash[SESSION].options.build_jobs))\n"
    )
    assert many.run("--fib-build-jobs=3", "-k", "test_schema", "-n", "2", apart=True).code == 0
    assert {each.name: each.read_text() for each in many.root.glob("jobs-gw*")} == {"jobs-gw0": "3", "jobs-gw1": "1"}
