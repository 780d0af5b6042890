"""Sizes of axes: solved from what is given, completed from a wish, and the shapes that follow from them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.constraints import ConstraintError, told_values
from pytest_flashinfer.inputs.constraints.equation import evaluated, invert, whole
from pytest_flashinfer.inputs.contract import Contract, contract_of
from pytest_flashinfer.inputs.dtypes import is_packed, storage_shape
from pytest_flashinfer.inputs.errors import AxisConflict, InputsError, Unsatisfiable
from pytest_flashinfer.inputs.scalars.choice import assumed
from pytest_flashinfer.inputs.sizes.undecided import undecided

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.constraints.facts import Rule

_ROUNDS: Final = 24
_NEAR: Final = 48  # how far the neighbours of a size are tried one by one


def solve_axes(definition: Definition, given: Mapping[str, int]) -> dict[str, int]:
    """Return the size of every axis, from the sizes that a workload gives.

    An axis that only outputs use, and that nothing decides, is left out: the result binds it.
    Raises AxisConflict where what is given contradicts a constraint, Unsatisfiable where a size cannot be found.
    """
    contract = contract_of(definition)
    env = solve(contract, given)
    try:
        verify(contract, env)
    except AxisConflict as conflict:
        raise AxisConflict(conflict.constraint, conflict.given, _advice(contract, given)) from None
    for name in contract.axis_names:
        if name not in env and name in contract.input_axes:
            raise undecided(contract, name)
    return {name: env[name] for name in (*contract.constants, *contract.axis_names) if name in env}


def _advice(contract: Contract, given: Mapping[str, int]) -> str:
    """Say what to correct where given sizes contradict a constraint: if there are none that do not, the constraints."""
    try:
        complete(contract, given)
    except Unsatisfiable:
        return "no sizes were found that satisfy all constraints: correct these, or the workload's sizes"
    return "correct the workload"


def solve(contract: Contract, given: Mapping[str, int]) -> dict[str, Any]:
    """Return all sizes that follow from `given`, integer scalars included, without checking them.

    Raises AxisConflict where a constant axis is given another value.
    """
    env: dict[str, Any] = dict(contract.constants)
    for name, value in given.items():
        if env.get(name, value) != value:
            raise AxisConflict(f"{name} == {env[name]}", f"{name} = {value}")
        env[name] = value
    progress = True
    while progress:
        progress = any(_step(rule, env) for rule in contract.equations) or any(
            _step(rule, env) for rule in contract.conventions
        )
    return env


def _step(rule: Rule, env: dict[str, Any]) -> bool:
    """Find the one unknown of an equation; say whether something new is known."""
    unknown = [name for name in rule.names if name not in env]
    if len(unknown) != 1:
        return False
    value = invert(rule, unknown[0], env)
    if value is None:
        return False
    env[unknown[0]] = value
    return True


def verify(contract: Contract, env: Mapping[str, Any]) -> None:
    """Check every constraint over axes whose sizes are all known. Raises AxisConflict naming it and the sizes."""
    for name in contract.sizes:
        if isinstance(env.get(name), int) and env[name] < 0 and name in contract.axis_names:
            raise AxisConflict(f"{name} >= 0", f"{name} = {env[name]}")
    for rule in (*contract.equations, *contract.predicates):
        if rule.names <= env.keys() and not _holds(rule, env):
            raise AxisConflict(rule.text, told_values(rule.tree, env) or "any sizes")


def _holds(rule: Rule, env: Mapping[str, Any]) -> bool:
    try:
        return rule.holds(env)
    except ConstraintError:
        return False


def _is_computed(rule: Rule, env: Mapping[str, Any]) -> bool:
    try:
        rule.holds(env)
    except ConstraintError:
        return False
    return True


def complete(contract: Contract, wish: Mapping[str, int], pinned: Collection[str] = ()) -> dict[str, Any]:
    """Return sizes that satisfy all constraints over axes, as near to `wish` as a small search finds.

    Free sizes that `wish` does not name start at 1. Those in `pinned` change last. Raises Unsatisfiable.
    """
    choice = {name: wish.get(name, 1) for name in contract.free}
    bad: list[Rule] = []
    for _ in range(_ROUNDS):
        env = _expand(contract, choice)
        bad = _violated(contract, env)
        if not bad:
            return env
        better = _repair(contract, choice, bad, pinned)
        if better is None:
            break
        choice = better
    rule = bad[0]
    env = _expand(contract, choice)
    missing = [name for name in contract.sizes if name in rule.names - env.keys()]
    if missing:
        raise Unsatisfiable(rule.text, f"no size of {' and '.join(missing)} was found for it")
    values = told_values(rule.tree, env)
    advice = "" if _is_computed(rule, env) else "correct the constraint"
    raise Unsatisfiable(rule.text, f"the nearest sizes found have {values}" if values else "it is never true", advice)


def _expand(contract: Contract, choice: Mapping[str, int]) -> dict[str, Any]:
    sizes = {name: value for name, value in choice.items() if name not in contract.constants}
    return solve(contract, {**assumed(contract), **sizes})


def _violated(contract: Contract, env: Mapping[str, Any]) -> list[Rule]:
    rules = (*contract.equations, *contract.predicates, *contract.wishes)
    bad = [r for r in rules if not (r.names & contract.texts or (r.names <= env.keys() and _holds(r, env)))]
    return bad + [rule for name, rule in contract.derived.items() if isinstance(env.get(name), int) and env[name] < 0]


def _repair(
    contract: Contract, choice: Mapping[str, int], bad: list[Rule], pinned: Collection[str]
) -> dict[str, int] | None:
    """Change one free size, else several, so that the first violated rule holds and as few as possible are violated."""
    movable = _support(contract, bad[0])
    best: tuple[tuple[int, bool, bool, int], dict[str, int]] | None = None
    for name in movable:
        for value in _neighbours(choice[name], bad[0], _expand(contract, choice)):
            trial = {**choice, name: value}
            left = _violated(contract, _expand(contract, trial))
            if bad[0] in left or len(left) > len(bad):
                continue
            score = (len(left), name in pinned, value < choice[name], abs(value - choice[name]))
            if best is None or score < best[0]:
                best = (score, trial)
            if not left:
                break
    return _together(contract, choice, bad, movable) if best is None else best[1]


def _together(
    contract: Contract, choice: Mapping[str, int], bad: list[Rule], movable: list[str]
) -> dict[str, int] | None:
    """Raise or lower all sizes of the first violated rule to one value, as `min(n, m) >= 2` asks where both are 1."""
    if len(movable) < 2:  # noqa: PLR2004 - one alone was tried
        return None
    for ends in (max, min):
        start = min(choice[name] for name in movable) if ends is max else max(choice[name] for name in movable)
        for value in _neighbours(start, bad[0], _expand(contract, choice)):
            trial = {**choice, **{name: ends(choice[name], value) for name in movable}}
            left = _violated(contract, _expand(contract, trial))
            if bad[0] not in left and len(left) <= len(bad):
                return trial
    return None


def _support(contract: Contract, rule: Rule) -> list[str]:
    """Return the free sizes that a rule depends on."""
    found: dict[str, None] = {}
    todo, seen = sorted(rule.names), set()
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name in contract.derived:
            todo += sorted(contract.derived[name].names)
        if name in contract.free:
            found[name] = None
    return list(found)


def _neighbours(value: int, rule: Rule, env: Mapping[str, Any]) -> Iterator[int]:
    """Yield sizes to try in place of `value`: multiples that the rule asks for, larger ones, then smaller ones."""
    for node in ast.walk(rule.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Name):
            step = _number(node.right, env)
            yield from [(value // step + 1) * step] if step > 1 else []
    named = {n.value for n in ast.walk(rule.tree) if isinstance(n, ast.Constant) and type(n.value) is int}
    steps = sorted({2, 4, 8, 16, 32, 64, 128, 256} | {n for n in named if n > 1})
    numbers = {n + side for n in named for side in (-1, 0, 1)}  # `n > 100000` begins beside its number
    up = {value + i for i in range(1, _NEAR)} | numbers
    up |= {-(-value // step) * step for step in steps} | {(value // step + 1) * step for step in steps}
    up |= {1 << n for n in range(17)}
    yield from sorted(n for n in up if n > value)
    yield from sorted((n for n in ({*range(max(0, value - _NEAR), value)} | numbers) if 0 <= n < value), reverse=True)


def _number(tree: ast.expr, env: Mapping[str, Any]) -> int:
    return whole(evaluated(tree, env)) or 0


def shape_of(trees: tuple[ast.expr, ...], env: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return a shape for known sizes; `None` stands for an axis whose size is not known.

    Raises InputsError where an entry does not give a whole number >= 0.
    """
    shape: list[int | None] = []
    for tree in trees:
        value = evaluated(tree, env)
        size = whole(value)
        if value is not None and (size is None or size < 0):
            raise InputsError(f"shape entry `{ast.unparse(tree)}` is {value}, not a whole number of elements")
        shape.append(size)
    return tuple(shape)


def output_shapes(definition: Definition, axes: Mapping[str, int]) -> dict[str, tuple[int | None, ...] | None]:
    """Return the shape in which each output is stored (packed 4-bit types at half their last axis).

    `None` for a Python scalar; a `None` inside a shape stands for an axis that only the result binds.
    """
    contract = contract_of(definition)
    shapes: dict[str, tuple[int | None, ...] | None] = {}
    for name, trees in contract.output_dims.items():
        dtype = definition.outputs[name].dtype
        shape = None if trees is None else shape_of(trees, axes)
        if shape and is_packed(dtype):
            last = shape[-1]
            shape = (*shape[:-1], None if last is None else storage_shape((last,), dtype)[0])
        shapes[name] = shape
    return shapes
