"""Documents that hypothesis makes from the JSON Schemas of this package: valid ones, whatever nobody thought of."""

import json
import string

from hypothesis import strategies as st

from pytest_flashinfer.data.schema import schema_text

_KEYS = st.text(string.ascii_lowercase, min_size=3, max_size=6)
_NAMES = st.text(string.ascii_letters + string.digits + "_-. é", min_size=1, max_size=12).filter(str.strip)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False, allow_infinity=False) | _NAMES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=2),
    max_leaves=4,
)


def documents(name):
    """Documents that a schema allows, as far as its own `properties` and choices say so."""
    return _Maker(name).of(json.loads(schema_text(name)))


class _Maker:
    """Follows the keywords that the schemas of this package use; what `if` demands besides is left to luck."""

    def __init__(self, name):
        self.name, self.root = name, json.loads(schema_text(name))

    def of(self, schema):
        if not isinstance(schema, dict) or not schema:
            return ANYTHING
        if "$ref" in schema:
            return self._referenced(schema["$ref"])
        if "const" in schema or "enum" in schema:
            return st.sampled_from(schema.get("enum") or [schema["const"]])
        if "anyOf" in schema:
            return st.one_of(*map(self.of, schema["anyOf"]))
        kinds = schema.get("type", "object" if "properties" in schema else None)
        if kinds is None:
            return ANYTHING
        return st.one_of(*(self._kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)))

    def _referenced(self, reference):
        place, _, path = reference.partition("#")
        other = _Maker(place.removesuffix(".json")) if place else self
        schema = other.root
        for step in filter(None, path.split("/")):
            schema = schema[step]
        return st.deferred(lambda: other.of(schema))

    def _kind(self, kind, schema):
        low, high = schema.get("minimum", -(2**40)), schema.get("maximum", 2**40)
        simple = {
            "null": st.none(),
            "boolean": st.booleans(),
            "integer": st.integers(low, high),
            "number": st.integers(low, high) | st.floats(low, high),
            "string": _text(schema),
        }
        if kind == "array":
            items = self.of(schema.get("items"))
            return st.lists(items, min_size=schema.get("minItems", 0), max_size=schema.get("minItems", 0) + 2)
        return self._object(schema) if kind == "object" else simple[kind]

    def _object(self, schema):
        known, needed = schema.get("properties", {}), schema.get("required", [])
        always = {key: self.of(known.get(key)) for key in needed}
        perhaps = {key: self.of(value) for key, value in known.items() if key not in needed}
        base = st.fixed_dictionaries(always, optional=perhaps)
        more = schema.get("additionalProperties", {})
        if more is False:
            return base
        rest = st.dictionaries(_KEYS, self.of(more), max_size=0 if known and not more else 3)
        return st.builds(lambda one, two: {**two, **one}, base, rest)


def _text(schema):
    if "::" in schema.get("pattern", ""):
        return st.sampled_from(["main.py::run", "a/b.cu::go", "run::run"])
    sources = st.sampled_from(
        ["def run(x):\n    return x\n", "import torch\n\n\ndef f_reference(a, *, b=1):\n    pass\n"]
    )
    texts = _NAMES | sources | st.sampled_from(["n", "n + 1", "def run(", "1 / 0", "a.py", "float32"])
    return texts if schema.get("minLength") else texts | st.just("")
