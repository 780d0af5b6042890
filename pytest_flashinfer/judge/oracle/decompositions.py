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
_FEW = 25  # rows up to which torch finds distances from differences
_MEAN, _TOTAL = 1, 2  # reductions of losses


def is_several(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Say whether an operation is several steps, each with a rounding of its own or with numbers of its dtype's."""
    if name == "_cdist_forward":
        return bool(args[2] == 2 and max(each.shape[-2] for each in args[:2]) <= _FEW)  # noqa: PLR2004 - Euclidean ones
    if name in _FUSED or name in _WRITTEN_OUT:
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
    if name == "nan_to_num":
        return _finite(func, *args, **kwargs)
    if name == "_scaled_mm":
        return _scaled_product(*args, **kwargs)
    if name in _WRITTEN_OUT:
        named = {key: value for key, value in kwargs.items() if key != "out"}
        return _written(func, _WRITTEN_OUT[name](*args, **named), args, kwargs)
    if name in _FUSED:
        return _add(func, name, args, _FUSED[name](*args[1:3]), kwargs.get("value", 1), kwargs)
    alpha = _alpha(name, args, kwargs)
    if name in _PRODUCTS:
        return _add(func, name, args, _PRODUCTS[name](*args[1:]), alpha, kwargs)
    return func(*args[:3], args[3] * alpha) if name == "index_add" else _scaled_sum(func, args, name, alpha, kwargs)


def _scaled_sum(func: Any, args: Sequence[Any], name: str, alpha: Any, kwargs: dict[str, Any]) -> Any:
    terms, scaled = list(args[:2]), 0 if name == "rsub" else 1
    terms[scaled] = _unrounded(terms[scaled] * alpha)
    return _rounded(func(*terms, **{key: value for key, value in kwargs.items() if key != "alpha"}), args)


def _finite(func: Any, x: Any, nan: Any = None, above: Any = None, below: Any = None, **kwargs: Any) -> Any:
    """Put in the ends of the declared dtype, where torch would fill in those of the wide one."""
    ends = torch.finfo(x.declared)
    return func(x, nan, ends.max if above is None else above, ends.min if below is None else below, **kwargs)


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


def _lerp(start: Any, end: Any, weight: Any) -> Any:
    """Return start * (1 - weight) + end * weight, rounded as that and as start + (end - start) * weight may be."""
    rest = _unrounded(start - _unrounded(start * weight))
    return rest + _unrounded(end * weight)


def _cross(left: Any, right: Any, *, dim: int = -1) -> Any:
    (left_next, left_last), (right_next, right_last) = ([x.roll(by, dim) for by in (-1, -2)] for x in (left, right))
    return left_next * right_last - left_last * right_next


def _mse(found: Any, target: Any, reduction: int = 1) -> Any:
    apart = found - target
    return _reduced(apart * apart, reduction)


def _huber(found: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    apart = (found - target).abs()
    return _reduced(torch.where(apart <= delta, 0.5 * apart * apart, delta * (apart - 0.5 * delta)), reduction)


def _reduced(loss: Any, reduction: int) -> Any:
    return loss.mean() if reduction == _MEAN else loss.sum() if reduction == _TOTAL else loss


def _cdist(left: Any, right: Any, *_: Any) -> Any:
    return (left.unsqueeze(-2) - right.unsqueeze(-3)).square().sum(-1).sqrt()


def _cdist_by_products(left: Any, right: Any) -> Any:
    """Return the distances between the rows of two matrices as torch finds them where there are many.

    It has 0 for squares below zero. Here these count as those above it do, so that each run shows how far they go.
    """
    squares = left.square().sum(-1).unsqueeze(-1) + right.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * torch.matmul(left, right.transpose(-1, -2))).abs().sqrt()


_WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "lerp": _lerp,
    "linalg_cross": _cross,
    "mse_loss": _mse,
    "huber_loss": _huber,
    "_cdist_forward": _cdist,
    "_euclidean_dist": _cdist_by_products,
}


def _alpha(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the factor of what is added; it has a place of its own where that is a number."""
    return args[2] if name in _SUMS and len(args) > 2 else kwargs.get("alpha", 1)  # noqa: PLR2004


def _add(  # noqa: PLR0913, PLR0917 - all that an operation is
    func: Any, name: str, args: Sequence[Any], product: Any, factor: Any, kwargs: dict[str, Any]
) -> Any:
    """Add a product, times a factor, to the first argument."""
    first, beta = args[0], kwargs.get("beta", 1)
    between = _unrounded if name in _AT_ONCE else lambda x: x
    found = between(product)
    found = found if factor == 1 else between(found * factor)
    if beta != 0:  # else nothing of the first counts, nor NaN
        found = (first if beta == 1 else between(first * beta)) + found
    return _written(func, found, args, kwargs)


def _written(func: Any, found: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return a result in the dtype that the operation has, or as what it was written into."""
    written = args[0] if func._schema.name.endswith("_") else kwargs.get("out")  # noqa: SLF001 - as in ops.py
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
