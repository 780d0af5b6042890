"""Over hosts: pytest-xdist with one process for each `--tx`, here two on this machine with folders of their own.

`--tx ssh=` differs from `--tx popen` in how the process is started, and in nothing that this package sees.
"""

import json
import shutil
import sys

import pytest

pytest.importorskip("xdist")


@pytest.fixture
def hosts(repository):
    """Two checkouts of one data set."""
    repository.define(name="second_h8")
    repository.sizes(4, name="second_h8")
    repository.solve("lone", of="second_h8")
    for host in ("one", "two"):
        for folder in ("definitions", "workloads", "solutions"):
            shutil.copytree(repository.root / folder, repository.root / host / folder)
    return [repository.root / host for host in ("one", "two")]


def test_two_hosts_run_one_suite(repository, hosts):
    where = [f"--tx=popen//chdir={host}//python={sys.executable}" for host in hosts]
    done = repository.run(
        *(*where, "--dist=loadfile", f"--fib-traces={repository.root / 'traces'}", "-k", "test_speed"), apart=True
    )
    assert done.code == 0, done.output
    assert set(done.outcomes().values()) == {"passed"}
    assert len(done.cases) == 2
    found = [json.loads(line) for path in repository.root.glob("traces/**/*.jsonl") for line in path.open()]
    assert {each["solution"] for each in found} == {"good", "lone"}
    assert "2 workers" in done.output
