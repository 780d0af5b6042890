"""Conditions on lists and sets of numbers, as they are said of tensors: `sorted(x.tolist()) == list(range(n))`."""

from __future__ import annotations

import ast

from pytest_flashinfer.inputs.constraints.trees import called


def of_tensors(tree: ast.expr) -> ast.expr:
    """Return a condition with tensors in place of the lists and sets made of them; it may say less of their shapes."""
    return _Tensors().visit(ast.parse(ast.unparse(tree), mode="eval").body)  # type: ignore[no-any-return]


class _Tensors(ast.NodeTransformer):
    """Replace comparisons of lists and counts of sets."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            left, right = _tensor(node.left), _tensor(node.comparators[0])
            if left is not None and right is not None:
                return ast.Compare(left, [ast.Eq()], [right])
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        word, inner = called(node)
        if word == "count_nonzero" and inner is not None:
            return _method(inner, "sum")
        if word == "len" and isinstance(inner, ast.Call):
            which, operand = called(inner)
            if which in {"set", "unique"} and operand is not None:
                return _method(_method(_tensor(operand) or operand, "unique"), "numel")
        return node


def _tensor(node: ast.expr) -> ast.expr | None:
    """Return the tensor with the numbers of a list, `None` for anything else."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) <= 2:  # noqa: PLR2004
        return ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), "arange", ast.Load()), node.args, [])
    word, inner = called(node)
    if inner is None or word not in {"tolist", "list", "tuple", "sorted", "set"}:
        return None
    whole = _tensor(inner) or inner
    if word == "sorted":
        return ast.Attribute(_method(whole, "sort"), "values", ast.Load())
    is_range = isinstance(whole, ast.Call) and called(whole)[0] == "arange"
    return _method(whole, "unique") if word == "set" and not is_range else whole


def _method(of: ast.expr, name: str) -> ast.Call:
    return ast.Call(ast.Attribute(of, name, ast.Load()), [], [])
