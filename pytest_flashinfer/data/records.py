"""Canonical documents to records. What the schema would refuse stops here with `Malformed`; nothing else is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flashinfer.data import model
from pytest_flashinfer.data.source import BrokenSource, functions, parse_python, style

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.dialects import Draft
    from pytest_flashinfer.data.faults import JsonPath

T = TypeVar("T")
_AXIS_KINDS = ("const", "var", "expr")
_INPUT_KINDS = ("random", "scalar", "safetensors", "custom")


class Malformed(Exception):  # noqa: N818 - it is a finding about a file, not an error of the program
    """The place and the reason why a document cannot become a record."""

    def __init__(self, where: JsonPath, message: str) -> None:
        super().__init__(message)
        self.where, self.message = where, message


class Reader:
    """Takes the known keys of an object by type; what is left over is `extra`."""

    def __init__(self, value: Any, where: JsonPath = ()) -> None:
        if not isinstance(value, dict):
            raise Malformed(where, "expected an object")
        self.where, self.rest = where, dict(value)

    def fail(self, key: str, message: str) -> Malformed:
        """Make the exception for a key of this object."""
        return Malformed((*self.where, key), message)

    def take(self, key: str, kind: type[T] | tuple[type[T], ...], default: T | None = None) -> T | None:
        """Take an optional value; `null` counts as absent. A bool is not a number."""
        value = self.rest.pop(key, None)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fail(key, f"unexpected value {value!r}")
        return value

    def need(self, key: str, kind: type[T]) -> T:
        """Take a required value. Raises Malformed."""
        value = self.take(key, kind)
        if value is None:
            raise self.fail(key, f"missing key {key!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Take an optional list of strings. Raises Malformed."""
        values: list[Any] = self.take(key, list) or []
        if not all(isinstance(value, str) for value in values):
            raise self.fail(key, "expected strings")
        return tuple(values)

    def members(self, key: str) -> dict[str, Reader]:
        """Take a required object of objects. Raises Malformed."""
        values: dict[str, Any] = self.need(key, dict)
        return {name: Reader(value, (*self.where, key, name)) for name, value in values.items()}

    def choice(self, key: str, choices: tuple[str, ...]) -> Any:
        """Take a required word. Raises Malformed."""
        value = self.need(key, str)
        if value not in choices:
            raise self.fail(key, f"{value!r} is none of {', '.join(choices)}")
        return value


def definition(draft: Draft) -> model.Definition:
    """Build a definition. Raises Malformed."""
    read = Reader(draft.raw)
    inputs = {name: tensor(spec) for name, spec in read.members("inputs").items()}
    outputs = {name: tensor(spec) for name, spec in read.members("outputs").items()}
    reference = read.take("reference", str)
    if reference is None and draft.form != 5:  # noqa: PLR2004 - the form that may lack it
        raise read.fail("reference", "missing key 'reference'")
    return model.Definition(
        name=read.need("name", str),
        op_type=read.need("op_type", str),
        axes={name: axis(spec) for name, spec in read.members("axes").items()},
        inputs=inputs,
        outputs=outputs,
        reference=reference,
        entry=draft.entry,
        reference_style=_style(reference, draft.entry, inputs, outputs),
        constraints=read.texts("constraints"),
        tags=read.texts("tags"),
        description=read.take("description", str),
        init=read.take("init", str),
        check=read.take("check", str),
        custom_inputs=read.take("custom_inputs_entrypoint", str),
        form=draft.form,
        extra=read.rest,
    )


def _style(reference: str | None, entry: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    tree = parse_python(reference or "")
    function = None if isinstance(tree, BrokenSource) else functions(tree).get(entry)
    return "return" if function is None else style(function, list(inputs), list(outputs))


def axis(read: Reader) -> model.Axis:
    """Build an axis. Raises Malformed."""
    return model.Axis(
        kind=read.choice("type", _AXIS_KINDS),
        value=read.take("value", int),
        expression=read.take("expression", str),
        parent=read.take("parent", str),
        description=read.take("description", str),
        extra=read.rest,
    )


def tensor(read: Reader) -> model.TensorSpec:
    """Build the specification of a tensor or scalar. Raises Malformed."""
    if "shape" not in read.rest:
        raise read.fail("shape", "missing key 'shape'")
    scalar = read.rest["shape"] is None
    shape = read.texts("shape")
    order: list[Any] | None = read.take("dim_order", list)
    if order is not None and not all(type(step) is int for step in order):
        raise read.fail("dim_order", "expected whole numbers")
    return model.TensorSpec(
        shape=None if scalar else shape,
        dtype=read.need("dtype", str),
        optional=bool(read.take("optional", bool)),
        description=read.take("description", str),
        dim_order=None if order is None else tuple(order),
        param=read.take("param", str),
        extra=read.rest,
    )
