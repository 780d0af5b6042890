"""What became of a run's items, whichever process ran them, and whether or not a terminal shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.report.results import UNREAD, Broken, Result, unread, without_wrong, wrong
from pytest_flashinfer.run.distribution import group_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_flashinfer.selection.catalogue import Catalogue

EARLIER = "of the earlier run"  # what a report has of a failure that is not found again
_ORDER = ("skipped", "passed", "failed", "error")  # a later one has the last word about its item


class Outcomes:
    """The hook that keeps reports, of the process that has all of them."""

    def __init__(self, catalogue: Catalogue, root: Path) -> None:
        self.catalogue, self.root = catalogue, root
        self._reports: dict[str, list[pytest.TestReport]] = {outcome: [] for outcome in _ORDER}
        self._uncollected: list[pytest.CollectReport] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report that counts; one of an item that never came to say whose it is says so from here on.

        That is one whose process of pytest-xdist crashed, or whose setup failed in a hook of somebody else.
        """
        if report.failed and "fib_solution" not in dict(report.user_properties):
            report.user_properties += facts_of(report.nodeid, self.catalogue, self.root).items()
        outcome = _outcome(report)
        if outcome in self._reports:
            self._reports[outcome].append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what could not be collected."""
        if report.failed:
            self._uncollected.append(report)

    def broken(self) -> list[Broken]:
        """Return what failed and is no solution's."""
        failed = [*self._reports["failed"], *self._reports["error"]]
        others = [report for report in failed if "fib_solution" not in dict(report.user_properties)]
        return [Broken(report.nodeid, report.longreprtext) for report in (*self._uncollected, *others)]

    def results(self) -> list[Result]:
        """Return the records of all finished items, one for each; none has a number of a workload that is wrong."""
        reports = (report for group in self._reports.values() for report in group)
        files = [each for report in reports for each in unread(dict(report.user_properties).get(UNREAD))]
        return [*without_wrong(self._found().values()), *files]

    def mistimed(self) -> set[str]:
        """Return the node ids of timings on workloads on which another check found the solution wrong."""
        found = self._found()
        refuted = wrong(found.values())
        timed = ((nodeid, each) for (nodeid, _), each in found.items() if each.latency is not None)
        return {nodeid for nodeid, each in timed if (each.definition, each.solution, each.workload) in refuted}

    def _found(self) -> dict[tuple[str, str], Result]:
        """Return the records of all finished items by node id and process.

        An item whose call passed and whose teardown ended in an error has two reports: it failed, once.
        """
        found: dict[tuple[str, str], Result] = {}
        for outcome in _ORDER:
            for report in self._reports[outcome]:
                text = _said(report)
                result = Result.from_properties(report.user_properties, report.outcome, text)
                if result is None:
                    continue
                if report.failed and result.status == "PASSED":
                    result = replace(result, status="ERROR")  # the kernel was right; what came after it was not
                process = str(getattr(getattr(report, "node", None), "gateway", ""))
                key = (report.nodeid, process)
                if outcome == "error" and key in found and found[key].outcome == "failed":
                    continue
                found[key] = result
        return found


def _said(report: pytest.TestReport) -> str:
    """Return why an item failed, be it in an earlier run, or was skipped; empty where it passed."""
    earlier = next((text for title, text in report.sections if EARLIER in title), "")
    if earlier or report.passed:
        return earlier
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr or "")


def _outcome(report: pytest.TestReport) -> str:
    """Return what pytest's terminal counts a report as; empty for a step that passed and is no call."""
    if hasattr(report, "wasxfail"):
        return ""
    if report.failed:
        return "error" if report.when in ("setup", "teardown") else "failed"
    return "" if report.passed and report.when != "call" else report.outcome


def facts_of(nodeid: str, catalogue: Catalogue, root: Path) -> dict[str, object]:
    """Return the properties by which an item says whose it is, from its node id; none of what is no solution's."""
    from pytest_flashinfer.collect import workload_id

    file, part = group_of(nodeid)
    definition = catalogue.definition(root / file) if part and catalogue.is_definition(root / file) else None
    entries = {} if definition is None else catalogue.solutions(definition)
    key = _key_of(part, entries)
    if definition is None or key is None:
        return {}
    check, _, rest = nodeid.removeprefix(f"{file}::").partition("[")
    facts = {"definition": definition.name, "solution": key, "author": entries[key].solution.author, "check": check}
    wanted = rest.removesuffix("]").partition("-")[2]
    for uuid, workload in catalogue.workloads(root / file, definition).items() if wanted else ():
        if workload_id(definition.var_axes, workload) == wanted:
            facts["workload"] = uuid
    return {f"fib_{name}": value for name, value in facts.items()}


def _key_of(part: str, keys: Iterable[str]) -> str | None:
    """Return the solution that an id names; pytest puts a number behind an id that several have."""
    from pytest_flashinfer.collect import slug

    alike: dict[str, list[str]] = {}
    for key in keys:
        alike.setdefault(slug(key), []).append(key)
    for name, group in alike.items():
        for number, key in enumerate(group):
            if part in ((name,) if len(group) == 1 else (f"{name}{number}", f"{name}_{number}")):
                return key
    return None
