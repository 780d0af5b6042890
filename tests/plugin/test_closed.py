"""What this user may not read is named in one line, and fails the run."""

import pytest

from tests import powerless

DEAF = ("-p", "no:cacheprovider", "--fib-device=cpu", "--fib-solutions=solutions", "-k", "schema")


@pytest.fixture
def closed(repository):
    """Take the rights to a place away until the test has ended."""
    taken = []

    def close(place, mode=0):
        path = repository.root / place
        path.mkdir(parents=True, exist_ok=True) if not path.suffix else None
        taken.append((path, path.stat().st_mode))
        path.chmod(mode)
        return path

    yield close
    for path, mode in taken:
        path.chmod(mode)


@pytest.mark.parametrize("mode", [0, 0o600], ids=["unlisted", "unentered"])
@pytest.mark.parametrize("name", ["solutions", "definitions", "workloads"])
def test_a_folder_that_is_named_ends_the_run(repository, closed, name, mode):
    repository.solve("good")
    closed(name, mode)
    done = powerless.run(repository.root, "pytest", *DEAF, f"--fib-{name}={name}")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    said = done.stderr.strip().splitlines()
    assert said == [f"ERROR: --fib-{name}: {name} cannot be read: Permission denied: {powerless.ADVICE}"]


@pytest.mark.parametrize("mode", [0, 0o600], ids=["unlisted", "unentered"])
@pytest.mark.parametrize("name", ["solutions", "definitions", "workloads"])
def test_a_folder_below_fails(repository, closed, name, mode):
    repository.solve("good")
    repository.write(f"{name}/deep/sub/a.json", "{}")
    closed(f"{name}/deep/sub", mode)
    done = powerless.run(repository.root, "pytest", *DEAF)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert f"{name}/deep/sub: cannot be read: Permission denied: {powerless.ADVICE}\n" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "Traceback" not in done.stdout
    done = powerless.run(repository.root, "pytest", *DEAF, "definitions")
    assert "folders of which nothing is run:" in done.stdout


def test_a_solution_file_fails(repository, closed):
    repository.solve("good")
    closed(repository.write("solutions/mine.py", 'definition = "scale_add_h8"\n').relative_to(repository.root))
    done = powerless.run(repository.root, "pytest", *DEAF)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"solutions/mine.py: cannot be read: Permission denied: {powerless.ADVICE}\n" in done.stdout


def test_a_solution_file_that_is_named_ends_the_run(repository, closed):
    closed(repository.write("mine.py", 'definition = "scale_add_h8"\n').relative_to(repository.root))
    done = powerless.run(repository.root, "pytest", "--fib-device=cpu", "--fib-solutions=mine.py")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"mine.py: cannot be read: Permission denied: {powerless.ADVICE}\n" in done.stderr
