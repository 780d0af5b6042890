"""Does the entry function take what it will be given? Asked once per build, before any workload."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.build.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STYLE = "destination_passing_style"
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_signature(
    function: Callable[..., Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    destination_passing: bool,
    module: bool = False,
) -> None:
    """Raise `BuildError` unless `function` can be called with the inputs, then the outputs, all by position.

    Value-returning functions take the inputs alone. Further parameters are welcome if they have defaults. Callables
    that have no signature to read (compiled ones) are accepted. A `module` is told what to set in Python's words.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return
    name = getattr(function, "__name__", "the entry function")
    needed = [*inputs, *outputs] if destination_passing else list(inputs)
    _refuse_keyword_only(name, parameters, needed)
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    required = [parameter for parameter in positional if parameter.default is Parameter.empty]
    takes = range(len(required), len(positional) + 1)
    if len(needed) in takes:
        return
    got = ", ".join(parameter.name for parameter in positional) or "no parameters"
    if destination_passing and module and len(inputs) in takes and not _states_style(function):
        more = f"{'parameters' if len(outputs) > 1 else 'a parameter'} {', '.join(outputs)}"
        why = "returns nothing, so it is taken to write into its outputs"
        raise BuildError(f"{name} {why} and needs {', '.join(needed)}; it takes {got}: add a return, or {more}")
    other = not destination_passing
    setting = f"{_STYLE}{f' = {other}' if module else f'={str(other).lower()}'}"
    hint = _hint(takes, len(inputs), len(outputs), setting, destination_passing=destination_passing)
    raise BuildError(f"{name} needs {', '.join(needed)}; got {got}; {hint}")


def _states_style(function: Callable[..., Any]) -> bool:
    """Whether the module of a function says how outputs are passed: otherwise that was told from its source."""
    return _STYLE in getattr(inspect.unwrap(function), "__globals__", {_STYLE})


def _refuse_keyword_only(name: str, parameters: Sequence[Parameter], needed: Sequence[str]) -> None:
    stuck = [
        parameter.name
        for parameter in parameters
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty
    ]
    if stuck:
        raise BuildError(
            f"{name} takes {', '.join(stuck)} by keyword only, but arguments are passed by position in the order "
            f"{', '.join(needed)}; remove the * from its signature or give defaults"
        )


def _hint(takes: range, inputs: int, outputs: int, setting: str, *, destination_passing: bool) -> str:
    if destination_passing and inputs in takes:
        return f"set {setting} to return"
    if destination_passing and takes.start > inputs + outputs:
        return "an output that is written back into an input is not passed again"
    if not destination_passing and inputs + outputs in takes:
        return f"set {setting} to write into the outputs"
    return "arguments are passed by position in the definition's order"
