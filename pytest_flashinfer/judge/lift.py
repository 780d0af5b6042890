"""Run a reference wider than it was written: float64 values that still say they have the dtype the author gave them."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .floats import is_narrow, representable
from .ops import Kind, Op, describe, magnitude

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_true_dtype = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
_LIMIT = 2.0**24  # integers up to here are exact in float32
_SIXTEEN = (torch.bfloat16, torch.float16)


class LiftError(Exception):
    """The reference cannot be run in higher precision; the message says why."""


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

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The declared dtype, so that `x.to(q.dtype)` and dtype checks mean what they meant natively."""
        return self.declared

    def double(self, *_: Any, **__: Any) -> torch.Tensor:
        """Cast to float64: for a wide tensor only the declared dtype changes."""
        return tag(torch.ops.aten.alias(self), torch.float64, origin=self.origin, clean=self.clean)

    def type_as(self, other: torch.Tensor) -> torch.Tensor:
        """Cast to the declared dtype of another tensor."""
        return cast("torch.Tensor", self.to(other.dtype))

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Cast; `float64` is handled here because a float64 tensor would return itself unseen."""
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].dtype, *args[1:])
        if torch.float64 in args or kwargs.get("dtype") is torch.float64:
            return self.double()
        return super().to(*args, **kwargs)


def tag(wide: torch.Tensor, declared: torch.dtype, *, origin: bool, clean: bool) -> Lifted:
    """Mark a wide tensor with its declared dtype (in place where it is already `Lifted`)."""
    lifted = wide if isinstance(wide, Lifted) else wide.as_subclass(Lifted)
    lifted.declared, lifted.origin, lifted.clean = declared, origin, clean
    return lifted


@dataclass(slots=True)
class Step:
    """What the noise runs must know about one dispatched operation.

    `low`: (position, dtype) of the arguments that a kernel may hold in a 16-bit dtype, or that the reference itself
    rounds; an 8-bit dtype means that the rounding is part of the truth. `fuzzy`: the float arguments are not exact.
    `sums`: adds up exponentials, which a kernel that holds them in 16 bits for a product may add up in that form.
    """

    name: str
    kind: Kind
    declared: torch.dtype | None = None
    noisy: bool = True
    low: tuple[tuple[int, torch.dtype], ...] = ()
    fuzzy: bool = True
    sums: bool = False


@dataclass(slots=True)
class Plan:
    """All steps of one lifted run, and whether values are ordered anywhere in it."""

    steps: list[Step] = field(default_factory=list)
    selects: bool = False
    low: torch.dtype | None = None  # the 16-bit dtype that something may be rounded to inside


class WideMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that keeps every floating value in `wide`; subclasses decide what happens around each operation."""

    def __init__(self, wide: torch.dtype = torch.float64) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wide = wide

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch._dynamo out: to be skipped by it, the mode would import it, as slow as torch itself."""
        return False

    def before(self, func: Any, op: Op, args: list[Any], asked: torch.dtype | None) -> Step:
        """Look at an operation and possibly replace arguments in the list."""
        raise LiftError(f"no rule around {op.name} for {func} {args} {asked}")

    def after(self, step: Step, args: list[Any], tensor: torch.Tensor, written: bool) -> torch.Tensor:  # noqa: FBT001
        """Tag or disturb one floating result."""
        raise LiftError(f"no rule after {step.name} for {args} {tensor.shape} {written}")

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation wide."""
        kwargs = kwargs or {}
        op = describe(func)
        if op.composite:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if op.name.startswith("_scaled_dot_product"):
            from .attention import plain_attention

            with self:
                return plain_attention(op.name, args, kwargs)
        return self._run(func, op, [self._widen(arg) for arg in args], kwargs)

    def _run(self, func: Any, op: Op, values: list[Any], kwargs: dict[str, Any]) -> Any:
        asked = self._retarget(func, op, values, kwargs)
        for place in op.writes:
            target = kwargs.get("out") if place < 0 else values[place] if place < len(values) else None
            if isinstance(target, torch.Tensor) and not isinstance(target, Lifted) and target.is_floating_point():
                raise LiftError(f"{op.name} writes into a tensor that was made outside the reference")
        step = self.before(func, op, values, asked)
        if op.name == "_to_copy" and isinstance(values[0], Lifted) and kwargs.get("dtype") is self.wide:
            result = func(values[0], **kwargs) if "device" in kwargs else torch.Tensor.clone(values[0])
        else:
            result = func(*values, **kwargs)
        return self._finish(op, step, values, result)

    def _finish(self, op: Op, step: Step, values: list[Any], result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            if not isinstance(result, Lifted) and not result.is_floating_point():
                return result
            return self.after(step, values, result, bool(op.writes))
        if isinstance(result, (list, tuple)):
            done = [self._finish(op, step, values, item) for item in result]
            return type(result)(done) if type(result) in (list, tuple) else type(result)(*done)
        return result

    def _widen(self, value: Any) -> Any:
        """Widen a floating tensor that was made outside the reference (a table, a constant)."""
        if isinstance(value, torch.Tensor):
            if isinstance(value, Lifted) or not value.is_floating_point():
                return value
            return tag(value.to(self.wide), value.dtype, origin=True, clean=True)
        if type(value) in (list, tuple):
            return type(value)(self._widen(item) for item in value)
        return value

    def _retarget(self, func: Any, op: Op, values: list[Any], kwargs: dict[str, Any]) -> torch.dtype | None:
        """Replace a requested floating dtype by the wide one and return the request."""
        asked = kwargs.get("dtype")
        if str(func) == "aten.view.dtype":
            if isinstance(values[0], Lifted) and values[1] != values[0].declared:
                raise LiftError(f"the bits of a {values[0].declared} tensor are viewed as {values[1]}")
            return None
        if op.name in ("_softmax", "_log_softmax") and values[2] is True:
            values[2], asked = False, torch.float32
        for place, value in enumerate(values):
            if isinstance(value, torch.dtype) and value.is_floating_point:
                values[place], asked = self.wide, value
        if isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"].is_floating_point:
            kwargs["dtype"] = self.wide
        return asked


class Lift(WideMode):  # type: ignore[no-untyped-call]
    """The truth: operations run wide, quantisations to 8 bits kept, and a plan for the noise runs written down."""

    def __init__(self, wide: torch.dtype, working: torch.dtype | None) -> None:
        super().__init__(wide)
        self.working = working  # the 16-bit dtype in which a kernel may hold the operands of a contraction
        self.plan = Plan()

    def before(self, func: Any, op: Op, args: list[Any], asked: torch.dtype | None) -> Step:
        """Decide how the result rounds and which arguments are rounded on the way in."""
        floats = [arg for arg in flatten(args) if isinstance(arg, Lifted)]
        step = Step(op.name, op.kind, asked if asked is not None and asked.is_floating_point else None)
        if step.declared is None:
            step.declared = promote(floats)
        if "dtype" in str(func) and op.name == "view":
            step.declared = None
        self.plan.steps.append(step)
        self.plan.selects |= op.selects
        if op.name == "_to_copy" and asked is not None and not asked.is_floating_point and floats:
            step.kind = Kind.ROUND
        self._lower(op, step, args)
        step.fuzzy = not all(arg.clean for arg in floats)
        step.sums = op.name in ("logsumexp", "sum") and not floats[0].origin
        step.sums = step.sums and (op.name == "logsumexp" or floats[0].exponential)
        step.noisy = step.fuzzy or bool(step.low) or not self._stays_exact(func, step, args)
        return step

    def _lower(self, op: Op, step: Step, args: list[Any]) -> None:
        """Find arguments held in fewer bits; an 8-bit one is rounded here, because the reference means it."""
        cast_up = step.name == "_to_copy" and step.declared not in (*_SIXTEEN, None) and not is_narrow(step.declared)
        if step.kind in (Kind.MOVE, Kind.SELECT) and not cast_up:
            return
        places = [place for place, arg in enumerate(args) if isinstance(arg, Lifted)]
        strict = step.kind is not Kind.CONTRACT or all(args[place].origin for place in places)
        low = []
        for place in places:
            arg = args[place]
            if is_narrow(arg.declared) and not arg.origin:
                replace(op, args, place, torch.Tensor.to(arg, arg.declared).to(self.wide))
                low.append((place, arg.declared))
            elif arg.declared in _SIXTEEN and not arg.origin and not representable(arg, arg.declared):
                low.append((place, arg.declared))
            elif not strict and self.working and arg.declared not in _SIXTEEN and not representable(arg, self.working):
                low.append((place, self.working))
        step.low = tuple(low)
        self.plan.low = next((dtype for _, dtype in low if not is_narrow(dtype)), self.plan.low)

    def _stays_exact(self, func: Any, step: Step, args: list[Any]) -> bool:
        """Say whether float32 arithmetic gives this result without rounding, as far as the arguments tell."""
        if step.kind in (Kind.MOVE, Kind.SELECT, Kind.ROUND):
            return True
        if step.kind in (Kind.SMOOTH, Kind.LOGSUM):
            return False
        if step.kind is Kind.ELEMENT:
            return all(short(arg) for arg in args)  # the result is looked at in `after`
        if not all(whole(arg) for arg in args if isinstance(arg, Lifted)):
            return False
        sums = magnitude(func, args)
        return sums.numel() == 0 or bool(sums.amax() <= _LIMIT)

    def after(self, step: Step, args: list[Any], tensor: torch.Tensor, written: bool) -> torch.Tensor:  # noqa: FBT001
        """Tag a result with its declared dtype and history."""
        exact = not step.noisy
        if exact and step.kind in (Kind.ELEMENT, Kind.SUM):
            exact = representable(tensor, torch.float32)
        step.noisy = not exact
        floats = [arg for arg in flatten(args) if isinstance(arg, Lifted)]
        clean = exact and (step.kind is not Kind.MOVE or all(arg.clean for arg in floats))
        if written and isinstance(tensor, Lifted):
            tensor.origin, tensor.clean = False, clean
            return tensor
        origin = step.kind is Kind.MOVE and bool(floats) and all(arg.origin and keeps(arg, step) for arg in floats)
        if step.declared is None or (not floats and step.declared is None):
            step.declared = _true_dtype(tensor) if _true_dtype(tensor) is not self.wide else torch.float32
        lifted = tag(tensor.to(self.wide), step.declared, origin=origin, clean=clean)
        lifted.exponential = step.name in ("exp", "exp2")
        return lifted


def replace(op: Op, args: list[Any], place: int, value: torch.Tensor) -> None:
    """Give an operation another value for an argument; one that it writes into keeps its storage."""
    arg = args[place]
    if place in op.writes:
        torch.Tensor.copy_(arg, value)
    else:
        args[place] = tag(value, arg.declared, origin=False, clean=arg.clean)


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


def keeps(arg: Lifted, step: Step) -> bool:
    """Say whether the result's dtype holds every value of the argument's."""
    if step.declared is None or step.declared == arg.declared:
        return True
    if is_narrow(step.declared):
        return False
    return is_narrow(arg.declared) or torch.promote_types(arg.declared, step.declared) == step.declared


def short(arg: Any) -> bool:
    """Say whether a Python number is exact in float32."""
    return not isinstance(arg, float) or arg != arg or ctypes.c_float(arg).value == arg  # noqa: PLR0124 - NaN


def whole(arg: torch.Tensor) -> bool:
    """Say whether all values are integers (a look at a few first, to be quick about the usual no)."""
    plain = arg.as_subclass(torch.Tensor)
    few = plain.flatten()[:64] if plain.is_contiguous() else plain[tuple(slice(0, 4) for _ in plain.shape)]
    return bool((few == few.round()).all()) and bool((plain == plain.round()).all())


@contextmanager
def wide_default(wide: torch.dtype) -> Iterator[None]:
    """Make Python numbers and creations without a dtype wide."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(wide)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run_wide(mode: WideMode, call: Callable[[], Any]) -> Any:
    """Run the reference under a mode; `LiftError` where that is impossible."""
    try:
        with wide_default(mode.wide), torch.no_grad(), mode:
            return call()
    except LiftError:
        raise
    except Exception as error:
        raise LiftError(
            f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        ) from error
