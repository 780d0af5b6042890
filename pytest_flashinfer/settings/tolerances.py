"""The tolerances that a run states, and which of all stated ones is in force for a definition and a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatch
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.judge.comparison.applicable_settings import given, is_real, why_not, without_effect
from pytest_flashinfer.judge.tolerance import (
    NAMES,
    Tolerance,
    ToleranceError,
    from_mapping,
    layered,
    leads,
    parse_lines,
    stated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.settings.options import Options

SWITCH = "--fib-tolerance"
_KEY = "ini key fib_tolerance"


class Tolerances:
    """What the ini file and the command line tolerate, by name or pattern. Raises pytest.UsageError for other text.

    `definitions` returns all of the run. They are asked for only where a line begins with `NAME:setting`, for their
    outputs say whether that names one of these or the definitions that the line is for.
    """

    def __init__(self, options: Options, definitions: Callable[[], Iterable[Definition]] = tuple) -> None:
        self._lines = {SWITCH: options.tolerance, _KEY: options.ini_tolerance}
        self._definitions = definitions
        try:
            for where, lines in self._lines.items():
                parse_lines(lines, where)
        except ToleranceError as error:
            raise pytest.UsageError(str(error)) from error

    @cached_property
    def _outputs(self) -> Collection[str]:
        led = any(leads(lines) for lines in self._lines.values())
        return {name for each in self._definitions() for name in each.outputs} if led else ()

    @cached_property
    def line(self) -> dict[str, Tolerance]:
        """What the command line tolerates, by pattern."""
        return parse_lines(self._lines[SWITCH], SWITCH, self._outputs)

    @cached_property
    def ini(self) -> dict[str, Tolerance]:
        """What the ini file tolerates, by pattern."""
        return parse_lines(self._lines[_KEY], _KEY, self._outputs)

    def in_force(self, definition: Definition, workload: Workload | None, fixture: Tolerance) -> Tolerance:
        """Return the tolerance in force: ini, workload, fixture, command line, the last the strongest."""
        ini, line = (
            [own for key, own in table.items() if _is_called(definition, key)] for table in (self.ini, self.line)
        )
        return layered(*ini, of_workload(workload), fixture, *line)

    def idle(self, definitions: Sequence[Definition]) -> Iterator[str]:
        """Yield what the lines say that does nothing for any of the definitions, and what may be meant.

        A line of the ini file that is for definitions which are not here, by a first word `NAME:`, is for other runs.
        """
        for switch, table in ((SWITCH, self.line), (_KEY, self.ini)):
            led = leads(self._lines[switch])
            for key, own in table.items():
                here = [each for each in definitions if _is_called(each, key)]
                if here:
                    general = key == "*" and switch == _KEY
                    found = [*(() if general else _idle_words(own, here)), *_idle_names(own, here)]
                elif key in led or switch == SWITCH:
                    found = [_nobody(key, definitions, outputs=key in led)]
                else:
                    found = []
                yield from (f"{switch}: {text}" for text in found)
            yield from (f"{switch}: {text}" for text in _ambiguous(led, definitions))


def of_workload(workload: Workload | None) -> Tolerance | None:
    """Return what a workload's line tolerates: the keys of its format, and those of `parse`, also by output."""
    if workload is None or workload.tolerance is None:
        return None
    values = asdict(workload.tolerance)
    more = {key: own for key, own in values.pop("extra").items() if isinstance(own, Mapping) or key in NAMES}
    return from_mapping({**values, **more}, f"tolerance of workload {workload.uuid}")


def checked(own: object, where: str) -> Tolerance:
    """Return what a fixture says is tolerated, with values that are allowed. Raises ToleranceError."""
    if not isinstance(own, Tolerance):
        raise ToleranceError(f"{where} is {own!r:.40}, not a Tolerance(...): see docs/extending.md")
    if not isinstance(own.outputs, Mapping):
        raise ToleranceError(f"{where}: outputs is {own.outputs!r:.40}, not Tolerance(...) by name")
    outputs = {name: checked(each, f"{where}: {name}") for name, each in own.outputs.items()}
    return replace(from_mapping(stated(own), where), outputs=outputs)


def faults(
    own: Tolerance, definition: Definition, elsewhere: Callable[[], Iterable[Definition]] = tuple
) -> Iterator[str]:
    """Yield what a tolerance says by name of an output that does nothing for a definition.

    What it says of outputs that only other definitions have, those that `elsewhere` returns, is meant for them.
    """
    for name, named in own.outputs.items():
        spec = definition.outputs.get(name)
        if spec is not None:
            if lost := without_effect(named, spec.dtype):
                yield f"{_listed(name, lost)} has no effect: {why_not(spec.dtype, named.comparison, lost)}"
        elif not any(name in each.outputs for each in elsewhere()):
            outputs, hint = ", ".join(definition.outputs), did_you_mean(name, definition.outputs)
            yield f"{definition.name} has no output {name!r}{hint}; there are {outputs}"


def _is_called(definition: Definition, pattern: str) -> bool:
    return fnmatch(definition.op_type, pattern) or fnmatch(definition.name, pattern)


def _nobody(key: str, definitions: Sequence[Definition], *, outputs: bool) -> str:
    """Say that nothing is called so; `outputs`: an output might have been."""
    known = {word for each in definitions for word in (each.name, each.op_type, *(each.outputs if outputs else ()))}
    hint = did_you_mean(key, sorted(known))
    return f"{'no output, ' * outputs}no definition and no op_type of this run is {key!r}{hint}"


def _ambiguous(names: Iterable[str], definitions: Sequence[Definition]) -> Iterator[str]:
    for name in names:
        holders = [each.name for each in definitions if name in each.outputs]
        called = [each.name for each in definitions if _is_called(each, name)]
        if holders and called:
            yield (
                f"{name!r} is taken as the output of {holders[0]}; {called[0]} is called so as well, or of that"
                f" op_type: '{name}: setting=value', with a blank, is for definitions, '*: {name}:...' for outputs"
            )


def _idle_names(own: Tolerance, here: Sequence[Definition]) -> Iterator[str]:
    """Yield what is said by name of outputs that no definition has, or that does nothing for those which have it."""
    for name, named in own.outputs.items():
        dtypes = [each.outputs[name].dtype for each in here if name in each.outputs]
        if not dtypes:
            known = sorted({output for each in here for output in each.outputs})
            nobody = f"{here[0].name}{_more(here)} no output {name!r}{did_you_mean(name, known)}"
            yield f"{_listed(name, given(named))} has no effect: {nobody}"
            continue
        lost = set.intersection(*(set(without_effect(named, dtype)) for dtype in dtypes))
        if lost:
            yield f"{_listed(name, sorted(lost))} has no effect: {why_not(dtypes[0], named.comparison, lost)}"


def _listed(name: str, names: Iterable[str]) -> str:
    return ", ".join(f"{name}:{setting}" for setting in names)


def _more(here: Sequence[Definition]) -> str:
    return f" and {len(here) - 1} more have" if len(here) > 1 else " has"


def _idle_words(own: Tolerance, here: Sequence[Definition]) -> Iterator[str]:
    """Yield settings for all outputs where none is of a kind that they count for."""
    specs = {name: spec.dtype for each in here for name, spec in each.outputs.items()}
    if any(each.check for each in here) or any(map(is_real, specs.values())):
        return
    lost = [setting for setting in given(own) if setting != "comparison"]
    for name, dtype in [*specs.items()][: len(lost) and 1]:
        by_name = [setting for setting in lost if setting not in without_effect(own, dtype)]
        why = f"{name} is {dtype}: say {name}:{by_name[0]}=..." if by_name else why_not(dtype, own.comparison, lost)
        yield f"{', '.join(lost)} for all outputs has no effect: {why}"
