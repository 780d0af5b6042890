"""The JSON Schemas of all records, and what they find, said in words."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.dtypes import ALIASES
from pytest_flashinfer.data.faults import Fault, JsonPath, Loaded
from pytest_flashinfer.data.nearest import nearest
from pytest_flashinfer.data.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

    from pytest_flashinfer.data.jsontext import Document
    from pytest_flashinfer.data.reader import Malformed

MAX_FINDINGS = 100  # of one document
NAMES = ("definition", "workload", "trace", "solution", "calls", "result", "agent")
_KINDS = {
    "object": "an object {...}",
    "array": "a list [...]",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def schema_text(name: str) -> str:
    """Give a schema as it is shipped. Raises KeyError for a name that is not in `NAMES`."""
    if name not in NAMES:
        raise KeyError(name)
    return resources.files(__package__).joinpath("schemas").joinpath(f"{name}.json").read_text(encoding="utf-8")


@cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    documents = [Resource.from_contents(json.loads(schema_text(other))) for other in NAMES]
    registry: Registry[Any] = Registry().with_resources([(document.id() or "", document) for document in documents])
    return Draft202012Validator(json.loads(schema_text(name)), registry=registry)


def findings(name: str, raw: Any) -> Iterator[tuple[JsonPath, str]]:
    """Yield all that a schema finds wrong with a document, as a path into it and a message."""
    found: dict[tuple[JsonPath, str], None] = {}
    for error in _validator(name).iter_errors(raw):
        for inner in _leaves(error):
            found[tuple(inner.absolute_path), _message(inner)] = None
        if len(found) >= MAX_FINDINGS:
            found[(), f"more than {MAX_FINDINGS} faults, of which these are the first"] = None
            break
    yield from found


def check(name: str, loaded: Loaded[Any]) -> tuple[Fault, ...]:
    """Check the canonical document of a record, with the lines of its file; nothing where it was not readable."""
    raw = loaded.canonical()
    return () if raw is None else tuple(loaded.fault(where, message) for where, message in findings(name, raw))


def malformed(name: str, loaded: Loaded[Any], error: Malformed) -> tuple[Fault, ...]:
    """Say why a document cannot become a record: all that its schema finds, or at least what stopped the reader."""
    return check(name, loaded) or (loaded.fault(error.where, error.message),)


def check_document(name: str, document: Document) -> tuple[Fault, ...]:
    """Check a document that is no record of the data model, such as a kernel calling record."""
    if not document.readable:
        return document.faults
    loaded: Loaded[Any] = Loaded(None, document.path, lines=Places(document), raw=document.value)
    return (*document.faults, *check(name, loaded))


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """Of alternatives, the complaint about the one that was meant is the useful one: that of the right type."""
    if error.validator != "anyOf" or not error.context:
        yield error
        return
    meant = [inner for inner in error.context if inner.validator != "type" or inner.relative_path]
    for inner in meant or error.context[-1:]:
        yield from _leaves(inner)


def _message(error: ValidationError) -> str:
    say = _MESSAGES.get(str(error.validator), _other)
    hint = _hint(error)
    message = say(error)
    return f"{message}: {hint}" if hint and "\n" not in hint else message


def _hint(error: ValidationError) -> str:
    schema = error.schema if isinstance(error.schema, dict) and not _is_name(error) else {}
    if error.validator == "required":
        missing = _missing(error)
        schema = schema.get("properties", {}).get(missing[0], {}) if len(missing) == 1 else {}
    if error.validator in ("required", "type", "pattern", "minLength", "minItems"):
        return str(schema.get("description", ""))
    return ""


def _missing(error: ValidationError) -> list[str]:
    wanted: Any = error.validator_value
    return [key for key in wanted if key not in _instance(error)]


def _required(error: ValidationError) -> str:
    missing = _missing(error)
    known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
    unknown = [key for key in _instance(error) if key not in known]
    message = f"missing key{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
    near = [repr(found) for key in missing if (found := nearest(key, unknown, 0.75))]
    return f"{message} (there is {', '.join(near)})" if near else message


def _instance(error: ValidationError) -> Any:
    return error.instance


def _type(error: ValidationError) -> str:
    kinds: Any = error.validator_value
    wanted = [_KINDS[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return f"expected {' or '.join(wanted)}, got {_short(error.instance)}"


def _enum(error: ValidationError) -> str:
    values: Any = error.validator_value
    choices = [choice for choice in values if choice is not None]
    folded = {alias: dtype for alias, dtype in ALIASES.items() if dtype in choices}
    folded |= {choice.lower(): choice for choice in choices}
    near = nearest(str(error.instance).lower(), folded)
    hint = f"did you mean {folded[near]!r}?" if near else f"one of {', '.join(choices)}"
    return f"{_short(error.instance)} is not allowed here; {hint}"


def _is_name(error: ValidationError) -> bool:
    return error.validator == "pattern" and "u001f" in json.dumps(error.validator_value)


def _unfit(error: ValidationError) -> str:
    if not _is_name(error):
        return "is not of the right form"
    wrong = (each for each in str(error.instance) if each in "/\\" or each < " ")
    held = dict.fromkeys(_CHARACTERS.get(each, "a control character") for each in wrong)
    return f"holds {' and '.join(held)}: no name may, for it is part of file names"


def _other(error: ValidationError) -> str:
    return error.message if len(error.message) < 200 else f"{_short(error.instance)} is not allowed here"  # noqa: PLR2004


_MESSAGES: dict[str, Callable[[ValidationError], str]] = {
    "required": _required,
    "type": _type,
    "enum": _enum,
    "const": lambda error: f"expected {json.dumps(error.validator_value)}, got {_short(error.instance)}",
    "minimum": lambda error: f"{_short(error.instance)} is less than {error.validator_value}",
    "maximum": lambda error: f"{_short(error.instance)} is more than {error.validator_value}",
    "minLength": lambda _: "is empty",
    "minItems": lambda _: "is empty",
    "maxLength": lambda error: f"is longer than {error.validator_value} characters",
    "pattern": lambda error: f"{_short(error.instance)} {_unfit(error)}",
}
_CHARACTERS = {"/": "a slash", "\\": "a backslash", "\n": "a line break", "\r": "a line break", "\t": "a tab"}


def _short(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _KINDS["object" if isinstance(value, dict) else "array"]
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004
