"""Items in groups: all of one solution go to one process, and a process stays with a definition while it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling

from pytest_flashinfer.distribution import group_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEPARATOR = "\n"


class BySolution(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
    """Hands out solutions one after the other.

    The truths of a definition are computed once in each process that meets it, so a process goes on with the
    definition it has, else takes one that no other process has, and only then helps another with its own.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, part = group_of(nodeid)
        if file == nodeid and self.config.getvalue("dist") == "loadgroup" and nodeid.rfind("@") > nodeid.rfind("]"):
            return nodeid.rpartition("@")[2]  # a group of the user's own
        return _SEPARATOR.join((file, part))

    def _assign_work_unit(self, node: Any) -> None:
        files = {other: self._last_file(units) for other, units in self.assigned_work.items()}
        mine = files.pop(node, None)
        self.workqueue.move_to_end(choose(self.workqueue, mine, set(files.values())), last=False)
        super()._assign_work_unit(node)

    @staticmethod
    def _last_file(units: Any) -> str | None:
        return next((_file(scope) for scope in reversed(units)), None)


def choose(scopes: Iterable[str], mine: str | None, others: set[str | None]) -> str:
    """Return the group to hand out next to a process that has the definition `mine`, where others have `others`."""
    waiting = list(scopes)
    same = (scope for scope in waiting if _file(scope) == mine)
    free = (scope for scope in waiting if _file(scope) not in others)
    return next(same, None) or next(free, None) or waiting[0]


def _file(scope: str) -> str:
    return scope.partition(_SEPARATOR)[0]
