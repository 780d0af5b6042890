"""The comparison that dumped checks call, for where the library that has it is absent."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_BOUNDS = {torch.float64: 1e-7, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
_USUAL = {"rtol": 1e-2, "atol": 1e-2, "max_mismatch_pct": 0.0, "min_cos_sim": None}


def default_check(  # noqa: PLR0913 - the signature is theirs
    reference_outputs: Any,
    actual_outputs: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    max_mismatch_pct: float | None = None,
    min_cos_sim: float | None = 0.999,
) -> bool:
    """Compare tensors, or tuples and dicts of them: `|actual - reference| <= atol + rtol * |reference|`.

    Without `rtol` or `atol` the dtype of the actual output decides. At most `max_mismatch_pct` percent of the elements
    may miss it; `min_cos_sim` bounds the cosine similarity. Integers and booleans have to be equal, but for that
    percentage. Shapes and infinity have to agree everywhere, and NaN is equal to nothing.
    """
    for reference, actual in _pairs(reference_outputs, actual_outputs):
        if reference is None or actual is None:
            if reference is not actual:
                return False
            continue
        one, two = torch.as_tensor(reference).detach(), torch.as_tensor(actual).detach()
        if one.shape != two.shape:
            return False
        percent = max_mismatch_pct or 0.0
        if not one.is_floating_point() and not two.is_floating_point():
            if not _few(int((one != two).sum()), percent, one.numel()):
                return False
            continue
        usual = _tolerance(two.dtype if two.is_floating_point() else one.dtype)
        one, two = one.to(torch.float64).flatten(), two.to(torch.float64).flatten()
        if not _close(one, two, usual if rtol is None else rtol, usual if atol is None else atol, percent):
            return False
        if min_cos_sim is not None and _cosine(one, two) < min_cos_sim:
            return False
    return True


def _tolerance(dtype: torch.dtype) -> float:
    """Return the bound, relative and absolute, that checks of dumps mean where they name none."""
    if dtype in _BOUNDS:
        return _BOUNDS[dtype]
    return 0.1 if dtype.itemsize == 1 else 1e-2


def _few(missed: int, percent: float, elements: int) -> bool:
    return 100.0 * missed <= percent * elements


def _pairs(reference: Any, actual: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(reference, dict) and isinstance(actual, dict):
        yield from ((reference.get(name), actual.get(name)) for name in {**reference, **actual})
    elif isinstance(reference, (tuple, list)) and isinstance(actual, (tuple, list)):
        longest = max(len(reference), len(actual))
        sides = ([*side, *[None] * (longest - len(side))] for side in (reference, actual))
        yield from zip(*sides, strict=True)
    else:
        yield reference, actual


def _close(one: torch.Tensor, two: torch.Tensor, rtol: float, atol: float, percent: float) -> bool:
    finite = one.isfinite()
    if not torch.equal(finite, two.isfinite()) or not torch.equal(one[~finite], two[~finite]):
        return False  # NaN, which is not equal to itself, is here too
    missed = int(((one - two).abs()[finite] > atol + rtol * one.abs()[finite]).sum())
    return _few(missed, percent, one.numel())


def _cosine(one: torch.Tensor, two: torch.Tensor) -> float:
    one, two = one.nan_to_num(0, 0, 0), two.nan_to_num(0, 0, 0)  # infinities agree, and have no direction
    lengths = float(one.norm() * two.norm())
    return float(one @ two) / lengths if lengths else float(bool(one.norm() == two.norm()))


def settings(check: Callable[..., Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments for a check: what the user stated, else its own defaults, else the usual ones."""
    try:
        parameters = inspect.signature(check).parameters
    except (TypeError, ValueError):
        return dict(stated)
    swallows = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    given = {name: value for name, value in stated.items() if name in parameters or swallows}
    for name, value in _USUAL.items():
        if name in parameters and name not in given and parameters[name].default is inspect.Parameter.empty:
            given[name] = value
    return given


@contextlib.contextmanager
def provided() -> Iterator[None]:
    """Have `flashinfer.trace.default_check` importable where flashinfer is not installed, for as long as it lasts."""
    if "flashinfer" in sys.modules or importlib.util.find_spec("flashinfer") is not None:
        yield
        return
    package, trace = ModuleType("flashinfer"), ModuleType("flashinfer.trace")
    package.__path__ = []
    trace.default_check = default_check  # type: ignore[attr-defined]
    package.trace = trace  # type: ignore[attr-defined]
    sys.modules.update({"flashinfer": package, "flashinfer.trace": trace})
    try:
        yield
    finally:
        del sys.modules["flashinfer"], sys.modules["flashinfer.trace"]
