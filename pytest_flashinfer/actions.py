"""What a run does on GitHub Actions: annotations in the log, tables in the summary of the job."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.options import REPLAY
from pytest_flashinfer.report import github
from pytest_flashinfer.sources import PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.outcomes import Outcomes

_FAULT = re.compile(r"(/[^:\n]+):(\d+)(?::\d+)?: (.+)")


class GitHub:
    """Hooks that are registered where GitHub's variables are set, not in the processes of pytest-xdist.

    From the first line to the last, the log may hold what solutions printed and what strangers called their files.
    The runner looks for commands anywhere in it, so it is told to obey none until the run is over.
    """

    def __init__(self, config: pytest.Config, outcomes: Outcomes) -> None:
        self.config, self.outcomes = config, outcomes
        self.token = secrets.token_hex(16) if os.environ.get("GITHUB_ACTIONS") == "true" else ""
        self.stopped = False
        self._lost = ""

    @property
    def _reporter(self) -> pytest.TerminalReporter | None:
        return self.config.pluginmanager.get_plugin("terminalreporter")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Take the runner's ear off the log, before anything of strangers is in it."""
        if self.token and self._reporter is not None:
            self._reporter.write_line(github.stop(self.token))
            self.stopped = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Append the tables to the job's summary."""
        target = os.environ.get("GITHUB_STEP_SUMMARY")
        if target:
            from pytest_flashinfer.report import markdown

            try:
                path = Path(target)
                room = markdown.LIMIT - (path.stat().st_size if path.exists() else 0)
                with path.open("a", encoding="utf-8", errors="replace") as file:
                    file.write(markdown.summary(self.outcomes.results(), max(0, room)))
            except OSError as error:
                self._lost = f"GITHUB_STEP_SUMMARY: {target} cannot be written: {error.strerror}"

    def tell(self, reporter: pytest.TerminalReporter) -> None:
        """Say why the job has no summary."""
        if self._lost:
            reporter.write_line(self._lost)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Give the runner its ear back, and point at the lines that failed."""
        reporter = self._reporter
        if not self.stopped or reporter is None:
            return
        root = Path(os.environ.get("GITHUB_WORKSPACE") or self.config.rootpath)
        for line in (github.resume(self.token), *github.errors(_failures(reporter), root)):
            reporter.write_line(line)


def wanted(config: pytest.Config) -> bool:
    """Say whether this process is one whose log or summary GitHub shows."""
    told = os.environ.get("GITHUB_ACTIONS") == "true" or bool(os.environ.get("GITHUB_STEP_SUMMARY"))
    return told and not hasattr(config, "workerinput")


def _failures(reporter: pytest.TerminalReporter) -> Iterator[github.Failure]:
    for outcome in ("failed", "error"):
        for report in reporter.stats.get(outcome, []):
            facts = dict(getattr(report, "user_properties", ()))
            text = getattr(report, "longreprtext", "") or str(report.longrepr)
            faults = [_FAULT.match(line) for line in text.splitlines() if not line.startswith(REPLAY)]
            if PROPERTY in facts:
                path, _, line = str(facts[PROPERTY]).rpartition(":")
                about = f"{facts['fib_solution']} of {facts['fib_definition']}"
                what = facts.get("fib_gate") or facts.get("status") or outcome.upper()
                yield github.Failure(path, int(line), f"{what}: {about}", text)
            elif faults and all(faults):  # of test_schema: each is about a line of its own
                for fault in filter(None, faults):
                    yield github.Failure(fault[1], int(fault[2]), "a file is not valid", fault[3])
            else:
                file, number, _ = getattr(report, "location", None) or (report.nodeid.partition("::")[0], 0, "")
                yield github.Failure(str(reporter.config.rootpath / file), (number or 0) + 1, report.nodeid, text)
