"""Collection: a definition file becomes a module of checks, parametrized with its solutions and workloads."""

from __future__ import annotations

import inspect
import re
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_flashinfer import checks
from pytest_flashinfer.here import from_here
from pytest_flashinfer.keyword import SHOWN_UUID, Names
from pytest_flashinfer.options import REPLAY, replay
from pytest_flashinfer.report import notes as notes_of
from pytest_flashinfer.sources import blamed
from pytest_flashinfer.stash import SESSION
from pytest_flashinfer.warned import in_a_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.catalogue import Entry
    from pytest_flashinfer.data.faults import Fault
    from pytest_flashinfer.data.model import Definition, Workload

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
        for text in (from_here(self.config, problem) for problem in problems if problem.kind != "fault"):
            try:
                warnings.warn(pytest.PytestWarning(text), stacklevel=2)
            except pytest.PytestWarning:  # noqa: PERF203 - of -W error, which would hide what else there is
                faults.append(text)
        if faults:
            raise SchemaFailed("\n".join(faults))

    @property
    def workload_file(self) -> Path | None:
        """Where a new workload line of this definition belongs."""
        return self.config.stash[SESSION].catalogue.workload_file(self.path)


class SchemaFailed(AssertionError):  # noqa: N818 - what pytest reports
    """A file is not valid; one line per fault."""


class KernelItem(pytest.Function):
    """A check of one definition, reported at the definition's file rather than at `checks.py`."""

    _given: list[tuple[str, object]] | None = None  # properties that others set before the first setup
    _void: Fault | None = None  # what is wrong with the definition, where nobody can be judged by it

    @in_a_line()
    def setup(self) -> None:
        """Say in the report's properties whose item this is, then set the fixtures up.

        An item that is run again begins anew: what an earlier attempt found is not said of this one.
        """
        if self._given is None:
            self._given = list(self.user_properties)
        self.user_properties[:] = self._given
        file = self.getparent(DefinitionFile)
        assert file is not None
        params = self.callspec.params if hasattr(self, "callspec") else {}
        if self.originalname == "test_schema":
            notes = self.config.stash[SESSION].catalogue.notes(file.path)
            self.user_properties += [(notes_of.PROPERTY, from_here(self.config, note)) for note in notes]
        if "solution" in params and file.definition is not None:
            key = str(params["solution"])
            author = file.solutions[key].solution.author
            facts = {"definition": file.definition.name, "solution": key, "author": author}
            self.user_properties += [(f"fib_{key}", value) for key, value in facts.items()]
            self.user_properties.append(("fib_check", self.originalname))
            if "workload" in params:
                self.user_properties.append(("fib_workload", params["workload"]))
        session = self.config.stash[SESSION]
        self._void = None if self.originalname == "test_schema" else session.catalogue.why_unjudgeable(file.path)
        if self._void is not None:
            return  # there is nothing to run
        if self.originalname != "test_schema" and session.runs_items:
            session.judge  # noqa: B018 - torch, which the fixtures of every other check import
        try:
            super().setup()
        except Exception as error:
            from pytest_flashinfer.overrides import raised_in_fixture

            said = raised_in_fixture(self, error)
            if said is None:
                raise
            raise pytest.fail.Exception(said, pytrace=False) from None

    @in_a_line()
    def runtest(self) -> None:
        """Run the check. A solution is not blamed for a reference or for data that fail: its item is skipped.

        So is every item of a definition that leaves the truth, or the size of a constant, to what is not here.
        """
        if self.originalname == "test_schema":  # neither a device nor torch is needed to read files
            super().runtest()
            return
        if self._void is not None:
            self._refuse(f"the definition is at fault: {from_here(self.config, self._void)}")
        from pytest_flashinfer.inputs.errors import BadData, InputsError, Unbound
        from pytest_flashinfer.judge.origin import NoReference, ReferenceFailed
        from pytest_flashinfer.worker.lock import LockedOut
        from pytest_flashinfer.worker.memory import MemoryShort

        card = self.config.stash[SESSION].card
        try:
            with card.turns.working(), card.memory_needed():
                super().runtest()
        except LockedOut as error:
            pytest.skip(f"not run: {error}")
        except MemoryShort as error:
            pytest.fail(f"{error}{self._replay()}", pytrace=False)
        except (InputsError, ReferenceFailed) as error:
            kind = "reference fails" if isinstance(error, ReferenceFailed) else "no inputs"
            if isinstance(error, BadData) and error.kind == "skip":  # not here, which is nobody's fault
                path, line, _ = self.reportinfo()
                pytest.skip(f"{from_here(self.config, path)}:{1 + (line or 0)}: {error}")
            if "solution" in self.fixturenames or isinstance(error, (NoReference, Unbound)):
                pytest.skip(f"{kind}: {error}")
            text = f"INVALID_REFERENCE: {kind}: {error}"
            if isinstance(error, ReferenceFailed):
                line = self.config.stash[SESSION].catalogue.reference_line(self.path)
                text += f"\n  it is at {from_here(self.config, self.path)}:{line}"
            pytest.fail(text + self._replay(), pytrace=False)

    def _refuse(self, reason: str) -> NoReturn:
        """Skip a solution's item, and fail any other, of a definition that leaves open what is right."""
        if "solution" in self.fixturenames:
            pytest.skip(reason)
        pytest.fail(f"INVALID_REFERENCE: {reason}{self._replay()}", pytrace=False)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """Show a verdict as its own few lines; anything else as pytest does, for it is a fault of the plugin."""
        if isinstance(excinfo.value, SchemaFailed):
            return self._shown(excinfo, f"{excinfo.value}{self._replay()}")
        if isinstance(excinfo.value, pytest.fail.Exception) and not excinfo.value.pytrace:
            return self._shown(excinfo, str(excinfo.value.msg))
        text = getattr(excinfo.value, "text", None)
        if callable(text):
            said = text()
            seed = getattr(excinfo.value, "seed", None)
            return self._shown(excinfo, f"{said}{self._below(said)}{self._replay(seed)}")
        return super().repr_failure(excinfo)

    def _replay(self, seed: int | None = None) -> str:
        """Return the line with the command that fails as this item did; `seed` is that of an earlier run, if any."""
        seed = self.config.stash[SESSION].options.seed if seed is None else seed
        return f"\n{REPLAY}{replay(self.config, self.path, self.name, seed)}"

    def _below(self, text: str) -> str:
        """Return lines on what a solution's own text says of a failure: hints, and where in its files it is wrong."""
        from pytest_flashinfer.advice import advice

        place = blamed(self, text)
        source = "" if place is None else f"\n  source: {from_here(self.config, place[0])}:{place[1]}"
        return f"{advice(self, text)}{source}"

    def _shown(self, excinfo: pytest.ExceptionInfo[BaseException], text: str) -> Any:
        """Return `text` as what pytest shows; its first line stands for it in the summary, and in junit."""
        shown: Any = excinfo.getrepr(style="value", chain=False)
        shown.reprtraceback.reprentries[-1].lines = text.splitlines()
        path, line, _name = self.reportinfo()
        if shown.reprcrash is not None:
            shown.reprcrash.path, shown.reprcrash.lineno = str(path), 1 + (line or 0)
            shown.reprcrash.message = text.partition("\n")[0]
        return shown

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the JSON file, the line (from 0) of what is checked, and the item's name."""
        workload = self.callspec.params.get("workload") if hasattr(self, "callspec") else None
        uuid = None if workload is None else str(workload)
        path, line = self.config.stash[SESSION].catalogue.location(self.path, uuid)
        return path, line, self.name


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
    """Return a short, stable id: the first variable axes with their sizes, then the start of the uuid."""
    shown = [axis for axis in axes if axis in workload.axes][:SHOWN_AXES]
    return "-".join([*(slug(f"{axis}{workload.axes[axis]}") for axis in shown), slug(workload.uuid)[:SHOWN_UUID]])


def slug(text: str) -> str:
    """Return `text` in the characters that are safe in a node id and in `-k` expressions."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text)
