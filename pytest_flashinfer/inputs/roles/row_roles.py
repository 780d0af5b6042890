"""Integers that say something of each row of what is worked on: how much of it counts, its place, what it selects."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.data.source import BrokenSource, parse_python
from pytest_flashinfer.inputs.constraints.equation import invert, size
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.dtypes import is_integer
from pytest_flashinfer.inputs.roles.subject import NAMES, Role, Subject, index_limit, pool_of

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.contract import Contract

_PACKED_NAME: Final = r"^q_?(weight|zero)s?|^w_?q|packed|(^|_)codes?$|nibbles?"
_PACKED: Final = r"\bpack(s|ed)\b|\bcodes?\b|nibble|\bbits?\b|\d-bit\b|quanti[sz]ed|\bu?int[2-8]\b"
_POINTS: Final = (
    r"\b(ind(ex|ices)|ids?|rows? (of|in|for)|offsets?|positions?|slots?|pointers?|number of|counts?|lengths?|which)\b"
)
_ORDER: Final = r"(^|_)(order|perm|permutation|argsort)$|^inv(erse)?_?perm"
_OF_ALL: Final = r"\bpermutation of\b[^.;,]*(\w \* \w|\ball\b|\bevery\b|expanded|flat)"
PER_ROW: Final = r"\b(per|within|in|of|for) (a|each|every) row\b|\b(per|each) row\b"
_VALID: Final = (
    r"\bper-\w+ valid \w+|\bvalid \w+( \w+)? (per|for each|of each|in each) (expert|group|row|token|query|problem)"
)
_BLOCK_SIZE: Final = re.compile(r"blocks?\b[^.]{0,20}\((\d+) tokens|(\d+) tokens (each|per block|a block)")
_MANY: Final = 5040 << 10  # elements that most numbers of groups divide
_BLOCK_NAME: Final = re.compile(r"^_?(BLK|BLOCK|BLOCK_SIZE)(_(K|KV|N))?$")


def order(s: Subject) -> Role | None:
    """Recognise a permutation: of all rows, or within each row of a matrix.

    By its description, or by its name unless a range says that its values are of something else: orders of polynomials.
    """
    told = s.told(r"\bpermutation of\b")
    if s.unused or _outnumbers(s) or not (told or (s.named(_ORDER) and _counts_elements(s))):
        return None
    return Role("order", group="plain" if s.told(PER_ROW) or not s.told(_OF_ALL) else "all")


def _counts_elements(s: Subject) -> bool:
    """Whether the range that is stated, if one is, is made of the tensor's own sizes."""
    derived, known = s.contract.derived, s.contract.constants
    own = frozenset[str]().union(*map(names_of, s.dims))
    width = size(s.dims[-1], known) if s.dims else None
    for tree in s.upper:
        names = names_of(tree).union(*(derived[name].names for name in names_of(tree) & derived.keys()))
        if not names & (own - known.keys()) and (width is None or size(tree, known) != width - 1):
            return False
    return True


def _outnumbers(s: Subject) -> bool:
    """Whether there are fewer numbers in the range that is stated than elements: some come again, as ids of groups."""
    own = s.dims[0] if len(s.dims) == 1 else None
    if not isinstance(own, ast.Name) or own.id in s.contract.constants:
        return False
    env: dict[str, int] = {**s.contract.constants, own.id: _MANY}
    for name in {n for tree in s.upper for n in names_of(tree)} - env.keys():
        rules = (rule for rule in s.contract.equations if name in rule.names and rule.names <= env.keys() | {name})
        found = next((n for n in (invert(rule, name, env) for rule in rules) if isinstance(n, int)), None)
        env.update({} if found is None else {name: found})
    return any(most is not None and most < _MANY - 1 for most in (size(tree, env) for tree in s.upper))


def amounts(s: Subject) -> Role | None:
    """Recognise how much of each row is valid, of the other size of a tensor that has such rows."""
    named = s.named(r"^(num|n)_?valid|valid_(counts?|rows|pages|blocks)$") or s.told(_VALID)
    if len(s.dims) != 1 or not named or s.named("len") or s.told("sequence"):
        return None
    limit = _other_size(s)
    return Role("amounts", limit=limit) if limit is not None else None


def _other_size(s: Subject) -> ast.expr | None:
    own, specs = s.axis(0), s.contract.definition.inputs
    for name, dims in s.contract.dims.items():
        if not dims or is_integer(specs[name].dtype) or own not in [ast.unparse(tree) for tree in dims]:
            continue
        for tree in dims:
            if isinstance(tree, ast.Name) and tree.id != own and tree.id not in s.contract.constants:
                return tree
    return None


def ends(s: Subject) -> Role | None:
    """Recognise where the window of each row ends, beside a tensor of where it starts."""
    return Role("ends", axis=_width(s)) if _beside(s, start_of(s.name)) else None


def start_of(name: str) -> str:
    """Return what a tensor of starts is called, beside one of ends."""
    return re.sub(r"(^|_)end(s?)$", r"\1start\2", name)


def _width(s: Subject) -> ast.expr | None:
    """Return the size that windows lie in: what varies of each row, else what ids would point into, else a constant."""
    specs, known = s.contract.definition.inputs, s.contract.constants.keys()
    rows = [trees[1:] for name, trees in s.contract.dims.items()
            if trees and not is_integer(specs[name].dtype) and ast.unparse(trees[0]) == s.axis(0)]  # fmt: skip
    inner = [tree for trees in rows for tree in trees]
    varying = next((tree for tree in inner if not names_of(tree) <= known), None)
    return varying or index_limit(s) or next(iter(inner), None)


def starts(s: Subject) -> Role | None:
    """Recognise where the window of each row starts, beside a tensor of where it ends."""
    return Role("starts") if _beside(s, re.sub(r"(^|_)start(s?)$", r"\1end\2", s.name)) else None


def _beside(s: Subject, other: str) -> bool:
    """Whether there is another tensor of this name that has as many integers, one for each row."""
    mine, others = [ast.unparse(tree) for tree in s.dims], s.contract.dims.get(other) or ()
    return other != s.name and len(mine) == 1 and mine == [ast.unparse(tree) for tree in others]


def steps(s: Subject) -> Role | None:
    """Recognise a step of each row, below the size of a tensor's axis that counts them."""
    if not s.named(r"(^|_)steps?$"):
        return None
    inner = (tree for dims in s.contract.dims.values() for tree in (dims or ())[1:])
    limit = next((tree for tree in inner if re.search(r"len(gth)?$|steps?$", ast.unparse(tree))), None)
    return Role("positions", limit=limit, unused=s.unused) if limit is not None else None


def blocks(s: Subject) -> Role | None:
    """Recognise the blocks of its own sequence that each query attends to, where sequences lie one after the other."""
    named = s.named(r"block_(ids?|ind|idx)|q2k") or s.told(r"\bblock[ -](ids?|ind)|selected (\w+[ -])?blocks")
    if len(s.dims) < 2 or not named or pool_of(s) is not None:  # noqa: PLR2004 - rows of several
        return None
    ragged = any(NAMES["pointer"].search(name) for name in s.contract.dims)
    return Role("blocks", unused=(-1,)) if ragged and block_size(s.contract) is not None else None


def block_size(contract: Contract) -> int | None:
    """Return how many tokens a block of keys has: by an axis, a description, or a constant of the reference."""
    axis = next((n for name, n in contract.constants.items() if NAMES["page"].search(name)), None)
    if axis is not None:
        return axis
    definition = contract.definition
    told = [axis.description for axis in definition.axes.values()]
    told += [spec.description for spec in definition.inputs.values()]
    text = " ".join(filter(None, (definition.description, *told))).lower()
    found = _BLOCK_SIZE.search(text)
    if found:
        return int(found[1] or found[2])
    return _block_constant(contract)


def _block_constant(contract: Contract) -> int | None:
    definition = contract.definition
    tree = parse_python(definition.reference or "")
    nodes = () if isinstance(tree, BrokenSource) else ast.walk(tree)
    assigned = (node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
    for node in assigned:
        target = node.targets[0]
        if isinstance(target, ast.Name) and _BLOCK_NAME.match(target.id) and isinstance(node.value, ast.Constant):
            return node.value.value if isinstance(node.value.value, int) else None
    return None


def bits(s: Subject) -> Role | None:
    """Recognise a mask that packs several elements into each integer."""
    words = s.named(r"mask|valid|active|flags?$") and s.use.bits and not s.use.limits
    told = s.told(r"\bbit[ -]?(map|mask)|\bmask words?\b")
    return Role("bits") if words or told or s.named(r"bit_?(mask|map)|packed\w*mask|mask\w*packed") else None


def parts(s: Subject) -> Role | None:
    """Recognise several numbers in each integer: the reference shifts or masks it, and points at nothing with it."""
    return Role("bytes") if s.use.known and s.use.bits and not s.use.limits else None


def packed(s: Subject) -> Role | None:
    """Recognise several numbers in each integer by words, or a byte that is a number itself: all values are possible.

    Not where the reference looks something up by the values, or where they are told to point at something.
    """
    if s.use.limits or s.told(_POINTS):
        return None
    small = s.spec.dtype in {"int8", "uint8"}
    return Role("bytes") if small or s.named(_PACKED_NAME) or s.told(_PACKED) else None
