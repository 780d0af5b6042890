"""Wide tensors that still say they have the dtype the author gave them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.judge.floats import is_narrow, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_flashinfer.judge.oracle.ops import Op
    from pytest_flashinfer.judge.oracle.products import Product
    from pytest_flashinfer.judge.oracle.wide import Step


_OLD_NAMES: Final = {
    "DoubleTensor": torch.float64, "FloatTensor": torch.float32, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
}  # fmt: skip
_NAMES: Final = {dtype: name.removesuffix("Tensor") for name, dtype in _OLD_NAMES.items()}
true_dtype = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


class Lifted(torch.Tensor):
    """A wide tensor that answers `dtype` with what the reference would have seen.

    `declared`: that dtype. `origin`: an input, or a view or cast of one. `clean`: no rounding has touched the values.
    """

    # a subclass without overhead for each call
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001
    declared: torch.dtype
    origin: bool
    clean: bool
    exponential: bool = False  # comes right from exp or exp2
    difference: bool = False  # comes right from a subtraction
    integral: bool = False  # integers, whatever rounding made them: arithmetic on them is exact
    follows: bool = False  # exactly from values of these kinds, as what is scaled by powers of two of integers
    eight: bool = False  # values of 8-bit inputs, in whichever dtype
    sixteen: bool = False  # values of inputs of 16 bits or fewer, in whichever dtype
    product: Product | None = None  # what comes right from a multiplication that broadcasts
    added: list[Product] | None = None  # products that it, or a part of it, is the sum of
    terms: tuple[Step, ...] = ()  # sums with a broadcast term that no product has been made of
    base: Lifted | None = None  # what it is a view of
    centre: torch.Tensor | float | None = None  # what it is a difference from, or the square of one
    shift: torch.Tensor | None = None  # of exponentials: what was taken from their exponents

    @property
    def settled(self) -> bool:
        """Whether no uncertain fraction is left in the values."""
        return self.clean or self.integral or self.follows

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The declared dtype, so that `x.to(q.dtype)` and dtype checks mean what they meant natively."""
        return self.declared

    @property
    def itemsize(self) -> int:  # type: ignore[override]
        """The bytes that an element has natively."""
        return self.declared.itemsize

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """The bytes that all elements have natively."""
        return self.numel() * self.declared.itemsize

    def element_size(self) -> int:
        """Return the bytes that an element has natively, so that vectors of 16 bytes hold as many."""
        return self.declared.itemsize

    def double(self, *_: Any, **__: Any) -> torch.Tensor:
        """Cast to float64."""
        return self.to(torch.float64)

    def float(self, *_: Any, **__: Any) -> torch.Tensor:
        """Cast to float32."""
        return self.to(torch.float32)

    def half(self, *_: Any, **__: Any) -> torch.Tensor:
        """Cast to float16."""
        return self.to(torch.float16)

    def bfloat16(self, *_: Any, **__: Any) -> torch.Tensor:
        """Cast to bfloat16."""
        return self.to(torch.bfloat16)

    def type(self, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Cast, or say of which type the tensor is."""
        if dtype is None:
            kind = _NAMES.get(self.declared) or name_of(self.declared).capitalize()
            return f"torch.{'cuda.' * self.is_cuda}{kind}Tensor"
        name = str(getattr(dtype, "__name__", dtype)).rpartition(".")[2]
        asked = dtype if isinstance(dtype, torch.dtype) else _OLD_NAMES.get(name)
        return super().type(dtype, *args, **kwargs) if asked is None else self.to(asked)

    def type_as(self, other: torch.Tensor) -> torch.Tensor:
        """Cast to the declared dtype of another tensor."""
        return self.to(other)

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Cast: to the declared dtype as the native tensor is, which is returned itself, to any other with a copy.

        torch knows of the wide dtype only. A cast to that would return the tensor itself, unseen and not rounded, and
        one to the declared dtype a copy, which is changed in its place by what the reference does to the result.
        """
        cast: Callable[..., torch.Tensor] = super().to
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        flags = [each for each in args if isinstance(each, bool)]  # non_blocking, copy
        asked = kwargs.pop("dtype", None) or next((each for each in args if isinstance(each, torch.dtype)), None)
        copy = kwargs.pop("copy", flags[1:] == [True])
        places = [each for each in args if not isinstance(each, (bool, torch.dtype))]
        if asked in (None, self.declared) and not copy:
            found = cast(*places, dtype=true_dtype(self), **kwargs)
            return found if found is self else tag(found, self.declared, origin=self.origin, clean=self.clean)
        asked = asked or self.declared
        return cast(*places, dtype=asked, copy=copy or asked is true_dtype(self), **kwargs)


def tag(wide: torch.Tensor, declared: torch.dtype, *, origin: bool, clean: bool) -> Lifted:
    """Mark a wide tensor with its declared dtype (in place where it is already `Lifted`)."""
    lifted = wide if isinstance(wide, Lifted) else wide.as_subclass(Lifted)
    lifted.declared, lifted.origin, lifted.clean = declared, origin, clean
    return lifted


def pass_on(written: Lifted) -> None:
    """Tell the tensors that a view shows parts of what was written into it."""
    base = written.base
    while base is not None:
        settled, clean = base.settled and written.settled, base.clean and written.clean
        base.origin, base.clean, base.integral = False, clean, settled and not clean and whole(base)
        base.follows = settled and not clean
        base = base.base


def replace(op: Op, args: list[Any], place: int, value: torch.Tensor) -> None:
    """Give an operation another value for an argument; one that it writes into keeps its storage."""
    arg = args[place]
    if place in op.writes:
        torch.Tensor.copy_(arg, value)
    else:
        args[place] = tag(value, arg.declared, origin=False, clean=arg.clean)
        args[place].centre, args[place].shift = arg.centre, arg.shift


def flatten(args: Sequence[Any]) -> Iterator[Any]:
    """Yield arguments with lists and tuples opened."""
    for arg in args:
        if isinstance(arg, (list, tuple)):
            yield from flatten(arg)
        else:
            yield arg


def promote(floats: Sequence[Lifted]) -> torch.dtype | None:
    """Return the declared dtype of a result: tensors with axes outrank 0-d ones."""
    ranked = [arg.declared for arg in floats if arg.ndim] or [arg.declared for arg in floats]
    result: torch.dtype | None = None
    for dtype in ranked:
        result = dtype if result is None or is_narrow(result) else result
        result = result if is_narrow(dtype) else torch.promote_types(result, dtype)
    return result


def short(arg: Any) -> bool:
    """Say whether a Python number is exact in float32."""
    return not isinstance(arg, float) or arg != arg or ctypes.c_float(arg).value == arg  # noqa: PLR0124 - NaN


def whole(arg: torch.Tensor) -> bool:
    """Say whether all values are integers (a look at a few first, to be quick about the usual no)."""
    plain = arg.as_subclass(torch.Tensor)
    few = plain.flatten()[:64] if plain.is_contiguous() else plain[tuple(slice(0, 4) for _ in plain.shape)]
    return bool((few == few.round()).all()) and bool((plain == plain.round()).all())
