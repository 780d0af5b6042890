"""Kernel calling records: how often a model, served by a framework, calls each kernel in one forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flashinfer.data import schema, sniff
from pytest_flashinfer.data.faults import Fault, Loaded
from pytest_flashinfer.data.jsontext import read_json
from pytest_flashinfer.data.places import Places

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.data.model import Extra


@dataclass(frozen=True, slots=True)
class KernelCalls:
    """The calls of one model; `counts` has the definition's name and how often it is called, in the file's order."""

    model: str
    framework: str
    counts: Mapping[str, int]
    extra: Extra = field(default_factory=dict)


def load_calls(path: Path) -> Loaded[KernelCalls]:
    """Read a record; never raises on bad content, which is told as faults. A kernel listed twice counts for both."""
    document = read_json(path)
    wrong = sniff.wrong_kind(document.value, "calls") if document.readable else None
    if wrong:
        return Loaded(None, path, (Fault(path, 1, "", wrong),), document.notes)
    faults = schema.check_document("calls", document)
    if faults:
        return Loaded(None, path, faults, document.notes)
    raw = dict(document.value)
    counts: dict[str, int] = {}
    for kernel in raw.pop("kernels"):
        counts[kernel["id"]] = counts.get(kernel["id"], 0) + kernel["count"]
    value = KernelCalls(raw.pop("model"), raw.pop("framework"), counts, raw)
    return Loaded(value, path, (), document.notes, lines=Places(document), raw=document.value)
