"""Arithmetic of complex numbers as that of their real and imaginary parts, so that every step of it is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Pair = tuple[Any, Any]  # an imaginary part of `None` is zero


def has_complex(args: Iterable[Any]) -> bool:
    """Say whether an operation has complex arguments."""
    return any(isinstance(each, (torch.Tensor, complex)) and _is_complex(each) for each in args)


def _is_complex(value: torch.Tensor | complex) -> bool:
    return not isinstance(value, torch.Tensor) or value.is_complex()


def has_rule(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Say whether it is known how an operation goes by parts."""
    return name in _RULES and not kwargs


def by_parts(func: Any, name: str, args: Sequence[Any]) -> Any:
    """Run an operation that has complex arguments or makes some; `NotImplemented` for powers other than squares."""
    found = _RULES[name](*(parts(each) if isinstance(each, (torch.Tensor, complex)) else each for each in args))
    found = whole_of(found) if isinstance(found, tuple) else found
    return args[0].copy_(found) if func._schema.name.endswith("_") else found  # noqa: SLF001 - as in ops.py


def whole_of(pair: Pair) -> torch.Tensor:
    """Return the complex numbers that have these parts."""
    shape = torch.broadcast_shapes(*(each.shape for each in pair))  # type: ignore[no-untyped-call]
    return torch.view_as_complex(torch.stack([each.expand(shape) for each in pair], dim=-1))


def parts(value: Any) -> Pair:
    """Return the real and the imaginary part; the latter of what is real is `None`."""
    if not _is_complex(value):
        return value, None
    if isinstance(value, complex):
        return value.real, value.imag
    real, imaginary = torch.view_as_real(value.resolve_conj()).unbind(-1)
    return real, imaginary


def _pair(value: Any) -> Pair:
    """Return the parts of what may be a Python number."""
    return value if isinstance(value, tuple) else (value, None)


def _times(left: Any, right: Any, product: Callable[[Any, Any], Any] = torch.mul) -> Pair:
    (a, b), (c, d) = _pair(left), _pair(right)
    if d is None:
        return product(a, c), product(b, c)
    if b is None:
        return product(a, c), product(a, d)
    return product(a, c) - product(b, d), product(a, d) + product(b, c)


def _over(left: Any, right: Any) -> Pair:
    (a, b), (c, d) = _pair(left), _pair(right)
    if d is None:
        return a / c, b / c
    real, imaginary = _times((a, b), (c, -d))
    size = c * c + d * d
    return real / size, imaginary / size


def _plus(left: Any, right: Any) -> Pair:
    (a, b), (c, d) = _pair(left), _pair(right)
    return a + c, _like(a, d) if b is None else b if d is None else b + d


def _minus(left: Any, right: Any) -> Pair:
    (a, b), (c, d) = _pair(left), _pair(right)
    return a - c, _like(a, -d) if b is None else b if d is None else b - d


def _like(beside: Any, part: Any) -> torch.Tensor:
    return part if isinstance(part, torch.Tensor) else torch.full_like(beside, part)


def _exp(exponent: Pair) -> Pair:
    return _polar((torch.exp(exponent[0]), None), (exponent[1], None))


def _polar(size: Pair, angle: Pair) -> Pair:
    return size[0] * torch.cos(angle[0]), size[0] * torch.sin(angle[0])


def _power(base: Pair, exponent: Any) -> Any:
    return _times(base, base) if exponent == 2 else NotImplemented  # noqa: PLR2004 - others are no products


def _each(total: Callable[..., torch.Tensor]) -> Callable[..., Pair]:
    return lambda x, *rest: (total(x[0], *rest), total(x[1], *rest))


MAKES = ("polar", "complex")  # complex numbers of real ones
_RULES: dict[str, Callable[..., Any]] = {
    "mul": _times,
    "mm": lambda left, right: _times(left, right, torch.mm),
    "bmm": lambda left, right: _times(left, right, torch.bmm),
    "div": _over,
    "true_divide": _over,
    "reciprocal": lambda x: _over(1.0, x),
    "add": _plus,
    "sub": _minus,
    "rsub": lambda left, right: _minus(right, left),
    "square": lambda x: _times(x, x),
    "pow": _power,
    "exp": _exp,
    "polar": _polar,
    "complex": lambda real, imaginary: (real[0], imaginary[0]),
    "abs": lambda x: torch.hypot(*x),
    "angle": lambda x: torch.atan2(x[1], x[0]),
    "sum": _each(torch.sum),
    "mean": _each(torch.mean),
    "cumsum": _each(torch.cumsum),
}
