"""What descriptions say in numbers: an axis is `batch_size + 1`, values are in [1, page_size], a switch has modes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.inputs.constraints.facts import dimension
from pytest_flashinfer.inputs.constraints.hints import Bound
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.dtypes import is_integer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.model import Definition

_CHAIN: Final = re.compile(r"\w+(?:\s*(?:\*|//|\+)\s*\w+|\s+-\s+\w+)+")
_BEFORE: Final = re.compile(r"(^|[(,:]|[^<>!=]=|\b(as|is|equals))\s*$")  # not `at most n * m`, `can be 2 * n`
_NOUNS: Final = "blocks|columns|elements|entries|heads|items|pages|rows|slots|tokens|values"
_THINGS: Final = rf"((?!(at|if|or|unless|upper|when)\b)([a-z]+\s+)?({_NOUNS})|in all|in total|\(.*\))"
_AFTER: Final = re.compile(rf"(\s+{_THINGS})*\)?(\s+{_THINGS})*\s*([.,;:]|$)")  # not `n + 1 if packed`
_RANGE: Final = re.compile(r"\bin \[\s*(-?\d+)\s*,\s*(-?\w+)\s*([\])])")  # not `in [batch, seq] order`
_MODE: Final = re.compile(r"(?<![\w.-])(\d+)\s*=\s*[A-Za-z]")
_EXPERT_BELOW: Final = re.compile(
    r"(\bleast significant|\blow(er)?\b|bits?\s*\[15:0\])[^=:;,.]*[=:]?\s*(the\s+)?expert[ _]?(ind|id)", re.IGNORECASE
)
_DIFFER: Final = re.compile(
    r"(?<!\.)\b(distinct|unique)\b|[,;(]\s*different\b|\b(all|pairwise|mutually) (be )?different\b"
    r"|\bat most once\b|\bno two\b"
    r"|\b(no|never|without)\b[^.;,]{0,40}\b(repeat\w*|repetitions?|twice|duplicat\w*)"
)
_MAY_BE_ALIKE: Final = re.compile(  # also what is different elsewhere: `index into the unique rows`
    r"\b(not|never|n't|number of|which|of|into|among|in|to) (\w+ )?(the )?(all |necessarily )*"
    r"(distinct|unique|different)\b"
    r"|\b(may|can|could|might) (\w+ )?"
    r"(repeat|coincide|be (equal|alike|the same|duplicate\w*|repeated)|(occur|come|appear) (twice|more|several))"
    r"|\b(duplicat\w*|repeat\w*|repetitions?) (\w+ )?(is |are )?(allowed|possible|permitted|accumulate|add up|sum)"
)
_ZERO: Final = (
    r"(?:\b(?:also|even|possibly|including|(?:may|can|could) be) (?:0|zero)\b"
    r"|\b0 (?:is|are) (?:allowed|valid|possible))"
)

_PAGE_SIZE: Final = re.compile(
    r"^(the )?page[ -]size\b|^(number of )?(tokens|slots|rows|entries|positions) (per|of|in) (an? |each |one )?"
    r"(page|block)\b"
)


def is_page_size(definition: Definition, axis: str) -> bool:
    """Say whether a description begins with the words that an axis counts the slots of a page."""
    own = definition.axes.get(axis)
    return own is not None and _PAGE_SIZE.search((own.description or "").lower()) is not None


def may_be_zero(definition: Definition) -> frozenset[str]:
    """Return the axes that may be 0 as descriptions say: `K may be anything, also 0`."""
    text = definition.description or ""
    return frozenset(
        name
        for name, axis in definition.axes.items()
        if re.search(rf"\b{re.escape(name)}\b[^.;]{{0,40}}?{_ZERO}", text) or re.search(_ZERO, axis.description or "")
    )


def arithmetic(definition: Definition) -> dict[str, ast.expr]:
    """Return what descriptions say that axes are: `batch_size + 1`, `q.shape[0] = batch_size * q_len`.

    They are made of axes and, for axes of inputs, integer scalars; a name that is neither counts where two axes are
    made of it, for it is the same unknown.
    """
    inputs = definition.inputs
    shown = {entry for spec in inputs.values() for entry in spec.shape or ()}
    scalars = {name for name, spec in inputs.items() if spec.shape is None and is_integer(spec.dtype)}
    known = definition.axes.keys()
    found = dict(_of_axes(definition))
    unknown = Counter(name for tree in found.values() for name in names_of(tree) - known - scalars if "_" in name)
    shared = {name for name, count in unknown.items() if count > 1}
    return {
        name: tree
        for name, tree in found.items()
        if names_of(tree) and name not in names_of(tree)
        and names_of(tree) <= (known | shared | scalars if name in shown else known | shared)
    }  # fmt: skip


def _of_axes(definition: Definition) -> Iterator[tuple[str, ast.expr]]:
    text = definition.description or ""
    for match in _CHAIN.finditer(text):
        owner = re.search(r"(\w+)\s*=\s*$", text[: match.start()])
        if owner and owner[1] in definition.axes and (tree := _tree(match, text)) is not None:
            yield owner[1], tree
    for name, axis in definition.axes.items():
        text = axis.description or ""
        trees = (_tree(match, text) for match in _CHAIN.finditer(text))
        tree = next((tree for tree in trees if tree is not None), None)
        if tree is not None:
            yield name, tree


def _tree(match: re.Match[str], text: str) -> ast.expr | None:
    """Return the arithmetic, if it stands for itself: not for a part of more, nor for a bound."""
    if not _BEFORE.search(text[: match.start()]) or not _AFTER.match(text[match.end() :]):
        return None
    try:
        return dimension(match[0])
    except ConstraintError:
        return None


def ranges(definition: Definition) -> dict[str, Bound]:
    """Return the bounds that descriptions of integer tensors state: `in [1, page_size]`, `in [0, num_rows)`."""
    found: dict[str, Bound] = {}
    for name, spec in definition.inputs.items():
        match = _RANGE.search(spec.description or "")
        if match is None or spec.shape is None or not is_integer(spec.dtype):
            continue
        try:
            lower, upper = dimension(match[1]), dimension(match[2])
        except ConstraintError:
            continue
        end = upper if match[3] == "]" else ast.BinOp(upper, ast.Sub(), ast.Constant(1))
        found[name] = Bound((lower,), (end,))
    return found


def modes(description: str) -> tuple[int, ...]:
    """Return the values that a description gives names: `3=SwiGLU, 6=ReLU2`; none where it names one only."""
    values = tuple(int(value) for value in _MODE.findall(description))
    return values if len(values) > 1 else ()


def apart(description: str) -> bool:
    """Say whether a description of ids tells that none comes twice: `row of each sequence, all different`."""
    text = description.lower()
    return _DIFFER.search(_MAY_BE_ALIKE.sub("", text)) is not None


def alike(description: str) -> bool:
    """Say whether a description of ids tells that some may come more than once: `duplicates are allowed`."""
    text = description.lower()
    return _MAY_BE_ALIKE.search(text) is not None and not apart(description)


def expert_below(description: str) -> bool:
    """Say whether the lower half of a packed word is told to hold an expert, and not its weight."""
    return _EXPERT_BELOW.search(description) is not None
