"""How a reference is called: its parameters are matched with the inputs by its syntax tree, nothing of it is run.

A dumped reference has the parameters of its author's choice. They are bound by name, then by an axis of that name, by
letter case, as a tuple of several inputs, and at last by position. What results is a function in source, put after the
reference, that takes the inputs (and destinations) by position as every other reference does.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flashinfer.data.dtypes import PACKED
from pytest_flashinfer.data.reference_rules import DUMP
from pytest_flashinfer.data.source import BrokenSource, Function, bound_names, functions, parse_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flashinfer.data.model import Definition

ADAPTER = "fib_entry"
_OUT = frozenset({"out", "output", "outputs", "output_tensor"})


@dataclass(slots=True)
class _Binding:
    """Expressions for parameters, over the values `v0`, `v1`, ... of the inputs; `used` are the inputs taken."""

    definition: Definition
    names: tuple[str, ...]
    found: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def value(self, name: str) -> str:
        self.used.add(name)
        return f"v{self.names.index(name)}"

    def left(self) -> list[str]:
        return [name for name in self.names if name not in self.used and name in self.definition.inputs]


def adapter(definition: Definition) -> str | None:
    """Return the source of a function `ADAPTER` that calls the reference, or `None` where it is called as it is.

    Raises ValueError, with the parameter in one line, where a parameter can be bound to nothing.
    """
    tree = parse_python(definition.reference or "")
    function = None if isinstance(tree, BrokenSource) else functions(tree).get(definition.entry)
    if function is None or _fits(definition, function):
        return None
    binding = _Binding(definition, _arguments(definition))
    args = function.args
    first, keyword = [arg.arg for arg in args.posonlyargs], [arg.arg for arg in (*args.args, *args.kwonlyargs)]
    needed = _needed(function)
    _bind(binding, [*first, *keyword], needed)
    if args.vararg is not None and not first and not args.args:
        first = [f"*{args.vararg.arg}"]
        binding.found[first[0]] = "".join(f"{binding.value(name)}, " for name in binding.left()).rstrip(", ")
    unbound = [name for name in needed if name not in binding.found]
    if unbound:
        raise ValueError(f"{definition.entry} needs `{unbound[0]}`, which is neither an input nor an axis")
    return _write(binding, first, keyword, needed, extra=args.kwarg is not None)


def _arguments(definition: Definition) -> tuple[str, ...]:
    """Return what the caller gives by position: all inputs, then the destinations that are not inputs themselves."""
    if definition.reference_style != "destination":
        return tuple(definition.inputs)
    fresh = (name for name, spec in definition.outputs.items() if spec.param not in definition.inputs)
    return (*definition.inputs, *fresh)


def _fits(definition: Definition, function: Function) -> bool:
    """Say whether a call by position is what the author means."""
    args, given = function.args, _arguments(definition)
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    if definition.form == DUMP:
        return tuple(names) == given and not args.defaults and not args.kwonlyargs
    required = len(names) - len(args.defaults)
    forced = any(default is None for default in args.kw_defaults)
    return required <= len(given) and (len(given) <= len(names) or args.vararg is not None) and not forced


def _needed(function: Function) -> list[str]:
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    required = names[: len(names) - len(args.defaults)]
    keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return required + [arg.arg for arg, default in keywords if default is None]


def _bind(binding: _Binding, parameters: Sequence[str], needed: Sequence[str]) -> None:
    definition, found = binding.definition, binding.found
    for name in parameters:
        if name in binding.names:
            found[name] = binding.value(name)
    for name in parameters:
        axis = None if name in found else _axis(binding, name)
        if axis is not None:
            found[name] = axis
    for name in parameters:
        same = [other for other in binding.left() if other.lower() == name.lower()]
        axes = [other for other in definition.axes if other.lower() == name.lower()]
        if name not in found and len(same) == 1:
            found[name] = binding.value(same[0])
        elif name not in found and len(axes) == 1 and (axis := _axis(binding, axes[0])) is not None:
            found[name] = axis
    for name in parameters:
        parts = [] if name in found else _parts(binding, name)
        if parts:
            found[name] = _tuple(binding, parts)
    _by_position(binding, [name for name in needed if name not in found and name not in _OUT])
    found.update({name: "None" for name in needed if name in _OUT and name not in found})


def _axis(binding: _Binding, name: str) -> str | None:
    """Return the size of an axis: its constant, or what a tensor shows."""
    axis = binding.definition.axes.get(name)
    if axis is None:
        return None
    if axis.value is not None:
        return str(axis.value)
    for other, spec in binding.definition.inputs.items():
        if spec.shape and name in spec.shape and not spec.optional and spec.dtype not in PACKED:
            return f"v{binding.names.index(other)}.shape[{spec.shape.index(name)}]"
    return None


def _parts(binding: _Binding, name: str) -> list[str]:
    """Return the inputs that a parameter takes as one tuple: those said to belong to it, or `k` and `v` of a `kv`."""
    inputs = binding.definition.inputs
    told = [other for other in binding.left() if inputs[other].param == name]
    if told:
        return told
    pair = [name.replace("kv", letter, 1) for letter in "kv"] if "kv" in name else []
    return pair if pair and all(other in binding.left() for other in pair) else []


def _tuple(binding: _Binding, parts: Iterable[str]) -> str:
    values = [binding.value(part) for part in parts]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


def _by_position(binding: _Binding, parameters: list[str]) -> None:
    """Give what is left over to the parameters in order; one parameter takes several required inputs as a tuple."""
    inputs = binding.definition.inputs
    left = [name for name in binding.left() if not inputs[name].optional] or binding.left()
    if len(parameters) == 1 and len(left) > 1:
        binding.found[parameters[0]] = _tuple(binding, left)
        return
    for name, other in zip(parameters, left, strict=False):
        binding.found[name] = binding.value(other)


def _write(binding: _Binding, first: list[str], keyword: list[str], needed: list[str], *, extra: bool) -> str:
    """Write the call; an optional input that is left out is not passed where the parameter has a default."""
    inputs = binding.definition.inputs
    optional = {f"v{number}" for number, name in enumerate(binding.names) if name in inputs and inputs[name].optional}
    parts = [f"*({binding.found[name]},)" if name.startswith("*") else binding.found[name] for name in first
             if name in binding.found]  # fmt: skip
    for name in keyword:
        value = binding.found.get(name)
        if value is not None and value in optional and name not in needed:
            parts.append(f"**({{}} if {value} is None else {{{name!r}: {value}}})")
        elif value is not None:
            parts.append(f"**{{{name!r}: {value}}}")
    if extra:
        parts += [f"**{{{name!r}: {binding.value(name)}}}" for name in binding.left() if name not in keyword]
    values = ", ".join(f"v{number}" for number in range(len(binding.names)))
    return f"\n\n\ndef {ADAPTER}({values}):\n    return {binding.definition.entry}({', '.join(parts)})\n"


def entry_source(definition: Definition) -> tuple[str, str]:
    """Return the reference's source, with an adapter where one is needed, and the function to call by position.

    Raises ValueError as `adapter` does.
    """
    added, source = adapter(definition), definition.reference or ""
    return (source, definition.entry) if added is None else (source + added, ADAPTER)


def module_source(definition: Definition) -> tuple[str, str]:
    """Return the reference as a module of its own, which imports what every reference is given, and its entry.

    Raises ValueError as `adapter` does.
    """
    source, entry = entry_source(definition)
    tree = parse_python(source)
    if isinstance(tree, BrokenSource) or {"math", "torch"} <= bound_names(tree):
        return source, entry
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    lines = source.splitlines(keepends=True)
    place = (future[-1].end_lineno or 0) if future else 0
    head = [] if future else ["from __future__ import annotations\n"]
    return "".join([*lines[:place], *head, "import math\nimport torch\n", *lines[place:]]), entry


__all__ = ["ADAPTER", "adapter", "entry_source", "module_source"]
