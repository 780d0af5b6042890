"""Rules on the source that a definition carries. Only its syntax tree is looked at; nothing of it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data.nearest import nearest
from pytest_flashinfer.data.source import (
    BrokenSource,
    Function,
    Signature,
    bound_names,
    functions,
    is_as_written,
    parse_python,
    signature,
)
from pytest_flashinfer.data.untouched import is_untouched, values_returned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flashinfer.data.faults import FaultKind, Finding
    from pytest_flashinfer.data.model import Definition

ALIKE = 0.8  # of two names, from here on a slip of the pen: `weights` for `weight`, not `hidden` for `hidden_states`
DUMP = 5  # the form in which references are called by name, and constants may come from the data


def sources_parse(definition: Definition) -> Iterator[Finding]:
    """Demand that every piece of source is Python."""
    for key in ("reference", "init", "check"):
        source = getattr(definition, key)
        tree = parse_python(source) if source is not None else None
        if isinstance(tree, BrokenSource):
            lines = source.splitlines()
            shown = lines[tree.line - 1].strip()[:60] if tree.line <= len(lines) else ""
            yield (key,), f"line {tree.line} of the {key}: {tree.message}{f': {shown}' if shown else ''}", "fault"
        elif tree is not None and key != "reference" and not functions(tree):
            yield (key,), f"no function in it: the last function of {key!r} is the one that is called", "fault"


def reference_has_its_entry(definition: Definition) -> Iterator[Finding]:
    """Demand that the reference defines the functions that are called by name."""
    tree = parse_python(definition.reference) if definition.reference is not None else None
    if tree is None or isinstance(tree, BrokenSource):
        return
    if definition.entry not in bound_names(tree):
        have = ", ".join(functions(tree)) or "none"
        yield ("reference",), f"no top-level function {definition.entry!r} (there is: {have})", "fault"
    custom = definition.custom_inputs
    if custom is not None and custom not in bound_names(tree):
        yield ("custom_inputs_entrypoint",), f"no top-level function {custom!r} in the reference", "fault"


def reference_takes_the_inputs(definition: Definition) -> Iterator[Finding]:
    """Demand parameters that fit the inputs by number and, as far as the names agree at all, by order."""
    taken, inputs = _taken(definition), list(definition.inputs)
    if taken is None:
        return
    expected = [*inputs, *definition.outputs] if definition.reference_style == "destination" else inputs
    kind: FaultKind = "fault" if definition.form != DUMP else "warning"  # which gives parameters whatever fits them
    if set(taken.positional) | set(taken.keyword_only) <= set(inputs) or taken.kwargs:
        unknown = [name for name in (*taken.positional[: taken.required], *taken.keyword_only) if name not in inputs]
        if unknown:
            message = f"{definition.entry} needs {', '.join(unknown)}, which is no input"
            yield ("reference",), f"{message}; the inputs are {', '.join(inputs)}", kind
        problem = _by_name(taken, inputs, definition.entry)
    else:
        problem = _by_position(taken, expected, definition.entry)
    if problem:
        yield ("reference",), problem, kind


def parameters_are_named_alike(definition: Definition) -> Iterator[Finding]:
    """Look for parameters that the names of others are given to; warn of one that is a slip of the pen from its own.

    A call is by position, so that other names work; a dump is called by name.
    """
    parameters = _taken(definition)
    if parameters is None or definition.form == DUMP:
        return
    given, entry, taken = [*definition.inputs, *definition.outputs], definition.entry, parameters.positional
    if set(taken) <= definition.inputs.keys():
        return  # that order is told of by itself
    for name, other in zip(taken, definition.inputs, strict=False):
        if name != other and name in definition.inputs:
            order = ", ".join(definition.inputs)
            yield ("reference",), f"{entry} takes {name!r} where it is given {other!r}: the order is {order}", "fault"
            return
        keeps = name.strip("_") == other.strip("_")  # `input_`, so as not to hide a builtin
        if name not in given and not keeps and nearest(name, [other], ALIKE) is not None:
            yield ("reference",), f"{entry} takes {name!r}, the input is called {other!r}: is that meant?", "warning"


def written_outputs_are_written(definition: Definition) -> Iterator[Finding]:
    """Demand that the reference returns what is written into an input, or may at least write it there."""
    inputs, outputs, function = [*definition.inputs], definition.outputs, _entry(definition)
    params = {name: spec.param for name, spec in outputs.items() if spec.param in inputs}
    if function is None or not params:
        return
    taken, count = signature(function), values_returned(function)
    if definition.reference_style == "destination":
        count = 0
    if count is None or count >= len(outputs) or taken.varargs or taken.kwargs:
        return
    by_place = dict(zip(inputs, taken.positional, strict=False))
    read = params if count == len(outputs) - len(params) else [*outputs][count:]
    for name in read:
        param = params.get(name)
        own = None if param is None else param if definition.form == DUMP else by_place.get(param)
        if own in taken.positional and is_untouched(function, own):
            message = f"{definition.entry} returns {count} of {len(outputs)} outputs and never changes {own!r}"
            todo = f"which is where {name!r} is read from: return {name!r} too, or write it, as {own}.copy_(...)"
            yield ("reference",), f"{message}, {todo}", "fault" if definition.form != DUMP else "warning"


def _taken(definition: Definition) -> Signature | None:
    """Return the parameters of the entry, where the text of its function is sure to tell them."""
    function = _entry(definition)
    return None if function is None else signature(function)


def _entry(definition: Definition) -> Function | None:
    """Return the entry's function, where it is sure to be what is called."""
    tree = parse_python(definition.reference) if definition.reference is not None else None
    if tree is None or isinstance(tree, BrokenSource):
        return None
    function = functions(tree).get(definition.entry)
    return function if function is not None and is_as_written(tree, function) else None


def _by_name(taken: Signature, inputs: list[str], entry: str) -> str | None:
    """Compare by name, where all parameters are inputs or the rest is swallowed."""
    order = [name for name in inputs if name in taken.positional]
    if order != [name for name in taken.positional if name in inputs]:
        return f"{entry} takes {', '.join(taken.positional)}; the order of the inputs is {', '.join(inputs)}"
    left = [name for name in inputs if name not in (*taken.positional, *taken.keywords)]
    if left and not (taken.varargs or taken.kwargs):
        taken_names = ", ".join((*taken.positional, *taken.keywords)) or "nothing"
        return f"{entry} takes {taken_names}; it lacks {', '.join(left)}"
    return None


def _by_position(taken: Signature, expected: list[str], entry: str) -> str | None:
    have = len(taken.positional)
    expected = [name for name in expected if name not in taken.keywords]  # which are given by name
    if taken.required <= len(expected) <= have or (taken.varargs and taken.required <= len(expected)):
        if taken.keyword_only:
            return f"{entry} needs {', '.join(taken.keyword_only)} by keyword: take it by position"
        return None
    return f"{entry} takes {', '.join(taken.positional) or 'nothing'}; it is given {', '.join(expected) or 'nothing'}"


REFERENCE_RULES: tuple[Callable[[Definition], Iterator[Finding]], ...] = (
    sources_parse,
    reference_has_its_entry,
    reference_takes_the_inputs,
    parameters_are_named_alike,
    written_outputs_are_written,
)
