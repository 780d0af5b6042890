"""What descriptions say of the values of an input: no segment is empty, id 0 is nobody's, scales are powers of two."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.dtypes import is_float, is_integer

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition

_THINGS: Final = r"(tokens?|rows?|pages?|blocks?|keys?|entries|elements?|items?|queries|nodes?)"
_NEVER_EMPTY: Final = re.compile(
    r"\bno (\w+ ){1,3}(is|are) (empty|without)\b|\b(never|none( of them)? (is|are)) empty\b"
    rf"|\b(each|every) (\w+ ){{1,3}}(has|contains|holds|brings) ((at least|one|a|or more|some) )*{_THINGS}"
    rf"|\bat least one {_THINGS}"
)
_THING: Final = r"(slot|page|block|row|entry|index|id)"
_RESERVED: Final = re.compile(
    rf"\b{_THING} (0|zero)\b[^.;]{{0,40}}\b(null|reserved|dummy|sentinel|never (used|named|given)|nobody|no \w+'s)\b"
    rf"|\b(null|reserved|dummy) {_THING}\b[^.;]{{0,15}}\b(0|zero)\b"
)
_POWERS: Final = re.compile(r"\bpowers?[- ]of[- ](two|2)\b|\bue8m0\b")
_SCALE: Final = re.compile(r"scale", re.IGNORECASE)


def never_empty(definition: Definition, name: str) -> bool:
    """Say whether the description of pointers or lengths tells that there is something in each segment."""
    return _NEVER_EMPTY.search((definition.inputs[name].description or "").lower()) is not None


def without_zero(definition: Definition) -> frozenset[str]:
    """Return the integer inputs of which a description says that 0 is no id of anybody: `slot 0 is the null slot`."""
    return frozenset(
        name
        for name, spec in definition.inputs.items()
        if spec.shape and is_integer(spec.dtype) and _RESERVED.search((spec.description or "").lower())
    )


def powers_of_two(definition: Definition, name: str) -> bool:
    """Say whether an input's own description says so, or the definition's of all scales, for a scale."""
    spec = definition.inputs[name]
    words = (spec.description or "", definition.description or "" if _SCALE.search(name) else "")
    told = (sentence for text in words for sentence in re.split(r"[.;]\s", text.lower()))
    return is_float(spec.dtype) and any(_POWERS.search(each) for each in told)
