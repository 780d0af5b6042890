"""Which settings count for which outputs: nothing that is stated is to have no effect and say nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_flashinfer.judge.tolerance import NAMES, Tolerance, stated

if TYPE_CHECKING:
    from collections.abc import Collection

_NUMBERS: Final = ("rtol", "atol", "required_matched_ratio", "max_error_cap")
_BITS: Final = ("required_matched_ratio",)


def is_integer(dtype: str) -> bool:
    """Say whether an output of this dtype holds integers, 4-bit ones as well."""
    return dtype.startswith(("int", "uint"))


def is_real(dtype: str) -> bool:
    """Say whether an output of this dtype is compared as real numbers; packed fp4 is compared by code."""
    return dtype.startswith(("float", "bfloat")) and not dtype.startswith("float4")


def in_force(tolerance: Tolerance, name: str, dtype: str) -> Tolerance:
    """Return the settings that count for an output.

    Those for all outputs are meant for real numbers: an id that is off by one is another id, and one in a hundred that
    is off no better. Where integers are numbers, and may be off, it is said of that output by name.
    """
    own = tolerance.for_output(name)
    if is_real(dtype) and own.comparison != "exact":
        return own
    named, count = tolerance.outputs.get(name, Tolerance()), _counting(dtype, own.comparison)
    kept = {setting: value for setting, value in stated(named).items() if setting in count}
    return Tolerance(**{**kept, "comparison": own.comparison})


def without_effect(named: Tolerance, dtype: str) -> list[str]:
    """Return those settings, stated for an output by name, that do nothing for its dtype."""
    count = {*_counting(dtype, named.comparison), "comparison"}
    only = set(given(named)) == {"comparison"}  # as values, but how far off may they be?
    if named.comparison in (("topk", "sampling") if is_real(dtype) else ("values",) if only else ()):
        count -= {"comparison"}
    return [setting for setting in given(named) if setting not in count - {"operands"}]


def given(own: Tolerance) -> list[str]:
    """Return the settings that somebody gave: not the half of a pair that is zero because only the other one was."""
    halves = {"rtol": own.atol, "atol": own.rtol}
    return [name for name, value in stated(own).items() if value or not halves.get(name)]


def why_not(dtype: str, comparison: str | None, settings: Collection[str]) -> str:
    """Say how an output is compared for which these settings have no effect."""
    if set(settings) == {"operands"}:
        return "what a kernel may hold inside is said of all outputs: operands=... without a name"
    if comparison in ("topk", "sampling") and not is_real(dtype):
        return f"comparison={comparison} judges ids"
    if comparison == "exact":
        return "comparison=exact asks for equal bits"
    if is_integer(dtype):
        return f"{dtype} is compared as integers, for which {', '.join(_NUMBERS)} count"
    return f"{dtype} is not compared as ids" if is_real(dtype) else f"{dtype} is compared exactly"


def _counting(dtype: str, comparison: str | None) -> tuple[str, ...]:
    if is_real(dtype):
        return _BITS if comparison == "exact" else NAMES
    if comparison in ("topk", "sampling"):
        return ()
    return _NUMBERS if is_integer(dtype) and comparison != "exact" else _BITS
