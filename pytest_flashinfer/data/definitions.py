"""Reading a definition of any form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data import records, sniff
from pytest_flashinfer.data.dialects import Draft, translate
from pytest_flashinfer.data.faults import Fault, JsonPath, Loaded, show_path
from pytest_flashinfer.data.jsontext import Document, read_json

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition


class Places:
    """Lines and original keys of a canonical document, through the names that the file has for its keys."""

    def __init__(self, document: Document, renamed: dict[str, str] | None = None, prefix: JsonPath = ()) -> None:
        self.document, self.renamed, self.prefix = document, renamed or {}, prefix

    def original(self, where: JsonPath) -> JsonPath:
        """Translate a path into the canonical document into one into the file."""
        if where and isinstance(where[0], str):
            where = (self.renamed.get(where[0], where[0]), *where[1:])
        return (*self.prefix, *where)

    def __call__(self, where: JsonPath) -> int:
        """Give the line in the file."""
        return self.document.line_of(self.original(where))

    def show(self, where: JsonPath) -> str:
        """Write the path with the keys of the file."""
        return show_path(self.original(where))


def load_definition(path: Path) -> Loaded[Definition]:
    """Read a definition file; never raises on bad content, which is told as faults.

    The faults are those of the text and of its form. What a well-formed definition may still have wrong is for
    `schema.check` and `rules.check_definition` to say.
    """
    document = read_json(path)
    if not document.readable:
        return Loaded(None, path, document.faults, document.notes)
    wrong = sniff.wrong_kind(document.value, sniff.DEFINITION)
    if wrong:
        return Loaded(None, path, (*document.faults, Fault(path, 1, "", wrong)), document.notes)
    return _finish(document, translate(document.value, path))


def _finish(document: Document, draft: Draft) -> Loaded[Definition]:
    path, places = document.path, Places(document, draft.renamed)
    found: Loaded[Definition] = Loaded(None, path, lines=places)
    faults = [*document.faults, *(found.fault(where, message) for where, message in draft.faults)]
    value = None
    try:
        value = records.definition(draft)
    except records.Malformed as error:
        if not any(fault.where == places.show(error.where) for fault in faults):
            faults.append(found.fault(error.where, error.message))
    return Loaded(
        value,
        path,
        tuple(faults),
        (*document.notes, *draft.notes),
        tuple(found.fault(where, message) for where, message in draft.warnings),
        lines=places,
        raw=draft.raw,
    )
