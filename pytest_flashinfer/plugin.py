"""Hooks of the plugin; dormant until a `--fib-*` option or a `fib_*` ini key is given."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.run import activation
from pytest_flashinfer.settings import declarations

MANY_OBJECTS = 500_000  # that a collection has made, above which later searches for garbage leave them out

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_flashinfer.collect import DefinitionFile
    from pytest_flashinfer.run.processes import Processes
    from pytest_flashinfer.run.session import FibSession
    from pytest_flashinfer.settings.options import Options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    activation.add_options(parser)


def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Have pytest say below its error of usage which option a misspelt one may be."""
    parser.extra_info.update(activation.meant(args))


def pytest_configure(config: pytest.Config) -> None:
    """Wake the plugin up if it is asked for; without path arguments the definition folders are what is run."""
    for line in activation.MARKS:
        config.addinivalue_line("markers", line)
    if not activation.is_active(config):
        return
    from pytest_flashinfer.run.distribution import runs_items
    from pytest_flashinfer.run.processes import Processes
    from pytest_flashinfer.selection.conftest_guard import ConftestGuard
    from pytest_flashinfer.settings import options

    settings = options.read(config)
    guard = ConftestGuard(settings.solutions, settings.definitions, config.invocation_params.dir)
    guard.refuse(config)
    processes = Processes(config, settings)
    try:
        if runs_items(config):
            processes.start()  # they import torch while this process imports what follows, and collects
        config.pluginmanager.register(guard, "flashinfer-conftest-guard")
        _wake(config, settings, processes)
    except BaseException:
        processes.close()
        raise


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Have GitHub's job tell of a run that ends before it begins: no hook of a session hears of that.

    Who names a definition's file while the plugin is dormant is told that it is.
    """
    try:
        return (yield)
    except pytest.UsageError as error:
        if activation.is_active(config):
            from pytest_flashinfer.outputs import actions

            told = [activation.as_said(config, str(each)) for each in error.args]
            actions.refused(config, "\n".join(told))
            raise pytest.UsageError(*told) from error
        if any(str(arg).partition("::")[0].endswith(".json") for arg in config.args):
            raise pytest.UsageError(*error.args, activation.HINT) from None
        raise


def _wake(config: pytest.Config, settings: Options, processes: Processes) -> None:
    """Register what a run needs."""
    from pytest_flashinfer import fixtures
    from pytest_flashinfer.outputs import summary
    from pytest_flashinfer.outputs.item_reports import ItemReports
    from pytest_flashinfer.outputs.run_files import Records
    from pytest_flashinfer.run import termination
    from pytest_flashinfer.run.distribution import Distribution, is_worker
    from pytest_flashinfer.run.session import FibSession
    from pytest_flashinfer.selection.unused_options import UnusedOptions
    from pytest_flashinfer.timing.benchmarking import Benchmarks

    session = FibSession(config, settings, processes)
    kernels, records, unused = FlashInferPlugin(config, session), Records(session), UnusedOptions(session)
    benchmarks, reports = Benchmarks(session), ItemReports(session)
    config.pluginmanager.register(reports, "flashinfer-reports")  # first: hooks of the next are called before its own
    config.pluginmanager.register(kernels, "flashinfer-kernels")
    config.pluginmanager.register(records, "flashinfer-records")
    config.pluginmanager.register(benchmarks, "flashinfer-benchmarks")
    config.pluginmanager.register(Distribution(session), "flashinfer-distribution")
    config.pluginmanager.register(unused, "flashinfer-unused-options")
    config.pluginmanager.register(fixtures, "flashinfer-fixtures")
    alone = not is_worker(config)  # on the CPU others read the wall clock while this process would compile
    if settings.build_jobs > 1 and session.runs_items and (alone or session.card.cuda):
        from pytest_flashinfer.run.build_ahead import BuildAhead

        config.pluginmanager.register(BuildAhead(session, records), "flashinfer-ahead")
    if settings.shard is not None:
        from pytest_flashinfer.selection.sharding import Shard

        config.pluginmanager.register(Shard(*settings.shard), "flashinfer-shard")
    if alone:
        summary.register(config, session, [unused, kernels, reports, benchmarks, records])
    else:
        termination.register(config)


class FlashInferPlugin:
    """The hooks of a run that has kernels to check."""

    def __init__(self, config: pytest.Config, session: FibSession) -> None:
        self.session = session
        self._closed: list[str] = []
        self._failing: set[Path] = set()
        self._selected: bool | None = None  # whether there are items in any part of the run, once they are chosen
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            from pytest_flashinfer.selection import omissions
            from pytest_flashinfer.selection.unreadable_solutions import Unread

            config.pluginmanager.register(Unread(), "flashinfer-unread")
            folders = [str(path) for path in session.options.definitions]
            asked = any(activation.from_line(config, option) is not None for option in declarations.DECLARATIONS)
            if not asked:
                self._closed += omissions.not_entered(config.args, folders, config.getini("norecursedirs"))
            config.args = folders if asked else _joined(config.args, folders)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collect without looking for garbage: what is collected stays, and looking takes a fifth of the time."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            return (yield)
        finally:
            if gc.get_count()[0] > MANY_OBJECTS:
                gc.freeze()
            if collecting:
                gc.enable()

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> DefinitionFile | None:
        """Collect a JSON file that is in a definition folder or was named on the command line."""
        if file_path.suffix != ".json" or not (
            self.session.catalogue.is_definition(file_path) or parent.session.isinitpath(file_path)
        ):
            return None
        from pytest_flashinfer.collect import DefinitionFile

        # Outside the root folder pytest's own ids start at the argument: two data sets would have the same ones, and
        # of items with one id pytest-xdist runs one.
        outside = not file_path.is_relative_to(parent.config.rootpath)
        return DefinitionFile.from_parent(parent, path=file_path, nodeid=file_path.as_posix() if outside else None)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Pass by a folder that cannot be looked into: it fails as an item, which says what to do."""
        return True if collection_path in self.session.catalogue.closed else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note which unreadable solutions fail in this run, be it in another part of it, and whether it has items."""
        from pytest_flashinfer.selection.unreadable_solutions import failing

        self._selected = bool(items)
        self._failing = failing(self.session.catalogue, items)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give every check of `checks.py` its solutions and workloads."""
        from pytest_flashinfer.collect import DefinitionFile, parametrize

        parent = metafunc.definition.parent
        if isinstance(parent, DefinitionFile):
            parametrize(metafunc, parent)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Warn of solutions in the folders that do not run, and end the run for one that was named itself.

        Nobody should think that it ran, least of all who reads an exit code only. Raises pytest.UsageError.
        """
        from pytest_flashinfer.outputs import run_warnings
        from pytest_flashinfer.run.distribution import is_first_worker
        from pytest_flashinfer.selection import omissions

        if self._selected is None:
            return  # pytest ends the run for its arguments, and says why
        catalogue = self.session.catalogue
        omissions.refuse(session.config, catalogue)
        if is_first_worker(session.config):
            try:
                some = self._selected or session.testsfailed > 0
                found = omissions.of_run(session, catalogue, self._failing, selected=some)
                for text in (*self._closed, *found):
                    run_warnings.of_run(activation.as_said(session.config, text))
            except pytest.PytestWarning as error:  # -W error
                raise pytest.UsageError(str(error)) from None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Know whose exit code it is."""
        self.session.running = session

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """End the run for what cannot be run; of the processes of pytest-xdist only the one that distributes can."""
        from pytest_flashinfer.selection import omissions

        omissions.refuse(self.session.config, self.session.catalogue)

    def pytest_report_header(self) -> list[str]:
        """Say what this run stands on: card, driver, versions, scope, seed."""
        return self.session.header()

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Print one table per definition."""
        from pytest_flashinfer.report import baseline_summary, notes, terminal

        results = self.session.outcomes.results()
        notes.summary(reporter)
        terminal.summary(reporter, results)
        notes.of_little(reporter)
        if self.session.options.baseline is not None:
            baseline_summary.summary(reporter, results)

    def pytest_unconfigure(self) -> None:
        """Stop every process that this run started."""
        self.session.processes.close()


def _joined(args: list[str], folders: list[str]) -> list[str]:
    """Return what pytest would collect anyway, and the folders that are not below one of those places."""
    places = [Path(arg.partition("::")[0]).resolve() for arg in args]
    return [*args, *(each for each in folders if not any(Path(each).resolve().is_relative_to(at) for at in places))]
