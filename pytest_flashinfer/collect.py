"""Collection: a definition file becomes a module of checks, parametrized with its solutions and workloads."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer import checks
from pytest_flashinfer.stash import SESSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Workload

SHOWN_AXES = 3  # axes in an item's id; the uuid that follows tells the rest apart


class DefinitionFile(pytest.Module):
    """A definition's JSON file, collected as the shared module of checks."""

    def _getobj(self) -> Any:
        return checks

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield the checks that this file can carry: a broken file has its schema check only."""
        session = self.config.stash[SESSION]
        loaded = session.dataset.load(self.path)
        self.definition: Definition | None = loaded.value
        self.solutions: list[str] = []
        self.workloads: dict[str, Workload] = {}
        if self.definition is not None:
            name = self.definition.name
            self.extra_keyword_matches.update((name, self.definition.op_type, *self.definition.tags))
            self.add_marker(pytest.mark.definition(name=name, op_type=self.definition.op_type))
            if not session.is_duplicate(self.path):
                self.solutions = session.solution_keys(name)
                self.workloads = session.workloads_in_scope(self.path, self.definition)
        return super().collect()

    def _genfunctions(self, name: str, funcobj: Any) -> Iterator[pytest.Function]:
        wanted = inspect.signature(funcobj).parameters
        absent = {
            "definition": self.definition is None,
            "solution": not self.solutions,
            "workload": not self.workloads,
        }
        if any(absent.get(argument, False) for argument in wanted):
            return  # pytest would make a skipped item of an empty parameter set; there is nothing to run here
        for item in super()._genfunctions(name, funcobj):
            item.__class__ = KernelItem  # pytest builds the items of a module itself and takes no item class
            yield item


class KernelItem(pytest.Function):
    """A check of one definition, reported at the definition's file rather than at `checks.py`."""

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the JSON file, the line (from 0) of what is checked, and the item's name."""
        workload = self.callspec.params.get("workload") if hasattr(self, "callspec") else None
        path, line = self.config.stash[SESSION].location(self.path, workload)
        return path, line, self.name


def parametrize(metafunc: pytest.Metafunc, file: DefinitionFile) -> None:
    """Parametrize one check; a solution has module scope so that its items stand together and it is built once."""
    if "solution" in metafunc.fixturenames:
        solutions = metafunc.config.stash[SESSION].solutions
        metafunc.parametrize(
            "solution",
            [pytest.param(key, marks=solutions[key].mark) for key in file.solutions],
            ids=[slug(key) for key in file.solutions],
            indirect=True,
            scope="module",
        )
    if "workload" in metafunc.fixturenames and file.definition is not None:
        metafunc.parametrize(
            "workload",
            list(file.workloads),
            ids=[workload_id(file.definition, workload) for workload in file.workloads.values()],
            indirect=True,
        )


def workload_id(definition: Definition, workload: Workload) -> str:
    """Return a short, stable id: the first variable axes with their sizes, then the start of the uuid."""
    shown = [axis for axis in definition.var_axes if axis in workload.axes][:SHOWN_AXES]
    return "-".join([*(slug(f"{axis}{workload.axes[axis]}") for axis in shown), slug(workload.uuid)[:8]])


def slug(text: str) -> str:
    """Return `text` in the characters that are safe in a node id and in `-k` expressions."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text)
