"""Triton's own functions under a module's names for them, for Triton's CPU interpreter.

It replaces what a kernel finds in `triton.language`. `from triton.language import load` and `exp = tl.exp` are names of
what was there before, and that asks for a compiler: a correct kernel would be blamed for it. The interpreter also wants
a name for `triton.language` beside every kernel; `import triton` is enough for a compiler.
"""

from __future__ import annotations

from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def follow(interpreter: Any) -> None:
    """Have the names of a kernel's module lead to what is in `triton.language` when they are used."""
    language, original = interpreter.tl, interpreter._patch_lang  # noqa: SLF001 - Triton offers no hook for it
    known = _functions(language)
    sizes: dict[int, int] = {}  # of the modules' dictionaries that were looked through

    @wraps(original)
    def patch(function: Any) -> Any:
        names = function.__globals__
        if sizes.get(id(names)) != len(names):
            names.update({name: known[id(each)] for name, each in names.items() if id(each) in known})
            sizes[id(names)] = len(names)
        if not any(each is language or each is language.core for each in names.values()):
            function = SimpleNamespace(__globals__={**names, "tl": language})
        return original(function)

    interpreter._patch_lang = patch  # noqa: SLF001


def _functions(language: Any) -> dict[int, Callable[..., Any]]:
    """Return, by the ids of the functions that are replaced while a kernel runs, what calls their replacements."""
    found = {}
    for owner in (language.core, language.math, language):
        for name, member in vars(owner).items():
            if language.core.is_builtin(member) or member in (language.range, language.static_range):
                found[id(member)] = _late(owner, name)
    return found


def _late(owner: Any, name: str) -> Callable[..., Any]:
    def late(*given: Any, **named: Any) -> Any:
        return getattr(owner, name)(*given, **named)

    return late
