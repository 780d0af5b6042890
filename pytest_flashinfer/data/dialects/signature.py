"""Form 1, the kernel signature: `op`, `input`, `output`, `code`; the entry function is `forward`; no name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flashinfer.data.dialects.draft import Draft


def recognises(draft: Draft) -> bool:
    """Whether the document has keys that only this form has."""
    return "inputs" not in draft.raw and any(key in draft.raw for key in ("op", "input", "output"))


def translate(draft: Draft) -> None:
    """Rename the keys; take the name from the file, since this form has none."""
    draft.form, draft.entry, draft.default_dtype = 1, "forward", "float16"
    for old, new in (("op", "op_type"), ("input", "inputs"), ("output", "outputs"), ("code", "reference")):
        draft.rename(old, new)
    if "name" not in draft.raw:
        draft.raw = {"name": draft.path.stem, **draft.raw}
        draft.notes.append(f"no 'name': the file's name {draft.path.stem!r} is taken")
    draft.notes.append("the entry function of this form is 'forward'")
