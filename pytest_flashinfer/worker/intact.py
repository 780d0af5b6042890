"""Whether this package is still what it was before foreign code came into its process.

Nothing here is safe from code that looks for it. What the judge decides on lies in its own memory; this names those who
lay hands on what else is told to it.
"""

from __future__ import annotations

import operator
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PACKAGE: Final = "pytest_flashinfer."
_FIXED: Final = (FunctionType, BuiltinFunctionType, type, ModuleType, staticmethod, classmethod, property)
_SAME: Final = operator.is_
_MOST: Final = 3  # names that are told
_TEXT: Final = "replaced {} of the harness in its process; a solution has no business there"


class Intact:
    """Knows the functions of this package that are loaded when it is made, and those that `objects` hold."""

    def __init__(self, objects: Iterable[object] = ()) -> None:
        spaces = [*_spaces(), *((type(each).__name__, vars(each)) for each in objects)]
        self._known = [(label, space, *_fixed(space)) for label, space in spaces]
        functions = {each for *_, values in self._known for each in values if isinstance(each, FunctionType)}
        self._functions = sorted(functions, key=lambda each: each.__qualname__)
        self._codes = [each.__code__ for each in self._functions]

    def broken(self) -> list[str]:
        """Return a line that names what is no longer what it was; takes less than a tenth of a millisecond."""
        found = []
        for label, space, names, values in self._known:
            now = [space.get(name) for name in names]
            if not all(map(_SAME, now, values)):
                changed = zip(names, now, values, strict=True)
                found += [f"{label}.{name}" for name, one, other in changed if one is not other]
        codes = [each.__code__ for each in self._functions]
        if not all(map(_SAME, codes, self._codes)):
            changed = zip([each.__qualname__ for each in self._functions], codes, self._codes, strict=True)
            found += [name for name, one, other in changed if one is not other]
        return [_TEXT.format(", ".join(found[:_MOST]))] if found else []


def _spaces() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names of every module of this package, and of every class in it."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE):
            yield name.removeprefix(_PACKAGE), vars(module)
            for each in list(vars(module).values()):
                if isinstance(each, type) and each.__module__ == name:
                    yield each.__qualname__, vars(each)


def _fixed(space: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the names that are bound once, with what they are bound to."""
    fixed = {name: value for name, value in space.items() if isinstance(value, _FIXED)}
    return tuple(fixed), tuple(fixed.values())
