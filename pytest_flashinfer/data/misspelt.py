"""Keys that no format knows and that are all but one that is missing: a slip of the pen that nothing else tells of.

Unknown keys are allowed and kept. So are these, but what they say is lost on whoever reads the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import schema
from pytest_flashinfer.data.faults import without_repeats
from pytest_flashinfer.data.nearest import ALIKE, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.data.faults import Fault, JsonPath, Lines, Loaded

_MOST_UNKNOWN = 1000  # keys of one document that are looked at
_OLDER = {"assumptions": "constraints"}  # an optional key of the kernel description
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list, str), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Known:
    """What a schema says of a value: its types, the keys that it knows, and what its other members are."""

    types: tuple[str, ...] = ()
    keys: dict[str, _Known] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    members: _Known | None = None

    def fits(self, value: Any) -> bool:
        """Whether a value is of such a type, one word for a list of one included; `null` says nothing to be lost."""
        if value is None or not self.types:
            return value is not None
        kinds = tuple(kind for name in self.types for kind in _TYPES.get(name, ()))
        return isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)


def check_record(name: str, loaded: Loaded[Any]) -> list[Fault]:
    """Say all of a record that comes before the rules of its kind: from its reading, its schema, and misspelt keys."""
    raw = loaded.canonical()
    wrong = () if raw is None else (loaded.fault(*found) for found in schema.findings(name, raw))
    odd = () if raw is None else (loaded.fault(*found, "warning") for found in misspelt(name, raw, loaded.lines))
    return [*without_repeats((*loaded.faults, *wrong)), *loaded.warnings, *odd]


def misspelt(name: str, raw: Any, lines: Lines) -> Iterator[tuple[JsonPath, str]]:
    """Yield the unknown keys of a canonical document that are nearly one that its file lacks.

    A required key is told of by the schema; one that reading supplied is missing from the file all the same. What is
    not of the type that the meant key has was hardly meant so.
    """
    for where, known, value, key in islice(_unknown(_known(name), raw, ()), _MOST_UNKNOWN):
        if nearest(key.lower(), known.keys, ALIKE) is None:
            continue  # without asking the file for all the keys that it has
        absent = [each for each in known.keys if _is_absent(each, known, value, where, lines)]
        meant = nearest(key.lower(), absent, ALIKE)
        if meant is not None and known.keys[meant].fits(value[key]):
            yield (*where, key), slip_of(key, meant)


def _is_absent(key: str, known: _Known, value: dict[str, Any], where: JsonPath, lines: Lines) -> bool:
    if key in value:
        return not lines.has((*where, key))
    return key not in known.required and _OLDER.get(key) not in value


def slip_of(key: str, meant: str) -> str:
    """Say which key was meant, and what to do."""
    return f"unknown key {key!r}; did you mean {meant!r}? Nothing reads it as it is: rename it"


def _unknown(known: _Known, value: Any, where: JsonPath) -> Iterator[tuple[JsonPath, _Known, dict[str, Any], str]]:
    if isinstance(value, list):
        for number, member in enumerate(value) if known.members is not None else ():
            yield from _unknown(known.members or known, member, (*where, number))
    for key, member in value.items() if isinstance(value, dict) else ():
        inner = known.keys.get(key, known.members)
        if inner is not None:
            yield from _unknown(inner, member, (*where, key))
        elif known.keys:
            yield where, known, value, key


@cache
def _known(name: str) -> _Known:
    root = json.loads(schema.schema_text(name))
    known = _of(root, root)
    known.keys.update({older: known.keys[key] for older, key in _OLDER.items() if key in known.keys})
    return known


def _of(part: Any, root: dict[str, Any]) -> _Known:
    """Gather what a part of a schema knows, following the references and alternatives that the schemas here have."""
    if "$ref" in part:
        place, _, path = part["$ref"].partition("#")
        if place:
            return _known(place.removesuffix(".json"))
        inner = root
        for step in filter(None, path.split("/")):
            inner = inner[step]
        return _of(inner, root)
    if "anyOf" in part:
        return next((known for known in (_of(each, root) for each in part["anyOf"]) if known.keys), _Known())
    types = part.get("type", "string" if "enum" in part else ())
    members = part.get("additionalProperties", part.get("items"))
    return _Known(
        types=(types,) if isinstance(types, str) else tuple(types),
        keys={key: _of(inner, root) for key, inner in part.get("properties", {}).items()},
        required=frozenset(part.get("required", ())),
        members=_of(members, root) if isinstance(members, dict) else None,
    )
