"""Of which tensor, and of what of it, a side of a comparison speaks: `x.abs().max()`, `indptr[1:] - indptr[:-1]`."""

from __future__ import annotations

import ast

from pytest_flashinfer.inputs.constraints.trees import called, constant, stripped


def subject_of(node: ast.expr) -> tuple[str, str] | None:
    """Say of which tensor, and of what of it, an expression speaks.

    That is `all` values, their `max`, `min` or `sum`, the `first` or `last`, all but these (`tail`, `head`); of
    pointers the `steps`, and the `longest` or `shortest` of them.
    """
    if isinstance(node, ast.Name):
        return node.id, "all"
    if isinstance(node, ast.Call):
        return _of_call(node)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _of_subscript(node.value.id, node.slice)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        tail, head = subject_of(node.left), subject_of(node.right)
        if tail and head and tail[0] == head[0] and (tail[1], head[1]) == ("tail", "head"):
            return tail[0], "steps"
    return None


def magnitude_of(node: ast.expr) -> str:
    """Return the tensor of which `node` is the magnitudes, or the largest of them: `x.abs()`, `torch.abs(x).max()`."""
    which, inner = called(node) if isinstance(node, ast.Call) else ("", None)
    inner = stripped(inner) if inner is not None else None
    if which in {"max", "amax"} and isinstance(inner, ast.Call):
        return magnitude_of(inner)
    return inner.id if which == "abs" and isinstance(inner, ast.Name) else ""


def _of_call(node: ast.Call) -> tuple[str, str] | None:
    which, inner = called(node)
    subject = subject_of(stripped(inner)) if inner is not None else None
    if subject is None:
        return None
    name, what = subject
    if which == "diff" and what == "all":
        return name, "steps"
    if which == "sum" and what == "all":
        return name, "sum"
    if which in {"max", "min", "amax", "amin"}:
        which = which.removeprefix("a")
        return name, {"max": "longest", "min": "shortest"}[which] if what == "steps" else which
    return None


def _of_subscript(name: str, index: ast.expr) -> tuple[str, str] | None:
    if isinstance(index, ast.Slice):
        lower = constant(index.lower) if index.lower is not None else None
        upper = constant(index.upper) if index.upper is not None else None
        kinds = {(1, None): "tail", (None, -1): "head", (None, None): "all"}
        kind = kinds.get((lower, upper))
        return (name, kind) if kind else None
    kind = {-1: "last", 0: "first"}.get(constant(index))
    return (name, kind) if kind else None
