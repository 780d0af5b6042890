"""pytest-benchmark as the store of timings, also under pytest-xdist, where it switches itself off.

In a process of pytest-xdist a timing travels with its item's report, as plain values; the process that writes the
reports takes it off again and hands all of them to pytest-benchmark's own session before that saves and shows them.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_flashinfer.data.jsontext import read_json
from pytest_flashinfer.data.sniff import TIMINGS, kind_of
from pytest_flashinfer.report.baseline import MACHINE
from pytest_flashinfer.report.place import obstacle
from pytest_flashinfer.run.distribution import group_of, is_worker
from pytest_flashinfer.timing import stopwatch

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from pytest_benchmark.fixture import BenchmarkFixture

    from pytest_flashinfer.run.session import FibSession

_PROPERTY: Final = "fib_benchmark"


def keep(item: pytest.Item, benchmark: BenchmarkFixture, durations: Sequence[float]) -> None:
    """Give one item's durations, in seconds, to pytest-benchmark."""
    if is_worker(item.config):
        benchmark.disabled = True  # also in older versions, where every process would write a file of its own
    if is_worker(item.config) and not _switched_off(item.config):
        row = {name: getattr(benchmark, name) for name in ("name", "fullname", "group", "param", "extra_info")}
        params = {name: value if isinstance(value, str) else repr(value) for name, value in benchmark.params.items()}
        item.user_properties.append((_PROPERTY, {**row, "params": params, "data": list(durations)}))
    untyped: Any = benchmark
    untyped.pedantic(stopwatch.play(durations), setup=stopwatch.reset, rounds=len(durations), iterations=1)


def _switched_off(config: pytest.Config) -> bool:
    option = config.option
    return bool(getattr(option, "benchmark_disable", False) and not getattr(option, "benchmark_enable", False))


class Benchmarks:
    """The hooks of pytest-benchmark, and those that bring timings together."""

    def __init__(self, session: FibSession) -> None:
        self.session = session
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._unsaved = ""  # what to say where an option asked for times which there are not
        self._absent = not hasattr(session.config.hook, "pytest_benchmark_update_json")  # -p no:benchmark
        if self._absent:
            session.config.addinivalue_line("markers", "benchmark: settings of pytest-benchmark, which is switched off")
        target = getattr(session.config.option, "benchmark_json", None)
        if isinstance(target, Path) and not (session.lists_only or is_worker(session.config)):
            options = session.options
            # Older versions of pytest-benchmark open the file themselves, at once.
            _demand_a_place(target, (*options.definitions, *options.solutions, *options.workloads))

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Time nothing where pytest-benchmark, which keeps the times, is switched off; all else is checked."""
        if not self._absent:
            return
        skip = pytest.mark.skip(reason="pytest-benchmark, which keeps times, is switched off (-p no:benchmark)")
        for item in items:
            if group_of(item.nodeid)[0] != item.nodeid and "benchmark" in getattr(item, "fixturenames", ()):
                item.add_marker(skip)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the timing off a report that came from another process, so that nobody else shows it."""
        rows: list[Any] = [value for name, value in report.user_properties if name == _PROPERTY]
        if not rows or is_worker(self.session.config):
            return
        report.user_properties = [pair for pair in report.user_properties if pair[0] != _PROPERTY]
        self._rows[str(rows[-1]["fullname"])] = rows[-1]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Hand over what the other processes timed, before pytest-benchmark saves, and take away what is wrong.

        A kernel may be timed before, or after, another check finds it wrong on that workload.
        Where nothing was timed it would warn, in a place where `-Werror` takes every report of the run away.
        """
        kept = session.config.pluginmanager.get_plugin("pytest-benchmark")
        if kept is not None:
            kept.benchmarks += [_restored(self._rows[name], kept.options) for name in sorted(self._rows)]
            mistimed, timed = self.session.outcomes.mistimed(), bool(kept.benchmarks)
            kept.benchmarks = [each for each in kept.benchmarks if each.fullname not in mistimed]
            if not kept.benchmarks:
                asked = _asked_to_save(session.config.option)
                why = "nothing that is right was timed" if timed else "nothing was timed"
                self._unsaved = f"{asked}: {why}, and nothing is saved" if asked else ""
                kept.handle_saving = lambda: None
        yield

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Say that there are no times to keep."""
        if self._unsaved:
            reporter.write_line(self._unsaved)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Say which card the numbers are of: storage folders do not tell cards apart."""
        device = self.session.device
        facts = {"card": device.name, "device": device.kind, "driver": device.driver, **self.session.versions}
        machine_info[MACHINE] = facts | {"clocks": self.session.card.watch.clocks()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Keep the card's limits with the machine; they may come from another process."""
        limits = [each["extra_info"]["limits"] for each in output_json["benchmarks"] if "limits" in each["extra_info"]]
        if limits:
            output_json["machine_info"].setdefault(MACHINE, {})["limits"] = limits[0]

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_compare_machine_info(
        self, machine_info: Mapping[str, Any], compared_benchmark: Mapping[str, Any]
    ) -> None:
        """Mark a comparison of different cards."""
        cards = [each.get(MACHINE, {}).get("card") for each in (machine_info, compared_benchmark["machine_info"])]
        if cards[0] != cards[1]:
            text = f"--benchmark-compare: that run was on {cards[1] or 'an unknown card'}, this one is on {cards[0]}"
            warning = pytest.PytestWarning(f"{text}: the difference is the cards'")
            try:
                self.session.config.issue_config_time_warning(warning, stacklevel=2)
            except pytest.PytestWarning as error:  # -W error
                raise pytest.UsageError(str(error)) from None


def _demand_a_place(target: Path, given: Iterable[Path]) -> None:
    """Raise pytest.UsageError where pytest-benchmark could not write, and would take the run's other reports along.

    So where it would write over a file among those that the run was `given`: it may be somebody's kernel.
    """
    real = target.resolve()
    among = any(real.is_relative_to(place.resolve()) for place in given)
    reason = obstacle(target, "JSON of pytest-benchmark", _is_timings) if among else obstacle(target)
    if reason:
        raise pytest.UsageError(f"--benchmark-json: {reason}")


def _is_timings(path: Path) -> bool:
    return kind_of(read_json(path, nan_ok=True).value) == TIMINGS


def _asked_to_save(option: argparse.Namespace) -> str:
    """Return the option of pytest-benchmark by which timings are to be saved; empty where they are not."""
    names = ("benchmark_json", "benchmark_save", "benchmark_autosave")
    return next((f"--{name.replace('_', '-')}" for name in names if getattr(option, name, None)), "")


def _restored(row: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Return a timing as pytest-benchmark keeps it."""
    from pytest_benchmark.stats import Metadata

    names = ("name", "fullname", "group", "param", "params", "extra_info")
    fixture = SimpleNamespace(**{name: row[name] for name in names}, cprofile_stats=None, has_error=False)
    known = {name: options[name] for name in ("disable_gc", "min_rounds", "warmup") if name in options}
    untyped: Any = Metadata
    restored = untyped(fixture, 1, {**known, "timer": stopwatch.now})
    for duration in row["data"]:
        restored.update(duration)
    return restored
