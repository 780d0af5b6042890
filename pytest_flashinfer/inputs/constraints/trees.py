"""Reading the syntax trees of constraints: names, literals, and the comparisons that have to hold."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.vocabulary import MODULES
from pytest_flashinfer.inputs.constraints.loops import unrolled

if TYPE_CHECKING:
    from collections.abc import Iterator

    Term = tuple[bool, ast.expr]  # whether it is added, and what

FLIP: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq,
}  # fmt: skip
OPPOSITE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
_METHODS: Final = {"eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE}


def constant(node: ast.expr) -> Any:
    """Return the value of a literal, a negative number included; `None` for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand)
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None


def names_of(tree: ast.AST) -> frozenset[str]:
    """Return the names that a tree mentions, without those of functions, of modules (`math.sqrt(n)`) and of loops."""
    nodes = list(ast.walk(tree))
    loops = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    own = {each.id for target in loops for each in ast.walk(target) if isinstance(each, ast.Name)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    names = [node for node in nodes if isinstance(node, ast.Name) and id(node) not in called]
    return frozenset(name.id for name in names if not (id(name) in owners and name.id in MODULES)) - own


def as_read(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes in the order in which they end: a value comes before the statement that names it."""

    def end(node: ast.AST) -> tuple[int, int, bool]:
        line, column = getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
        return line, column, isinstance(node, ast.stmt | ast.NamedExpr)

    return sorted(ast.walk(tree), key=end)


def comparisons(tree: ast.expr) -> Iterator[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    """Yield every comparison in the tree, both ways round, its sides without what does not change a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from both_ways(node)


def demanded(tree: ast.expr) -> Iterator[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    """Yield the comparisons that have to hold, all of them and for every element, as `comparisons` does.

    A tensor or a part of it that stands alone has to be true, and after `~` or in `not x.any()` false.
    """
    node = as_comparison(stripped(positive(tree)))
    if isinstance(node, ast.Compare):
        yield from both_ways(node)
    elif isinstance(node, ast.Name | ast.Subscript):
        yield node, ast.Eq, ast.Constant(value=True)
    elif (false := inverted(node)) is not None and isinstance(false, ast.Name | ast.Subscript):
        yield false, ast.Eq, ast.Constant(value=False)
    for part in joined(node, ast.And, ast.BitAnd):
        yield from demanded(part)


def positive(tree: ast.expr) -> ast.expr:
    """Return `(x >= 0).all()` for `not (x < 0).any()`, and any other tree as it is."""
    node = stripped(tree)
    if not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return tree
    inner = stripped(node.operand)
    word, operand = called(inner) if isinstance(inner, ast.Call) else ("", None)
    if word != "any" or operand is None or isinstance(operand, ast.GeneratorExp | ast.ListComp):
        return tree
    return ast.Call(ast.Attribute(_negated(operand), "all", ast.Load()), [], [])


def _negated(tree: ast.expr) -> ast.expr:
    """Return what is true of the elements of which a tree is not."""
    node = as_comparison(stripped(tree))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPPOSITE:
        return ast.Compare(node.left, [OPPOSITE[type(node.ops[0])]()], node.comparators)
    if (inner := inverted(node)) is not None:
        return inner
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        other = ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd()
        return ast.BinOp(_negated(node.left), other, _negated(node.right))
    return ast.UnaryOp(ast.Invert(), tree)


def inverted(node: ast.expr) -> ast.expr | None:
    """Return `x` of `~x`."""
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert) else None


def both_ways(node: ast.Compare) -> Iterator[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    """Yield the comparisons of a chain, both ways round, as `comparisons` does."""
    sides = [stripped(side) for side in (node.left, *node.comparators)]
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        yield left, type(op), right
        if type(op) in FLIP:
            yield right, FLIP[type(op)], left


def stripped(node: ast.expr) -> ast.expr:
    """Take off what does not change the value: `int(...)`, `.item()`, `.all()`, `.long()`, `.float()`, `torch.all`.

    `all` of a loop is what has to hold of the tensors that it goes through.
    """
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in {"int", "bool", "float", "all"} and len(node.args) == 1:
            node = unrolled(node.args[0])
        elif isinstance(node.func, ast.Attribute) and node.func.attr in {"item", "all", "long", "int", "float", "cpu"}:
            module = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
            if module and len(node.args) != 1:
                break
            node = node.args[0] if module else node.func.value
        else:
            break
    return node


def terms_of(node: ast.expr, *, added: bool) -> Iterator[Term]:
    """Yield what a sum adds up, each with whether it is added or subtracted."""
    node = stripped(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from terms_of(node.left, added=added)
        yield from terms_of(node.right, added=added is isinstance(node.op, ast.Add))
    else:
        yield added, node


def joined(node: ast.expr, word: type[ast.boolop], sign: type[ast.operator]) -> list[ast.expr]:
    """Return what `and` and `&` (or `or` and `|`) join, the latter element by element; nothing for another node."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, word):
        return node.values
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, sign)):
        return []
    return [part for side in (node.left, node.right) for part in joined(side, word, sign) or [side]]


def called(node: ast.Call) -> tuple[str, ast.expr | None]:
    """Return the function and its only operand: of `max(x)`, `x.max()` and `torch.max(x)`."""
    function, operands = node.func, list(node.args)
    if isinstance(function, ast.Attribute) and not _of_module(node):
        operands.insert(0, function.value)
    word = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return word, operands[0] if len(operands) == 1 and not node.keywords else None


def as_comparison(node: ast.expr) -> ast.expr:
    """Return `a < b` for `a.lt(b)`, and `a == b` for `torch.equal(a, b)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _METHODS and len(node.args) == 1 and not _of_module(node):
            return ast.Compare(node.func.value, [_METHODS[node.func.attr]()], [node.args[0]])
        if node.func.attr == "equal" and len(node.args) == 2 and _of_module(node):  # noqa: PLR2004
            return ast.Compare(node.args[0], [ast.Eq()], [node.args[1]])
    return node


def sums_last(node: ast.Call, axes: int) -> bool:
    """Say whether a sum is over everything, or over the last axis of rows."""
    own = node.args[1:] if _of_module(node) else node.args
    told = [*own, *(word.value for word in node.keywords if word.arg in {"dim", "axis"})]
    return not told or (axes == 2 and constant(told[0]) in {-1, 1})  # noqa: PLR2004


def owner(node: ast.Call) -> ast.expr | None:
    """Return what a function with further arguments is of: `x` in `x.sum(-1)`, and in `torch.bincount(x, None, n)`."""
    if isinstance(node.func, ast.Attribute) and not _of_module(node):
        return node.func.value
    return node.args[0] if node.args else None


def _of_module(node: ast.Call) -> bool:
    """Say whether a function of torch is called, `torch.sum(x)`, and none of a tensor."""
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(of, ast.Name) and of.id in MODULES
