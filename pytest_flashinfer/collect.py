"""Collection: a definition file becomes a module of checks, parametrized with its solutions and workloads."""

from __future__ import annotations

import inspect
import re
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer import checks
from pytest_flashinfer.items import KernelItem, SchemaFailed
from pytest_flashinfer.outputs.paths import from_here
from pytest_flashinfer.run.session import SESSION
from pytest_flashinfer.selection.keyword import SHOWN_UUID, Names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.selection.catalogue import Entry

SHOWN_AXES = 3  # axes in an item's id; the uuid that follows tells the rest apart


class DefinitionFile(pytest.Module):
    """A definition's JSON file, collected as the shared module of checks."""

    definition: Definition | None
    solutions: dict[str, Entry]
    workloads: dict[str, Workload]

    def _getobj(self) -> Any:
        return checks

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield the checks that this file can carry: a broken file has its schema check only."""
        catalogue = self.config.stash[SESSION].catalogue
        self.definition = definition = catalogue.definition(self.path)
        self.solutions, self.workloads = {}, {}
        if definition is not None:
            self.extra_keyword_matches.update((definition.name, definition.op_type, *definition.tags))
            self.add_marker(pytest.mark.definition(name=definition.name, op_type=definition.op_type))
            self.solutions = catalogue.solutions(definition)
            if self.config.stash[SESSION].keyword.excludes(self, self._names(definition)):
                return []
            self.workloads = catalogue.workloads(self.path, definition)
        return super().collect()

    def _names(self, definition: Definition) -> Names:
        """Return what the items will be called by, before workloads are read."""
        found = {name for name, value in vars(checks).items() if inspect.isfunction(value)}
        found |= {"pytestmark", "benchmark", "definition", "solution"}
        for key, entry in self.solutions.items():
            found |= {slug(key), entry.solution.author, entry.solution.language}
        catalogue = self.config.stash[SESSION].catalogue
        found |= catalogue.broken(definition)
        axes = tuple(map(slug, definition.var_axes))
        return Names(frozenset(found), axes, lambda: catalogue.workload_text(self.path))

    def _genfunctions(self, name: str, funcobj: Any) -> Iterator[pytest.Function]:
        wanted = inspect.signature(funcobj).parameters
        absent = {
            "solution": not self.solutions,
            "workload": not self.workloads,
            "reference": self.definition is None,
            "huge": not self.config.stash[SESSION].options.huge,
        }
        if any(absent.get(argument, False) for argument in wanted):
            return  # pytest would make a skipped item of an empty parameter set; there is nothing to run here
        for item in super()._genfunctions(name, funcobj):
            item.__class__ = KernelItem  # pytest builds the items of a module itself and takes no item class
            if name == "test_schema" and self.definition is not None:  # -k with the name of a broken file finds why
                item.extra_keyword_matches.update(self.config.stash[SESSION].catalogue.broken(self.definition))
            if "solution" in wanted:
                solution = self.solutions[str(item.callspec.params["solution"])].solution
                item.extra_keyword_matches.update((solution.author, solution.language))
            yield item

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The places of the solutions among those of this definition."""
        return {key: rank for rank, key in enumerate(self.solutions)}

    @cached_property
    def workload_ids(self) -> list[str]:
        """The ids of the workloads, in their order: the same for every check."""
        assert self.definition is not None
        axes = self.definition.var_axes
        return [workload_id(axes, workload) for workload in self.workloads.values()]

    def raise_faults(self) -> None:
        """Raise SchemaFailed with every fault of the file; warnings become pytest warnings."""
        problems = self.config.stash[SESSION].catalogue.problems(self.path)
        faults = [from_here(self.config, fault) for fault in problems if fault.kind == "fault"]
        for problem in (each for each in problems if each.kind != "fault"):
            text = from_here(self.config, problem)
            try:
                warnings.warn_explicit(pytest.PytestWarning(text), None, str(problem.path), problem.line or 1)
            except pytest.PytestWarning:  # of -W error, which would hide what else there is
                faults.append(text)
        if faults:
            raise SchemaFailed("\n".join(faults))

    @property
    def workload_file(self) -> Path | None:
        """Where a new workload line of this definition belongs."""
        return self.config.stash[SESSION].catalogue.workload_file(self.path)


def parametrize(metafunc: pytest.Metafunc, file: DefinitionFile) -> None:
    """Parametrize one check; a solution has module scope so that its items stand together and it is built once."""
    if "solution" in metafunc.fixturenames:
        metafunc.parametrize(
            "solution",
            [pytest.param(key, marks=entry.mark) for key, entry in file.solutions.items()],
            ids=[slug(key) for key in file.solutions],
            indirect=True,
            scope="module",
        )
    if "workload" in metafunc.fixturenames and file.definition is not None:
        metafunc.parametrize(
            "workload",
            list(file.workloads),
            ids=file.workload_ids,
            indirect=True,
        )


def workload_id(axes: Sequence[str], workload: Workload) -> str:
    """Return a short, stable id: the first variable axes with their sizes, then the start of the uuid.

    Between a name that ends in a digit and its size is `_`: `plus_1_2` is no size of 12.
    """
    shown = [axis for axis in axes if axis in workload.axes][:SHOWN_AXES]
    sizes = [f"{axis}{'_' * axis[-1:].isdigit()}{workload.axes[axis]}" for axis in shown]
    return "-".join([*map(slug, sizes), slug(workload.uuid)[:SHOWN_UUID]])


def slug(text: str) -> str:
    """Return `text` in the characters that are safe in a node id and in `-k` expressions."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text)
