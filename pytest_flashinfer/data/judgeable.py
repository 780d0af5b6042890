"""Whether a definition says what is right: with some of its faults nobody could be judged by it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flashinfer.data.rules import CONTRACT_RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.faults import Fault, Loaded
    from pytest_flashinfer.data.model import Definition

_CONTRACT = ("axes", "inputs", "outputs", "constraints", "reference", "init", "check")


def why_unjudgeable(loaded: Loaded[Definition]) -> Fault | None:
    """Return a fault that leaves open what a definition demands, or `None`; its schema is not looked at.

    What a schema refuses has no value at all, or stops whoever makes inputs.
    """
    return next(_faults(loaded), None)


def _faults(loaded: Loaded[Definition]) -> Iterator[Fault]:
    if loaded.value is None:
        return
    for rule in CONTRACT_RULES:
        for where, message, kind in rule(loaded.value):
            if kind == "fault":
                yield loaded.fault(where, message)
    keys = {loaded.lines.show((key,)) for key in _CONTRACT}
    for fault in loaded.faults:  # such as a key that stands there twice, of which the last one was read
        steps = re.findall(r"[^.\[\]]+", fault.where)
        if steps and steps[0] in keys and steps[-1] != "description":
            yield fault
