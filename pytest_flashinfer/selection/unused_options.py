"""Gates and tolerances that apply to nothing: who gave them would take a green run for one that has passed them."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.outputs import run_warnings
from pytest_flashinfer.run.activation import as_said, from_line
from pytest_flashinfer.run.distribution import is_first_worker, is_worker
from pytest_flashinfer.settings.declarations import DECLARATIONS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from pytest_flashinfer.run.session import FibSession


class UnusedOptions:
    """The hooks that warn of names that nothing has, and of gates that judged no timing."""

    def __init__(self, session: FibSession) -> None:
        self.session = session
        self._paths: dict[Path, None] = {}  # of definitions, in their order
        self._refused: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Know which definitions there are, also those of which `-k` or `--lf` leaves nothing."""
        from pytest_flashinfer.collect import DefinitionFile

        if isinstance(collector, DefinitionFile):
            self._paths[collector.path] = None
        return (yield)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Warn of what the command line says for a name or pattern that neither a definition nor an op_type has.

        So of a threshold where there is no baseline, as in the first run of a workflow that would compare with one, and
        of what only a card could show.
        Lines of an ini file are meant for more than one run; but of a name within them that nothing here has nobody
        can say what it means. Raises pytest.UsageError with `-W error`.
        """
        if not is_first_worker(session.config):
            return
        for text in (*self._without_baseline(), *self._on_cpu(), *self._unmatched()):
            if not self._warn(text):
                raise pytest.UsageError(text)

    def _without_baseline(self) -> Iterator[str]:
        options = self.session.options
        if options.threshold and options.baseline is None:
            yield "--fib-threshold: nothing is compared: say with --fib-baseline=FILE what an earlier run took"

    def _on_cpu(self) -> Iterator[str]:
        """Yield what a card only is asked for, where the command line asks for it; an ini file is for both."""
        if self.session.device.kind == "cuda":
            return
        values = {"policy": "any", "cache": "cold"}
        for option in (each for each in DECLARATIONS if each.dest in values):
            given = from_line(self.session.config, option)
            if given not in (None, values[option.dest]):
                why = "nothing tells which kernels ran" if option.dest == "policy" else "no cache is emptied or filled"
                yield f"{option.switch}={given}: nothing is judged by it on the CPU, where {why}"

    def _unmatched(self) -> Iterator[str]:
        patterns = [pair for pair in dict.fromkeys(self.session.gates.patterns) if pair[1] != "*"]
        options = self.session.options
        if not (patterns or options.tolerance or options.ini_tolerance):
            return
        found = [each for path in self._paths if (each := self.session.catalogue.definition(path)) is not None]
        if found:
            yield from self.session.tolerances.idle(found)
        names = {name for each in found for name in (each.name, each.op_type)}
        for switch, pattern in patterns:
            if names and not any(fnmatch(name, pattern) for name in names):
                meant = did_you_mean(pattern, sorted(names))
                yield f"{switch}: no definition and no op_type of this run is {pattern!r}{meant}"

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Warn of gates that judged nothing, before pytest shows its warnings."""
        if is_worker(session.config) or self.session.lists_only:
            return
        refused = [text for text in self._without_timings(exitstatus) if not self._warn(text)]
        self._refused = [self.session.lose(text) for text in refused]

    def _without_timings(self, exitstatus: int) -> Iterator[str]:
        config, path = self.session.config, self.session.options.baseline
        gates = [option for option in DECLARATIONS if option.dest in ("min_speedup", "baseline")]
        asked = " and ".join(option.switch for option in gates if from_line(config, option) is not None)
        if path is None and not asked:
            return
        timed = [each for each in self.session.outcomes.results() if each.timed]
        if timed and path is not None and not any(each.compared for each in timed):
            yield f"--fib-baseline: nothing was compared: {path} has no timing of this run"
        if asked and not timed and exitstatus == pytest.ExitCode.OK:  # any other says itself that nothing has passed
            skipped = " (--benchmark-skip)" if getattr(config.option, "benchmark_skip", False) else ""
            yield f"{asked}: nothing was judged: this run has timed nothing{skipped}"

    def _warn(self, text: str) -> bool:
        """Issue a warning; say whether it is one, rather than an error, as with `-W error`."""
        try:
            run_warnings.of_run(as_said(self.session.config, text))
        except pytest.PytestWarning:
            return False
        return True

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Say for which warnings the run has failed."""
        for text in self._refused:
            reporter.write_line(text)
