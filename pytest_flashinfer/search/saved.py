"""The failures of one item that its earlier runs left in hypothesis' database, each with the seed of its run."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.inputs.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.database import ExampleDatabase

Drawn = tuple[dict[str, int], Recipe]


class Saved:
    """What `database` holds under the key of an item; `None` holds nothing."""

    def __init__(self, database: ExampleDatabase | None, key: bytes) -> None:
        self.database = database
        self.key = key
        self._runs: dict[str, int] = {}

    def failures(self, tried: Callable[[Drawn], bool]) -> Iterator[Drawn]:
        """Yield failures, the simplest first; the caller stops at one that fails.

        What was `tried` when the next one is asked for fails no longer: it is deleted, as is what cannot be read.
        """
        if self.database is None:
            return
        for text in sorted(self.database.fetch(self.key), key=lambda text: (len(text), text)):
            drawn, run = _parsed(text)
            if drawn is not None:
                if run is not None:
                    self._runs[text_of(drawn)] = run
                yield drawn
            if drawn is None or tried(drawn):
                self.database.delete(self.key, text)

    def run_of(self, drawn: Drawn) -> int | None:
        """Return the seed of the run that saved a case, if one did: another seed would not bring it again."""
        return self._runs.get(text_of(drawn))

    def save(self, drawn: Drawn, run: int) -> None:
        """Keep a failure of the run with that seed."""
        if self.database is not None:
            self.database.save(self.key, text_of(drawn, run).encode())


def key_of(node_id: str) -> bytes:
    """Return the key of one item: two items never mix their failures."""
    return b"pytest-flashinfer:" + hashlib.sha256(node_id.encode()).digest()


def text_of(drawn: Drawn, run: int | None = None) -> str:
    """Return a case in one line, which no other case has."""
    axes, recipe = drawn
    record = {"axes": axes, "recipe": recipe.to_json()}
    return json.dumps(record if run is None else {**record, "run": run}, sort_keys=True)


def _parsed(text: bytes) -> tuple[Drawn | None, int | None]:
    try:
        record: dict[str, Any] = json.loads(text)
        return (dict(record["axes"]), Recipe.from_json(record["recipe"])), record.get("run")
    except (ValueError, KeyError, TypeError):
        return None, None  # written by another version
