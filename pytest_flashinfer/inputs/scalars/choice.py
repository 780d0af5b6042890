"""Values of scalar inputs that no constraint contradicts: the usual one, and others that show whether it is read."""

from __future__ import annotations

import ast
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.equation import evaluated, whole
from pytest_flashinfer.inputs.constraints.limits import just_inside
from pytest_flashinfer.inputs.constraints.trees import comparisons
from pytest_flashinfer.inputs.dtypes import NOT_TENSORS, is_float, torch_dtype
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.roles.descriptions import modes
from pytest_flashinfer.inputs.scalars.special import special
from pytest_flashinfer.inputs.scalars.usual_values import by_name, fits_shapes, usual

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_flashinfer.inputs.constraints.facts import Rule
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.recipe import Scalar

_PLAIN: Final = (1.0, 0.5, 2.0, 0.1, 0.0, -1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)  # where nothing else fits


def chosen(contract: Contract, name: str, env: Mapping[str, Any]) -> Scalar | None:
    """Return the value that a scalar input takes: the usual one, or the next that no constraint contradicts."""
    value = usual(contract, name, env)
    if value is None or isinstance(value, str) or env.get(name) is not None:
        return value
    values = (value, *by_name(contract, name, value, env), *_at_bounds(contract, name, env), *_PLAIN)
    return next(_fitting(contract, name, env, values), value)


def drawn(contract: Contract, name: str, env: Mapping[str, Any]) -> Scalar | None:
    """Return the value of a scalar in a case; `None` where it is left out.

    Raises InputsError for a text that has to be there and that nothing tells.
    """
    if name in contract.droppable and env.get(name) is None:
        return None
    value, spec = chosen(contract, name, env), contract.definition.inputs[name]
    if value is None and spec.dtype == "string" and not spec.optional:
        advice = f"list workloads that state it, or a constraint such as `{name} in ('a', 'b')`"
        raise InputsError(f"input `{name}` is a string, and nothing says which: {advice}")
    return value


def others(
    contract: Contract, name: str, env: Mapping[str, Any], listed: Iterable[Scalar] = ()
) -> tuple[Scalar, ...]:  # fmt: skip
    """Return values that a scalar input may have besides the chosen one; none where a size or an axis decides.

    They are those that the contract treats otherwise, those that constraints list, those of workloads, those that go
    with its name, and those at the bounds that constraints set, and just inside them.
    """
    if name in contract.axis_names or name in contract.derived or name in contract.constants:
        return ()
    first = chosen(contract, name, env)
    apart = () if fits_shapes(contract, name) else (*special(contract, name, first), *_one_of(contract, name, env))
    values = [*apart, *listed, *by_name(contract, name, usual(contract, name, env), env)]
    spec = contract.definition.inputs[name]
    if not (fits_shapes(contract, name) or spec.dtype == "bool" or modes(spec.description or "")):
        values += _at_bounds(contract, name, env)
    return tuple(v for v in _fitting(contract, name, env, values) if v != first)


def wished(contract: Contract, wishes: Mapping[str, Scalar], env: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return those of the scalars that a recipe names that fit the sizes, one another and some value of the others."""
    kept: dict[str, Scalar] = {}
    for name, value in wishes.items():
        for fit in _fitting(contract, name, {**env, **kept}, (value,)):
            if _agrees(contract, {**env, **kept, name: fit}):
                kept[name] = fit
    return kept


def _agrees(contract: Contract, env: Mapping[str, Any]) -> bool:
    """Whether no constraint is violated once the scalars that `env` lacks are chosen."""
    known = dict(env)
    for name, dims in contract.dims.items():
        if not dims and name not in known:
            known[name] = chosen(contract, name, known)
    return not any(rule.fails(known) for rule in (*contract.reading.scalar, *contract.reading.axis))


@lru_cache(maxsize=64)
def assumed(contract: Contract) -> dict[str, Any]:
    """Return the float scalars that sizes follow from (`capacity == int(factor * rows)`) at their usual value."""
    named = {name for rule in contract.reading.axis for name in rule.names & contract.floats}
    return {name: chosen(contract, name, contract.constants) for name in sorted(named)}


def _rules(contract: Contract, name: str) -> list[Rule]:
    reading = contract.reading
    return [rule for rule in (*reading.scalar, *reading.axis, *reading.data) if name in rule.names]


def _fitting(
    contract: Contract, name: str, env: Mapping[str, Any], values: Iterable[Scalar]
) -> Iterator[Scalar]:  # fmt: skip
    """Yield those values, in the input's dtype and once each, that no constraint contradicts as far as `env` tells."""
    rules = [rule for rule in _rules(contract, name) if rule.names <= env.keys() | {name}]
    dtype, seen = contract.definition.inputs[name].dtype, set()
    for value in values:
        cast = _as(value, dtype)
        if cast is None or cast in seen:
            continue
        seen.add(cast)
        known = {**env, name: _stored(contract, name, cast)}
        if not any(rule.fails(known) for rule in rules):
            yield cast


def _as(value: Scalar, dtype: str) -> Scalar | None:
    """Return a value as the dtype has it; `None` where it is none of the dtype's."""
    if isinstance(value, str):
        return value if dtype in NOT_TENSORS else None
    if isinstance(value, bool) or dtype == "bool":
        return value
    return float(value) if is_float(dtype) else whole(value)


def _stored(contract: Contract, name: str, value: Scalar) -> Scalar:
    """Return the value that a 0-d tensor would hold: its constraints speak of that."""
    if isinstance(value, float) and contract.dims[name] is not None:
        return float(torch.tensor(value, dtype=torch_dtype(contract.dtype(name))))
    return value


def _at_bounds(contract: Contract, name: str, env: Mapping[str, Any]) -> Iterator[float]:
    """Yield what constraints compare the scalar with, and values just inside: the middle first, then low and high."""
    lower, upper = _compared(contract, name, env, ast.Gt, ast.GtE), _compared(contract, name, env, ast.Lt, ast.LtE)
    yield from _one_of(contract, name, env)
    span = min(upper) - max(lower) if lower and upper else 1.0
    if lower and upper:
        yield max(lower) + span / 2
    is_whole = not is_float(contract.definition.inputs[name].dtype)
    for bounds, sign in ((lower, 1), (upper, -1)):
        for bound in bounds:
            yield bound
            yield bound + sign if is_whole else just_inside(contract.dtype(name), bound, sign, span)


def _one_of(contract: Contract, name: str, env: Mapping[str, Any]) -> list[float]:
    """Return the values that constraints list for a scalar: `mode in (0, 1)`."""
    return _compared(contract, name, env, ast.Eq, ast.In)


def _compared(contract: Contract, name: str, env: Mapping[str, Any], *operators: type[ast.cmpop]) -> list[float]:
    """Return the numbers with which constraints compare a scalar by one of these operators."""
    found = [each for rule in _rules(contract, name) for each in comparisons(rule.tree)]
    mine = (right for left, op, right in found if op in operators and isinstance(left, ast.Name) and left.id == name)
    return [number for right in mine for number in _numbers(right, env)]


def _numbers(tree: ast.expr, env: Mapping[str, Any]) -> list[float]:
    """Return the number that a tree gives, or those of a list."""
    value = evaluated(tree, env)
    values = value if isinstance(value, list | tuple | set) else [value]
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    return [each for each in numbers if math.isfinite(each)]
