"""How large a document may be: whoever checks a pull request from a stranger waits for seconds, not for hours."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 100
MAX_PARTS = 100_000  # values in a document; a definition has some hundreds, an agent trace some thousands
MAX_REPEATED = 20  # oddities of one kind that are told of a document
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels: flatten it"
TOO_MANY = f"more than {MAX_PARTS} values: too many to be one record"


def too_large(value: Any) -> str | None:
    """Say why a document is too large to be checked; `None` where it is not. Stops as soon as that is known."""
    level, parts = [value], 0
    for _ in range(MAX_DEPTH):
        level = [each for each in level if isinstance(each, (dict, list))]
        parts += sum(map(len, level))
        if parts > MAX_PARTS:
            return TOO_MANY
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return None
    return TOO_DEEP
