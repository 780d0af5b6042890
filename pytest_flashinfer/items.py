"""An item: one check of a definition, set up, run and reported at the definition's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from pytest_flashinfer.outputs.paths import from_here
from pytest_flashinfer.outputs.run_warnings import in_a_line
from pytest_flashinfer.report import notes as notes_of
from pytest_flashinfer.report.results import UNREAD
from pytest_flashinfer.run.session import SESSION
from pytest_flashinfer.settings.options import REPLAY, replay
from pytest_flashinfer.sources import blamed

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.collect import DefinitionFile
    from pytest_flashinfer.data.faults import Fault


_REPEATABLE = frozenset({"test_reference", "test_correct"})  # checks that leave nothing behind when they are cut short


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
        file = cast("DefinitionFile", self.getparent(pytest.Module))
        params = self.callspec.params if hasattr(self, "callspec") else {}
        if self.originalname == "test_schema":
            notes = self.config.stash[SESSION].catalogue.notes(file.path)
            self.user_properties += [(notes_of.PROPERTY, from_here(self.config, note)) for note in notes]
            self._list_unread(file)
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
            session.processes.start_with_torch()  # which the fixtures of every other check import
        try:
            super().setup()
        except Exception as error:
            from pytest_flashinfer.overrides.override_faults import raised_in_fixture, unusable

            said = raised_in_fixture(self, error)
            if said is None:
                raise
            raise unusable(said) from None

    def _list_unread(self, file: DefinitionFile) -> None:
        """Say which solutions of a definition cannot be read: tables count them, and no item is about one of them."""
        from pytest_flashinfer.selection.unreadable_solutions import listed

        name = file.definition.name if file.definition is not None else None
        files = [each for each in self.config.stash[SESSION].catalogue.unreadable() if each.definition == name]
        if files:
            self.user_properties.append((UNREAD, listed(files, file.solutions)))

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
        from pytest_flashinfer.judge.reference.origin import NoReference, ReferenceFailed
        from pytest_flashinfer.worker.lock import LockedOut
        from pytest_flashinfer.worker.memory import MemoryShort

        card = self.config.stash[SESSION].card
        try:
            with card.turns.working():
                card.run(super().runtest, again=self.originalname in _REPEATABLE)
        except LockedOut as error:
            pytest.skip(f"not run: {error}")
        except MemoryShort as error:
            pytest.fail(f"{error}{self._replay()}", pytrace=False)
        except (InputsError, ReferenceFailed) as error:
            kind = "reference fails" if isinstance(error, ReferenceFailed) else "no inputs"
            if isinstance(error, BadData) and error.kind == "skip":  # not here, which is nobody's fault
                path, line, _ = self.reportinfo()
                pytest.skip(f"{from_here(self.config, path)}:{1 + (line or 0)}: {error}")
            said = f"{kind}: {error}{self._no_such(error)}"
            if "solution" in self.fixturenames or isinstance(error, (NoReference, Unbound)):
                pytest.skip(said)
            pytest.fail(f"INVALID_REFERENCE: {said}{self._places(error)}{self._replay()}", pytrace=False)

    def _places(self, error: Exception) -> str:
        """Return lines on where what an error is about is stated: the reference, or the constraint and the workload."""
        from pytest_flashinfer.judge.reference.origin import ReferenceFailed

        catalogue, here = self.config.stash[SESSION].catalogue, from_here(self.config, self.path)
        if isinstance(error, ReferenceFailed):
            return f"\n  it is at {here}:{catalogue.reference_line(self.path)}"
        line = catalogue.constraint_line(self.path, getattr(error, "constraint", ""))
        text = "" if line is None else f"\n  the constraint is at {here}:{line}"
        if "workload" in self.fixturenames:
            path, row, _ = self.reportinfo()
            text += f"\n  the workload is at {from_here(self.config, path)}:{1 + (row or 0)}"
        return text

    def _no_such(self, error: Exception) -> str:
        """Return what else may be at fault where no inputs can be made: the sizes that a workload states."""
        from pytest_flashinfer.inputs.errors import Unsatisfiable

        stated = "workload" in self.fixturenames and isinstance(error, Unsatisfiable) and not error.advised
        return ", or correct the workload's sizes" if stated else ""

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
        return f"\n{REPLAY}{replay(self.config, self.path, self.name, seed, self._source())}"

    def _source(self) -> Path | None:
        """Return where the item's solution lies, if neither its key nor the item's id follows from other solutions."""
        from pytest_flashinfer.collect import slug

        solutions = cast("DefinitionFile", self.getparent(pytest.Module)).solutions
        key = str(self.callspec.params.get("solution")) if hasattr(self, "callspec") else ""
        entry = solutions.get(key)
        alike = [each for each in solutions if slug(each) == slug(key)]
        return None if entry is None or key != entry.solution.name or len(alike) > 1 else entry.path

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
