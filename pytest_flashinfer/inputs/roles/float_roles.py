"""What a floating-point input is for, and with it the range in which a reference makes sense of it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.roles.factors import factors
from pytest_flashinfer.inputs.roles.subject import NAMES, Role, Subject

if TYPE_CHECKING:
    from collections.abc import Callable


_PACKED: Final = re.compile(r"_(packed|quant(ized)?|q)$", re.IGNORECASE)
_SIGNED: Final = r"\b(either|any|both) signs?\b|(?<!no )\bnegative (\w+ )?((is|are) )?(included|allowed|valid)\b"
_KEPT: Final = "(_(cache|pool|buffer|window))?"  # for a later call


def _recurrent(s: Subject) -> bool:
    definition = s.contract.definition
    return NAMES["recurrent"].search(f"{definition.op_type} {definition.description or ''}") is not None


def _recurrence(s: Subject) -> Role | None:
    """Parameters of gated linear recurrences: outside their range states grow without bound."""
    if not _recurrent(s):
        return None
    kind: str | None = None
    if s.named(r"^a_?log$"):
        kind = "a_log"
    elif s.named(r"^(dt|delta|time_?steps?)$"):
        kind = "time_step"
    elif s.name == "A":  # the state matrix; `a` is a projection
        kind = "negative"
    elif s.named(rf"^(g|gk|gv|gate|log_?(g|gate|decay|alpha)){_KEPT}$"):
        kind = "decay" if s.told(r"exp\(|factor|\(0, ?1|alpha") and not s.told("log") else "log_decay"
        kind = "strong_log_decay" if kind == "log_decay" and s.told(r"very negative|any negative|forg[eo]t") else kind
    elif s.named(rf"^(alpha|beta|decay){_KEPT}$"):
        kind = "decay"
    elif s.named(r"^(q|k|query|key|keys|queries)$") and not re.search("mamba|ss[um]", s.contract.definition.op_type):
        kind = None if s.told(r"\bbefore (\w+ )?normali[sz]|\bun-?normali[sz]ed") else "unit"
    return Role(kind) if kind else None


def _scratch(s: Subject) -> Role | None:
    return Role("zeros") if s.named(r"workspace|scratch") else None


def rotary_kind(name: str) -> str | None:
    """Say which table of rotary embedding an input of this name is: of cosines, of sines or of both."""
    kinds = {"cos_sin": r"cos_?_?sin|rope_?cache|rotary_?(cache|emb)|freqs", "cos": r"(^|_)cos(_|$|ine)",
             "sin": r"(^|_)sine?(_|$)"}  # fmt: skip
    return next((kind for kind, pattern in kinds.items() if re.search(pattern, name, re.IGNORECASE)), None)


def _tables(s: Subject) -> Role | None:
    kind = rotary_kind(s.name)
    return Role(kind, base=_rotary_base(s)) if kind else None


def _rotary_base(s: Subject) -> float | None:
    """Return the base of rotary frequencies that descriptions tell: a kernel may then make the table itself."""
    told = f"{s.spec.description or ''} {s.contract.definition.description or ''}"
    numbers = [float(re.sub("[,_]", "", next(filter(None, found)))) for found in _BASE.findall(told)]
    return next((number for number in numbers if number >= _LEAST_BASE), None)


def _sums_to_one(s: Subject, function: str = "") -> bool:
    """Whether a constraint says that rows sum to one, or what a function of their elements, `.exp()`, comes to."""
    sums = rf"\b{s.name}{re.escape(function)}\.sum\((dim=)?-1\)"
    one = rf"{sums} - 1\b|{sums} == 1\b|(allclose|isclose)\({sums}, torch\.ones"
    return any(re.search(one, ast.unparse(rule.tree)) for rule in s.contract.reading.data if s.name in rule.names)


def _log_probabilities(s: Subject) -> Role | None:
    """Recognise logarithms of probabilities: of a distribution in each row, or scores that such have been added to."""
    if not (s.named(r"log_?prob") or s.told(r"\blog[- ]?(softmax|prob)")) or len(s.dims) < 2:  # noqa: PLR2004
        return None
    added = s.named(r"cum|acc|sum|total|score") or s.told(r"\b(accumulated|cumulative|summed|total|scores?)\b")
    return Role("data") if added else Role("log_probs")


def _sampling(s: Subject) -> Role | None:
    if s.named(r"prob") or s.told(r"probabilit(y|ies)( distribution|\b.*after softmax)|after softmax"):
        return Role("probs") if len(s.dims) > 1 else None
    if s.contract.definition.is_sampling and s.named(r"logits") and len(s.dims) > 1:
        return Role("logits")
    for kind in ("temperature", "top_p", "min_p"):
        if s.named(kind):
            return Role(kind)
    return Role("uniform") if s.named(r"uniform|(^|_)rand") else None


def _scales(s: Subject) -> Role | None:
    named = s.named(r"scales?(_|$)|(^|_)sfs?(_|$)|_scale|scale_inv|descale|dequant|amax") and not s.named("log")
    if not named and s.name not in factors(s.contract):
        return None
    if s.told(_SIGNED):
        return None
    by_name = (n for n in s.contract.dims if n != s.name and _scaled_by(n, s.name))
    weight = next(by_name, None) if named else factors(s.contract)[s.name]
    return Role("weight_scale", axis=_fan_in(s, weight)) if weight else Role("scale")


def _scaled_by(tensor: str, scale: str) -> bool:
    """Whether a scale's name begins with that of a weight: `gemm1_weights_scale`, `B_scale` of `B` or `B_packed`."""
    stem = _PACKED.sub("", tensor).lower()
    return re.search(r"weight|proj|^w\d*$|^b$", stem) is not None and scale.lower().startswith(stem)


def _fan_in(s: Subject, weight: str) -> ast.expr | None:
    """Return the axis that a weight is summed over: one that no output has but another input does, else the last.

    Where the weight packs that axis, its scale may still have it.
    """
    every, own = s.contract.dims, s.contract.dims[weight] or ()
    shown = {n for trees in s.contract.output_dims.values() for t in trees or () for n in names_of(t)}
    apart = (trees for name, trees in every.items() if name not in {weight, s.name})
    others = {n for trees in apart for t in trees or () for n in names_of(t)}
    for dims in (own, *([s.dims] if _PACKED.search(weight) else [])):
        matrix = dims[1:] if len(dims) > 2 else dims  # noqa: PLR2004 - the first axis counts experts or groups
        summed = [d for d in matrix if names_of(d) & others and not names_of(d) & shown]
        if summed:
            return summed[-1]
    return own[-1] if own else None


def _looked_up(s: Subject) -> bool:
    """Whether a matrix is a table of rows for an output: no other input has its axes, to be multiplied with it."""
    own = [names_of(tree) for tree in s.dims]
    shown = [trees[-1] for trees in s.contract.output_dims.values() if trees]
    others = {n for name, trees in s.contract.dims.items() if name != s.name for t in trees or () for n in names_of(t)}
    return len(own) == 2 and not (own[0] | own[1]) & others and any(names_of(tree) == own[1] for tree in shown)  # noqa: PLR2004


def _for_each_element(s: Subject) -> bool:
    """Whether the axes are the last ones of an output: one value for each element of a row, and nothing to sum."""
    own = [ast.unparse(tree) for tree in s.dims]
    shown = ([ast.unparse(tree) for tree in trees] for trees in s.contract.output_dims.values() if trees)
    return len(set(own)) == len(own) and any(len(each) > len(own) and each[-len(own) :] == own for each in shown)


def _weights(s: Subject) -> Role | None:
    fixed = all(names_of(tree) <= s.contract.constants.keys() for tree in s.dims)
    if len(s.dims) == 1 or _for_each_element(s):
        if s.named(r"bias|beta|shift") and fixed:
            return Role("bias")
        return Role("unit_weight") if fixed and s.named(r"weight|gamma|norm|^w\d?$|^g$|scale") else None
    if not fixed or s.named(r"bias|cache|state|resid|^(q|k|v|x|query|key|value|input)(_|$)") or _looked_up(s):
        return None
    return Role("weight", axis=_fan_in(s, s.name))


_FLOATS: Final[tuple[Callable[[Subject], Role | None], ...]] = (
    _scratch, _tables, _recurrence, _log_probabilities, _sampling, _scales, _weights,
)  # fmt: skip
# Roles whose values a family decides; the others keep to the range that gives them their meaning.
DATA: Final = frozenset({"data", "logits"})  # of any size
FREE: Final = DATA | {"unit", "probs", "log_probs"}
ROTARY: Final = frozenset({"cos_sin", "cos", "sin"})
_LEAST_BASE: Final = 100.0  # of frequencies; a smaller one is a logarithm's
_BASE: Final = re.compile(r"(?:theta|base)\b\D{0,12}(\d[\d,_]*(?:\.\d+)?(?:e\d+)?)|\b(10[,_]?000|1e4)\b", re.IGNORECASE)


def float_role(subject: Subject) -> Role:
    """Return the role of a floating-point tensor; what nothing tells is `data`."""
    if len(subject.dims) > 1 and _sums_to_one(subject):
        return Role("probs")
    if len(subject.dims) > 1 and _sums_to_one(subject, ".exp()"):
        return Role("log_probs")
    for recognise in _FLOATS:
        role = recognise(subject)
        if role is not None:
            return role
    return Role("data")
