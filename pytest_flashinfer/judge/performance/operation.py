"""What kind of operation a definition is, as its op_type says: what it has to move and to multiply depends on that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition

Kind = Literal["product", "grouped product", "attention", "moe", "norm", "centred norm", "softmax", "activation"]

_NAMES: Final[tuple[tuple[Kind, str], ...]] = (
    ("product", r"^(gemm|matmul|bmm)(_|$)|^linear$"),
    ("grouped product", r"^grouped_(gemm|matmul)(_|$)"),
    ("attention", r"^(gqa|mha|mqa|mla|attention)(_|$)"),
    ("moe", r"^moe(_|$)"),
    ("centred norm", r"(^|_)(layer|group|batch|instance)_?norm(_|$)"),
    ("norm", r"(^|_)(rms_?|l2_?)?norm(_|$)"),
    ("softmax", r"^softmax(_|$)"),
    ("activation", r"^activation(_|$)"),
)
# Words that may stand beside the kind: they tell of a layout or a dtype, or of one more input that is read as a whole.
_SAME: Final = re.compile(
    r"_*((fused|add|bias|paged|ragged|varlen|dense|batch|batched|single|causal|prefill|decode|append|extend"
    r"|fp16|bf16|fp8|fp4|nvfp4|mxfp8|mxfp4|int8|int4)(_+|$))*"
)
# Attention without a softmax needs no product of all queries with all keys.
_LINEAR: Final = re.compile(r"(linear|lightning)[ _-]?(attention|attn)|attention_linear", re.IGNORECASE)


class Operation(NamedTuple):
    """`plain` says that nothing else in the op_type tells of a variant, which may do with a part of the work."""

    kind: Kind
    plain: bool


def operation_of(definition: Definition) -> Operation | None:
    """Return what the op_type names, `None` where it is of no kind that something is counted for."""
    op = definition.op_type.lower()
    found = ((kind, match) for kind, name in _NAMES if (match := re.search(name, op)))
    kind, match = next(found, (None, None))
    if kind is None or match is None:
        return None
    if kind == "attention" and _LINEAR.search(f"{op} {definition.name} {definition.description or ''}"):
        return None
    return Operation(kind, plain=_SAME.fullmatch(f"{op[: match.start()]}_{op[match.end() :]}") is not None)
