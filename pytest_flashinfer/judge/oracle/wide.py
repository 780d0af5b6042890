"""The dispatch mode that runs a reference's operations wide."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_flashinfer.data.raised import told
from pytest_flashinfer.judge.oracle.attention import plain_attention, safe_softmax
from pytest_flashinfer.judge.oracle.bits import Apart, natively
from pytest_flashinfer.judge.oracle.complex_numbers import MAKES, by_parts, has_complex, has_rule
from pytest_flashinfer.judge.oracle.decompositions import is_several, take_apart
from pytest_flashinfer.judge.oracle.lifted import Lifted, tag
from pytest_flashinfer.judge.oracle.op_context import autocasts, cast, einsums
from pytest_flashinfer.judge.oracle.ops import Kind, Op, describe
from pytest_flashinfer.judge.oracle.outside_torch import Outside, computed, departures
from pytest_flashinfer.judge.oracle.random_replay import draw, dropped, kept
from pytest_flashinfer.judge.oracle.transforms import is_transform, transform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_BUGS = (AttributeError, NameError, KeyError, AssertionError)
SUMMED = -1  # what a step adds up, in place of an argument's position


class LiftError(Exception):
    """The reference cannot be run in higher precision; the message says why."""


@dataclass(slots=True)
class Step:
    """What the noise runs must know about one dispatched operation.

    `low`: (position, dtype) of the arguments that a kernel may hold in a 16-bit dtype, or that the reference itself
    rounds; an 8-bit dtype means that the rounding is part of the truth. `fuzzy`: the float arguments are not exact.
    `sums`: adds up exponentials, which a kernel that holds them in 16 bits for a product may add up in that form.
    `plain`: only moves wide tensors, so that nothing is to be done around it. `apart`: a sum whose terms a kernel may
    multiply one by one. `eight`: products of 8-bit values. `settled`: positions of arguments that no rounding before
    this one can change. `exact`: of arguments in `low`, by position, and of what is added up (`SUMMED`), which values
    16 bits hold as they are, where these are many. `decay`: how far exponents of decays add up. `whole`: positions of
    integers that something is decided by.
    """

    name: str
    kind: Kind
    declared: torch.dtype | None = None
    noisy: bool = True
    low: tuple[tuple[int, torch.dtype], ...] = ()
    fuzzy: bool = True
    sums: bool = False
    plain: bool = False
    apart: bool = False
    eight: bool = False
    settled: tuple[int, ...] = ()
    exact: dict[int, torch.Tensor] = field(default_factory=dict)
    decay: float = 0.0
    whole: tuple[int, ...] = ()


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that is cheap to enter."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch._dynamo out: to be skipped by it, the mode would import it, as slow as torch itself."""
        return False


class WideMode(Mode):  # type: ignore[no-untyped-call]
    """Dispatch mode that keeps every floating value in `wide`; subclasses decide what happens around each operation."""

    def __init__(self, wide: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.wide = wide
        self.default = torch.get_default_dtype()  # of what the reference makes without naming a dtype
        self.widened = False  # whether an argument of the present operation came from outside
        self.casting: torch.dtype | None = None  # what autocast casts operands to, while it is on
        self.contracting = False  # whether a sum of products is being found, if of one product each
        self.outside = Outside()
        self.bits = Apart()

    def before(self, func: Any, op: Op, args: list[Any], asked: torch.dtype | None) -> Step:
        """Look at an operation and possibly replace arguments in the list. Raises LiftError where no rule fits."""
        raise LiftError(f"no rule around {op.name} for {func} {args} {asked}")

    def after(self, step: Step, args: list[Any], tensor: torch.Tensor, written: bool) -> torch.Tensor:  # noqa: FBT001
        """Tag or disturb one floating result, and return it in its shape. Raises LiftError where no rule fits."""
        raise LiftError(f"no rule after {step.name} for {args} {tensor.shape} {written}")

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation wide."""
        kwargs = kwargs or {}
        op = describe(func)
        if self.casting and (op.kind is Kind.CONTRACT or op.name.startswith("_scaled_dot_product")):
            with self:
                args = cast(args, self.casting)
        steps = self._steps(func, op, args, kwargs)
        if steps is not None:
            with self:
                result = steps()
            if result is not NotImplemented:
                return result
        self.widened = False
        for place in op.writes:
            target = kwargs.get("out") if place < 0 else args[place] if place < len(args) else None
            if isinstance(target, torch.Tensor) and not isinstance(target, Lifted) and target.is_floating_point():
                raise LiftError(f"{op.name} writes into a tensor that was made outside the reference")
            if target in self.bits:
                raise LiftError(f"{op.name} writes into a tensor whose bits are viewed as another dtype")
        given = op.name == "lift_fresh"  # what a reference makes of numbers is these numbers
        return self._run(func, op, [self._widen(arg, given=given) for arg in args], kwargs)

    def _steps(self, func: Any, op: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
        """Return what runs an operation as the simpler ones that it stands for; `None` where it is one of these."""
        if op.composite:
            return partial(func.decompose, *args, **kwargs)
        if op.name.startswith("_scaled_dot_product"):
            return partial(plain_attention, op.name, args, kwargs)
        if op.name == "_safe_softmax":
            return partial(safe_softmax, *args, **kwargs)
        if op.name == "native_dropout":
            return partial(dropped, args[0], *kept(func, *args))
        found = self._of_complex(func, op, args, kwargs)
        if found is None and is_several(op.name, args, kwargs):
            found = partial(take_apart, func, op.name, args, kwargs)
        return found

    def _of_complex(self, func: Any, op: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
        if not self.casting and is_transform(op.name, args, kwargs):  # which autocast leaves as they are
            return transform(op.name, args, self.wide)
        if op.name in MAKES or has_complex(args):
            if has_rule(op.name, kwargs):
                return partial(by_parts, func, op.name, args)
            if op.kind not in (Kind.MOVE, Kind.COMPARE):
                raise LiftError(f"{op.name} of complex numbers")
        return None

    def _run(self, func: Any, op: Op, values: list[Any], kwargs: dict[str, Any]) -> Any:
        asked = kwargs.get("dtype") if op.draws else self._retarget(op, values, kwargs)
        step = self.before(func, op, values, asked)
        if op.draws:
            with wide_default(self.default):
                result = draw(func, ["out" if place < 0 else place for place in op.writes], values, kwargs)
        elif op.name == "_to_copy" and isinstance(values[0], Lifted) and kwargs.get("dtype") is self.wide:
            result = func(values[0], **kwargs) if "device" in kwargs else torch.Tensor.clone(values[0])
        else:
            result = func(*(natively(values, self.wide) if op.bits else values), **kwargs)
        found = self._finish(op, step, values, result)
        if op.bits:
            self.bits.add(values[0], found)
        return found

    def _finish(self, op: Op, step: Step, values: list[Any], result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            if not isinstance(result, Lifted) and not result.is_floating_point():
                if result.is_complex() and op.kind is not Kind.MOVE:
                    raise LiftError(f"{op.name} of complex numbers")
                return result
            found = self.after(step, values, result, bool(op.writes))
            if op.name == "view_as_real" and isinstance(found, Lifted):
                found.clean = False  # complex numbers do not tell what they come from
            return found
        if isinstance(result, (list, tuple)):
            done = [self._finish(op, step, values, item) for item in result]
            return type(result)(done) if type(result) in (list, tuple) else type(result)(*done)
        return result

    def _widen(self, value: Any, *, given: bool = False) -> Any:
        """Widen a floating tensor that was made outside the reference (a table, a constant)."""
        if isinstance(value, torch.Tensor):
            if isinstance(value, Lifted) or not value.is_floating_point():
                return value
            self.widened = True
            wide = value.to(self.wide)
            if given or not computed(value):
                return tag(wide, value.dtype, origin=True, clean=True)
            return tag(self.rounded(wide), value.dtype, origin=True, clean=False)
        if type(value) in (list, tuple):
            return type(value)(self._widen(item, given=given) for item in value)
        return value

    def rounded(self, table: torch.Tensor) -> torch.Tensor:
        """Return a table that was computed in float32; a kernel may compute it otherwise."""
        return table

    def _retarget(self, op: Op, values: list[Any], kwargs: dict[str, Any]) -> torch.dtype | None:
        """Replace a requested floating dtype by the wide one and return the request."""
        asked = kwargs.get("dtype")
        if op.bits:
            return values[1] if values[1].is_floating_point else None
        if op.name in ("_softmax", "_log_softmax") and values[2] is True:
            values[2], asked = False, torch.float32
        for place, value in enumerate(values):
            if isinstance(value, torch.dtype) and value.is_floating_point:
                values[place], asked = self.wide, value
        if isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"].is_floating_point:
            kwargs["dtype"] = self.wide
        if isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"].is_complex:
            kwargs["dtype"], asked = self.wide.to_complex(), None
        return asked


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
    """Run the reference under a mode. Raises LiftError where that is impossible."""
    try:
        with wide_default(mode.wide), torch.no_grad(), einsums(mode), autocasts(mode), departures(mode.outside), mode:
            return call()
    except (LiftError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if _own(error):
            raise
        raise LiftError(told(error)) from error


def _own(error: Exception) -> bool:
    """Say whether an error is one of this package's code, where a looser bound would hide it.

    What torch raises for operations that cannot be run wide is of other kinds, and tensors that come from past all
    operations, as `x.data` does, lack attributes.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = bool(frames) and frames[-1].f_globals.get("__name__", "").startswith(f"{__package__}.")
    return inside and isinstance(error, _BUGS) and not isinstance(getattr(error, "obj", None), Lifted)
