"""Whether this package is still what it was before foreign code came into its process.

Nothing here is safe from code that looks for it. What the judge decides on lies in its own memory; this names those who
lay hands on what else is told to it.
"""

from __future__ import annotations

import gc
import operator
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_PACKAGE: Final = "pytest_flashinfer."
_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType)
_METHODS: Final = (*_FUNCTIONS, staticmethod, classmethod, property)
_SAME: Final = operator.is_
_MOST: Final = 3  # names that are told
_TEXT: Final = "replaced {} of the harness in its process; a solution has no business there"


class Intact:
    """Knows what the names of this package are bound to in modules and classes that are loaded when it is made.

    Of `objects` it knows their types, their functions, and the types of their other attributes, which change as they
    work; of all other objects here, what of theirs can be called. `broken` returns a line that names what is no longer
    what it was; it takes some tenths of a millisecond at most. What it compares with lies in tuples that it alone
    refers to: there is no attribute to be emptied.
    """

    __slots__ = ("broken",)

    def __init__(self, objects: Iterable[object] = ()) -> None:
        self.broken: Callable[[], list[str]] = _comparison(tuple(objects))


def _comparison(objects: tuple[object, ...]) -> Callable[[], list[str]]:
    spaces = tuple((label, space, *_fixed(space)) for label, space in _spaces())
    own = {each for *_, values in spaces for each in values if isinstance(each, FunctionType)}
    functions = tuple(sorted(own, key=lambda each: each.__qualname__))
    codes = tuple(each.__code__ for each in functions)
    text, most, same = _TEXT, _MOST, _SAME
    states = tuple((each, type(each), tuple(_state(each))) for each in objects)
    things = _things(values for *_, values in spaces)
    called = tuple([(each, _free(each), *_names_and_values(_called(each))) for each in things])

    def broken() -> list[str]:
        found = []
        for label, space, names, values in spaces:
            if not all(map(same, map(space.get, names), values)):
                changed = zip(names, values, strict=True)
                found += [f"{label}.{name}" for name, value in changed if space.get(name) is not value]
        found += [each.__qualname__ for each, code in zip(functions, codes, strict=True) if each.__code__ is not code]
        for each, kind, state in states:
            now_state = dict(_state(each))
            found += [f"{kind.__name__}.{name}" for name, known in state if now_state.get(name) is not known]
            found += [] if type(each) is kind else [kind.__name__]
        for each, free, names, values in called:
            now = each.__dict__
            if not (free.isdisjoint(now) and all(map(same, map(now.get, names), values))):
                found += [f"{type(each).__name__}.{name}" for name in _unlike(each, zip(names, values, strict=True))]
        return [text.format(", ".join([*dict.fromkeys(found)][:most]))] if found else []

    return broken


def _spaces() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names of every module of this package, and of every class in it."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE):
            yield name.removeprefix(_PACKAGE), vars(module)
            for each in list(vars(module).values()):
                if isinstance(each, type) and each.__module__ == name:
                    yield each.__qualname__, vars(each)


def _things(values: Iterable[Iterable[object]]) -> list[object]:
    """Return what has attributes of its own: objects of this package's classes, and what its modules are bound to."""
    kinds = {kind: str(kind.__module__).startswith(_PACKAGE) for kind in {type(each) for each in gc.get_objects()}}
    found = [each for each in gc.get_objects() if kinds.get(type(each))]
    bound = {id(each): each for some in values for each in some}.values()
    found += [each for each in bound if not isinstance(each, (type, ModuleType, *_FUNCTIONS))]
    return [each for each in {id(each): each for each in found}.values() if hasattr(each, "__dict__")]


def _free(each: object) -> frozenset[str]:
    """Return the names of its class that an object has nothing of its own for: what takes one comes before those."""
    return frozenset(dir(type(each))) - each.__dict__.keys()


def _called(each: object) -> list[tuple[str, object]]:
    """Return the attributes of an object's own that can be called: one that is named like a method comes before it."""
    return [(name, value) for name, value in each.__dict__.items() if callable(value)]


def _names_and_values(pairs: Sequence[tuple[str, object]]) -> tuple[tuple[str, ...], tuple[object, ...]]:
    return tuple(name for name, _ in pairs), tuple(value for _, value in pairs)


def _unlike(each: object, known: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Yield the names of an object's attributes that were others, or that stand before a method of its class now."""
    values = dict(known)
    for name, value in _called(each):
        if values[name] is not value if name in values else hasattr(type(each), name):
            yield name


def _fixed(space: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the names of a module or a class with what they are bound to, but for what Python notes of either."""
    bound = {name: value for name, value in space.items() if not name.startswith("__") or isinstance(value, _METHODS)}
    return tuple(bound), tuple(bound.values())


def _state(each: object) -> Iterator[tuple[str, object]]:
    """Yield what stays the same of an object: its functions, and of what type all else is."""
    for name, value in vars(each).items():
        yield name, value if isinstance(value, _FUNCTIONS) else type(value)
