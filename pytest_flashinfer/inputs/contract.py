"""A definition, read for the purpose of making inputs: which sizes are free and which follow from others."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.inputs.constraints.equation import yields
from pytest_flashinfer.inputs.constraints.facts import Reading, Rule, as_rule, dimension, read
from pytest_flashinfer.inputs.constraints.hints import Bound
from pytest_flashinfer.inputs.constraints.promises import promises
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.dtypes import TEXTS, guessed_dtype, is_float
from pytest_flashinfer.inputs.roles.descriptions import arithmetic, ranges
from pytest_flashinfer.inputs.roles.optional import defaults, droppable, scratch
from pytest_flashinfer.inputs.roles.stated_values import without_zero

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import Definition

_PLUS_ONE: Final = re.compile(r"(.+)_plus_(?:1|one)(?:_\w+)?$")
_QUOTIENT: Final = re.compile(r"(.+)_div_(\d+)$")
_ONE: Final = frozenset({"one", "single", "singleton", "scalar"})
_POINTERS: Final = re.compile(r"indptr|cu_?seq_?lens|offsets|_ptrs?$", re.IGNORECASE)
_LENGTH: Final = re.compile(r"^(len|num|n|size)_|_(len|size|length)$", re.IGNORECASE)
# What an array of pointers has one entry more than, by convention, where no constraint says so.
_BATCH: Final = (
    "batch_size", "num_seqs", "num_sequences", "num_segments", "batch", "num_requests", "num_reqs", "num_groups",
    "num_experts", "bs", "B", "G",
)  # fmt: skip


class Contract:
    """What is known of a definition's sizes.

    `equations` and `predicates` are the constraints over axes (integer scalars count as axes where a constraint
    names them, `floats` never do), `conventions` the equations that hold unless something contradicts them. `derived`
    maps a size to the equation that yields it, `free` are the sizes left to choose.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        specs = {**definition.outputs, **definition.inputs}
        scalars = {name: spec for name, spec in definition.inputs.items() if spec.shape is None}
        self.floats = frozenset(n for n, spec in scalars.items() if is_float(spec.dtype) and n not in definition.axes)
        shapes = {name: spec.shape for name, spec in specs.items()}
        self.reading: Reading = read(definition.constraints, shapes, self.floats)
        self.constants = definition.const_axes
        self.told_ranges = {n: b for n, b in ranges(definition).items() if n not in self.reading.facts.bounds}
        self.reading.facts.bounds.update(self.told_ranges)
        for name in without_zero(definition):
            bound = self.reading.facts.bounds.get(name, Bound())
            self.reading.facts.bounds[name] = Bound((*bound.lower, ast.Constant(1)), bound.upper)

    @cached_property
    def dims(self) -> dict[str, tuple[ast.expr, ...] | None]:
        """The shape of every input, as one tree per axis; `None` for a Python scalar."""
        return {name: _trees(spec.shape) for name, spec in self.definition.inputs.items()}

    @cached_property
    def output_dims(self) -> dict[str, tuple[ast.expr, ...] | None]:
        """The shape of every output, as one tree per axis."""
        return {name: _trees(spec.shape) for name, spec in self.definition.outputs.items()}

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """All sizes that are not constant, those first that the definition declares; shapes and rules name others."""
        declared = [name for name, axis in self.definition.axes.items() if name not in self.constants]
        shown = [n for dims in (self.dims, self.output_dims) for trees in dims.values() for t in trees or () for n in
                 sorted(names_of(t))]  # fmt: skip
        ruled = [name for rule in self.reading.axis for name in sorted(rule.names)]
        told = [name for rule in self._told for name in sorted(rule.names)]
        known = dict.fromkeys((*declared, *shown, *ruled, *told))
        none = self.constants.keys() | self.texts | self.floats
        return tuple(name for name in known if name not in none)

    @cached_property
    def texts(self) -> frozenset[str]:
        """The inputs that are strings, which no rule over sizes can settle."""
        inputs = self.definition.inputs
        return frozenset(name for name, spec in inputs.items() if spec.shape is None and spec.dtype in TEXTS)

    @cached_property
    def axis_names(self) -> tuple[str, ...]:
        """The sizes that are axes: all but the scalars, and other names, that only constraints use."""
        shown = {n for trees in self.output_dims.values() for tree in trees or () for n in names_of(tree)}
        axes = self.definition.axes.keys() | self.input_axes | shown
        return tuple(name for name in self.sizes if name in axes)

    def dtype(self, name: str) -> str:
        """Return the dtype of an input; what dumps call `unknown` is guessed: indices are int32, the rest as others."""
        dtype = self.definition.inputs[name].dtype
        return dtype if dtype != "unknown" else guessed_dtype(self.definition.inputs, name)

    @cached_property
    def input_axes(self) -> frozenset[str]:
        """The axes that some input's shape names."""
        return frozenset(n for trees in self.dims.values() for tree in trees or () for n in names_of(tree))

    @cached_property
    def droppable(self) -> frozenset[str]:
        """The inputs that may be left out."""
        return droppable(self.definition)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The values that the reference's parameters have by default, as far as they are literals."""
        return defaults(self.definition)

    @cached_property
    def scratch(self) -> frozenset[str]:
        """The optional inputs that the reference writes into though no output says so: calls do without them."""
        return scratch(self.definition) & self.droppable

    @cached_property
    def equations(self) -> tuple[Rule, ...]:
        """The constraints of the form `a == b`, and the axes given by an expression."""
        own = tuple(
            as_rule(
                f"{name} == {axis.expression}", ast.Compare(ast.Name(name), [ast.Eq()], [dimension(axis.expression)])
            )
            for name, axis in self.definition.axes.items()
            if axis.kind == "expr" and axis.expression
        )
        return own + tuple(rule for rule in self.reading.axis if _solvable(rule))

    @cached_property
    def predicates(self) -> tuple[Rule, ...]:
        """The other constraints over axes."""
        return tuple(rule for rule in self.reading.axis if not _solvable(rule))

    @cached_property
    def wishes(self) -> tuple[Rule, ...]:
        """Conditions that no constraint states but that names promise: a doubled size can be halved."""
        return tuple(as_rule(text, dimension(text)) for text in promises(self))

    @cached_property
    def conventions(self) -> tuple[Rule, ...]:
        """`X_plus_1 == X + 1`, and an array of pointers has one entry more than there are sequences."""
        tied = frozenset().union(*(rule.names for rule in self.equations))
        found = list(self._told)
        done = {ast.unparse(rule.left) for rule in self._told if rule.left is not None}
        for name in self.axis_names:
            if name in done:
                continue
            base, part = _PLUS_ONE.match(name), _QUOTIENT.match(name)
            if name in _ONE:
                found.append(_equal(name, "1"))
            elif part and (part[1] in self.sizes or part[1] in self.constants) and name not in tied:
                found.append(_equal(name, f"({part[1]} + {int(part[2]) - 1}) // {part[2]}"))
            elif base and base[1] in self.sizes:
                found.append(_equal(name, f"{base[1]} + 1"))
            elif name not in tied and _POINTERS.search(name) and _LENGTH.search(name):
                batch = next((n for n in _BATCH if n in self.sizes), None)
                found += [_equal(name, f"{batch} + 1")] if batch else []
        return tuple(found)

    @cached_property
    def _told(self) -> tuple[Rule, ...]:
        """What descriptions say that axes are, of those that no equation speaks of."""
        tied = frozenset().union(*(rule.names for rule in self.equations))
        told = arithmetic(self.definition).items()
        return tuple(_equal(name, ast.unparse(tree)) for name, tree in told if name not in tied)

    @cached_property
    def derived(self) -> Mapping[str, Rule]:
        """Each size that follows from others, with the equation it follows from; no circles."""
        chosen: dict[str, Rule] = {}
        rules = (*self.equations, *self.conventions)
        for bare in (True, False):  # a size that stands alone on a side follows first; others by inversion
            for rule in rules:
                if any(rule is used for used in chosen.values()):
                    continue
                for name in _candidates(rule, bare=bare):
                    if name in self.sizes and name not in chosen and name not in self._behind(rule, name, chosen):
                        chosen[name] = rule
                        break
        return chosen

    def _behind(self, rule: Rule, name: str, chosen: Mapping[str, Rule]) -> set[str]:
        """All sizes that the other names of `rule` follow from."""
        seen: set[str] = set()
        todo = list(rule.names - {name})
        while todo:
            current = todo.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in chosen:
                todo += chosen[current].names - {current}
        return seen

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The sizes that nothing decides but the caller's choice."""
        return tuple(name for name in self.sizes if name not in self.derived and not self._output_only(name))

    def _output_only(self, name: str) -> bool:
        """Whether only outputs use the axis, so that the result binds it."""
        conventions = (r for r in self.conventions if isinstance(r.left, ast.Name) and r.left.id in self.input_axes)
        used = self.input_axes.union(*(rule.names for rule in (*self.equations, *self.predicates, *conventions)))
        return name not in used and name not in self.definition.inputs


def _trees(shape: tuple[str, ...] | None) -> tuple[ast.expr, ...] | None:
    return None if shape is None else tuple(dimension(text) for text in shape)


def _solvable(rule: Rule) -> bool:
    """Whether a rule is an equation that yields a size; `a % b == 0` and `n & (n - 1) == 0` only say which may be."""
    remainder = any(isinstance(node, ast.Mod) for node in ast.walk(rule.tree))
    return not remainder and any(_candidates(rule, bare=bare) for bare in (True, False))


def _equal(name: str, text: str) -> Rule:
    return as_rule(f"{name} == {text}", ast.Compare(ast.Name(name), [ast.Eq()], [dimension(text)]))


def _candidates(rule: Rule, *, bare: bool) -> list[str]:
    """Return the names an equation could yield: those alone on one side, or any that it yields, the last one first."""
    sides = [(rule.left, rule.right), (rule.right, rule.left)]
    if bare:
        return [a.id for a, b in sides if isinstance(a, ast.Name) and b is not None and a.id not in names_of(b)]
    return sorted((n for n in rule.names if yields(rule, n)), key=ast.unparse(rule.tree).rfind, reverse=True)


_CACHE: Final[dict[int, Contract]] = {}
_CACHED: Final = 64


def contract_of(definition: Definition) -> Contract:
    """Read a definition, or return what was read before of the same object.

    Raises ConstraintError where an entry of a shape is not an expression.
    """
    known = _CACHE.get(id(definition))
    if known is not None and known.definition is definition:
        return known
    if len(_CACHE) >= _CACHED:
        _CACHE.pop(next(iter(_CACHE)))
    contract = _CACHE[id(definition)] = Contract(definition)  # holds the definition, so its id stays its own
    return contract


__all__ = ["ConstraintError", "Contract", "contract_of"]
