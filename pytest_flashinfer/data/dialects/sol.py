"""Form 6, SOL-ExecBench: axes computed from others, inputs from a function of the reference, no `op_type`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flashinfer.data.dialects.draft import Draft

_OWN_KEYS = ("custom_inputs_entrypoint", "hf_id")
_FILE = "definition"  # each of its problems is a folder with a definition.json


def recognises(draft: Draft) -> bool:
    """Whether the document, or the name of its file, is one that only this form has."""
    left_open = "op_type" in draft.raw and draft.raw["op_type"] is None
    own = [key for key in _OWN_KEYS if key in draft.raw]
    telling = "op_type" not in draft.raw or any(draft.raw[key] is not None for key in own)  # null says little
    if left_open or draft.path.stem == _FILE or (own and telling):
        return True
    return any(axis.get("type") == "expr" for _, axis in draft.objects("axes"))


def translate(draft: Draft) -> None:
    """Supply the operation type, which is optional here."""
    draft.form = 6
    if "type" not in draft.raw:
        draft.default("op_type", "unspecified")
