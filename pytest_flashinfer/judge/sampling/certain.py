"""Whether a reference of the op_type `sampling` draws at all: one that takes the likeliest id has one right answer."""

from __future__ import annotations

import ast
import inspect
import linecache
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.judge.oracle.ops import describe
from pytest_flashinfer.judge.oracle.wide import Mode
from pytest_flashinfer.judge.sampling.target import decides_draws

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flashinfer.judge.reference.call import Reference

# What a source may import for it to be sure that all its random numbers are torch's, whose operations say so.
_WITHOUT_CHANCE: Final = frozenset({
    "__future__", "collections", "dataclasses", "functools", "itertools", "math", "torch", "typing",
})  # fmt: skip


class _Watch(Mode):  # type: ignore[no-untyped-call]
    """Notices whether anything is drawn at random."""

    drew = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.drew |= describe(func).draws or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def draws_nothing(run: Reference) -> bool:
    """Run a reference and say whether the inputs alone decide all it gives; in doubt they do not.

    Where an input holds random numbers a kernel may make other ids of them than the reference, by right. Raises
    `InvalidReferenceError` where the reference raises.
    """
    if any(map(decides_draws, run.inputs)) or not _imports(run.function) <= _WITHOUT_CHANCE:
        return False
    watch = _Watch()
    run.native(watch)
    return not watch.drew


def _imports(function: Callable[..., Any]) -> set[str]:
    """Return the packages that a function's source imports; one without a name where there is no source to be read."""
    code = getattr(inspect.unwrap(function), "__code__", None)  # within `@torch.no_grad()`
    source = "".join(linecache.getlines(code.co_filename)) if code is not None else ""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return {""}
    names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    called = {node.id for node in nodes if isinstance(node, ast.Name)}
    return {name.partition(".")[0] for name in names} | ({"__import__"} & called) | (set() if source else {""})
