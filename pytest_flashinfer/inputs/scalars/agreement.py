"""Integer scalars that constraints tie to one another, as `0 <= start < end <= vocab`: they are chosen together."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.inputs.dtypes import is_integer
from pytest_flashinfer.inputs.scalars.choice import chosen
from pytest_flashinfer.inputs.seeds import derived, way_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.constraints.facts import Rule
    from pytest_flashinfer.inputs.contract import Contract

_STEPS: Final = 40  # changes after which nothing is found
_ANEW: Final = 8  # of them from one beginning
_TRIALS: Final = 24  # of one scalar, and of all, from which one is chosen
_BETWEEN: Final = 6  # numbers that are tried beside those next to sizes


def agreed(contract: Contract, env: Mapping[str, Any], seed: int) -> dict[str, int]:
    """Return values for the scalars that `env` lacks and that a constraint names together, such that all of it holds.

    For half of the seeds they are the usual ones as far as that goes. Empty where nothing is tied, or nothing is found.
    """
    specs = contract.definition.inputs
    free = {n for n, dims in contract.dims.items() if not dims and is_integer(specs[n].dtype) and env.get(n) is None}
    free -= {*contract.droppable, *contract.axis_names, *contract.derived}
    rules = [r for r in (*contract.reading.axis, *contract.reading.scalar) if r.names <= free | env.keys()]
    tied = sorted({name for rule in rules if len(rule.names & free) > 1 for name in rule.names & free})
    if not tied:
        return {}
    rng = Random(derived(seed, "tied scalars"))  # noqa: S311 - not for secrets
    found = {name: chosen(contract, name, env) for name in tied}
    if way_of(seed, "tied scalars", 2) or not all(isinstance(value, int) for value in found.values()):
        found = {name: rng.choice(_numbers(env, rng)) for name in tied}
    return _settled(rules, env, found, rng)


def _settled(rules: list[Rule], env: Mapping[str, Any], found: dict[str, Any], rng: Random) -> dict[str, int]:
    """Change the scalars of a constraint that does not hold, again and again, to what breaks the fewest."""

    def broken(values: Mapping[str, Any]) -> list[Rule]:
        return [rule for rule in rules if rule.fails({**env, **values})]

    for step in range(_STEPS):
        wrong = broken(found)
        if not wrong:
            return found
        if step % _ANEW == _ANEW - 1:  # no way leads on from where it has got to
            found = {name: rng.choice(_numbers(env, rng)) for name in found}
        trials = _trials(rng.choice(wrong), _numbers({**env, **found}, rng), found, rng)
        found = min(trials, key=lambda values: len(broken(values)))
    return {}


def _trials(rule: Rule, numbers: list[int], found: Mapping[str, Any], rng: Random) -> list[dict[str, Any]]:
    """Return values with one scalar of a constraint changed, or all: to numbers that rise as it names them."""
    names = list(dict.fromkeys(name for name in re.findall(r"\w+", rule.text) if name in found))
    one = [{**found, rng.choice(names): rng.choice(numbers)} for _ in range(_TRIALS)]
    rising = (sorted(rng.choices(numbers, k=len(names))) for _ in range(_TRIALS))
    return [*one, *({**found, **dict(zip(names, values, strict=True))} for values in rising)]


def _numbers(env: Mapping[str, Any], rng: Random) -> list[int]:
    """Return whole numbers from 0 on: sizes and scalars, those next to them, and some between."""
    known = {0, 1, *(value for value in env.values() if type(value) is int and value >= 0)}
    near = {value + step for value in known for step in (-1, 0, 1)} - {-1}
    return sorted(near | {rng.randint(0, max(near)) for _ in range(_BETWEEN)})
