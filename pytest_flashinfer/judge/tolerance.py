"""Explicit tolerances: what may be said, in which layers, and how text becomes one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from pytest_flashinfer.data.nearest import did_you_mean

Comparison = Literal["auto", "exact", "values", "topk", "sampling"]
Operands = Literal["working", "exact"]
_FLAGS = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
_SHORT = {"max_atol": "atol", "max_rtol": "rtol", "matched_ratio": "required_matched_ratio", "min_cos_sim": "cosine"}


class ToleranceError(ValueError):
    """A tolerance that cannot be read; the message names the word and what is allowed."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How an output is compared. `None` leaves a setting to the layer below; the bottom layer is the oracle's bound.

    `rtol`, `atol`: `|actual - expected| <= atol + rtol * |expected|` in place of the oracle's bound (a missing one of
    the two is zero). `scale`: factor on the oracle's bound. `required_matched_ratio`: share of elements, 0 to 1, that
    must be within it (shapes, NaN and inf are never excused). `max_error_cap`: absolute error that no element may
    exceed. `cosine`: smallest cosine similarity. `equal_nan`: NaN (or inf) where the reference has the same is right.
    `allow_negative_inf`: -inf where the reference has -inf is right (the default). `operands`: "exact" gives no credit
    for 16-bit operands inside; it is said of all outputs. `comparison`: which judge; "auto" chooses by dtype and
    op_type. `outputs`: the same, for one output by name.
    """

    rtol: float | None = None
    atol: float | None = None
    scale: float | None = None
    required_matched_ratio: float | None = None
    max_error_cap: float | None = None
    cosine: float | None = None
    equal_nan: bool | None = None
    allow_negative_inf: bool | None = None
    operands: Operands | None = None
    comparison: Comparison | None = None
    outputs: Mapping[str, Tolerance] = field(default_factory=dict)

    @property
    def explicit(self) -> bool:
        """Whether absolute and relative limits replace the oracle's bound."""
        return self.rtol is not None or self.atol is not None

    def for_output(self, name: str) -> Tolerance:
        """Return the settings of one output."""
        own = self.outputs.get(name)
        return replace(self, outputs={}) if own is None else layered(replace(self, outputs={}), own)

    def limits(self) -> dict[str, float]:
        """Return what is set in the words of a definition's own check; percentages from 0 to 100."""
        found: dict[str, float] = {}
        if self.explicit:
            found.update(rtol=self.rtol or 0.0, atol=self.atol or 0.0)
        if self.required_matched_ratio is not None:
            found["max_mismatch_pct"] = 100.0 * (1.0 - self.required_matched_ratio)
        if self.cosine is not None:
            found["min_cos_sim"] = self.cosine
        return found

    def describe(self) -> str:
        """Return what is set, in the spelling that `parse` reads; empty where nothing is."""
        words = [f"{name}={_spell(value)}" for name, value in stated(self).items()]
        for output, own in self.outputs.items():
            words += [f"{output}:{name}={_spell(value)}" for name, value in stated(own).items()]
        return " ".join(words)


NAMES = tuple(f.name for f in fields(Tolerance) if f.name != "outputs")


def stated(tolerance: Tolerance) -> dict[str, Any]:
    """Return what is set for all outputs, by setting."""
    return {name: value for name in NAMES if (value := getattr(tolerance, name)) is not None}


def _spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def layered(*layers: Tolerance | None) -> Tolerance:
    """Combine layers, the weakest first: ini, op_type, definition, workload, fixture, command line."""
    result = Tolerance()
    for layer in layers:
        if layer is None:
            continue
        outputs = dict(result.outputs)
        for name, own in layer.outputs.items():
            outputs[name] = layered(outputs.get(name), own)
        above = stated(layer)
        if layer.explicit:  # a pair: the upper layer's rtol does not meet the lower layer's atol
            above = {"rtol": layer.rtol or 0.0, "atol": layer.atol or 0.0, **above}
        result = replace(result, **above, outputs=outputs)
    return result


def parse(text: str, where: str = "tolerance") -> Tolerance:
    """Read words `[output:]setting=value`, between blanks or commas: `rtol=1e-3 atol=1e-2 topk_ids:comparison=topk`.

    Raises `ToleranceError`, whose message starts with `where`.
    """
    whole: dict[str, Any] = {}
    by_output: dict[str, dict[str, Any]] = {}
    for word in text.replace(",", " ").split():
        target, _, value = word.partition("=")
        output, colon, name = target.rpartition(":")
        if not value or (colon and not output):
            raise ToleranceError(f"{where}: {word!r} is not [output:]setting=value")
        name = _SHORT.get(name, name)
        into = by_output.setdefault(output, {}) if output else whole
        into[name] = _value(name, value, f"{where}: {word}")
    return Tolerance(**whole, outputs={name: Tolerance(**own) for name, own in by_output.items()})


def parse_lines(
    lines: Sequence[str], where: str = "fib_tolerance", outputs: Collection[str] | None = None
) -> dict[str, Tolerance]:
    """Read lines `key: words`; the key is a pattern (fnmatch) for op_types and definition names, by default `*`.

    A key is a first word that ends in a colon: `rmsnorm*: rtol=1e-3`. Where `outputs` says which names outputs have,
    one without a blank behind it is a key as well, if no output is called so: `rmsnorm*:rtol=1e-3`.
    """
    found: dict[str, Tolerance] = {}
    for text in _texts(lines):
        first, _, rest = text.partition(" ")
        lead = _lead(text)
        if first.endswith(":"):
            key, words = first[:-1], rest
        elif lead and outputs is not None and lead not in outputs:
            key, words = lead, text[len(lead) + 1 :]
        else:
            key, words = "*", text
        place = where if words == text else f"{where}: {key}"  # nobody wrote the default key
        found[key] = layered(found.pop(key, None), parse(words, place))  # the last line counts most
    return found


def leads(lines: Sequence[str]) -> set[str]:
    """Return the names at the beginning of lines that have no blank behind their colon: outputs or keys."""
    return {lead for text in _texts(lines) if (lead := _lead(text))}


def _lead(text: str) -> str:
    name, colon, setting = text.partition("=")[0].partition(":")
    return name if colon and setting and not setting[0].isspace() else ""


def _texts(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if text := line.split("#", 1)[0].strip():
            yield text


def from_mapping(values: Mapping[str, Any], where: str = "tolerance") -> Tolerance:
    """Read a mapping such as a workload's `tolerance`; keys as in `parse`, and mappings by output.

    Raises `ToleranceError`.
    """
    whole: dict[str, Any] = {}
    outputs: dict[str, Tolerance] = {}
    for key, value in values.items():
        name = _SHORT.get(key, key)
        if value is None:
            continue
        if isinstance(value, Mapping):
            outputs[key] = from_mapping(value, f"{where}: {key}")
        else:
            whole[name] = _value(name, value, f"{where}: {key}")
    return Tolerance(**whole, outputs=outputs)


def _value(name: str, value: Any, where: str) -> Any:
    if name not in NAMES:
        hint = did_you_mean(name.lower(), (*NAMES, *_SHORT))
        raise ToleranceError(f"{where}: no setting {name!r}{hint}; there are {', '.join(NAMES)}")
    text = str(value).strip().lower()
    if name in ("equal_nan", "allow_negative_inf"):
        if text not in _FLAGS:
            raise ToleranceError(f"{where}: {name} is true or false")
        return _FLAGS[text]
    words = {"comparison": get_args(Comparison), "operands": get_args(Operands)}.get(name)
    if words is not None:
        if text not in words:
            raise ToleranceError(f"{where}: {name} is one of {', '.join(words)}")
        return text
    try:
        number = float(text)
    except ValueError:
        raise ToleranceError(f"{where}: {name} needs a number, not {text!r}") from None
    share = name in ("required_matched_ratio", "cosine")
    if not 0 <= number < math.inf or (share and number > 1):
        raise ToleranceError(f"{where}: {name} is {'between 0 and 1' if share else 'zero or positive, and finite'}")
    return number
