"""What the text of a solution's entry function has to do with a failure, as far as it tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data.entry_rules import other_order, written_entry
from pytest_flashinfer.data.source import returns_value
from pytest_flashinfer.worker.unwritten import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_flashinfer.data.model import Definition, Solution, Status

# Which parameters have nothing to do with.
_OTHERS: tuple[Status, ...] = ("COMPILE_ERROR", "TIMEOUT", "INVALID_REFERENCE", "REWARD_HACK")


def advice(item: pytest.Item, text: str) -> str:
    """Return lines to add to the `text` of a failed item, which begins with its status; empty where there are none."""
    key = getattr(getattr(item, "callspec", None), "params", {}).get("solution")
    entry = getattr(item.parent, "solutions", {}).get(key)
    definition = getattr(item.parent, "definition", None)
    if entry is None or definition is None:
        return ""
    return "".join(f"\n  {line}" for line in _lines(entry.solution, definition, text))


def _lines(solution: Solution, definition: Definition, text: str) -> Iterator[str]:
    function = None if text.startswith(_OTHERS) else written_entry(solution)
    if function is None:
        return
    order = other_order(solution, function, definition)
    if order is not None:
        yield f"{function.name} {order}"
    if solution.destination_passing and f": {NOTHING}:" in text and returns_value(function):
        style = f"destination_passing_style {'= True' if solution.module else 'true'}"
        yield f"{function.name} returns a value, which is ignored: with {style} results are written into the outputs"
