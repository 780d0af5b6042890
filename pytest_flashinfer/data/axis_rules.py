"""What no schema can say of a definition's axes, and of the sizes in its shapes."""

from __future__ import annotations

import re
from keyword import iskeyword
from typing import TYPE_CHECKING

from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.data.reference_rules import DUMP
from pytest_flashinfer.data.sizes import SizeError, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flashinfer.data.faults import Finding
    from pytest_flashinfer.data.model import Definition


def axes_exist(definition: Definition) -> Iterator[Finding]:
    """Demand that every size in a shape is an axis, or a number."""
    for group, tensors in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        for name, tensor in tensors.items():
            for number, size in enumerate(tensor.shape or ()):
                if size in definition.axes or size.isdecimal():
                    continue
                hint = did_you_mean(size, definition.axes) or "; declare it under axes"
                if re.search(r"[-+*/%( ]", size):
                    hint = "; a computed size needs an axis of type 'expr'"
                yield (group, name, "shape", number), f"unknown axis {size!r}{hint}", "fault"


def axes_are_identifiers(definition: Definition) -> Iterator[Finding]:
    """Demand names of axes that can stand in constraints and be parameters in Python."""
    for name in definition.axes:
        if not name.isidentifier() or iskeyword(name):
            why = "a keyword of Python" if iskeyword(name) else "not a name in Python"
            yield ("axes", name), f"axis {name!r} is {why}: rename it, with letters, digits and '_'", "fault"


def axes_are_used(definition: Definition) -> Iterator[Finding]:
    """Warn of an axis that nothing mentions: a leftover, or a slip of the pen."""
    tensors = (*definition.inputs.values(), *definition.outputs.values())
    used = {size for tensor in tensors for size in tensor.shape or ()}
    texts = [*definition.constraints, *(axis.expression or "" for axis in definition.axes.values())]
    texts.append(definition.reference or "")
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    parents = {axis.parent for axis in definition.axes.values()}
    for name in definition.axes.keys() - used - words - parents:
        yield ("axes", name), f"axis {name!r} is not used: remove it, or use it in a shape", "warning"


def constants_have_values(definition: Definition) -> Iterator[Finding]:
    """Demand a value of every constant; without it a workload may still state the size."""
    for name, axis in definition.axes.items():
        if axis.kind == "const" and axis.value is None and definition.form != DUMP:
            yield ("axes", name), "a 'const' axis needs a 'value'", "fault"


def axes_are_sizes(definition: Definition) -> Iterator[Finding]:
    """Demand that parents exist and expressions lead somewhere."""
    for name, axis in definition.axes.items():
        if axis.parent is not None and axis.parent not in definition.axes:
            yield (
                ("axes", name, "parent"),
                f"unknown axis {axis.parent!r}{did_you_mean(axis.parent, definition.axes)}",
                "fault",
            )
        if axis.parent == name:
            yield ("axes", name, "parent"), "an axis cannot be its own parent", "fault"
        if axis.kind == "expr" and axis.expression is not None:
            try:
                expression = parse(axis.expression, list(definition.axes))
                arithmetic = expression.kind != "prose" and not expression.reads_tensors
                message = "" if arithmetic else "is not arithmetic over axes: write it as '2 * n' is"
            except ConstraintError as error:
                message = str(error)
            if message:
                yield ("axes", name, "expression"), f"{axis.expression!r} {message}", "fault"
    try:
        resolve(definition, dict.fromkeys(definition.var_axes, 720720))  # divisible by all numbers up to 16
    except SizeError as error:
        if error.circular:
            yield ("axes", error.axis, "expression"), str(error), "fault"


def sizes_are_not_negative(definition: Definition) -> Iterator[Finding]:
    """Refuse a negative constant, but for what a dump writes among the axes and no shape names: a parameter."""
    tensors = (*definition.inputs.values(), *definition.outputs.values())
    named = {size for tensor in tensors for size in tensor.shape or ()}
    for name, value in definition.const_axes.items():
        if value < 0 and (name in named or definition.form != DUMP):
            yield ("axes", name, "value"), f"{value} is less than 0: a size is not negative", "fault"


# Those whose faults leave open what is right, and those that are told first.
CONTRACT_RULES: tuple[Callable[[Definition], Iterator[Finding]], ...] = (
    axes_exist,
    axes_are_sizes,
    sizes_are_not_negative,
)
FIRST_RULES: tuple[Callable[[Definition], Iterator[Finding]], ...] = (axes_are_identifiers, constants_have_values)
