"""The last resort for drawn integers: where a constraint does not hold, one side of it is made what the other asks for.

No rule knows such a constraint. A move changes one tensor, by what a comparison demands; it stands if as many
constraints hold afterwards, that one among them. So a few moves lead from a draw to one that is valid, or to none.
"""

from __future__ import annotations

import ast
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.equation import evaluated, size
from pytest_flashinfer.inputs.constraints.limits import limits
from pytest_flashinfer.inputs.constraints.lists import of_tensors
from pytest_flashinfer.inputs.constraints.trees import both_ways, constant, joined, names_of, positive, stripped
from pytest_flashinfer.inputs.dtypes import as_numbers, is_integer
from pytest_flashinfer.inputs.repair.moves import Moves
from pytest_flashinfer.inputs.repair.places import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_SEQUENCES: Final = frozenset({
    "indptr", "seq_lens", "last_page_len", "page_table", "page_ids", "batch_ids", "starts", "ends", "blocks", "sparse",
})  # fmt: skip
_DISTINCT: Final = frozenset({"slots", "page_ids", "order"})  # kinds of which no two are alike
_IN_ROWS: Final = frozenset({"expert_ids", "packed_experts", "sparse", "page_table", "order"})  # of a row
_SIDEWAYS: Final = 0.7  # how often a move is taken that mends one constraint and breaks another
_ATTEMPTS: Final = 3  # from the draw on
_TRIALS: Final = 16  # moves that are tried in each
_CHOICES: Final = 3  # of the moves that mend a part of a constraint
_LONGEST: Final = 64  # turns of a loop over which all has to hold
_ELEMENTS: Final = 1 << 15  # of a tensor; what is larger takes too long to look at again and again
_IN_LOOPS: Final = 1 << 12  # of one that is looped over


class _Unit:
    """Something that has to be true, in all its elements: a constraint, a part of it, or one turn of its loop."""

    def __init__(self, tree: ast.expr, bound: Mapping[str, Any]) -> None:
        self.tree = tree
        self.bound = bound

    def holds(self, env: Mapping[str, Any]) -> bool:
        """Whether it is true; what cannot be computed is not."""
        value = evaluated(self.tree, {**env, **self.bound})
        return value is not None and bool(torch.as_tensor(value).all())


class _Rule(_Unit):
    """A constraint, and the form of it that moves are found for."""

    def __init__(self, tree: ast.expr) -> None:
        super().__init__(tree, {})
        self.read = of_tensors(tree)


def mend(contract: Contract, plan: Plan, env: dict[str, Any], names: Collection[str], seed: int) -> set[str]:
    """Replace integer tensors `names` of `env` until all constraints hold; return which, none where that fails.

    `env` has all tensors, scalars and sizes; it stays as it is where not all constraints can be made to hold.
    """
    told = [rule for rule in contract.reading.data if rule.names & set(names)]
    read = frozenset().union(*(rule.names for rule in told))
    known = {name: _on_host(value) if name in read else value for name, value in env.items()}
    drawn = {name: env[name].numel() for name in names if isinstance(env.get(name), torch.Tensor)}
    looped = frozenset().union(*(rule.names for rule in told if _loops(rule.tree)))
    small = {name for name, count in drawn.items() if count <= (_IN_LOOPS if name in looped else _ELEMENTS)}
    free = _free(contract, plan) & small
    if any(_has_loops_in_loops(rule.tree) for rule in told):  # each look at one takes too long
        return set()
    rules = [_Rule(rule.tree) for rule in told]
    ranges = {name: _Range(contract, plan, name, known) for name in free}
    for attempt in range(_ATTEMPTS):
        found = _searched(rules, known, ranges, Random(f"{seed}/{attempt}"))  # noqa: S311 - not for secrets
        if found is not None:
            changed = {name for name in free if found[name] is not known[name]}
            env.update({name: found[name] for name in changed})
            return changed
    return set()


def _loops(tree: ast.expr) -> list[ast.GeneratorExp | ast.ListComp]:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.GeneratorExp, ast.ListComp))]


def _has_loops_in_loops(tree: ast.expr) -> bool:
    loops = _loops(tree)
    return len(loops) > 1 or any(len(loop.generators) > 1 for loop in loops)


def _on_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) and value.numel() <= _ELEMENTS else value


def _free(contract: Contract, plan: Plan) -> set[str]:
    """Return the integers that may change: of what tells sequences apart all have to be tied by constraints, or none.

    Lengths beside pointers, say, would fit these no longer.
    """
    free = {name for name in plan.roles if is_integer(contract.dtype(name)) or contract.dtype(name) == "bool"}
    of_sequences = {name for name in free if plan.roles[name].kind in _SEQUENCES}
    tied = set(sorted(of_sequences)[:1])
    for _ in of_sequences:
        tied |= {name for rule in contract.reading.data if rule.names & tied for name in rule.names & of_sequences}
    return free if tied == of_sequences else free - of_sequences


class _Range:
    """What a tensor may hold besides what constraints say: ids of what there is, none twice where no two were alike."""

    def __init__(self, contract: Contract, plan: Plan, name: str, env: Mapping[str, Any]) -> None:
        role, old = plan.roles[name], as_numbers(env[name])
        limit, ends = size(role.limit, env), (int(old.min()), int(old.max())) if old.numel() else (0, 0)
        self.low = min(-2 if role.unused or _is_marked(contract, name) else 0, ends[0])
        self.high = None if limit is None else max(ends[1], limit - 1)
        kinds = ((_DISTINCT, False), (_IN_ROWS, True))
        self.alone = [rows for named, rows in kinds if role.kind in named and _distinct(old, by_row=rows)]
        ordered = role.kind == "order" and old.numel() > 0
        self.every = old.sort(dim=-1).values if ordered else None
        is_mask = contract.dtype(name) == "bool" or (role.kind == "mask" and 0 <= ends[0] <= ends[1] <= 1)
        self.low, self.high = (0, 1) if is_mask else (self.low, self.high)
        told = (None, None) if is_mask or name in contract.reading.facts.others else limits(contract, name, env)
        most = [n for n in (told[1], self.high) if n is not None]
        self.span = Span(self.low if told[0] is None else told[0], min(most, default=None), bool(self.alone))

    def admits(self, value: torch.Tensor) -> bool:
        """Whether a tensor could be in place of the drawn one."""
        known = as_numbers(value)
        if not known.numel():
            return True
        if int(known.min()) < self.low or (self.high is not None and int(known.max()) > self.high):
            return False
        if self.every is not None and not torch.equal(known.sort(dim=-1).values, self.every):
            return False
        return all(_distinct(known, by_row=by_row) for by_row in self.alone)


def _distinct(value: torch.Tensor, *, by_row: bool) -> bool:
    """Say whether no two are alike but for marks, of all elements or in each row."""
    rows = value.reshape(-1, value.shape[-1]) if by_row and value.dim() else value.reshape(1, -1)
    ordered = rows.sort(dim=-1).values
    return not bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())


def _is_marked(contract: Contract, name: str) -> bool:
    """Say whether a constraint tells entries below 0 from others, rather than to forbid them."""
    for rule in (rule for rule in contract.reading.data if name in rule.names):
        root = stripped(rule.tree)
        demands = {id(stripped(part)) for part in joined(root, ast.And, ast.BitAnd) or [root]}
        for node in ast.walk(rule.tree):
            if isinstance(node, ast.Compare) and id(node) not in demands:
                for left, op, right in both_ways(node):
                    value = constant(right)
                    told = value == 0 if op in {ast.GtE, ast.Lt} else isinstance(value, int) and value < 0
                    if told and isinstance(left, ast.Name) and left.id == name:
                        return True
    return False


def _searched(
    rules: Sequence[_Rule], env: Mapping[str, Any], ranges: Mapping[str, _Range], rng: Random
) -> dict[str, Any] | None:
    """Return an environment in which all rules hold, or `None`; what has a range changes, and stays within it."""
    now, left, free = dict(env), _TRIALS, {name: each.span for name, each in ranges.items()}
    while left > 0:
        broken = [rule for rule in rules if not rule.holds(now)]
        if not broken:
            return now
        rng.shuffle(broken)
        trials = ((rule, {**now, **each}) for rule in broken for each in _changes(rule.read, now, free, rng))
        for rule, trial in islice(trials, left):
            left -= 1
            if not all(trial[name] is env[name] or ranges[name].admits(trial[name]) for name in free):
                continue
            still = sum(not each.holds(trial) for each in rules)
            better = still < len(broken) or (still == len(broken) and rng.random() < _SIDEWAYS)
            if better and rule.holds(trial):
                now = trial
                break
        else:
            return None
    return None


def _changes(
    tree: ast.expr, env: Mapping[str, Any], free: Mapping[str, Span], rng: Random
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield changes that may make a constraint true: of each of its units that does not hold, one after the other."""
    for choice in range(_CHOICES):
        now = dict(env)
        for unit in _units(tree, env, {}, free):
            if unit.holds(now):
                continue
            moves = Moves({**now, **unit.bound}, free, rng).of(unit.tree)
            good = list(islice((each for each in moves if unit.holds({**now, **each})), choice + 1))
            if not good:
                break
            now.update(good[-1])
        else:
            yield {name: now[name] for name in free if now[name] is not env[name]}


def _units(tree: ast.expr, env: Mapping[str, Any], bound: Mapping[str, Any], free: Collection[str]) -> Iterator[_Unit]:
    """Yield what has to hold for a tree to be true, one after the other; of alternatives, for the last to be."""
    node = _bare(positive(tree))
    parts = joined(node, ast.And, ast.BitAnd)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        parts = [part for part in node.values if names_of(part) & set(free)][-1:]
    if parts:
        for part in parts:
            yield from _units(part, env, bound, free)
    elif isinstance(node, (ast.GeneratorExp, ast.ListComp)) and len(node.generators) == 1:
        for binding in _turns(node.generators[0], {**env, **bound}):
            yield from _units(node.elt, env, {**bound, **binding}, free)
    else:
        yield _Unit(node, bound)


def _bare(tree: ast.expr) -> ast.expr:
    """Take off what asks whether all is true."""
    node = tree
    while isinstance(node, ast.Call):
        function = node.func
        word = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if word not in {"bool", "all"}:
            break
        operand = node.args[0] if node.args else getattr(function, "value", None)
        if operand is None or node.keywords or len(node.args) > 1:
            break
        node = operand
    return stripped(node) if not isinstance(node, (ast.GeneratorExp, ast.ListComp)) else node


def _turns(loop: ast.comprehension, env: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the names of a loop are bound to, turn by turn; of a long loop nothing."""
    values = evaluated(loop.iter, env)
    if values is None or len(values) > _LONGEST:
        return
    for value in values:
        names = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        each = list(value) if isinstance(loop.target, ast.Tuple) else [value]
        binding = {name.id: one for name, one in zip(names, each, strict=False) if isinstance(name, ast.Name)}
        if all(evaluated(test, {**env, **binding}) for test in loop.ifs):
            yield binding
