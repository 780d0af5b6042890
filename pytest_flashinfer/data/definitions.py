"""Reading a definition of any form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import records, schema, sniff
from pytest_flashinfer.data.dialects import Draft, translate
from pytest_flashinfer.data.faults import Fault, Loaded, without_repeats
from pytest_flashinfer.data.jsontext import Document, read_json
from pytest_flashinfer.data.places import Places
from pytest_flashinfer.data.reader import Malformed

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition


MAX_MEMBERS = 1000  # axes, inputs, outputs or constraints


def load_definition(path: Path) -> Loaded[Definition]:
    """Read a definition file; never raises on bad content, which is told as faults.

    The faults are those of the text and of its form. What a well-formed definition may still have wrong is for
    `schema.check` and `rules.check_definition` to say.
    """
    document = read_json(path)
    if not document.readable:
        return Loaded(None, path, document.faults, document.notes)
    wrong = sniff.wrong_kind(document.value, sniff.DEFINITION) or _too_many(document.value)
    if wrong:
        return Loaded(None, path, (*document.faults, Fault(path, 1, "", wrong)), document.notes)
    return _finish(document, translate(document.value, path))


def _too_many(value: dict[str, Any]) -> str | None:
    """Refuse what no kernel has: rules compare names with each other, which takes the square of their number."""
    for key, members in value.items():
        if isinstance(members, (dict, list)) and len(members) > MAX_MEMBERS:
            return f"{key}: more than {MAX_MEMBERS} entries: too many for one kernel"
    return None


def _finish(document: Document, draft: Draft) -> Loaded[Definition]:
    path, places = document.path, Places(document, draft.renamed)
    found: Loaded[Definition] = Loaded(None, path, lines=places, raw=draft.raw)
    faults = [*document.faults, *(found.fault(where, message) for where, message in draft.faults)]
    value = None
    try:
        value = records.definition(draft)
    except Malformed as error:
        faults.extend(schema.malformed("definition", found, error))
    return Loaded(
        value,
        path,
        without_repeats(faults),
        (*document.notes, *draft.notes),
        tuple(found.fault(where, message, "warning") for where, message in draft.warnings),
        lines=places,
        raw=draft.raw,
    )
