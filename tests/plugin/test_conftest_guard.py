"""pytest's own collection, and the code of strangers in the folders that it passes."""

import pytest

EVIL = "from pathlib import Path\nPath({!r}).touch()\n"


@pytest.fixture
def ran(repository):
    """Plant code below the solutions that leaves a mark where it runs; returns the marks that are there."""
    marks = repository.root / "marks"
    marks.mkdir()
    names = ("conftest.py", "tests/conftest.py", "tests/test_evil.py", "tests/deep/er/test_evil.py", "test_evil.py")
    for name in names:
        mark = marks / name.replace("/", "_")
        repository.write(f"solutions/{name}", EVIL.format(str(mark)) + "def test_planted(): pass\n")
    return lambda: sorted(mark.name for mark in marks.iterdir())


@pytest.mark.parametrize("options", [(), ("-n1",)])
def test_nothing_below_the_solutions_is_imported(repository, ran, options):
    repository.write("test_own.py", "def test_own(): pass\n")
    repository.write("conftest.py", "import pytest\n")
    done = repository.run("-k", "test_schema or own or planted", ".", *options, apart=True)
    assert ran() == []
    assert sorted(done.outcomes().values()) == ["passed", "passed"], done.output


def test_links_are_followed(repository, ran):
    (repository.root / "solutions").rename(repository.root.parent / f"{repository.root.name}-elsewhere")
    (repository.root / "solutions").symlink_to(repository.root.parent / f"{repository.root.name}-elsewhere")
    done = repository.run("-k", "test_schema or planted", ".", apart=True)
    assert ran() == []
    assert list(done.outcomes()) == ["test_schema"]


@pytest.mark.parametrize("named", ["solutions", "solutions/tests/deep/er/test_evil.py::test_planted"])
def test_a_path_among_them_is_refused(repository, ran, named):
    done = repository.run(named, apart=True)
    assert not [mark for mark in ran() if "test_evil.py" in mark]
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert f"{named}: lies in a folder of --fib-solutions" in done.output


def test_a_folder_that_holds_the_definitions_is_collected(repository):
    repository.write("definitions/conftest.py", "import pytest\n")
    repository.write("definitions/test_own.py", "def test_own(): pass\n")
    done = repository.run("--fib-solutions=.", "-k", "test_schema or own", ".", apart=True)
    assert sorted(done.outcomes()) == ["test_own", "test_schema"], done.output
