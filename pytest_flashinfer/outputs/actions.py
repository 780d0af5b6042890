"""What a run does on GitHub Actions: annotations in the log, tables in the summary of the job."""

from __future__ import annotations

import os
import re
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pytest_flashinfer.outputs.paths import from_here
from pytest_flashinfer.outputs.run_warnings import RunWarning
from pytest_flashinfer.report import github, markdown
from pytest_flashinfer.report.results import Broken
from pytest_flashinfer.run.distribution import is_worker
from pytest_flashinfer.settings.options import REPLAY
from pytest_flashinfer.sources import PROPERTY

if TYPE_CHECKING:
    import warnings
    from collections.abc import Generator, Iterator

    from pytest_flashinfer.report.results import Result
    from pytest_flashinfer.run.session import FibSession

_ENDS: Final[dict[int, str]] = {
    pytest.ExitCode.INTERRUPTED: "it was interrupted, and not all of it was run",
    pytest.ExitCode.NO_TESTS_COLLECTED: "nothing was selected, and nothing was run",
}
_FAULT = re.compile(r"([^\s:][^:\n]*):(\d+)(?::\d+)?: (.+)")


class GitHub:
    """Hooks that are registered where GitHub's variables are set, not in the processes of pytest-xdist.

    From the first line to the last, the log may hold what solutions printed and what strangers called their files.
    The runner looks for commands anywhere in it, so it is told to obey none until the run is over.
    """

    def __init__(self, session: FibSession) -> None:
        self.config, self.session = session.config, session
        self.token = secrets.token_hex(16) if os.environ.get("GITHUB_ACTIONS") == "true" else ""
        self.stopped = False
        self._lost = ""
        self._internal: list[Broken] = []
        self._warnings: dict[str, dict[str, object]] = {}  # by text, the properties that say where to look

    @property
    def _root(self) -> Path:
        return Path(os.environ.get("GITHUB_WORKSPACE") or self.config.rootpath)

    @property
    def _reporter(self) -> pytest.TerminalReporter | None:
        return self.config.pluginmanager.get_plugin("terminalreporter")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Take the runner's ear off the log, before anything of strangers is in it."""
        if self.token and self._reporter is not None:
            self._reporter.write_line(github.stop(self.token))
            self.stopped = True

    def pytest_internalerror(self, excrepr: object) -> None:
        """Keep an error of pytest or of a plugin."""
        self._internal.append(Broken("internal error", str(excrepr)))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str) -> None:
        """Keep what is said of the run as a whole, as of a folder without solutions."""
        config = when == "config" and issubclass(warning_message.category, pytest.PytestWarning)
        of_run = issubclass(warning_message.category, RunWarning)
        if config or of_run:
            file, line = warning_message.filename, warning_message.lineno
            at = {"file": github.relative(file, self._root), "line": line} if of_run and line else {}
            self._warnings[str(warning_message.message)] = at

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Append all failures and the tables to the job's summary, once the exit code is known."""
        try:
            yield
        finally:
            told = [markdown.fenced(text) for text in self._warnings]
            more = ["\n### Warnings\n\n", *told] if told else []
            self._lost = _append(self.session.outcomes.results(), more, self._broken(session.exitstatus))

    def _broken(self, exitstatus: int) -> list[Broken]:
        ended = [Broken("the run", _ENDS[exitstatus])] if exitstatus in _ENDS else []
        lost = [Broken("the run", text) for text in self.session.lost]
        others = (replace(each, text=from_here(self.config, each.text)) for each in self.session.outcomes.broken())
        return [*self._internal, *ended, *lost, *others]

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Say why the job has no summary."""
        if self._lost:
            reporter.write_line(self._lost)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Give the runner its ear back, and point at the lines that failed."""
        reporter = self._reporter
        if not self.stopped or reporter is None:
            return
        told = [github.command("warning", github.short(text), **at) for text, at in self._warnings.items()]
        errors = github.errors(_failures(reporter), self._root)
        for line in (github.resume(self.token), *errors, *told[: github.SHOWN]):
            reporter.write_line(line)


def refused(config: pytest.Config, why: str) -> None:
    """Say in an annotation and in the job's summary why a run has not begun, or was refused once all was collected."""
    if not wanted(config):
        return
    if os.environ.get("GITHUB_ACTIONS") == "true":
        sys.stdout.write(f"{github.command('error', github.short(why), title='the run did not begin')}\n")
    lost = _append([], [], [Broken("the run did not begin", why)])
    if lost:
        sys.stderr.write(f"{lost}\n")


def _append(results: list[Result], more: list[str], broken: list[Broken]) -> str:
    """Append to the job's summary, where it has one; return in a line why that cannot be, or the empty string."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return ""
    try:
        path = Path(target)
        room = markdown.LIMIT - (path.stat().st_size if path.exists() else 0)
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(markdown.summary(results, max(0, room), more, broken))
    except OSError as error:
        return f"GITHUB_STEP_SUMMARY: {target} cannot be written: {error.strerror}"
    return ""


def wanted(config: pytest.Config) -> bool:
    """Say whether this process is one whose log or summary GitHub shows."""
    told = os.environ.get("GITHUB_ACTIONS") == "true" or bool(os.environ.get("GITHUB_STEP_SUMMARY"))
    return told and not is_worker(config)


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
                here = reporter.config.invocation_params.dir
                for fault in filter(None, faults):
                    yield github.Failure(str(here / fault[1]), int(fault[2]), "a file is not valid", fault[3])
            elif (at := _place(report, text)) is not None:
                said = from_here(reporter.config, Broken(report.nodeid, text).message)
                yield github.Failure(*at, report.nodeid, said)
            else:
                file, number, _ = getattr(report, "location", None) or (report.nodeid.partition("::")[0], 0, "")
                yield github.Failure(str(reporter.config.rootpath / file), (number or 0) + 1, report.nodeid, text)


def _place(report: object, text: str) -> tuple[str, int] | None:
    """Return where a file could not be collected: its folder, or pytest's own lines, are no place to look at."""
    at = Broken("", text).place if isinstance(report, pytest.CollectReport) else None
    return None if at is None else (str(Path(at[0]).absolute()), at[1])
