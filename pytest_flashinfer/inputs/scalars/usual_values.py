"""Scalar inputs: the value that each usually has, and others that go with its name."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.constraints import ConstraintError, evaluate_integer
from pytest_flashinfer.inputs.constraints.equation import evaluated, size, whole
from pytest_flashinfer.inputs.constraints.trees import constant
from pytest_flashinfer.inputs.dtypes import NOT_TENSORS, is_float
from pytest_flashinfer.inputs.roles.descriptions import modes
from pytest_flashinfer.inputs.roles.subject import NAMES, find_axis
from pytest_flashinfer.inputs.scalars.special import special

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import TensorSpec
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.recipe import Scalar

_NUMBER: Final = r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_ROOT: Final = re.compile(r"1(?:\.0)?\s*/\s*(?:math\.)?sqrt\s*\(([^()]+)\)", re.IGNORECASE)
# (name, usual value, other values): the first name that matches counts. One at least of each is none that 16 bits hold:
# a kernel that rounds the scalar to them shows there alone.
_FLOATS: Final[tuple[tuple[str, float, tuple[float, ...]], ...]] = (
    (r"eps", 1e-6, (1e-5, 1e-3)),
    (r"temperature", 1.0, (0.5, 1.75, 0.1, 4.0)),
    (r"top_p", 0.9, (0.5, 0.99, 1.0, 0.02)),
    (r"min_p", 0.1, (0.02, 0.4, 0.85)),
    (r"rope_theta|rotary_base|^base$", 1e4, (5e5,)),
    (r"high_freq", 4.0, (3.3,)),
    (r"low_freq", 1.0, (1.3,)),
    (r"old_context", 8192.0, (4099.0,)),
    (r"soft_?cap", 30.0, (5.0, 13.7)),
    (r"limit|clamp|clip", 7.0, (1.0, 2.3)),
    (r"threshold|^p$", 0.5, (0.25, 0.6113)),
    (r"routed_scal|scaling_factor", 1.0, (2.5, 0.375, 1.3)),
    (r"(^|_)(alpha|beta|coef\w*)(_|$)", 1.0, (0.5, 0.0, 1.75, -1.0, 0.3)),  # terms that a kernel may leave out
    (r"scale|alpha|beta|factor|gamma|multiplier|coef", 1.0, (0.5, 1.75, 0.0625, 8.0, 0.3)),
)
_WINDOWS: Final = (1, 67, 5, 0)  # keys to either side, also more than a tile; a window as a whole has one at least
_UNNAMED: Final = (1.0, 0.5, 2.0, 0.6113)  # that no ratio of small numbers is equal to
# Factors of the scale that a softmax usually has: some models have more or less, and no table has them all.
_AROUND: Final = (0.375, 2.5, 6.0, 0.1, 1.25)
_CAPS: Final = re.compile(r"soft_?cap|limit|clamp|clip", re.IGNORECASE)
_INTS: Final[tuple[tuple[str, int], ...]] = (
    (r"window_left|window_size", -1),
    (r"pad_(slot_)?id", -1),
    (r"ignore_(index|idx|label)", -100),
    (r"sf_vec|scale_vec", 16),
    (r"group_size|block_(size|k|n)$", 128),
    (r"seed", 1234),
    (r"offset|rank|index|layout|mode|method|type|idx", 0),
)
_FITS: Final = re.compile(
    rf"(?<!window_)size|vec|group|(^|_)(num|n)_|^(return|output)_|{NAMES['longest'].pattern}", re.IGNORECASE
)  # fmt: skip
_ATTENTION: Final = re.compile(r"^(sm_|softmax_|attn_|qk_)?scal(e|ing)$|^(sm|softmax|attn)_scal", re.IGNORECASE)


def usual(contract: Contract, name: str, env: Mapping[str, Any]) -> Scalar | None:
    """Return the value that a scalar input usually has, by its description or else its name; `None` for no value.

    An integer that a constraint or an axis of the same name decides takes that value.
    """
    spec = contract.definition.inputs[name]
    dtype = spec.dtype
    if env.get(name) is not None:
        return _cast(env[name], dtype)
    own = contract.defaults.get(name)
    text = literal(contract, name) or (own if isinstance(own, str) else None)
    if dtype in NOT_TENSORS or text is not None:
        return text
    if dtype == "bool":
        return (
            re.search(r"default[^.]{0,12}false|disable|skip|return_", f"{name} {spec.description or ''}".lower())
            is None
        )
    if is_float(dtype):
        return _usual_float(contract, name, spec, env)
    return _usual_int(contract, name, spec, env)


def by_name(contract: Contract, name: str, value: Scalar | None, env: Mapping[str, Any]) -> tuple[Scalar, ...]:
    """Return values that a scalar input of this name and this usual value may have as well."""
    spec = contract.definition.inputs[name]
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, float) and is_float(spec.dtype):
        if _ATTENTION.search(name):
            return tuple(value * factor for factor in _AROUND)
        named = ((first, *more) for pattern, first, more in _FLOATS if re.search(pattern, name, re.IGNORECASE))
        return next(named, _UNNAMED)
    return _other_ints(contract, name, env) if isinstance(value, int) else ()


def literal(contract: Contract, name: str) -> str | None:
    """Return the text that a constraint demands: `kv_layout == 'HND'`, or the first of several."""
    for rule in (*contract.equations, *contract.predicates):
        for node in ast.walk(rule.tree):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == name:
                for other in ast.walk(node.comparators[0]):
                    if isinstance(other, ast.Constant) and isinstance(other.value, str):
                        return other.value
    return None


def _cast(value: Any, dtype: str) -> Scalar:
    if isinstance(value, str):
        return value
    return bool(value) if dtype == "bool" else float(value) if is_float(dtype) else int(value)


def _usual_float(contract: Contract, name: str, spec: TensorSpec, env: Mapping[str, Any]) -> float:
    told = (spec.description or "") + " " + (contract.definition.description or "")
    if _ATTENTION.search(name):
        return _softmax_scale(contract, spec.description or "", env)
    if "eps" in name.lower():
        found = re.search(r"\b(?:eps|epsilon)\w*\s*(?:=|is|of|:)?\s*" + _NUMBER, told, re.IGNORECASE)
        return float(found[1]) if found else 1e-6
    found = re.search(
        r"(?:default(?:s to| is)?|typically|usually)\s*[:=]?\s*" + _NUMBER, spec.description or "", re.IGNORECASE
    )
    if found:
        return float(found[1])
    named = next((value for pattern, value, _ in _FLOATS if re.search(pattern, name, re.IGNORECASE)), 1.0)
    # A cap hides what is too large: where the contract knows none at all, that is the usual one.
    without = (float(value) for value in special(contract, name, named) if caps(name) and value <= 0)
    return next(without, named)


def caps(name: str) -> bool:
    """Whether a scalar of this name keeps values from becoming large."""
    return _CAPS.search(name) is not None


def _softmax_scale(contract: Contract, description: str, env: Mapping[str, Any]) -> float:
    """Return 1/sqrt of what the description says, `1/sqrt(128 + 64)` or `1/sqrt(head_dim)`, else of the head's size."""
    sizes = {n: v for n, v in env.items() if isinstance(v, int)}
    for found in _ROOT.finditer(description):
        try:
            width = evaluate_integer(found[1], sizes)
        except ConstraintError:  # it names what the definition does not have
            continue
        return float(max(1, width) ** -0.5)
    names = [*contract.constants, *contract.axis_names]
    heads = [n for n in names if re.search(r"head_(dim|size)|^d(_?qk|_?head)?$|head_dim", n, re.IGNORECASE)]
    width = next((sizes[n] for n in heads if n in sizes), 64)
    return float(max(1, width) ** -0.5)


def _usual_int(contract: Contract, name: str, spec: TensorSpec, env: Mapping[str, Any]) -> int:
    if NAMES["longest"].search(name):
        lengths = [v for n, v in env.items() if isinstance(v, int) and "len" in n]
        return max(lengths, default=1)
    stated = _stated_int(contract, name, spec, env)
    return _named_int(contract, name, spec, env) if stated is None else stated


def _named_int(contract: Contract, name: str, spec: TensorSpec, env: Mapping[str, Any]) -> int:
    if re.search(r"^top_?k$|num_.*experts$|vocab", name, re.IGNORECASE):
        what = "experts" if "expert" in name else "vocab"
        axis = size(find_axis(contract, what) or find_axis(contract, "experts"), env)
        return min(axis or 4, 4) if "top" in name else axis or 8
    if "page" in name and re.search("size", name):
        return size(find_axis(contract, "page"), env) or 1
    found = re.search(r"default(?:s to| is)?\s*[:=]?\s*(-?\d+)\b(?!\.?\d)", spec.description or "", re.IGNORECASE)
    if found:
        return int(found[1])
    return next((value for pattern, value in _INTS if re.search(pattern, name, re.IGNORECASE)), 1)


def _stated_int(contract: Contract, name: str, spec: TensorSpec, env: Mapping[str, Any]) -> int | None:
    """Return the size of the axis that a scalar repeats (`batch_size_scalar`), the reference's default, or a mode."""
    same = env.get(_base(name))
    if isinstance(same, int) and not isinstance(same, bool):
        return same
    own = contract.defaults.get(name)
    if isinstance(own, int):
        return int(own)
    return next(iter(modes(spec.description or "")), None)


def _base(name: str) -> str:
    """Return the axis that a scalar of this name would repeat."""
    return re.sub(r"_(scalar|value|param)$", "", name)


def _other_ints(contract: Contract, name: str, env: Mapping[str, Any]) -> tuple[int, ...]:
    """Return other modes, offsets of a rank's experts where it does not hold all of them, and another id to ignore.

    A default of the reference is no reason to never pass anything else: what the name alone would give is tried too,
    but for what shapes and outputs have to fit.
    """
    spec = contract.definition.inputs[name]
    named = modes(spec.description or "")
    if named:
        return named
    own = contract.defaults.get(name)
    if not isinstance(own, int) or fits_shapes(contract, name):
        return _of_name(contract, name)
    other = int(not own) if isinstance(own, bool) else _named_int(contract, name, spec, env)
    return (*_of_name(contract, name), other)


def fits_shapes(contract: Contract, name: str) -> bool:
    """Whether shapes and outputs have to fit an integer of this name."""
    whole_number = not is_float(contract.definition.inputs[name].dtype)
    return whole_number and (_FITS.search(name) is not None or _base(name) in contract.axis_names)


def _of_name(contract: Contract, name: str) -> tuple[int, ...]:
    if re.search(r"(ignore|pad(ding)?)_?(id|idx|index|token)", name):
        return (0,)
    if match := re.search(r"window(_(left|right|size|len(gth)?))?$", name):
        return _WINDOWS if match[2] in {"left", "right"} else _WINDOWS[:-1]
    if "expert_offset" not in name:
        return ()
    held = [v for n, v in contract.constants.items() if re.search(r"local_experts", n)]
    every = [v for n, v in contract.constants.items() if re.search(r"experts$", n) and "local" not in n]
    return (held[0],) if held and every and every[0] >= 2 * held[0] else ()


def tied_scalars(contract: Contract, env: dict[str, Any]) -> None:
    """Set the integer scalars that a data constraint compares with a tensor, so that it holds: `max(T) <= longest`."""
    for rule in contract.reading.data:
        node = rule.tree
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        for mine, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            spec = contract.definition.inputs.get(mine.id) if isinstance(mine, ast.Name) else None
            if spec is None or spec.shape is not None or not isinstance(mine, ast.Name) or constant(other) is not None:
                continue
            value = _number(other, env)
            if value is not None and mine.id not in contract.sizes:
                env[mine.id] = value


def _number(tree: ast.expr, env: Mapping[str, Any]) -> int | None:
    """Return the whole number that a tree gives, that of a tensor of one element included."""
    value = evaluated(tree, env)
    return whole(value.item() if hasattr(value, "item") and value.numel() == 1 else value)
