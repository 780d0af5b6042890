"""Canonical documents to records. What the schema would refuse stops here with `Malformed`; nothing else is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import model
from pytest_flashinfer.data.reader import Reader
from pytest_flashinfer.data.source import BrokenSource, functions, parse_python, style

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.dialects import Draft

_AXIS_KINDS = ("const", "var", "expr")


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
