"""Operations with factors of their own as the products and sums that they stand for, so that each rounding is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.lifted import Lifted, promote, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SUMS = ("add", "sub", "rsub")
_PRODUCTS: dict[str, Callable[..., torch.Tensor]] = {
    "addmm": torch.mm,
    "baddbmm": torch.bmm,
    "addmv": torch.mv,
    "addr": torch.outer,
    "addbmm": lambda left, right: torch.bmm(left, right).sum(0),
}
_AT_ONCE = ("addmm", "baddbmm", "addcmul", "addcdiv")  # the others round to 16 bits on the way
_EIGHT = (torch.float8_e4m3fn, torch.float8_e5m2)
_FUSED: dict[str, Callable[..., torch.Tensor]] = {"addcmul": torch.mul, "addcdiv": torch.div}


def is_several(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Say whether an operation is several steps, each with a rounding of its own or with numbers of its dtype's."""
    if name in _FUSED:
        return True
    if name == "nan_to_num":
        return isinstance(args[0], Lifted) and (len(args) < 4 or None in args[2:])  # noqa: PLR2004 - what infinities become
    if name == "_scaled_mm":
        return _scaled(*args, **kwargs)
    if name in _SUMS or name in _PRODUCTS or name == "index_add":
        return bool(_alpha(name, args, kwargs) != 1 or kwargs.get("beta", 1) != 1)
    return False


def take_apart(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operation of several steps one after the other.

    A factor in it multiplies what is added, and its rounding is relative to that, however little the sum leaves.
    """
    if name == "nan_to_num":  # torch fills in the ends of the wide dtype
        x, nan, above, below = (*args, None, None, None)[:4]
        ends = torch.finfo(x.declared)
        return func(x, nan, ends.max if above is None else above, ends.min if below is None else below, **kwargs)
    if name == "_scaled_mm":
        return _scaled_product(*args, **kwargs)
    if name in _FUSED:
        return _add(func, name, args, _FUSED[name](*args[1:3]), kwargs.get("value", 1), kwargs)
    alpha = _alpha(name, args, kwargs)
    if name in _PRODUCTS:
        return _add(func, name, args, _PRODUCTS[name](*args[1:]), alpha, kwargs)
    if name == "index_add":
        return func(*args[:3], args[3] * alpha)
    terms, scaled = list(args[:2]), 0 if name == "rsub" else 1
    terms[scaled] = _unrounded(terms[scaled] * alpha)
    return _rounded(func(*terms, **{key: value for key, value in kwargs.items() if key != "alpha"}), args)


def _scaled(left: Any, right: Any, of_left: Any, of_right: Any, *rest: Any, **named: Any) -> bool:
    """Say whether both operands hold 8-bit floats, and have one scale each, or one for each row and column."""
    sizes = {(left.shape[0], 1), (1, right.shape[1])}
    of_result = rest[1] if len(rest) > 1 else named.get("scale_result")
    plain = of_result is None and all(x.numel() == 1 or tuple(x.shape) in sizes for x in (of_left, of_right))
    return plain and all(isinstance(x, Lifted) and x.declared in _EIGHT for x in (left, right))


def _scaled_product(left: Any, right: Any, of_left: Any, of_right: Any, *rest: Any, **named: Any) -> Any:
    bias, _, dtype = (*rest, *(None,) * 3)[:3]
    bias, dtype = named.get("bias", bias), named.get("out_dtype", dtype)
    found = torch.mm(left.float(), right.float()) * of_left * of_right
    return (found if bias is None else found + bias.float()).to(dtype or left.dtype)


def _alpha(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the factor of what is added; it has a place of its own where that is a number."""
    return args[2] if name in _SUMS and len(args) > 2 else kwargs.get("alpha", 1)  # noqa: PLR2004


def _add(  # noqa: PLR0913, PLR0917 - all that an operation is
    func: Any, name: str, args: Sequence[Any], product: Any, factor: Any, kwargs: dict[str, Any]
) -> Any:
    """Add a product, times a factor, to the first argument; in its place, or into `out`, where that is written."""
    first, beta = args[0], kwargs.get("beta", 1)
    between = _unrounded if name in _AT_ONCE else lambda x: x
    found = between(product)
    found = found if factor == 1 else between(found * factor)
    if beta != 0:  # else nothing of the first counts, nor NaN
        found = (first if beta == 1 else between(first * beta)) + found
    written = first if func._schema.name.endswith("_") else kwargs.get("out")  # noqa: SLF001 - as in ops.py
    return _rounded(found, args) if written is None else written.copy_(found)


def _unrounded(x: Any) -> Any:
    """Have a value in between count as one of float32, which torch holds it in: no kernel rounds it to 16 bits."""
    if isinstance(x, Lifted) and x.declared.itemsize < torch.float32.itemsize:
        return tag(x, torch.float32, origin=False, clean=x.clean)
    return x


def _rounded(found: Any, args: Sequence[Any]) -> Any:
    """Give a result the dtype that the operation has for such arguments."""
    dtype = promote([arg for arg in args if isinstance(arg, Lifted)])
    written = any(found is arg for arg in args)
    return found if written or dtype is None or not isinstance(found, Lifted) else found.to(dtype)
