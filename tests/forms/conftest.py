"""A data set of one definition in any form, and runs of the plugin over it."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from tests.plugin.repository import Repository
from tests.within import failures_by_folder, fork_servers, one_fork_server  # noqa: F401 - every run here has them

RANDOM = {"type": "random"}


class Forms:
    """Writes definitions as they are found, and runs everything once."""

    def __init__(self, root):
        self.root = root
        self.repository = Repository(root)

    def define(self, document, path="definitions/op/{name}.json"):
        name = document.get("name") or document.get("id")
        return self.repository.write(path.format(name=name), json.dumps(document, indent=1))

    def lines(self, name, *workloads, path="workloads/op/{name}.jsonl", bare=False):
        records = workloads if bare else [{"definition": name, "workload": each} for each in workloads]
        self.repository.write(path.format(name=name), "".join(json.dumps(each) + "\n" for each in records))

    def solve(self, of, name, source, *, destination=False):
        self.repository.solve(name, dedent(source), of=of, destination=destination)

    def run(self, *options):
        return self.repository.run("--fib-scope=full", *options)


@pytest.fixture(scope="session")
def forms_root(tmp_path_factory):
    """Return a function that makes an empty data set."""
    return lambda name: Forms(tmp_path_factory.mktemp(name))
