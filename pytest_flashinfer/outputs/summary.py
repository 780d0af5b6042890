"""What a run says of kernels at its end, below all that pytest and its other plugins have to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from pytest_flashinfer.outputs.repeated import Repeated

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_flashinfer.run.session import FibSession


class Part(Protocol):
    """Has something to say at the end."""

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Say it."""


class Summary:
    """The hook that lets every part have its say, in their order.

    Also where another plugin ends the run in its own part of the summary, as `--benchmark-compare-fail` does. Files
    are written before: nothing may be shown, and there may be no terminal.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        """Come after the others, and before pytest's list of what failed."""
        try:
            yield
        finally:
            for part in self.parts:
                part.write_summary(terminalreporter)


def register(config: pytest.Config, session: FibSession, parts: list[Part]) -> None:
    """Register what the process needs that has all outcomes: it writes them, and lets all parts tell of them."""
    from pytest_flashinfer.outputs import actions
    from pytest_flashinfer.outputs.html_report import HtmlReport
    from pytest_flashinfer.run.termination import Termination

    config.pluginmanager.register(session.outcomes, "flashinfer-outcomes")
    if not session.lists_only:
        config.pluginmanager.register(Termination(), "flashinfer-termination")
    if session.options.report is not None:
        report = HtmlReport(session, session.options.report)
        config.pluginmanager.register(report, "flashinfer-report")
        parts.append(report)
    if actions.wanted(config):
        github = actions.GitHub(session)
        config.pluginmanager.register(github, "flashinfer-github")
        parts.append(github)
    config.pluginmanager.register(Summary(parts), "flashinfer-summary")
    config.pluginmanager.register(Repeated(), "flashinfer-repeated")
