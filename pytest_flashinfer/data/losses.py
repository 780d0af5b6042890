"""What reading a definition would lose: written in the canonical form and read again, it has to be the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flashinfer.data import records
from pytest_flashinfer.data.dialects import translate
from pytest_flashinfer.data.reader import Malformed
from pytest_flashinfer.data.write import definition_document, to_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.faults import FaultKind, JsonPath
    from pytest_flashinfer.data.model import Definition

_NOWHERE = Path("written.json")


def nothing_is_lost(definition: Definition) -> Iterator[tuple[JsonPath, str, FaultKind]]:
    """Demand that the canonical form says all that was read."""
    document = definition_document(definition)
    try:
        again = definition_document(records.definition(translate(document, _NOWHERE)))
    except Malformed as error:
        yield tuple(error.where), f"cannot be written in the canonical form: {error.message}", "fault"
        return
    for key in dict.fromkeys((*document, *again)):
        if to_line({"": document.get(key)}) != to_line({"": again.get(key)}):
            yield (key,), "is not kept when the definition is written in the canonical form", "fault"
