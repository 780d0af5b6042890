"""What the words of a definition allow beyond its constraints, such as junk in slots that nobody reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.roles.nonfinite import FINITE

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition

_WHATEVER: Final = r"whatever (\w+ ){1,4}holds?"
# What nobody reads may hold anything.
_LOOSE: Final = re.compile(
    r"arbitrary|garbage|junk|undefined|uninitiali[sz]ed|stale|left ?-?overs?\b|unspecified|any (data|value)"
    rf"|\bnans? included|including nans?\b|{_WHATEVER}"
)
# Padding of a row of ids may be any number, also one that is no id.
_JUNK: Final = re.compile(r"padd(ing|ed)\b[^.]{0,30}(arbitrary|garbage|undefined)|(arbitrary|garbage)[^.]{0,20}padding")
# A token may name one expert several times.
_REPEATS: Final = re.compile(r"may (name|choose|pick|list)[^.]{0,30}(more than once|twice|several)|may repeat")
# Some values reach no others, whatever they hold.
_CONTAINED: Final = re.compile(
    rf"{_WHATEVER}|bit for bit|(never|must not|no) (influence|affect|reach|leak)(?! into)|touch(es)? (its|their) own"
)
# All are finite, as words or a constraint say.
_ALL_FINITE: Final = re.compile(
    r"\b(inputs?|values?|elements?|tensors?|activations?|everything)\b( \w+){0,2} (is|are|be)( \w+)? finite"
    r"|\bfinite (inputs?|values?|data|numbers?)\b|isfinite"
)
# Some values are only copied; the reference's code tells whether others are mixed.
_COPIED: Final = re.compile(r"\bcop(ied|ies)\b|pass(es|ed)? through")
_MIXES: Final = re.compile(
    r"@ |mm\(|matmul|einsum|softmax|linear|conv|\.(sum|mean|cumsum)\b|\* [^\n=]{1,60} [-+] [^\n=]{1,60} \*"
)
# Rows that no index names hold anything.
_UNNAMED: Final = re.compile(
    r"(\b(not|never|no \w+) (is )?(listed|named|referenced|used|selected|chosen|points?)"
    r"|\bun(listed|named|used|referenced)|\bpadding (row|slot|token|entry))\b[^.]{0,40}"
    r"(arbitrary|garbage|undefined|stale)"
)
# Unused entries of a row may stand before used ones.
_HOLES: Final = re.compile(r"-1[^.]{0,90}\b(anywhere|any (place|position|column|order)|holes?|gaps?|interleaved)\b")
# There may be sequences without tokens; not so where the words say that these do not occur.
_EMPTY: Final = re.compile(
    r"\b(empty|without( any)? (keys?|pages?|tokens?)|(has|have|with) no (keys?|pages?|tokens?))\b"
    r"(?![^.;]{0,20}(never|not (occur|allowed)|do(es)? not|don't))"
)
# Sequences may have pages in common.
_SHARED: Final = re.compile(r"(pages?|blocks?)\b[^.]{0,60}\bshared?\b|\bshared? (pages?|blocks?)|prefix.shar")


@dataclass(frozen=True, slots=True)
class Promises:
    """What a definition's words allow; those about the entries of one input give the inputs that they are of."""

    loose: bool  # slots nobody points at hold arbitrary data, and that is not asked to be finite
    contained: bool  # some values reach no others, whatever they hold, or are only copied
    unnamed: bool  # rows which no index names hold arbitrary data
    shared: bool  # sequences may share pages
    speaks_of_empty: bool  # what goes for sequences without tokens is said
    junk: frozenset[str]  # padding is arbitrary
    repeats: frozenset[str]  # a token may name an expert several times
    holes: frozenset[str]  # unused entries of a row may stand before used ones


def words_of(definition: Definition) -> str:
    """Return what a definition and its inputs are described by, in lower case, as sentences of their own."""
    return _joined(definition.description, *(spec.description for spec in definition.inputs.values()))


def stated_promises(definition: Definition) -> Promises:
    """Read what the descriptions of a definition allow; of one input its own, and the definition's."""
    text = words_of(definition)
    of_outputs = _joined(*(spec.description for spec in definition.outputs.values()))
    about = {name: _joined(definition.description, spec.description) for name, spec in definition.inputs.items()}

    def which(phrase: re.Pattern[str]) -> frozenset[str]:
        return frozenset(name for name, words in about.items() if phrase.search(words))

    return Promises(
        loose=any(_LOOSE.search(each) and not FINITE.search(each) for each in re.split(r"[.;]\s", text)),
        contained=not _ALL_FINITE.search(". ".join((text, *definition.constraints)))
        and (bool(_CONTAINED.search(text)) or _only_copies(definition, text)),
        unnamed=bool(_UNNAMED.search(text)),
        shared=bool(_SHARED.search(text)),
        speaks_of_empty=bool(_EMPTY.search(text) or _EMPTY.search(of_outputs)),
        junk=which(_JUNK),
        repeats=which(_REPEATS),
        holes=which(_HOLES),
    )


def _joined(*texts: str | None) -> str:
    return ". ".join(filter(None, texts)).lower()


def _only_copies(definition: Definition, text: str) -> bool:
    """Whether some values are only copied, by a reference that sums nothing: there elements do not meet otherwise."""
    code = definition.reference or ""
    return bool(_COPIED.search(text)) and "return" in code and not _MIXES.search(code)
