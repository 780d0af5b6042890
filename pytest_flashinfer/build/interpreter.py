"""Triton's CPU interpreter, made to round as the hardware does, and to waste less time.

Its own conversion to bfloat16 and 8-bit floats cuts the mantissa off, or rounds without the carry into the exponent
(seen in Triton 3.6 to 3.9): half of a correct kernel's bfloat16 results would be one ulp low, and 127.97 would become
64 in float8_e4m3. A kernel must not be blamed for that, so conversions to narrower types go through torch.

It has no driver, by which autotuners time: the first configuration that is left after pruning runs, untimed.

Older ones take an array of one element for an integer, which numpy no longer allows: no scalar could end a loop.

What `range` counts with in a kernel is an integer there, and a scalar of int32 in compiled kernels: `i.to(tl.int64)`
would be an error. It is a scalar in loops whose body asks for one.

At each call of a function within a kernel, `tl.sum` included, it asks all members of triton.language whether they are
to be replaced, several hundred a time: two thirds of what many kernels take. They are remembered instead.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.build import aliases, atomics, bfloat16, libdevice

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

_NARROW = {"bf16": "bfloat16", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
_WIDE = ("fp32", "fp64", "fp16", "bf16")


def repair() -> None:
    """Replace what the interpreter does to narrow floats, its timing and its search, and supply what it lacks."""
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    original = interpreter._convert_float  # noqa: SLF001 - Triton offers no hook for it
    if getattr(original, "rounds_to_nearest", False):
        return
    toward_zero = interpreter._ir.ROUNDING_MODE.RTZ  # noqa: SLF001
    interpreter._convert_float = _rounding(original, toward_zero)  # noqa: SLF001
    interpreter._patch_builtin = _remembering(interpreter)  # noqa: SLF001
    interpreter._patch_lang_tensor = _integral(interpreter._patch_lang_tensor)  # noqa: SLF001
    interpreter.FunctionRewriter.ast_transformer = _counting(interpreter.ASTTransformer)()
    aliases.follow(interpreter)
    bfloat16.teach(interpreter)
    atomics.teach(interpreter)
    libdevice.supply(interpreter)
    importlib.import_module("triton.runtime.autotuner").Autotuner._bench = _untimed  # noqa: SLF001


def _untimed(*_: object, **__: object) -> list[float]:
    """Give every configuration of an autotuner the same quantiles, without a run."""
    return [0.0, 0.0, 0.0]


def _rounding(original: Callable[..., Any], toward_zero: object) -> Callable[..., Any]:
    import numpy as np
    import torch

    def convert(data: np.ndarray[Any, Any], source: Any, target: Any, rounding: object) -> np.ndarray[Any, Any]:
        """Return the bits of `data` in the `target` type; numpy knows no bfloat16, so its values travel as bits."""
        narrower = target.primitive_bitwidth < source.primitive_bitwidth
        if not narrower or rounding == toward_zero or str(target) not in _NARROW or str(source) not in _WIDE:
            return original(data, source, target, rounding)  # type: ignore[no-any-return]
        flat = torch.from_numpy(np.ascontiguousarray(data).reshape(-1))
        values = flat.view(torch.bfloat16) if str(source) == "bf16" else flat
        bits = values.to(getattr(torch, _NARROW[str(target)])).view(
            torch.int16 if str(target) == "bf16" else torch.uint8
        )
        coded: np.ndarray[Any, Any] = bits.numpy().view(f"uint{target.primitive_bitwidth}").reshape(data.shape)
        return coded

    convert.rounds_to_nearest = True  # type: ignore[attr-defined]
    return convert


def _integral(original: Callable[..., None]) -> Callable[..., None]:
    def patch(tensor: Any, *scope: Any) -> None:
        original(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    return patch


def _counting(transformer: type[ast.NodeTransformer]) -> type[ast.NodeTransformer]:
    """Return what rewrites a kernel's source as `transformer` does, and counts with scalars where these are needed."""

    class Counting(transformer):  # type: ignore[misc, valid-type]
        def visit_For(self, node: ast.For) -> ast.For:  # noqa: N802 - the name that ast gives it
            self.generic_visit(node)
            asked = (each.value for each in ast.walk(node) if isinstance(each, ast.Attribute))
            unrolled = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func).endswith("static_range")
            if isinstance(node.target, ast.Name) and not unrolled:
                name = node.target.id
                if any(isinstance(each, ast.Name) and each.id == name for each in asked):
                    node.body.insert(0, self.visit(ast.parse(f"{name} = {name}").body[0]))
            return node

    return Counting


def _remembering(interpreter: Any) -> Callable[..., None]:
    """Return what replaces Triton's own functions in a module or class of the language while a kernel runs."""
    known: dict[int, tuple[Any, int, set[str]]] = {}  # by its id: the owner, how many names it has, those of functions
    own = interpreter.tl.core.is_builtin

    def patch(owner: Any, *rest: Any) -> None:
        size = len(vars(owner))
        _, before, names = known.get(id(owner), (owner, -1, set()))
        if size != before:
            names = names | {name for name, member in inspect.getmembers(owner) if own(member)}
            known[id(owner)] = owner, size, names
        for name in sorted(names):
            member = getattr(owner, name)
            if own(member):  # not where it is replaced already
                interpreter._patch_attr(owner, name, member, *rest)  # noqa: SLF001

    return patch
