"""Form 2, the kernel description: `id`, `reference_code` or `code`, `assumptions`; scalars have an empty shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flashinfer.data.dialects.draft import Draft


def recognises(draft: Draft) -> bool:
    """Whether the document has keys that only this form has."""
    raw = draft.raw
    old_code = "reference" not in raw and ("code" in raw or "reference_code" in raw)
    return old_code or "assumptions" in raw or ("id" in raw and "name" not in raw)


def translate(draft: Draft) -> None:
    """Rename the keys; an output of shape `[]` comes back as a Python scalar, which is shape `null`."""
    draft.form, draft.default_dtype = 2, "float16"
    renames = (("id", "name"), ("reference_code", "reference"), ("code", "reference"), ("assumptions", "constraints"))
    for old, new in (*renames, ("type", "op_type")):
        draft.rename(old, new)
    draft.default("op_type", "unspecified")
    for (_, name), tensor in draft.objects("outputs"):
        if tensor.get("shape") == []:
            tensor["shape"] = None
            draft.notes.append(f"output {name!r}: shape [] of this form is a Python scalar, shape null")
