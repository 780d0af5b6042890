"""How long the parts of a whole are: pointers, lengths, counts, the last page of a sequence."""

from __future__ import annotations

import ast
import re
from typing import Final

from pytest_flashinfer.inputs.constraints.hints import Bound
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.roles.subject import NAMES, Role, Subject, find_axis

_SO_MANY: Final = r"(number of|how many)( (valid|cached|stored|used|known|active|past))?"
TABLE: Final = r"(block|page)_?tables?$|req_to_"
ROW_IDS: Final = r"batch_(ind|id)|seg(ment)?_?ids?|row_(ids?|ind)|to_(seq|batch|req)|seq_ids?|group_ids?"


def _group(subject: Subject) -> str:
    """Return whose lengths an input has, by its name rather than by a description.

    One that speaks of both is of keys: `tokens in the cache, the query's own included`.
    """
    for group, name in (("q", "query"), ("kv", "keys")):
        if NAMES[name].search(subject.name):
            return group
    if subject.told(r"\bkv\b|\bkey|page|\bcache"):
        return "kv"
    return "q" if subject.told(r"\bquer") else "plain"


def pointers(s: Subject) -> Role | None:
    """Recognise where segments begin and end: pointers, one more than there are segments."""
    if len(s.dims) != 1:
        return None
    facts, axis = s.contract.reading.facts, s.axis(0)
    rule = s.contract.derived.get(axis)
    one_more = rule is not None and re.search(r"\+ 1$|_plus_1", ast.unparse(rule.tree)) is not None
    named = bool(NAMES["pointer"].search(s.name)) or s.told(r"cumulative|prefix.sum")
    # Pointers end where something ends; a plain number above them guards against overflow.
    below = any(op is ast.Lt and names_of(right) for op, right in facts.compared.get(s.name, ()))
    rising = s.name in facts.rising and not below and not s.named(ROW_IDS)  # ids of rows may be sorted as well
    if not (s.name in facts.totals or rising or one_more or named):
        return None
    return Role("indptr", axis=facts.totals.get(s.name), group=_group(s))


def summed(s: Subject) -> Role | None:
    """Recognise how long the parts of a total are: a constraint says what they sum to."""
    total = s.contract.reading.facts.sums.get(s.name)
    if total is None or len(s.dims) != 1 or s.named(r"last_(page|block)_len"):
        return None
    if not names_of(total) <= s.contract.input_axes | s.contract.constants.keys():
        return None  # how long an output is, and nothing that is split
    return Role("seq_lens" if s.named("len") else "counts", axis=total, group=_group(s))


def last_page(s: Subject) -> Role | None:
    """Recognise how full the last page of each sequence is."""
    if s.named(r"last_(page|block)_len") or s.told(r"valid (tokens|slots|entries) in the last page"):
        return Role("last_page_len", limit=find_axis(s.contract, "page"))
    return None


def lengths(s: Subject) -> Role | None:
    """Recognise how long each sequence is."""
    named = s.named(r"len|seq_?used|_lens?$") or s.told(rf"sequence length|{_SO_MANY} tokens")
    tables = _tables_by_row(s)
    if named and (one_a_row(s) or tables):
        return Role("seq_lens", group=_group(s))
    most = s.contract.reading.facts.bounds.get(s.name, Bound()).upper
    full = any(names_of(width) and _holds_more(tree, width) for width in tables for tree in most)
    return Role("seq_lens", group="kv") if full else None


def _holds_more(most: ast.expr, width: ast.expr) -> bool:
    """Whether a bound is so many times the entries of a row, as tokens are in pages."""
    return names_of(width) <= names_of(most) and ast.dump(most) != ast.dump(width)


def _tables_by_row(s: Subject) -> list[ast.expr]:
    """Return how many entries a row has in each table of pages that has a row for each element."""
    own = [ast.dump(tree) for tree in s.dims]
    tables = [dims for name, dims in s.contract.dims.items() if dims and re.search(TABLE, name)]
    return [dims[-1] for dims in tables if [ast.dump(tree) for tree in dims[:-1]] == own]


def one_a_row(s: Subject) -> bool:
    """Whether a tensor has one element a row."""
    return len(s.dims) == 1 or all(ast.unparse(tree) in {"1", "beam_width", "one"} for tree in s.dims[1:])


def counts(s: Subject) -> Role | None:
    """Recognise how many rows each group has."""
    if len(s.dims) != 1 or not (s.named(r"per_(expert|group)|group_sizes?|masked_m|m_sizes|counts?$|splits?$|sizes$")):
        return None
    return Role("counts")
