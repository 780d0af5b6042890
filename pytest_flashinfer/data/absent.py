"""Names that a source uses and does not hold: found in its symbol tables, without running any of it."""

from __future__ import annotations

import ast
import builtins
import symtable
from typing import TYPE_CHECKING

from pytest_flashinfer.data.source import BrokenSource, parse_python

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN = frozenset({"torch", "math"})  # every reference has these, imported or not
_ALWAYS = frozenset({*dir(builtins), "__file__", "__name__"})


class _Bare(ast.NodeTransformer):
    """Takes annotations off: they are not evaluated, so a name in one is not missed."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(arg=node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant("")
        return self.generic_visit(node)


def missing_names(source: str, entry: str) -> tuple[str, ...]:
    """Return the names that the module itself, or a function reached from `entry`, uses and nothing defines.

    `torch` and `math` count as defined. Source that does not parse misses nothing.
    """
    tree = parse_python(source)
    if isinstance(tree, BrokenSource) or any(_star(node) for node in ast.walk(tree)):
        return ()
    bare = _Bare().visit(ast.parse(source))  # a tree of its own: the other one is shared
    try:
        table = symtable.symtable(ast.unparse(ast.fix_missing_locations(bare)), "reference", "exec")
    except (SyntaxError, RecursionError):
        return ()
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    bound |= {child.get_name() for child in table.get_children()} | _declared_global(table)
    inner = {child.get_name(): child for child in table.get_children()}
    used = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    todo, seen = [entry, *used], set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _globals(inner[name]) if name in inner else []
    return tuple(sorted(seen - bound - _ALWAYS - GIVEN - {entry}))


def _star(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the global names that a function or class uses, in the scopes inside it as well."""
    for symbol in table.get_symbols():
        if symbol.is_global() and symbol.is_referenced():
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def _declared_global(table: symtable.SymbolTable) -> set[str]:
    """Return the names that some function assigns as global."""
    found = {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
    return found.union(*(_declared_global(child) for child in table.get_children()))
