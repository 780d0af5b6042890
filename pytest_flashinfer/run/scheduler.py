"""Items in groups: all of one solution go to one process, and a process stays with a definition while it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling

from pytest_flashinfer.run.distribution import group_of

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

    def remove_node(self, node: Any) -> str | None:
        """Return the item at which a process crashed, if it did, and have others run what was to follow.

        That item is not run again: it would crash one process after the other, and nothing else would be run.
        """
        units: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        waiting = ((unit, nodeid) for unit in units.values() for nodeid, done in unit.items() if not done)
        found = next(waiting, None)
        if found is None:
            return None
        unit, crashed = found
        unit[crashed] = True
        self.workqueue.update((scope, each) for scope, each in units.items() if not all(each.values()))
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

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
