"""A solution file that cannot be read, and tells no definition that it is for: it fails as an item of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.outputs.paths import from_here
from pytest_flashinfer.report.results import UNKNOWN, UNREAD
from pytest_flashinfer.run.session import SESSION

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.faults import Fault
    from pytest_flashinfer.data.unreadable import Unreadable
    from pytest_flashinfer.selection.catalogue import Catalogue


class UnreadableSolution(pytest.Item):
    """The schema check of one such file."""

    faults: Sequence[Fault]

    def runtest(self) -> None:
        """Fail with every fault."""
        pytest.fail("\n".join(from_here(self.config, fault) for fault in self.faults), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the first fault, its line counted from 0."""
        first = self.faults[0]
        return first.path, None if first.line is None else first.line - 1, self.name


class Unread:
    """The hook that adds these items to a run."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Have solution files that nobody can read fail: without them, who reads an exit code would think they ran."""
        items += unreadable(session)


def unreadable(session: pytest.Session) -> Iterator[UnreadableSolution]:
    """Yield an item for each folder and each solution file that belongs to no definition because it cannot be read.

    Where nothing tells what it is for, the name of any definition finds it: it may be for that one.
    """
    catalogue = session.config.stash[SESSION].catalogue
    names = catalogue.dataset.names
    for each in (*catalogue.unreadable(), *catalogue.closed.values()):
        if each.definition in names:
            continue  # its definition's test_schema says so
        path = each.path
        place = path.relative_to(session.path).as_posix() if path.is_relative_to(session.path) else path.as_posix()
        extra: dict[str, Any] = {"name": f"test_schema[{each.name}]", "nodeid": f"{place}::test_schema"}
        item: UnreadableSolution = UnreadableSolution.from_parent(session, **extra)
        item.faults = each.faults
        if path not in catalogue.closed:
            item.user_properties.append((UNREAD, listed([each], ())))
        item.extra_keyword_matches.update([each.definition] if each.definition else names)
        yield item


def listed(files: Iterable[Unreadable], taken: Container[str]) -> str:
    """Return what the report of a schema check says of files that fail it; those whose name is taken have all of it."""
    names = ((each.definition or UNKNOWN, each.path.name if each.name in taken else each.name) for each in files)
    return json.dumps(list(names))


def failing(catalogue: Catalogue, items: Iterable[pytest.Item]) -> set[Path]:
    """Return the solution files that some of the items fail for because they cannot be read.

    With them the definitions that are checked themselves, which fail for whatever is wrong with their workloads.
    """
    own = {item.faults[0].path for item in items if isinstance(item, UnreadableSolution)}
    checked = {catalogue.stated(item.path) for item in items if getattr(item, "originalname", None) == "test_schema"}
    named = catalogue.dataset.names
    read = {each.path for each in catalogue.unreadable() if checked.intersection(named.get(each.definition, ()))}
    return own | checked | read
