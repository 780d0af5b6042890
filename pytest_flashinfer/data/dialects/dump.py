"""Form 5, as FlashInfer dumps its own API: the reference is named `..._reference`, outputs may be inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data.source import BrokenSource, functions, parse_python

if TYPE_CHECKING:
    from pytest_flashinfer.data.dialects.draft import Draft

_TAG = "fi_api:"


def recognises(draft: Draft) -> bool:
    """Whether the document has keys or tags that only this form has."""
    raw, tags = draft.raw, draft.raw.get("tags")
    if any(isinstance(tag, str) and tag.startswith(_TAG) for tag in (tags if isinstance(tags, list) else ())):
        return True
    absent = "reference" in raw and raw["reference"] is None
    return absent or any(isinstance(raw.get(key), str) for key in ("init", "check", "definition"))


def translate(draft: Draft) -> None:
    """Find the entry function; mark outputs that are written back into an input; let a reference be absent."""
    draft.form = 5
    reference = draft.text("reference")
    if reference is None and not draft.raw.get("reference"):
        draft.raw["reference"] = None
        draft.warnings.append(((), "no reference: solutions cannot be checked, only timed"))
    else:
        draft.entry = _entry(reference or "")
        if draft.entry != "run":
            draft.notes.append(f"the entry function of the reference is {draft.entry!r}")
    inputs = draft.raw.get("inputs")
    for (_, name), tensor in draft.objects("outputs"):
        told = tensor.get("param")  # may be the API's parameter, which takes several inputs as a tuple
        if isinstance(inputs, dict) and name in inputs and (told is None or str(told) not in inputs):
            tensor["param"] = name
            instead = f", not into {told!r}, which is no input" if told else ""
            draft.notes.append(f"output {name!r} has the name of an input: written in place{instead}")
    for (_, name), axis in draft.objects("axes"):
        if axis.get("type") == "const" and axis.get("value") is None:
            draft.warnings.append((("axes", name), "constant without a value: it has to come from the data"))


def _entry(reference: str) -> str:
    """Choose the last function named `..._reference`; a plain `run` comes before any other last function."""
    tree = parse_python(reference)
    names = [] if isinstance(tree, BrokenSource) else list(functions(tree))
    marked = [name for name in names if name.endswith("_reference")]
    if marked:
        return marked[-1]
    return "run" if "run" in names or not names else names[-1]
