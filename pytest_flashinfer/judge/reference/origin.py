"""The code that truths come from: a definition's reference, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data.absent import missing_names
from pytest_flashinfer.data.calling import entry_source
from pytest_flashinfer.data.reference_rules import DUMP
from pytest_flashinfer.inputs.errors import InputsError

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition

UNSTEADY = "unsteady"  # the kind of its worker's error


class ReferenceFailed(Exception):  # noqa: N818 - says what happened
    """There is no truth about a case: the reference raised, crashed, hung or broke its own contract."""


class NoReference(ReferenceFailed):
    """There cannot be a truth here: the definition has no reference, or what it needs is not there."""


class Unsteady(ReferenceFailed):
    """The reference gives other results for the same inputs: it says of no case what is right."""


class Unfair(ReferenceFailed):
    """The truth about a drawn case is no test of a kernel; other values of the same kind may be."""


class ModuleAbsent(InputsError):  # noqa: N818 - says what happened
    """The definition's own inputs need a module that is not installed."""


def source_of(definition: Definition, *, needed: bool) -> tuple[str, str]:
    """Return the reference's source and entry. Raises NoReference where it is `needed` and cannot be run."""
    if definition.reference is None:
        if needed:
            raise NoReference(f"{definition.name} has no reference: nothing says what is right")
        return "", definition.entry
    missing = missing_names(definition.reference, definition.entry) if definition.form == DUMP else ()
    if missing and needed:
        raise NoReference(f"the reference uses `{missing[0]}`, which is not in the file: add it to the source")
    try:
        return entry_source(definition)
    except ValueError as error:
        if needed:
            raise NoReference(str(error)) from error
    return definition.reference, definition.entry
