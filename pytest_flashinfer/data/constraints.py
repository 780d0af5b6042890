"""Constraints between axes and tensors: `len_indptr == b + 1`, `total == indptr[-1].item()`.

A constraint is Python by its look only: its syntax tree is checked against a list of what is allowed and then walked,
within a budget. Nothing is compiled, no attribute is reached but those named in `evaluate.py`.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pytest_flashinfer.data.evaluate import is_true, run
from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.data.vocabulary import FUNCTIONS, MODULES, ConstraintError, UnsupportedError, check_tree

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_TEXT = 2000
_IN_WORDS = "a sentence in words cannot be checked"
_KEYWORDS = {"and", "or", "not", "in", "is", "if", "else", "for", "None", "True", "False", "lambda"}
_OPERATORS = re.compile(r"[-=<>+*/%&|^~\[\](){}]")
_FOREIGN = {  # operators of other languages and of mathematics
    "=<|≤": "<=", "=>|≥": ">=", "≠|<>": "!=", "&&": " and ", r"\|\|": " or ", "!(?!=)": " not ",
    "(?<![=!<>])=(?!=)": "==",
}  # fmt: skip
_TOKEN = re.compile(r"[A-Za-z][\w'-]*|\S")

__all__ = ["ConstraintError", "Expression", "UnsupportedError", "evaluate_integer", "parse"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed constraint, or a sentence in words (`kind` is `prose`, `tree` is `None`).

    `names` are the axes and tensors it mentions. `reads_tensors` says that it needs their values or shapes, so that
    it cannot be checked from the axes alone.
    """

    text: str
    kind: Literal["expression", "prose"]
    tree: ast.expr | None
    names: frozenset[str]
    reads_tensors: bool

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """Compute the value for axes (ints) and tensors (anything with the methods of one).

        Raises ConstraintError, with a reason in one line, where that is impossible.
        """
        if self.tree is None:
            raise ConstraintError(_IN_WORDS)
        return run(self.tree, env)

    def holds(self, env: Mapping[str, Any], tolerance: float = 0.0) -> bool:
        """Whether the constraint is true, or with floats equal that are within `tolerance`. Raises ConstraintError."""
        if self.tree is None:
            raise ConstraintError(_IN_WORDS)
        return is_true(self.tree, env, tolerance)

    def explain(self, env: Mapping[str, Any]) -> str:
        """Say in one line how the constraint fails: its text, and the values that it has."""
        values = "" if self.tree is None else told_values(self.tree, env)
        return f"{self.text!r} does not hold{f' for {values}' if values else ''}"


def told_values(tree: ast.expr, env: Mapping[str, Any]) -> str:
    """Tell the numbers that a condition names, and what the sides of a plain comparison come to: `n = 4, n + 1 = 5`."""
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    told = {name: str(env[name]) for name in names if isinstance(env.get(name), (int, float))}
    lacking = ""
    sides = [tree.left, *tree.comparators] if isinstance(tree, ast.Compare) and len(tree.ops) == 1 else []
    for side in sides:
        if not isinstance(side, ast.Constant):
            try:
                told.setdefault(ast.unparse(side), _short(run(side, env)))
            except ConstraintError as error:
                lacking = f"{ast.unparse(side)} {error}"
    return ": ".join(filter(None, (", ".join(f"{text} = {value}" for text, value in told.items()), lacking)))


def zero_divisor(constraint: Expression, constants: Mapping[str, int]) -> str:
    """Return a part of a constraint that divides by zero whatever the other sizes are; empty where there is none."""
    nodes = [] if constraint.tree is None else list(ast.walk(constraint.tree))
    if any(isinstance(node, (ast.BoolOp, ast.IfExp, ast.comprehension)) for node in nodes):
        return ""  # which may keep it from being computed
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)):
            with contextlib.suppress(ConstraintError):
                if _names(node.right) <= constants.keys() and run(node.right, constants) == 0:
                    return ast.unparse(node)
    return ""


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004


def parse(text: str, names: Collection[str] | None = None, *, tensors: Collection[str] = ()) -> Expression:
    """Parse a constraint.

    `names` are all names it may use (axes and tensors); `None` allows any. `tensors` are those of them that are
    tensors; without them a name counts as a tensor where it is used like one.
    Raises ConstraintError where the text is neither an expression nor a sentence, UnsupportedError (one of these)
    where it is an expression that this module does not compute.
    """
    return _parse(text, None if names is None else frozenset(names), frozenset(tensors))


@lru_cache(maxsize=1024)  # every workload line is checked against the same constraints
def _parse(text: str, names: frozenset[str] | None, tensors: frozenset[str]) -> Expression:
    if len(text) > MAX_TEXT:
        raise ConstraintError(f"longer than {MAX_TEXT} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if _is_sentence(text):
            return Expression(text, "prose", None, frozenset(), reads_tensors=False)
        raise ConstraintError(f"does not parse: {getattr(error, 'msg', None) or error}{_meant(text)}") from error
    used = _names(tree)
    unknown = sorted(used - names) if names is not None else []
    if unknown and not _OPERATORS.search(text):
        return Expression(text, "prose", None, frozenset(), reads_tensors=False)
    check_tree(tree)
    if unknown:
        hint = did_you_mean(unknown[0], sorted(names or ())) or "; it is neither an axis nor an input"
        raise ConstraintError(f"unknown name {unknown[0]!r}{hint}")
    return Expression(text, "expression", tree, frozenset(used), _reads(tree, used, tensors))


def _meant(text: str) -> str:
    """Give a text as it may have been meant, as the end of a message, where other languages' operators stand in it."""
    mended = text
    for foreign, own in _FOREIGN.items():
        mended = re.sub(foreign, own, mended)
    mended = " ".join(mended.split())
    try:
        ast.parse(mended, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return f"; did you mean {mended!r}?"


def _names(tree: ast.expr) -> set[str]:
    local = {
        node.id
        for generator in ast.walk(tree)
        if isinstance(generator, ast.comprehension)
        for node in ast.walk(generator.target)
        if isinstance(node, ast.Name)
    }
    called = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    } & FUNCTIONS.keys()
    modules = {
        node.value.id for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    } & MODULES
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - local - called - modules


def _reads(tree: ast.expr, used: set[str], tensors: Collection[str]) -> bool:
    if used & set(tensors):
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in MODULES):
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in used:
            return True
        if isinstance(node, ast.Compare) and any(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops):
            return True
    return False


def _is_sentence(text: str) -> bool:
    """Whether words follow on words, as they do in a sentence and never in an expression."""
    tokens = _TOKEN.findall(text)
    words = [len(token) > 1 and token[0].isalpha() and token not in _KEYWORDS for token in tokens]
    pairs = sum(1 for first, second in itertools.pairwise(words) if first and second)
    return pairs > 1 or (sum(words) > 1 and not _OPERATORS.search(text))


def evaluate_integer(text: str, env: Mapping[str, int] | None = None) -> int:
    """Compute a size from arithmetic over axes, such as `4096 / 32` or `hidden // heads`.

    Raises ConstraintError where it is not arithmetic, or not a whole number.
    """
    expression = parse(text, list(env or {}))
    if expression.kind == "prose" or expression.reads_tensors:
        raise ConstraintError(f"{text!r} is not arithmetic over axes")
    value = expression.evaluate(env or {})
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConstraintError(f"{text!r} is {_short(value)}, not a whole number")
    return value
