"""Inputs that a definition makes itself: `init` of dumped definitions, the custom entry point of SOL-ExecBench.

Both are code of the definition: call them where its reference may run, never in a process that must stay clean.
"""

from __future__ import annotations

import linecache
import math
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.data.raised import told
from pytest_flashinfer.data.source import BrokenSource, Function, functions, parse_python, signature
from pytest_flashinfer.inputs.errors import InputsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flashinfer.data.model import Definition

_PARTS = frozenset({"plan", "run"})  # an init for an API of two steps returns the arguments of each


def call_init(definition: Definition, axes: Mapping[str, int], *, device: str, seed: int) -> dict[str, Any]:
    """Return the arguments that the definition's `init` makes, by the name of the API's parameter.

    It is called with those axes it asks for, `device` and `seed`; arguments of `plan` and `run` are returned
    together. Raises InputsError where there is no `init` or it fails, with the reason in one line.
    """
    source = definition.init or ""
    name, function = _last(definition, source, "init")
    asked = signature(function)
    known = {**axes, "device": device, "seed": seed}
    names = (*asked.positional, *(arg.arg for arg in function.args.kwonlyargs))
    missing = [arg for arg in (*asked.positional[: asked.required], *asked.keyword_only) if arg not in known]
    if missing:
        raise InputsError(f"{definition.name}: `{name}` asks for `{missing[0]}`, which is not an axis")
    result = _call(_load(definition, source, name, "init"), {arg: known[arg] for arg in names if arg in known})
    if not isinstance(result, dict):
        raise InputsError(f"{definition.name}: `{name}` returned {type(result).__name__}, not a dict of inputs")
    if result.keys() <= _PARTS and all(isinstance(part, dict) for part in result.values()):
        return {key: value for part in result.values() for key, value in part.items()}
    return result


def load_last(definition: Definition, source: str, what: str) -> Callable[..., Any]:
    """Return the last top-level function of a source that a definition holds under `what`. Raises InputsError."""
    return _load(definition, source, _last(definition, source, what)[0], what)


def _last(definition: Definition, source: str, what: str) -> tuple[str, Function]:
    tree = parse_python(source)
    if isinstance(tree, BrokenSource) or not functions(tree):
        raise InputsError(f"{definition.name}: `{what}` holds no function that could be called")
    return list(functions(tree).items())[-1]


def call_custom(definition: Definition, axes_and_scalars: Mapping[str, Any], *, device: str) -> dict[str, Any]:
    """Return the inputs that the definition's custom entry point makes from sizes and scalars.

    Raises InputsError where there is none or it fails, with the reason in one line.
    """
    name = definition.custom_inputs
    if name is None or definition.reference is None:
        raise InputsError(f"{definition.name}: no `custom_inputs_entrypoint` for inputs of type `custom`")
    function = _load(definition, definition.reference, name, "reference")
    result = _call(function, {}, dict(axes_and_scalars), device)
    if not isinstance(result, dict):
        raise InputsError(f"{definition.name}: `{name}` returned {type(result).__name__}, not a dict of inputs")
    return result


def by_input(definition: Definition, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Match arguments of an API with the definition's inputs: by name, by `param`, by letter case, inside tuples."""
    found: dict[str, Any] = {}
    folded = {key.lower(): value for key, value in arguments.items()}
    for name, spec in definition.inputs.items():
        for key in (name, spec.param or name):
            if key in arguments:
                found.setdefault(name, arguments[key])
        if name.lower() in folded:
            found.setdefault(name, folded[name.lower()])
    loose = [value for key, value in arguments.items() if key not in definition.inputs and isinstance(value, tuple)]
    missing = [name for name, spec in definition.inputs.items() if name not in found and spec.shape is not None]
    for pair in loose:
        if len(pair) <= len(missing):
            found.update(zip(missing, pair, strict=False))
            missing = missing[len(pair) :]
    return found


def _load(definition: Definition, source: str, name: str, what: str) -> Callable[..., Any]:
    path = f"<{what} of {definition.name}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    namespace: dict[str, Any] = {"__name__": f"pytest_flashinfer_{what}", "torch": torch, "math": math}
    try:
        exec(compile(source, path, "exec"), namespace)  # noqa: S102 - the contract's own code, where it may run
    except Exception as error:
        raise InputsError(f"{definition.name}: {what} does not load: {told(error)}") from error
    function: Callable[..., Any] | None = namespace.get(name)
    if function is None:
        raise InputsError(f"{definition.name}: {what} has no function `{name}`")
    return function


def _call(function: Callable[..., Any], kwargs: Mapping[str, Any], *args: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise InputsError(f"`{function.__name__}` failed: {told(error)}") from error
