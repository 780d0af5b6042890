"""`--fib-shard=K/N`: the part of a run that one of several machines does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from pytest_flashinfer.collect import DefinitionFile
from pytest_flashinfer.run.session import SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator


TOGETHER = 4  # solutions of a definition that share a part, and with it the truths: those can take longer than all else


class Shard:
    """Deselects what other parts run.

    The part of a solution follows from its definition's rank among those that have solutions, and its own among that
    definition's, and from nothing else: whatever -k, --lf or the order of files say in one part, no item is run twice
    and none is left out.
    """

    def __init__(self, part: int, parts: int) -> None:
        self.part = part
        self.parts = parts
        self.left_out = 0
        self._empty = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the items of this part, of those that are selected."""
        kept = set(self._kept(items))
        others = [item for item in items if item not in kept]
        if others:
            self.left_out = len(others)
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item in kept]

    def _kept(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        for item in items:
            if place_of(item) % self.parts == self.part - 1:
                yield item

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Count a part without items as a success where others have some: there are more machines than solutions."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["fib_left_out"] = self.left_out
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK
            self._empty = True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say of a part without items that this is as it should be."""
        if self._empty:
            where = "1 item is in another" if self.left_out == 1 else f"{self.left_out} items are in others"
            terminalreporter.write_line(f"flashinfer: part {self.part} of {self.parts} has nothing to do: the {where}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Hear from a process of pytest-xdist what it left out: the one that controls others collects nothing."""
        self.left_out += getattr(node, "workeroutput", {}).get("fib_left_out", 0)

    def pytest_report_header(self) -> str:
        """Say which part this is."""
        return f"flashinfer: part {self.part} of {self.parts}"


def place_of(item: pytest.Item) -> int:
    """Return a number that the items of four solutions share, the first four with what is checked of a definition."""
    file = item.getparent(DefinitionFile)
    if file is None or file.definition is None:
        return crc32(item.nodeid.partition("::")[0].encode())
    name = file.definition.name
    start = item.config.stash[SESSION].catalogue.dataset.solved.get(name, crc32(name.encode()))
    key = getattr(getattr(item, "callspec", None), "params", {}).get("solution")
    return start if key is None else start + file.ranks[key] // TOGETHER
