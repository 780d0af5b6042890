"""A solution file that cannot be read, and tells no definition that it is for: it fails as an item of its own."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.stash import SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.faults import Fault


class UnreadableSolution(pytest.Item):
    """The schema check of one such file."""

    faults: Sequence[Fault]

    def runtest(self) -> None:
        """Fail with every fault."""
        pytest.fail("\n".join(map(str, self.faults)), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the first fault, its line counted from 0."""
        first = self.faults[0]
        return first.path, None if first.line is None else first.line - 1, self.name


def unreadable(session: pytest.Session) -> Iterator[UnreadableSolution]:
    """Yield an item for each solution file that belongs to no definition because it cannot be read."""
    found = session.config.stash[SESSION].catalogue.unreadable()
    for path, faults in groupby(found, key=lambda fault: fault.path):
        place = path.relative_to(session.path).as_posix() if path.is_relative_to(session.path) else path.as_posix()
        extra: dict[str, Any] = {"name": f"test_schema[{path.stem}]", "nodeid": f"{place}::test_schema"}
        item: UnreadableSolution = UnreadableSolution.from_parent(session, **extra)
        item.faults = list(faults)
        yield item
